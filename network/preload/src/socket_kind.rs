//! The kind of a kernel's socket.

use std::ffi::c_int;

use rustix::net::{AddressFamily, SocketType, sockopt};

use crate::{pristine_sockets, private_fds};

/// Whether the descriptor is a TCP socket.
pub(crate) fn is_stream(fd: c_int) -> bool {
    family(fd).is_some()
        && sockopt::socket_type(private_fds::borrow(fd)) == Ok(SocketType::STREAM)
        && sockopt::socket_protocol(private_fds::borrow(fd)) == Ok(Some(rustix::net::ipproto::TCP))
}

/// Address family of an IPv4 or IPv6 socket: `AF_INET` or `AF_INET6`.
pub(crate) fn family(fd: c_int) -> Option<c_int> {
    if fd < 0 {
        return None;
    }
    if let Some(family) = pristine_sockets::family(fd) {
        return Some(family);
    }
    match sockopt::socket_domain(private_fds::borrow(fd)).ok()? {
        AddressFamily::INET => Some(libc::AF_INET),
        AddressFamily::INET6 => Some(libc::AF_INET6),
        _ => None,
    }
}
