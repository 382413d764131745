//! The C library's error number.

use libc::c_int;

/// Result of an operation: a value, or an error number.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// An error number of `errno.h`, or the pseudo error of a cancelled sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

/// Error number of the calling thread.
pub(crate) fn get() -> c_int {
    // SAFETY: the C library gives the address of a number of this thread's own, at any time.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the word is this thread's own, and no reference to it is kept.
    unsafe { place.read() }
}

/// Sets the error number of the calling thread.
pub(crate) fn set(errno: c_int) {
    // SAFETY: the C library gives the address of a number of this thread's own, at any time.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the word is this thread's own, and no reference to it is kept.
    unsafe { place.write(errno) };
}

/// Result as C functions return it: the value, or -1 with `errno` set. A value leaves `errno` as it was.
#[inline]
pub(crate) fn to_c_result<T: From<i8>>(outcome: Outcome<T>) -> T {
    match outcome {
        Ok(value) => value,
        Err(Errno(errno)) => {
            set(errno);
            T::from(-1)
        }
    }
}
