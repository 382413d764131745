//! The folder of an engine and the version of its format.

use std::path::Path;

use millrace_engine::{Error, ErrorKind, Result};

use crate::files::Files;

const FORMAT_FILE: &str = "FORMAT";
const FORMAT_NAME: &str = "millrace-rocksdb";

/// The version this code writes, and the newest it reads.
const FORMAT_VERSION: u32 = 1;

/// Makes `folder` ready to be opened: creates it if need be, and checks or writes its format.
///
/// # Errors
/// [`ErrorKind::NewerFormat`] for a folder of a later version, [`ErrorKind::InvalidArgument`] for one
/// that holds the files of another database, [`ErrorKind::Corruption`] for a format file that is none.
pub(crate) fn prepare(files: &Files, folder: &Path) -> Result<()> {
    files.create_folder(folder)?;
    if let Some(contents) = files.read(&folder.join(FORMAT_FILE))? {
        return check_format(folder, &contents);
    }
    // The format is written before RocksDB creates its first file.
    if files.exists(&folder.join("CURRENT")) {
        let context = format!(
            "{} holds the files of another database: there is no {FORMAT_FILE} file",
            folder.display()
        );
        return Err(Error::new(ErrorKind::InvalidArgument, context));
    }
    write_format(files, folder)
}

/// Writes the format file of `folder` so that it is there as a whole or not at all.
pub(crate) fn write_format(files: &Files, folder: &Path) -> Result<()> {
    let line = format!("{FORMAT_NAME} {FORMAT_VERSION}\n");
    files.write(folder, FORMAT_FILE, line.as_bytes())
}

fn check_format(folder: &Path, contents: &[u8]) -> Result<()> {
    let version: u32 = std::str::from_utf8(contents)
        .ok()
        .and_then(|text| text.strip_prefix(FORMAT_NAME))
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

/// How many bytes of log the folder holds, all of which RocksDB reads when it opens the folder.
pub(crate) fn log_bytes(files: &Files, folder: &Path) -> Result<u64> {
    let sizes = files.sizes(folder)?;
    let logs = sizes.iter().filter(|(name, _)| name.ends_with(".log"));
    Ok(logs.map(|(_, bytes)| bytes).sum())
}
