//! `getsockopt`, `setsockopt`, and names of both ends.

use std::ffi::{c_int, c_void};

use libc::{sockaddr, socklen_t};

use crate::connection;
use crate::entry::FDS;
use crate::errno::{Errno, to_c_result};
use crate::{names, pristine_sockets, real, settings};

export! {
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, size: *mut socklen_t) -> c_int {
        match connection::lookup(fd) {
            None => real::getsockopt(fd, level, name, value, size),
            Some(entry) => to_c_result(entry.held(fd, || settings::get(entry, level, name, value, size))),
        }
    }

    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, size: socklen_t) -> c_int {
        match connection::lookup(fd) {
            None => changed(fd, real::setsockopt(fd, level, name, value, size)),
            Some(entry) => to_c_result(entry.held(fd, || settings::set(entry, level, name, value, size))),
        }
    }

    fn getsockname(fd: c_int, address: *mut sockaddr, size: *mut socklen_t) -> c_int {
        match connection::recorded(fd) {
            None => real::getsockname(fd, address, size),
            Some((_, record)) => to_c_result(names::write(&record.local(), address, size).map(|()| 0)),
        }
    }

    fn getpeername(fd: c_int, address: *mut sockaddr, size: *mut socklen_t) -> c_int {
        match connection::recorded(fd) {
            None => real::getpeername(fd, address, size),
            // As with TCP, a connection that is over has no peer.
            Some((entry, _)) if connection::is_over(fd, entry) => to_c_result(Err(Errno(libc::ENOTCONN))),
            Some((_, record)) => to_c_result(names::write(&record.peer(), address, size).map(|()| 0)),
        }
    }
}

/// Passes on the result of `setsockopt` on a kernel socket, and drops its cached options.
fn changed(fd: c_int, done: c_int) -> c_int {
    pristine_sockets::mark_modified(fd);
    if let Some(listener) = FDS.lookup(fd) {
        listener.listener.model.change();
    }
    done
}
