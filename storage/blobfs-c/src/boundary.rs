//! Boundary of the C interface: conversion of pointers to references, and of failures and panics to codes.
//!
//! The functions that take pointers are the only ones in this crate that trust the caller, and what they trust is
//! written in the header: a pointer that is not null points to what its type says for as long as the call lasts
//! (a handle: until it is given back), and no other thread changes it meanwhile.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::code::{CError, Code, Failure};

/// Whether the library has panicked in a call for a volume. All handles of the volume share one.
#[derive(Debug, Default)]
pub(crate) struct Health {
    /// Set once. A panic leaves no data behind that only this guards, so its order against other memory does not
    /// matter: `Relaxed`.
    panicked: AtomicBool,
}

impl Health {
    fn check(&self) -> Result<(), Failure> {
        if self.panicked.load(Ordering::Relaxed) {
            let message = "the file system failed in an earlier call and can only be closed";
            return Err(Failure::new(Code::Poisoned, message));
        }
        Ok(())
    }
}

/// Runs the body of a function that has a volume. After a panic the volume refuses everything.
///
/// # Safety
/// `error` is null or points to a structure of the caller's.
pub(crate) unsafe fn call(
    health: &Health,
    error: *mut CError,
    body: impl FnOnce() -> Result<(), Failure>,
) -> i32 {
    let checked = || {
        health.check()?;
        body()
    };
    // SAFETY: the caller guarantees that `error` is null or points to its structure, as this function requires.
    let code = unsafe { call_without_volume(error, checked) };
    if code == Code::Panic as i32 {
        health.panicked.store(true, Ordering::Relaxed);
    }
    code
}

/// Runs the body of a function that has no volume yet, or only null for one.
///
/// # Safety
/// As for [`call`].
pub(crate) unsafe fn call_without_volume(
    error: *mut CError,
    body: impl FnOnce() -> Result<(), Failure>,
) -> i32 {
    // What a panic may have left half done is not used again: the caller of this sees to that.
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return Code::Ok as i32,
        Ok(Err(failure)) => failure,
        Err(_) => Failure::new(
            Code::Panic,
            "the file system failed (a message is on the standard error)",
        ),
    };
    // SAFETY: the caller passes null or a structure of its own.
    unsafe { explain(error, &failure) };
    failure.code as i32
}

/// Fills the caller's structure, if there is one.
///
/// # Safety
/// `error` is null or points to a structure of the caller's.
pub(crate) unsafe fn explain(error: *mut CError, failure: &Failure) {
    if !error.is_null() {
        // SAFETY: it is not null, so it points to a structure of the caller's, whose bytes need no dropping.
        unsafe { error.write(CError::new(failure)) };
    }
}

/// Drops what a handle owns; a panic ends here.
///
/// # Safety
/// `handle` is null or was made by [`give`], and is not used again.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if handle.is_null() {
        return;
    }
    // SAFETY: `give` made it from a box, and the caller does not use the handle again.
    let owned = unsafe { Box::from_raw(handle) };
    // The call has no way to return an error; the panic's message is on the standard error.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(owned)));
}

/// Hands a new handle to the caller.
///
/// # Safety
/// `out` is null or points to a pointer of the caller's.
pub(crate) unsafe fn give<T>(out: *mut *mut T, make: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(null());
    }
    // SAFETY: it is not null, so it points to a pointer of the caller's.
    unsafe { out.write(Box::into_raw(Box::new(make))) };
    Ok(())
}

/// Hands a value to the caller.
///
/// # Safety
/// `out` is null or points to a value of the caller's.
pub(crate) unsafe fn set<T: Copy>(out: *mut T, value: T) -> Result<(), Failure> {
    if out.is_null() {
        return Err(null());
    }
    // SAFETY: it is not null, so it points to a value of the caller's.
    unsafe { out.write(value) };
    Ok(())
}

/// A handle, or a structure of the caller's, to look into.
///
/// # Safety
/// `pointer` is null or points to a `T` that is there, and is not changed, while `'a` lasts.
pub(crate) unsafe fn shared<'a, T>(pointer: *const T) -> Result<&'a T, Failure> {
    // SAFETY: the pointer is null or points to a `T` that does not change during `'a`, as the caller guarantees.
    unsafe { pointer.as_ref() }.ok_or_else(null)
}

/// A handle that belongs to one thread at a time.
///
/// # Safety
/// `pointer` is null or points to a `T` that only the caller uses during `'a`.
pub(crate) unsafe fn exclusive<'a, T>(pointer: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: the pointer is null or points to a `T` that only this call uses during `'a`, as the caller guarantees.
    unsafe { pointer.as_mut() }.ok_or_else(null)
}

/// Bytes of the caller's to be read.
///
/// # Safety
/// `data` is null or points to `length` bytes that are there, and are not changed, while `'a` lasts.
pub(crate) unsafe fn bytes<'a>(data: *const c_char, length: usize) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() || isize::try_from(length).is_err() {
        return Err(null());
    }
    // SAFETY: it is not null, the length is one that memory can have, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts(data.cast(), length) })
}

/// Bytes of the caller's to be filled.
///
/// # Safety
/// `data` is null or points to `length` bytes that only the caller uses during `'a`. They may be uninitialised;
/// nothing reads them before they are written.
pub(crate) unsafe fn room<'a>(data: *mut c_char, length: usize) -> Result<&'a mut [u8], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    if data.is_null() || isize::try_from(length).is_err() {
        return Err(null());
    }
    // SAFETY: it is not null, the length is one that memory can have, and the caller promises the rest.
    Ok(unsafe { slice::from_raw_parts_mut(data.cast(), length) })
}

/// A path, or another text, of the caller's.
///
/// # Safety
/// As for [`bytes`].
pub(crate) unsafe fn text<'a>(data: *const c_char, length: usize) -> Result<&'a str, Failure> {
    // SAFETY: the caller guarantees that `data` is null or points to `length` unchanging bytes, as this function
    // requires.
    let bytes = unsafe { bytes(data, length) }?;
    std::str::from_utf8(bytes).map_err(|_| {
        let text = String::from_utf8_lossy(bytes);
        Failure::new(Code::InvalidPath, format!("{text:?} is not UTF-8"))
    })
}

pub(crate) fn null() -> Failure {
    Failure::new(Code::Invalid, "null pointer or invalid length")
}
