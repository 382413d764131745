//! A file system that forgets what was not synced: a power cut for tests.
//!
//! What was written but not synced stays in the memory of the process. When the process is killed, or
//! when the folder is opened again through a new instance, exactly the synced part is there. The model
//! is described in `cc/unsynced_loss_fs.cc`.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

/// A file system that forgets what was not synced. Clones are the same file system.
#[derive(Clone)]
pub struct UnsyncedLossFs {
    handle: Arc<Handle>,
}

/// What happens at the operation chosen by [`UnsyncedLossFs::fail_at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The operation fails and the next ones succeed. A sync that fails loses what it was to write.
    Once,
    /// The operation fails, and so do all later ones that would change something.
    PowerCut,
}

impl UnsyncedLossFs {
    /// A file system over the operating system's in which everything is as synced.
    #[must_use]
    pub fn new() -> Self {
        // SAFETY: the function has no preconditions.
        let raw = unsafe { ffi::millrace_unsynced_loss_create() };
        let raw = NonNull::new(raw).expect("operator new does not return null");
        Self {
            handle: Arc::new(Handle(raw)),
        }
    }

    /// How many operations that change something (append, sync, create, rename, delete ...) there were.
    #[must_use]
    pub fn operations(&self) -> u64 {
        // SAFETY: the handle is alive, and the C++ side guards the counter by a mutex.
        unsafe { ffi::millrace_unsynced_loss_operations(self.handle.0.as_ptr()) }
    }

    /// Lets the operation with this number, counted from zero, fail.
    pub fn fail_at(&self, operation: u64, fault: Fault) {
        let cut = fault == Fault::PowerCut;
        // SAFETY: the handle is alive, and the C++ side guards the fault by a mutex.
        unsafe { ffi::millrace_unsynced_loss_fail_at(self.handle.0.as_ptr(), operation, cut) }
    }

    /// A new environment for RocksDB with this file system.
    pub(crate) fn environment(&self) -> rocksdb::Env {
        // SAFETY: the handle is alive; the environment shares the ownership of what it uses of it.
        let raw = unsafe { ffi::millrace_unsynced_loss_env(self.handle.0.as_ptr()) };
        // SAFETY: the C++ side makes a new environment for each call and keeps no pointer to it, and its
        // declaration of `rocksdb_env_t` is that of RocksDB's c.cc.
        unsafe { rocksdb::Env::from_raw(raw) }
    }
}

impl Default for UnsyncedLossFs {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for UnsyncedLossFs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnsyncedLossFs")
            .field("operations", &self.operations())
            .finish()
    }
}

/// One share in the C++ file system; environments made of it hold their own.
struct Handle(NonNull<ffi::millrace_unsynced_loss_t>);

// SAFETY: the handle is a shared_ptr on the heap, which belongs to no thread.
unsafe impl Send for Handle {}
// SAFETY: what can be done through a shared handle is copying the shared_ptr, whose count is atomic, and
// calling functions that the C++ side guards by a mutex.
unsafe impl Sync for Handle {}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: this is the only owner of the handle, made by millrace_unsynced_loss_create.
        unsafe { ffi::millrace_unsynced_loss_destroy(self.0.as_ptr()) }
    }
}

mod ffi {
    /// The C++ side's handle, never looked into.
    #[repr(C)]
    pub(super) struct millrace_unsynced_loss_t {
        opaque: [u8; 0],
    }

    unsafe extern "C" {
        pub(super) fn millrace_unsynced_loss_create() -> *mut millrace_unsynced_loss_t;
        pub(super) fn millrace_unsynced_loss_destroy(unsynced_loss: *mut millrace_unsynced_loss_t);
        pub(super) fn millrace_unsynced_loss_env(
            unsynced_loss: *const millrace_unsynced_loss_t,
        ) -> *mut librocksdb_sys::rocksdb_env_t;
        pub(super) fn millrace_unsynced_loss_operations(
            unsynced_loss: *const millrace_unsynced_loss_t,
        ) -> u64;
        pub(super) fn millrace_unsynced_loss_fail_at(
            unsynced_loss: *const millrace_unsynced_loss_t,
            operation: u64,
            cut_power: bool,
        );
    }
}
