//! Where engines can be: in folders of the operating system, and on volumes.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use millrace_block::{Device, FileDevice, FileOptions, MemoryDevice};
use millrace_rocksdb::FileSystem;
use tempfile::TempDir;

use crate::volumes;

const VOLUME_BYTES: u64 = 256 << 20;

fn volume_on(device: Arc<dyn Device>) -> FileSystem {
    volumes::format(&device);
    FileSystem::Blobfs(volumes::mount(device).expect("the volume was just made"))
}

/// Where engines can be.
pub(crate) struct Place {
    // Given up before the file it may be in.
    file_system: FileSystem,
    home: TempDir,
}

impl Place {
    /// Folders of the operating system.
    pub(crate) fn folders(file_system: FileSystem) -> Self {
        Self {
            home: tempfile::tempdir().expect("a temporary folder"),
            file_system,
        }
    }

    /// Folders of a volume in memory.
    pub(crate) fn memory() -> Self {
        let device = MemoryDevice::new(VOLUME_BYTES, 512).expect("legal sizes");
        Self::folders(volume_on(Arc::new(device)))
    }

    /// Folders of a volume in a file.
    pub(crate) fn file() -> Self {
        let mut place = Self::folders(FileSystem::Default);
        let path = place.home.path().join("disk.img");
        FileDevice::create(&path, VOLUME_BYTES).expect("the folder is ours");
        let device = FileDevice::open(&path, FileOptions::default()).expect("the file is ours");
        place.file_system = volume_on(Arc::new(device));
        place
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
