//! RocksDB's files on a volume of blobfs.
//!
//! The translation is `cc/blobfs_fs.cc` and the files beside it, over the C interface of `millrace-blobfs-c`.

use std::ffi::{c_char, c_void};

use millrace_blobfs::Volume;
use millrace_blobfs_c::VolumeHandle;

/// A new environment for RocksDB whose root is the folder `root` of `volume`.
pub(crate) fn environment(volume: &Volume, root: &str) -> rocksdb::Env {
    let handle = VolumeHandle::into_raw(volume.clone()).cast();
    // SAFETY: the C++ side takes the handle over, which was made for it, and copies the text.
    let raw = unsafe { millrace_rocksdb_blobfs_env(handle, root.as_ptr().cast(), root.len()) };
    // SAFETY: the C++ side makes a new environment for each call and keeps no pointer to it, and its
    // declaration of `rocksdb_env_t` is that of RocksDB's c.cc.
    unsafe { rocksdb::Env::from_raw(raw) }
}

unsafe extern "C" {
    fn millrace_rocksdb_blobfs_env(
        volume: *mut c_void,
        root: *const c_char,
        root_length: usize,
    ) -> *mut librocksdb_sys::rocksdb_env_t;
}

#[cfg(test)]
mod tests;
