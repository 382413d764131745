//! The functions for open files.

use std::ffi::c_char;
use std::slice;
use std::sync::Arc;

use millrace_blobfs::{File, OpenOptions, ReadAhead, ReadPart};

use crate::boundary::{
    Health, bytes, call, call_without_volume, explain, free, give, null, room, set, shared, text,
};
use crate::code::{CError, Code, Failure};
use crate::names::CStatus;
use crate::volume::VolumeHandle;

const CREATE: u32 = 1;
const CREATE_NEW: u32 = 2;
const TRUNCATE: u32 = 4;

/// C handle `millrace_blobfs_file`: an open file, usable by several threads at once.
#[derive(Debug)]
pub struct FileHandle {
    ahead: ReadAhead,
    pub(crate) health: Arc<Health>,
}

impl FileHandle {
    /// The file.
    pub(crate) const fn file(&self) -> &File {
        self.ahead.file()
    }

    /// Runs `body` on the file that `handle` is.
    ///
    /// # Safety
    /// `handle` is null or a handle that is not given back meanwhile; `error` is null or points to a structure of
    /// the caller's.
    pub(crate) unsafe fn call(
        handle: *const Self,
        error: *mut CError,
        body: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> i32 {
        // SAFETY: the caller promises that the handle is null or stays.
        match unsafe { shared(handle) } {
            // SAFETY: the caller promises that `error` is null or its own.
            Ok(this) => unsafe { call(&this.health, error, || body(this)) },
            // SAFETY: `error` is null or points to the structure that the caller owns, as this function requires.
            Err(failure) => unsafe { call_without_volume(error, || Err(failure)) },
        }
    }
}

/// Opens a file.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_file_open(
    volume: *const VolumeHandle,
    path: *const c_char,
    path_length: usize,
    flags: u32,
    file: *mut *mut FileHandle,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        // SAFETY: the caller passes a text that stays until this returns.
        let path = unsafe { text(path, path_length) }?;
        if flags & !(CREATE | CREATE_NEW | TRUNCATE) != 0 {
            let message = format!("{flags:#x} are no flags to open a file with");
            return Err(Failure::new(Code::Invalid, message));
        }
        let options = OpenOptions {
            create: flags & CREATE != 0,
            create_new: flags & CREATE_NEW != 0,
            truncate: flags & TRUNCATE != 0,
        };
        let handle = FileHandle {
            ahead: ReadAhead::new(this.volume.open(path, &options)?),
            health: Arc::clone(&this.health),
        };
        // SAFETY: the caller passes null or the place for the handle.
        unsafe { give(file, handle) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Gives a file back.
///
/// # Safety
/// `file` is null or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_file_close(file: *mut FileHandle) {
    // SAFETY: the caller gives up the handle.
    unsafe { free(file) }
}

/// Reads at a place.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_at(
    file: *const FileHandle,
    offset: u64,
    out: *mut c_char,
    length: usize,
    read: *mut usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        // SAFETY: the caller passes room that is its own until this returns.
        let out = unsafe { room(out, length) }?;
        let count = this.ahead.read_at(offset, out)?;
        // SAFETY: the caller passes null or its number.
        unsafe { set(read, count) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}

/// Begins to read ahead.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_ahead(
    file: *const FileHandle,
    offset: u64,
    length: usize,
    begun: *mut u32,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        let is_begun = u32::from(this.ahead.begin(offset, length as u64)?);
        // SAFETY: the caller passes null or its number.
        unsafe { set(begun, is_begun) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}

/// C structure `millrace_blobfs_part`: one range of `millrace_blobfs_read_many`, with its result.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CPart {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Destination buffer of `length` bytes; null only if `length` is 0.
    pub out: *mut c_char,
    /// Length of the range, in bytes.
    pub length: usize,
    /// Output: bytes read, less than `length` only at the end of the file; 0 after a failure.
    pub read: usize,
    /// Output: result of this range, one of [`Code`]; 0 is success.
    pub code: i32,
}

/// Reads several parts at once.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_read_many(
    file: *const FileHandle,
    parts: *mut CPart,
    count: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        if count == 0 {
            return Ok(());
        }
        if parts.is_null() {
            return Err(null());
        }
        // SAFETY: it is not null, and the caller passes so many parts, which are its own.
        let parts = unsafe { slice::from_raw_parts_mut(parts, count) };
        let first_failure = read_many(this, parts)?;
        if let Some(failure) = first_failure {
            // SAFETY: the caller passes null or its structure.
            unsafe { explain(error, &failure) };
        }
        Ok(())
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}

/// Reads all parts and fills in what became of them; the failure of the first that failed.
fn read_many(this: &FileHandle, parts: &mut [CPart]) -> Result<Option<Failure>, Failure> {
    let mut reads = Vec::with_capacity(parts.len());
    for part in &*parts {
        reads.push(ReadPart {
            offset: part.offset,
            // SAFETY: the header says that each part has room of its own.
            out: unsafe { room(part.out, part.length) }?,
            result: Ok(0),
        });
    }
    this.file().read_many(&mut reads);
    let mut first_failure = None;
    for (part, read) in parts.iter_mut().zip(reads) {
        match read.result {
            Ok(count) => {
                part.read = count;
                part.code = Code::Ok as i32;
            }
            Err(error) => {
                let failure = Failure::from(error);
                part.read = 0;
                part.code = failure.code as i32;
                first_failure.get_or_insert(failure);
            }
        }
    }
    Ok(first_failure)
}

/// Adds to the end of a file.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_append(
    file: *const FileHandle,
    data: *const c_char,
    length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        // SAFETY: the caller passes data that stay until this returns.
        let data = unsafe { bytes(data, length) }?;
        Ok(this.file().append(data)?)
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}

/// Writes at a place.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_write_at(
    file: *const FileHandle,
    offset: u64,
    data: *const c_char,
    length: usize,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        // SAFETY: the caller passes data that stay until this returns.
        let data = unsafe { bytes(data, length) }?;
        Ok(this.file().write_at(offset, data)?)
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}

/// Changes the size of a file.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_truncate(
    file: *const FileHandle,
    size: u64,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, |this| Ok(this.file().truncate(size)?)) }
}

/// Reserves space.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_reserve(
    file: *const FileHandle,
    bytes: u64,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, |this| Ok(this.file().reserve(bytes)?)) }
}

/// Begins to write what is whole.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_write_behind(
    file: *const FileHandle,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, |this| Ok(this.file().write_behind()?)) }
}

/// Puts a file on the medium.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_file_sync(
    file: *const FileHandle,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, |this| Ok(this.file().sync()?)) }
}

/// The size of a file.
///
/// # Safety
/// `file` is null or a handle that stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_file_size(file: *const FileHandle) -> u64 {
    // SAFETY: the caller passes null or a handle that stays.
    unsafe { file.as_ref() }.map_or(0, |this| this.file().size())
}

/// What is known of an open file.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_file_status(
    file: *const FileHandle,
    status: *mut CStatus,
    error: *mut CError,
) -> i32 {
    let body = |this: &FileHandle| {
        let known = this.file().status()?;
        // SAFETY: the caller passes null or its structure.
        unsafe { set(status, known.into()) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { FileHandle::call(file, error, body) }
}
