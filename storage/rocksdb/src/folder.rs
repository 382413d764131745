//! The folder of an engine and the version of its format.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use millrace_engine::{Error, ErrorKind, Result};

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_NAME: &str = "millrace-rocksdb";

/// The version this code writes, and the newest it reads.
const FORMAT_VERSION: u32 = 1;

/// Makes `folder` ready to be opened: creates it if need be, and checks or writes its format.
///
/// # Errors
/// [`ErrorKind::NewerFormat`] for a folder of a later version, [`ErrorKind::InvalidArgument`] for one
/// that holds the files of another database, [`ErrorKind::Corruption`] for a format file that is none.
pub(crate) fn prepare(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).map_err(|error| {
        io_error(
            format!("cannot create the data folder {}", folder.display()),
            error,
        )
    })?;
    let path = folder.join(FORMAT_FILE);
    match fs::read_to_string(&path) {
        Ok(text) => check_format(folder, &text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The format is written before RocksDB creates its first file.
            if folder.join("CURRENT").exists() {
                let context = format!(
                    "{} holds the files of another database: there is no {FORMAT_FILE} file",
                    folder.display()
                );
                return Err(Error::new(ErrorKind::InvalidArgument, context));
            }
            write_format(folder)
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(no_format(folder)),
        Err(error) => Err(io_error(format!("cannot read {}", path.display()), error)),
    }
}

/// Writes the format file of `folder` so that it is there as a whole or not at all.
pub(crate) fn write_format(folder: &Path) -> Result<()> {
    let write = || {
        let partial = folder.join("FORMAT.partial");
        let mut file = File::create(&partial)?;
        writeln!(file, "{FORMAT_NAME} {FORMAT_VERSION}")?;
        file.sync_all()?;
        fs::rename(&partial, folder.join(FORMAT_FILE))?;
        File::open(folder)?.sync_all()
    };
    write().map_err(|error| {
        io_error(
            format!(
                "cannot write the {FORMAT_FILE} file of {}",
                folder.display()
            ),
            error,
        )
    })
}

fn check_format(folder: &Path, text: &str) -> Result<()> {
    let version: u32 = text
        .strip_prefix(FORMAT_NAME)
        .and_then(|rest| rest.trim().parse().ok())
        .ok_or_else(|| no_format(folder))?;
    if version > FORMAT_VERSION {
        let context = format!(
            "{} has format {version}, and this version of Millrace reads formats up to \
             {FORMAT_VERSION}: use the version that wrote it, or a later one",
            folder.display()
        );
        return Err(Error::new(ErrorKind::NewerFormat, context));
    }
    Ok(())
}

fn no_format(folder: &Path) -> Error {
    let context = format!(
        "the {FORMAT_FILE} file of {} does not name a format",
        folder.display()
    );
    Error::new(ErrorKind::Corruption, context)
}

fn io_error(context: String, error: io::Error) -> Error {
    // ENOSPC has no stable io::ErrorKind in the oldest compiler served.
    const ENOSPC: i32 = 28;
    let no_space = error.raw_os_error() == Some(ENOSPC);
    let kind = if no_space {
        ErrorKind::NoSpace
    } else {
        ErrorKind::Io
    };
    Error::new(kind, context).with_source(error)
}

/// How many bytes of log the folder holds, all of which RocksDB reads when it opens the folder.
pub(crate) fn log_bytes(folder: &Path) -> Result<u64> {
    let context = || format!("cannot list {}", folder.display());
    let mut bytes = 0;
    for entry in fs::read_dir(folder).map_err(|error| io_error(context(), error))? {
        let entry = entry.map_err(|error| io_error(context(), error))?;
        if entry
            .path()
            .extension()
            .is_some_and(|extension| extension == "log")
        {
            bytes += entry
                .metadata()
                .map_err(|error| io_error(context(), error))?
                .len();
        }
    }
    Ok(bytes)
}
