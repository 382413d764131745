//! `fdopen`: the C library's own streams read and write past the names that this library stands before, so that a
//! stream of a connection is one whose functions are given to it.
//!
//! `fileno` of such a stream is -1, and it cannot be reopened.

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, off64_t, size_t, ssize_t};

use super::bytes;
use super::descriptors::close;
use crate::connection::lookup;
use crate::real;

/// How a stream reads, writes, seeks and closes.
#[repr(C)]
struct Functions {
    read: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

unsafe extern "C" {
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

export! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if lookup(fd).is_none() {
            // SAFETY: as the caller keeps it.
            return unsafe { real::fdopen(fd, mode) }.cast();
        }
        let functions = Functions {
            read: Some(read_some),
            write: Some(write_all),
            seek: None,
            close: Some(close_it),
        };
        // SAFETY: as the caller keeps it; the functions take the number that is given along.
        unsafe { fopencookie(std::ptr::without_provenance_mut(number(fd)), mode, functions) }
    }
}

/// A number that is a connection's is not negative.
fn number(fd: c_int) -> usize {
    usize::try_from(fd).unwrap_or(usize::MAX)
}

fn descriptor(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C" fn read_some(cookie: *mut c_void, into: *mut c_char, size: size_t) -> ssize_t {
    // SAFETY: the C library gives room for so many.
    unsafe { bytes::read(descriptor(cookie), into.cast(), size) }
}

/// The C library takes less than all for an error.
unsafe extern "C" fn write_all(cookie: *mut c_void, from: *const c_char, size: size_t) -> ssize_t {
    let mut done = 0;
    while done < size {
        // SAFETY: the C library gives so many.
        let rest = unsafe { from.add(done) };
        // SAFETY: as above.
        let sent = unsafe { bytes::write(descriptor(cookie), rest.cast(), size - done) };
        match usize::try_from(sent) {
            Ok(sent) => done += sent,
            Err(_) => break,
        }
    }
    ssize_t::try_from(done).unwrap_or(0)
}

unsafe extern "C" fn close_it(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream has the descriptor.
    unsafe { close(descriptor(cookie)) }
}
