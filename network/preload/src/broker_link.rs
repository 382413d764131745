//! The state of the connection to the broker, without the requests that go over it.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use rustix::net::RecvFlags;

use crate::private_fds;

/// Private descriptor of the connection to the broker; -1 without one.
pub(crate) static SOCKET: AtomicI32 = AtomicI32::new(-1);
/// Number of brokers that this process was connected to and found exited.
pub(crate) static EXITS: AtomicU32 = AtomicU32::new(0);

/// Whether the broker of this process has exited. False without a connection to one.
pub(crate) fn has_exited() -> bool {
    let socket = SOCKET.load(Ordering::Relaxed);
    socket >= 0 && is_dead(socket)
}

/// Whether a connection to a broker, or a channel of one, is at its end.
pub(crate) fn is_dead(socket: RawFd) -> bool {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    matches!(
        rustix::net::recv(private_fds::borrow(socket), &mut [0; 1], flags),
        Ok((0, _)) | Err(rustix::io::Errno::CONNRESET)
    )
}

/// Number of brokers that this process was connected to and found exited.
pub(crate) fn broker_exits() -> u32 {
    EXITS.load(Ordering::Relaxed)
}
