//! RocksDB's files on a volume of blobfs.
//!
//! The translation is `cc/blobfs_fs.cc` and the files beside it, over the C interface of `millrace-blobfs-c`.

use std::ffi::{c_char, c_void};
use std::path::{Component, Path, PathBuf};

use millrace_blobfs::{OpenOptions, Volume};
use millrace_blobfs_c::VolumeHandle;
use millrace_engine::{Error, ErrorKind, Result};

/// The folder of a database, as RocksDB names it in an [`environment`].
pub(crate) const ROCKSDB_ROOT: &str = "/";

/// A new environment for RocksDB whose root is the folder `root` of `volume`.
///
/// # Errors
/// [`ErrorKind::InvalidArgument`] if the path is not UTF-8.
pub(crate) fn environment(volume: &Volume, root: &Path) -> Result<rocksdb::Env> {
    let root = text(root)?;
    let handle = VolumeHandle::into_raw(volume.clone()).cast();
    // SAFETY: the C++ side takes the handle over, which was made for it, and copies the text.
    let raw = unsafe { millrace_rocksdb_blobfs_env(handle, root.as_ptr().cast(), root.len()) };
    // SAFETY: the C++ side makes a new environment for each call and keeps no pointer to it, and its
    // declaration of `rocksdb_env_t` is that of RocksDB's c.cc.
    Ok(unsafe { rocksdb::Env::from_raw(raw) })
}

unsafe extern "C" {
    fn millrace_rocksdb_blobfs_env(
        volume: *mut c_void,
        root: *const c_char,
        root_length: usize,
    ) -> *mut librocksdb_sys::rocksdb_env_t;
}

/// The path of the folder `target` from the root of an [`environment`] at `folder`.
pub(crate) fn path_below(folder: &Path, target: &Path) -> PathBuf {
    let mut name = PathBuf::from(ROCKSDB_ROOT);
    name.extend(names(folder).map(|_| ".."));
    name.extend(names(target));
    name
}

/// Makes a folder and those above it, unless they are there.
pub(crate) fn create_folder(volume: &Volume, folder: &Path) -> Result<()> {
    let context = || format!("cannot create the data folder {}", folder.display());
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
pub(crate) fn exists(volume: &Volume, path: &Path) -> bool {
    text(path).is_ok_and(|path| volume.status(path).is_ok())
}

/// The contents of a small file, if there is one.
pub(crate) fn read(volume: &Volume, path: &Path) -> Result<Option<Vec<u8>>> {
    match read_whole(volume, text(path)?) {
        Ok(contents) => Ok(Some(contents)),
        Err(error) if error.kind() == millrace_blobfs::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(volume_error(
            format!("cannot read {}", path.display()),
            error,
        )),
    }
}

fn read_whole(volume: &Volume, path: &str) -> millrace_blobfs::Result<Vec<u8>> {
    let file = volume.open(path, &OpenOptions::default())?;
    // The engine's own files are lines; a size that no address space has would be damage.
    let mut contents = vec![0; usize::try_from(file.size()).unwrap_or(usize::MAX)];
    let length = file.read_at(0, &mut contents)?;
    contents.truncate(length);
    Ok(contents)
}

/// Writes a small file at `partial` and renames it to `path`, durably.
pub(crate) fn write(volume: &Volume, partial: &Path, path: &Path, contents: &[u8]) -> Result<()> {
    let context = || format!("cannot write {}", path.display());
    let (from, to) = (text(partial)?, text(path)?);
    let options = OpenOptions {
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let write = || {
        let file = volume.open(from, &options)?;
        file.append(contents)?;
        file.sync()?;
        volume.rename(from, to)?;
        volume.sync()
    };
    write().map_err(|error| volume_error(context(), error))
}

/// The names and sizes of the files in `folder`.
pub(crate) fn sizes(volume: &Volume, folder: &Path) -> Result<Vec<(String, u64)>> {
    let folder = text(folder)?;
    let list = || {
        let mut sizes = Vec::new();
        for entry in volume.read_dir(folder)? {
            let size = volume.status(&format!("{folder}/{}", entry.name))?.size;
            sizes.push((entry.name, size));
        }
        Ok(sizes)
    };
    list().map_err(|error| volume_error(format!("cannot list {folder}"), error))
}

/// Appends the counters of the volume.
pub(crate) fn collect(volume: &Volume, out: &mut Vec<(&'static str, u64)>) {
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

#[cfg(test)]
mod tests;
