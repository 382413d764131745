//! Where an engine's files are: the operating system's, or a volume's.
//!
//! RocksDB reaches its files through an environment. This is for the few that are the engine's own, and for what
//! it has to know of RocksDB's.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use millrace_blobfs::{OpenOptions, Volume};
use millrace_engine::{Error, ErrorKind, Result};

use crate::{FileSystem, UnsyncedLossFs, blobfs};

/// The files of an engine. Folders are named by their full paths.
#[derive(Clone, Debug)]
pub(crate) enum Files {
    /// The operating system's.
    System,
    /// The operating system's; RocksDB's own go through one that forgets.
    UnsyncedLoss(UnsyncedLossFs),
    /// A volume's.
    Blobfs(Volume),
}

impl Files {
    pub(crate) fn new(file_system: &FileSystem) -> Self {
        match file_system {
            FileSystem::Default => Self::System,
            FileSystem::UnsyncedLoss(unsynced_loss) => Self::UnsyncedLoss(unsynced_loss.clone()),
            FileSystem::Blobfs(volume) => Self::Blobfs(volume.clone()),
        }
    }

    /// The environment of a database in `folder`, unless RocksDB's own is right.
    pub(crate) fn environment(&self, folder: &Path) -> Result<Option<rocksdb::Env>> {
        Ok(match self {
            Self::System => None,
            Self::UnsyncedLoss(unsynced_loss) => Some(unsynced_loss.environment()),
            Self::Blobfs(volume) => Some(blobfs::environment(volume, text(folder)?)),
        })
    }

    /// What RocksDB is to call the folder of a database.
    ///
    /// The wrapper of RocksDB makes a folder of that name in the operating system before RocksDB sees it. An
    /// environment on a volume therefore has the database's folder for its root: that name there is always.
    pub(crate) fn rocksdb_name<'a>(&self, folder: &'a Path) -> &'a Path {
        match self {
            Self::System | Self::UnsyncedLoss(_) => folder,
            Self::Blobfs(_) => Path::new("/"),
        }
    }

    /// The path of the folder `target` as RocksDB must be given it by the database in `folder`.
    pub(crate) fn rocksdb_name_of(&self, folder: &Path, target: &Path) -> PathBuf {
        match self {
            Self::System | Self::UnsyncedLoss(_) => target.to_path_buf(),
            Self::Blobfs(_) => {
                let mut name = PathBuf::from("/");
                name.extend(names(folder).map(|_| ".."));
                name.extend(names(target));
                name
            }
        }
    }

    /// Makes a folder and those above it, unless they are there.
    pub(crate) fn create_folder(&self, folder: &Path) -> Result<()> {
        let context = || format!("cannot create the data folder {}", folder.display());
        let Self::Blobfs(volume) = self else {
            return fs::create_dir_all(folder).map_err(|error| io_error(context(), error));
        };
        let mut path = PathBuf::from("/");
        for name in names(folder) {
            path.push(name);
            match volume.create_dir(text(&path)?) {
                Err(error) if error.kind() == millrace_blobfs::ErrorKind::Exists => {}
                made => made.map_err(|error| volume_error(context(), error))?,
            }
        }
        Ok(())
    }

    /// Whether there is a file or folder of this name.
    pub(crate) fn exists(&self, path: &Path) -> bool {
        match self {
            Self::System | Self::UnsyncedLoss(_) => path.exists(),
            Self::Blobfs(volume) => text(path).is_ok_and(|path| volume.status(path).is_ok()),
        }
    }

    /// The contents of a small file, if there is one.
    pub(crate) fn read(&self, path: &Path) -> Result<Option<Vec<u8>>> {
        let context = || format!("cannot read {}", path.display());
        let Self::Blobfs(volume) = self else {
            return match fs::read(path) {
                Ok(contents) => Ok(Some(contents)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                Err(error) => Err(io_error(context(), error)),
            };
        };
        match read_of_volume(volume, text(path)?) {
            Ok(contents) => Ok(Some(contents)),
            Err(error) if error.kind() == millrace_blobfs::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(volume_error(context(), error)),
        }
    }

    /// Writes a small file so that it is there as a whole or not at all, and for good.
    pub(crate) fn write(&self, folder: &Path, name: &str, contents: &[u8]) -> Result<()> {
        let path = folder.join(name);
        let partial = folder.join(format!("{name}.partial"));
        let context = || format!("cannot write {}", path.display());
        let Self::Blobfs(volume) = self else {
            let write = || {
                let mut file = File::create(&partial)?;
                file.write_all(contents)?;
                file.sync_all()?;
                fs::rename(&partial, &path)?;
                File::open(folder)?.sync_all()
            };
            return write().map_err(|error| io_error(context(), error));
        };
        let (partial, path) = (text(&partial)?, text(&path)?);
        let options = OpenOptions {
            create: true,
            truncate: true,
            ..OpenOptions::default()
        };
        let write = || {
            let file = volume.open(partial, &options)?;
            file.append(contents)?;
            file.sync()?;
            volume.rename(partial, path)?;
            volume.sync()
        };
        write().map_err(|error| volume_error(context(), error))
    }

    /// The names and sizes of the files in `folder`.
    pub(crate) fn sizes(&self, folder: &Path) -> Result<Vec<(String, u64)>> {
        let context = || format!("cannot list {}", folder.display());
        match self {
            Self::System | Self::UnsyncedLoss(_) => {
                sizes_of_system(folder).map_err(|error| io_error(context(), error))
            }
            Self::Blobfs(volume) => sizes_of_volume(volume, text(folder)?)
                .map_err(|error| volume_error(context(), error)),
        }
    }

    /// Appends what the volume counts, if there is one.
    pub(crate) fn collect(&self, out: &mut Vec<(&'static str, u64)>) {
        let Self::Blobfs(volume) = self else {
            return;
        };
        let (space, counters) = (volume.space(), volume.counters());
        out.extend([
            ("blobfs_total_bytes", space.total_bytes),
            ("blobfs_free_bytes", space.free_bytes),
            ("blobfs_metadata_bytes", space.metadata_bytes),
            ("blobfs_files", space.files),
            ("blobfs_reads_total", counters.reads),
            ("blobfs_read_bytes_total", counters.read_bytes),
            ("blobfs_writes_total", counters.writes),
            ("blobfs_write_bytes_total", counters.write_bytes),
            ("blobfs_syncs_total", counters.syncs),
            ("blobfs_transactions_total", counters.transactions),
            ("blobfs_journal_bytes_total", counters.journal_bytes),
            ("blobfs_flushes_total", counters.flushes),
            ("blobfs_checkpoints_total", counters.checkpoints),
            ("blobfs_checkpoint_bytes_total", counters.checkpoint_bytes),
            ("blobfs_discarded_units_total", counters.discarded_units),
        ]);
    }
}

/// The names in a path below the root.
fn names(path: &Path) -> impl Iterator<Item = Component<'_>> {
    path.components()
        .filter(|component| matches!(component, Component::Normal(_)))
}

/// A path as a volume takes it.
fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| {
        let context = format!("the path {} is not UTF-8", path.display());
        Error::new(ErrorKind::InvalidArgument, context)
    })
}

fn read_of_volume(volume: &Volume, path: &str) -> millrace_blobfs::Result<Vec<u8>> {
    let file = volume.open(path, &OpenOptions::default())?;
    // The engine's own files are lines; a size that no address space has would be damage.
    let mut contents = vec![0; usize::try_from(file.size()).unwrap_or(usize::MAX)];
    let length = file.read_at(0, &mut contents)?;
    contents.truncate(length);
    Ok(contents)
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

fn sizes_of_volume(volume: &Volume, folder: &str) -> millrace_blobfs::Result<Vec<(String, u64)>> {
    let mut sizes = Vec::new();
    for entry in volume.read_dir(folder)? {
        let size = volume.status(&format!("{folder}/{}", entry.name))?.size;
        sizes.push((entry.name, size));
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

fn volume_error(context: String, error: millrace_blobfs::Error) -> Error {
    use millrace_blobfs::ErrorKind as Kind;
    let kind = match error.kind() {
        Kind::NoSpace => ErrorKind::NoSpace,
        Kind::InUse => ErrorKind::Locked,
        Kind::Corruption => ErrorKind::Corruption,
        Kind::Poisoned => ErrorKind::Poisoned,
        Kind::InvalidPath | Kind::Invalid => ErrorKind::InvalidArgument,
        _ => ErrorKind::Io,
    };
    Error::new(kind, context).with_source(error)
}
