//! The kind of a kernel's socket.

use std::ffi::c_int;

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::{fresh, hidden};

/// Whether it is a socket of TCP.
pub(crate) fn is_stream(fd: c_int) -> bool {
    family(fd).is_some()
        && sockopt::socket_type(hidden::borrow(fd)) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(hidden::borrow(fd)) == Ok(Some(rustix::net::ipproto::TCP))
}

/// Address family of an IPv4 or IPv6 socket: `AF_INET` or `AF_INET6`.
pub(crate) fn family(fd: c_int) -> Option<c_int> {
    if fd < 0 {
        return None;
    }
    if let Some(family) = fresh::family(fd) {
        return Some(family);
    }
    match sockopt::socket_domain(hidden::borrow(fd)).ok()? {
        AddressFamily::INET => Some(libc::AF_INET),
        AddressFamily::INET6 => Some(libc::AF_INET6),
        _ => None,
    }
}
