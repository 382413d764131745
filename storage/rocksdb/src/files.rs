//! Where an engine's files are: the operating system's, or a volume's.
//!
//! RocksDB reaches its files through an environment. This is for the few that are the engine's own, and for what
//! it has to know of RocksDB's.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[cfg(feature = "blobfs")]
use millrace_blobfs::Volume;
use millrace_engine::{Error, ErrorKind, Result};

#[cfg(feature = "blobfs")]
use crate::blobfs;
use crate::{FileSystem, UnsyncedLossFs};

/// The files of an engine. Folders are named by their full paths.
#[derive(Clone, Debug)]
pub(crate) enum Files {
    /// The operating system's.
    System,
    /// The operating system's; RocksDB's own go through one that forgets.
    UnsyncedLoss(UnsyncedLossFs),
    /// A volume's.
    #[cfg(feature = "blobfs")]
    Blobfs(Volume),
}

#[cfg_attr(
    not(feature = "blobfs"),
    expect(
        unused_variables,
        reason = "only the environment of a volume depends on the folder"
    )
)]
impl Files {
    pub(crate) fn new(file_system: &FileSystem) -> Self {
        match file_system {
            FileSystem::Default => Self::System,
            FileSystem::UnsyncedLoss(unsynced_loss) => Self::UnsyncedLoss(unsynced_loss.clone()),
            #[cfg(feature = "blobfs")]
            FileSystem::Blobfs(volume) => Self::Blobfs(volume.clone()),
        }
    }

    /// The environment of a database in `folder`, unless RocksDB's own is right.
    pub(crate) fn environment(&self, folder: &Path) -> Result<Option<rocksdb::Env>> {
        Ok(match self {
            Self::System => None,
            Self::UnsyncedLoss(unsynced_loss) => Some(unsynced_loss.environment()),
            #[cfg(feature = "blobfs")]
            Self::Blobfs(volume) => Some(blobfs::environment(volume, folder)?),
        })
    }

    /// What RocksDB is to call the folder of a database.
    ///
    /// The wrapper of RocksDB makes a folder of that name in the operating system before RocksDB sees it. An
    /// environment on a volume therefore has the database's folder for its root: that name there is always.
    pub(crate) fn rocksdb_name<'a>(&self, folder: &'a Path) -> &'a Path {
        match self {
            Self::System | Self::UnsyncedLoss(_) => folder,
            #[cfg(feature = "blobfs")]
            Self::Blobfs(_) => Path::new(blobfs::ROCKSDB_ROOT),
        }
    }

    /// The path of the folder `target` as RocksDB must be given it by the database in `folder`.
    pub(crate) fn rocksdb_name_of(&self, folder: &Path, target: &Path) -> PathBuf {
        match self {
            Self::System | Self::UnsyncedLoss(_) => target.to_path_buf(),
            #[cfg(feature = "blobfs")]
            Self::Blobfs(_) => blobfs::path_below(folder, target),
        }
    }

    /// Makes a folder and those above it, unless they are there.
    pub(crate) fn create_folder(&self, folder: &Path) -> Result<()> {
        match self {
            Self::System | Self::UnsyncedLoss(_) => {
                let context = format!("cannot create the data folder {}", folder.display());
                fs::create_dir_all(folder).map_err(|error| io_error(context, error))
            }
            #[cfg(feature = "blobfs")]
            Self::Blobfs(volume) => blobfs::create_folder(volume, folder),
        }
    }

    /// Whether there is a file or folder of this name.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        match self {
            Self::System | Self::UnsyncedLoss(_) => path.exists(),
            #[cfg(feature = "blobfs")]
            Self::Blobfs(volume) => blobfs::exists(volume, path),
        }
    }

    /// The contents of a small file, if there is one.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        match self {
            Self::System | Self::UnsyncedLoss(_) => match fs::read(path) {
                Ok(contents) => Ok(Some(contents)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(io_error(format!("cannot read {}", path.display()), error)),
            },
            #[cfg(feature = "blobfs")]
            Self::Blobfs(volume) => blobfs::read(volume, path),
        }
    }

    /// Writes a small file so that it is there as a whole or not at all, and for good.
    pub(crate) fn write(&self, folder: &Path, name: &str, contents: &[u8]) -> Result<()> {
        let path = folder.join(name);
        let partial = folder.join(format!("{name}.partial"));
        match self {
            Self::System | Self::UnsyncedLoss(_) => {
                let write = || {
                    let mut file = File::create(&partial)?;
                    file.write_all(contents)?;
                    file.sync_all()?;
                    fs::rename(&partial, &path)?;
                    File::open(folder)?.sync_all()
                };
                write().map_err(|error| io_error(format!("cannot write {}", path.display()), error))
            }
            #[cfg(feature = "blobfs")]
            Self::Blobfs(volume) => blobfs::write(volume, &partial, &path, contents),
        }
    }

    /// The names and sizes of the files in `folder`.
    pub(crate) fn sizes(&self, folder: &Path) -> Result<Vec<(String, u64)>> {
        match self {
            Self::System | Self::UnsyncedLoss(_) => sizes_of_system(folder)
                .map_err(|error| io_error(format!("cannot list {}", folder.display()), error)),
            #[cfg(feature = "blobfs")]
            Self::Blobfs(volume) => blobfs::sizes(volume, folder),
        }
    }

    /// Appends what the volume counts, if there is one.
    #[cfg(feature = "blobfs")]
    pub(crate) fn collect(&self, out: &mut Vec<(&'static str, u64)>) {
        if let Self::Blobfs(volume) = self {
            blobfs::collect(volume, out);
        }
    }
}

fn sizes_of_system(folder: &Path) -> io::Result<Vec<(String, u64)>> {
    let mut sizes = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        sizes.push((name, entry.metadata()?.len()));
    }
    Ok(sizes)
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
