//! Where engines can be: in folders of the operating system, and on volumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_blobfs::Volume;
use millrace_block::{Device, MemoryDevice};
use millrace_rocksdb::FileSystem;
use tempfile::TempDir;

use crate::volumes;

/// A new volume in memory.
pub(crate) fn memory_volume(bytes: u64) -> Volume {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(bytes, 512).expect("legal sizes"));
    volumes::format(&device);
    volumes::mount(device).expect("the volume was just made")
}

/// Where engines can be.
pub(crate) struct Place {
    home: TempDir,
    file_system: FileSystem,
}

impl Place {
    /// The folders of a file system, below a temporary one if they are the operating system's.
    pub(crate) fn new(file_system: FileSystem) -> Self {
        Self {
            home: tempfile::tempdir().expect("a temporary folder"),
            file_system,
        }
    }

    pub(crate) fn file_system(&self) -> FileSystem {
        self.file_system.clone()
    }

    /// The folder for all that a test makes. On a volume it is there when it has an engine in it.
    pub(crate) fn home(&self) -> PathBuf {
        match &self.file_system {
            FileSystem::Blobfs(_) => PathBuf::from("/databases"),
            _ => self.home.path().to_path_buf(),
        }
    }

    /// A folder of this name in it.
    pub(crate) fn folder(&self, name: impl AsRef<Path>) -> PathBuf {
        self.home().join(name)
    }

    /// The names in a folder.
    pub(crate) fn names(&self, folder: &Path) -> Vec<String> {
        match &self.file_system {
            FileSystem::Blobfs(volume) => {
                let path = folder.to_str().expect("our names are UTF-8");
                let entries = volume.read_dir(path).expect("the folder is there");
                entries.into_iter().map(|entry| entry.name).collect()
            }
            _ => {
                let entries = folder.read_dir().expect("the folder is there");
                let names = entries.map(|entry| entry.expect("it can be read").file_name());
                names
                    .map(|name| name.to_string_lossy().into_owned())
                    .collect()
            }
        }
    }

    pub(crate) fn exists(&self, path: &Path) -> bool {
        match &self.file_system {
            FileSystem::Blobfs(volume) => volume.status(path.to_str().expect("UTF-8")).is_ok(),
            _ => path.exists(),
        }
    }
}
