//! The functions of `millrace_sockets.h`: sending and receiving without copies.

use std::ffi::c_int;
use std::slice;

use libc::{iovec, size_t, ssize_t};

use super::bytes::counted;
use crate::connection::lookup;
use crate::errno::{Errno, Outcome};
use crate::pieces::{self, PIECES_MAX};
use crate::{in_place, private_fds};

/// Error of a descriptor that is no user-level connection: `EBADF` if it is closed, else `EOPNOTSUPP`.
#[cold]
fn foreign(fd: c_int) -> ssize_t {
    if fd < 0 || rustix::io::fcntl_getfd(private_fds::borrow(fd)).is_err() {
        return counted(Err(Errno(libc::EBADF)));
    }
    counted(Err(Errno(libc::EOPNOTSUPP)))
}

/// # Safety
/// `first` has `count` elements that nothing else accesses for the call, or [`pieces::check`] fails.
unsafe fn places<'a>(first: *mut iovec, count: c_int) -> Outcome<&'a mut [iovec]> {
    let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
    if count == 0 || count > PIECES_MAX {
        return Err(Errno(libc::EINVAL));
    }
    pieces::check(first, count * size_of::<iovec>())?;
    // SAFETY: there are `count` places, as this function asks for; `check` excluded null.
    Ok(unsafe { slice::from_raw_parts_mut(first, count) })
}

export! {
    safe fn millrace_is_user_level(fd: c_int) -> c_int {
        c_int::from(lookup(fd).is_some())
    }

    safe fn millrace_commit(fd: c_int, length: size_t) -> ssize_t {
        match lookup(fd) {
            None => foreign(fd),
            Some(entry) => counted(in_place::commit(fd, entry, length)),
        }
    }

    safe fn millrace_consume(fd: c_int, length: size_t) -> ssize_t {
        match lookup(fd) {
            None => foreign(fd),
            Some(entry) => counted(in_place::consume(fd, entry, length)),
        }
    }
}

export_points! {
    fn millrace_reserve(fd: c_int, first: *mut iovec, count: c_int, length: size_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => foreign(fd),
            Some(entry) => {
                let places = places(first, count);
                counted(places.and_then(|places| in_place::reserve(fd, entry, places, length, flags)))
            }
        }
    }

    fn millrace_borrow(fd: c_int, first: *mut iovec, count: c_int, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => foreign(fd),
            Some(entry) => {
                let places = places(first, count);
                counted(places.and_then(|places| in_place::borrow(fd, entry, places, flags)))
            }
        }
    }
}
