//! The functions for reads under way.

use std::ffi::c_char;
use std::sync::Arc;

use millrace_blobfs::PendingRead;

use crate::boundary::{Health, call, call_without_volume, exclusive, free, give, set};
use crate::code::{CError, Failure};
use crate::file::FileHandle;

/// C handle `millrace_blobfs_read`: a read in flight with its buffer, for one thread at a time.
#[derive(Debug)]
pub struct ReadHandle {
    read: PendingRead,
    health: Arc<Health>,
}

impl ReadHandle {
    /// Runs `body` on the read that `handle` is.
    ///
    /// # Safety
    /// `handle` is null or a handle that nobody else uses; `error` is null or points to a structure of the
    /// caller's.
    unsafe fn call(
        handle: *mut Self,
        error: *mut CError,
        body: impl FnOnce(&mut PendingRead) -> Result<(), Failure>,
    ) -> i32 {
        // SAFETY: the caller promises that the handle is null or its own.
        match unsafe { exclusive(handle) } {
            Ok(this) => {
                let health = Arc::clone(&this.health);
                // SAFETY: the caller promises that `error` is null or its own.
                unsafe { call(&health, error, || body(&mut this.read)) }
            }
            // SAFETY: `error` is null or points to the structure that the caller owns, as this function requires.
            Err(failure) => unsafe { call_without_volume(error, || Err(failure)) },
        }
    }
}

/// Begins to read.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_start(
    file: *const FileHandle,
    offset: u64,
    length: usize,
    read: *mut *mut ReadHandle,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        let handle = ReadHandle {
            read: this.file().start_read(offset, length)?,
            health: Arc::clone(&this.health),
        };
        // SAFETY: the caller passes null or the place for the handle.
        unsafe { give(read, handle) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}

/// Whether a read is done.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_poll(
    read: *mut ReadHandle,
    done: *mut u32,
    error: *mut CError,
) -> i32 {
    let body = |read: &mut PendingRead| {
        let is_done = u32::from(read.poll().is_some());
        // SAFETY: the caller passes null or its number.
        unsafe { set(done, is_done) }
    };
    // SAFETY: the caller passes a handle of its own, and null or its structure.
    unsafe { ReadHandle::call(read, error, body) }
}

/// Waits for a read.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_wait(
    read: *mut ReadHandle,
    data: *mut *const c_char,
    length: *mut usize,
    error: *mut CError,
) -> i32 {
    let body = |read: &mut PendingRead| {
        let bytes = read.wait()?;
        // SAFETY: the caller passes null or its pointer.
        unsafe { set(data, bytes.as_ptr().cast()) }?;
        // SAFETY: the caller passes null or its number.
        unsafe { set(length, bytes.len()) }
    };
    // SAFETY: the caller passes a handle of its own, and null or its structure.
    unsafe { ReadHandle::call(read, error, body) }
}

/// Gives a read back.
///
/// # Safety
/// `read` is null or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_free(read: *mut ReadHandle) {
    // SAFETY: the caller gives up the handle.
    unsafe { free(read) }
}
