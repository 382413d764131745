//! The C library's error number.

use libc::c_int;

/// What a call of ours ends with.
pub(crate) type Outcome<T> = Result<T, Errno>;

/// An error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Errno(pub(crate) c_int);

impl From<rustix::io::Errno> for Errno {
    fn from(errno: rustix::io::Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

/// The thread's error number.
pub(crate) fn get() -> c_int {
    // SAFETY: the C library gives the address of a number of this thread's own, at any time.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the word is this thread's own, and no reference to it is kept.
    unsafe { place.read() }
}

/// Sets the thread's error number.
pub(crate) fn set(errno: c_int) {
    // SAFETY: the C library gives the address of a number of this thread's own, at any time.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the word is this thread's own, and no reference to it is kept.
    unsafe { place.write(errno) };
}

/// A result as the C library tells it: -1 and the error number, or the value, and the number stays as it was.
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
