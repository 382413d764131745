//! The functions for names: files by their paths, directories, locks.

use std::ffi::c_char;
use std::sync::Arc;

use millrace_blobfs::{Entry, FileLock, Kind, Status, Timestamp};

use crate::boundary::{Health, call, free, give, set, shared, text};
use crate::boundary::{call_without_volume, null};
use crate::code::{CError, Failure};
use crate::volume::VolumeHandle;

const FILE: u32 = 0;
const DIRECTORY: u32 = 1;

const fn kind(kind: Kind) -> u32 {
    match kind {
        Kind::File => FILE,
        Kind::Directory => DIRECTORY,
    }
}

/// C structure `millrace_blobfs_status`: attributes of a file or directory.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CStatus {
    /// Names the file in its volume.
    pub id: u64,
    /// Size of a file in bytes; of a directory, the number of its entries.
    pub size: u64,
    /// Bytes of the device that it holds.
    pub allocated_bytes: u64,
    /// Time of the last modification, in milliseconds since 1970-01-01 00:00 UTC.
    pub modified_ms: u64,
    /// Number of links to the inode; 1 for a directory.
    pub links: u64,
    /// Kind of the inode: 0 is a file, 1 a directory.
    pub kind: u32,
}

impl From<Status> for CStatus {
    fn from(status: Status) -> Self {
        Self {
            id: status.id,
            size: status.size,
            allocated_bytes: status.allocated_bytes,
            modified_ms: status.modified.0,
            links: u64::from(status.links),
            kind: kind(status.kind),
        }
    }
}

/// What is known of a file or directory.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_get_status(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    status: *mut CStatus,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let path = unsafe { text(path, path_length) }?;
        let known = this.volume.status(path)?;
        // SAFETY: the caller passes null or its structure.
        unsafe { set(status, known.into()) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Sets when a file was modified.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_set_modified(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    modified_ms: u64,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let path = unsafe { text(path, path_length) }?;
        Ok(this.volume.set_modified(path, Timestamp(modified_ms))?)
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Runs `body` on a volume and one path.
///
/// # Safety
/// The pointers are what the header says.
unsafe fn with_path(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    error: *mut CError,
    body: impl FnOnce(&VolumeHandle, &str) -> millrace_blobfs::Result<()>,
) -> i32 {
    let with_text = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let path = unsafe { text(path, path_length) }?;
        Ok(body(this, path)?)
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, with_text) }
}

/// Gives a file or directory another name.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_rename(
    volume: *const VolumeHandle,
    from: *const c_char,
    from_length: usize,
    to: *const c_char,
    to_length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let from = unsafe { text(from, from_length) }?;
        // SAFETY: the caller guarantees that the pointer is null or points to this many unchanging bytes.
        let to = unsafe { text(to, to_length) }?;
        Ok(this.volume.rename(from, to)?)
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Gives a file a second name.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_link(
    volume: *const VolumeHandle,
    existing: *const c_char,
    existing_length: usize,
    added: *const c_char,
    added_length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let existing = unsafe { text(existing, existing_length) }?;
        // SAFETY: the caller guarantees that the pointer is null or points to this many unchanging bytes.
        let added = unsafe { text(added, added_length) }?;
        Ok(this.volume.link(existing, added)?)
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Takes a file's name away.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_remove(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle, path: &str| this.volume.remove(path);
    // SAFETY: the caller passes what the header asks for.
    unsafe { with_path(volume, path, path_length, error, body) }
}

/// Makes a directory.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_create_dir(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle, path: &str| this.volume.create_dir(path);
    // SAFETY: the caller passes what the header asks for.
    unsafe { with_path(volume, path, path_length, error, body) }
}

/// Removes an empty directory.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_remove_dir(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle, path: &str| this.volume.remove_dir(path);
    // SAFETY: the caller passes what the header asks for.
    unsafe { with_path(volume, path, path_length, error, body) }
}

/// C handle `millrace_blobfs_lock`: a held lock on a file, released by [`millrace_blobfs_unlock`].
#[derive(Debug)]
pub struct LockHandle {
    _lock: FileLock,
}

/// Locks a file.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_lock_file(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    lock: *mut *mut LockHandle,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let path = unsafe { text(path, path_length) }?;
        let held = LockHandle {
            _lock: this.volume.lock(path)?,
        };
        // SAFETY: the caller passes null or the place for the handle.
        unsafe { give(lock, held) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Gives a lock back.
///
/// # Safety
/// `lock` is null or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_unlock(lock: *mut LockHandle) {
    // SAFETY: the caller gives up the handle.
    unsafe { free(lock) }
}

/// C handle `millrace_blobfs_listing`: the entries of a directory at the time of [`millrace_blobfs_read_dir`].
#[derive(Debug)]
pub struct ListingHandle {
    entries: Vec<Entry>,
    health: Arc<Health>,
}

/// C structure `millrace_blobfs_entry`: one entry of a listing.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CEntry {
    /// The name, which is the listing's.
    pub name: *const c_char,
    /// Length of the name in bytes; the name has no zero byte at its end.
    pub name_length: usize,
    /// Inode number, the same as [`CStatus::id`].
    pub id: u64,
    /// Kind of the inode: 0 is a file, 1 a directory.
    pub kind: u32,
}

/// Lists a directory.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_dir(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    listing: *mut *mut ListingHandle,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let path = unsafe { text(path, path_length) }?;
        let handle = ListingHandle {
            entries: this.volume.read_dir(path)?,
            health: Arc::clone(&this.health),
        };
        // SAFETY: the caller passes null or the place for the handle.
        unsafe { give(listing, handle) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// How many entries a listing has.
///
/// # Safety
/// `listing` is null or a handle that stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_listing_length(listing: *const ListingHandle) -> usize {
    // SAFETY: the caller passes null or a handle that stays.
    unsafe { listing.as_ref() }.map_or(0, |this| this.entries.len())
}

/// One entry of a listing.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_listing_get(
    listing: *const ListingHandle,
    number: usize,
    entry: *mut CEntry,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes null or a handle that stays.
    let this = match unsafe { shared(listing) } {
        Ok(this) => this,
        // SAFETY: the caller passes null or its structure.
        Err(failure) => return unsafe { call_without_volume(error, || Err(failure)) },
    };
    let body = || -> Result<(), Failure> {
        let known = this.entries.get(number).ok_or_else(null)?;
        let value = CEntry {
            name: known.name.as_ptr().cast(),
            name_length: known.name.len(),
            id: known.id,
            kind: kind(known.kind),
        };
        // SAFETY: the caller passes null or its structure.
        unsafe { set(entry, value) }
    };
    // SAFETY: the caller passes null or its structure.
    unsafe { call(&this.health, error, body) }
}

/// Gives a listing back.
///
/// # Safety
/// `listing` is null or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_listing_free(listing: *mut ListingHandle) {
    // SAFETY: the caller gives up the handle.
    unsafe { free(listing) }
}
