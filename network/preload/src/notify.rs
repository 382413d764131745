//! Waking the peer of a connection.

use std::ffi::c_int;

use rustix::net::SendFlags;

use crate::entry::Entry;
use crate::{private_fds, slab};

/// Notifies the peer of a connection by its wake-up fd.
#[cold]
pub(crate) fn notify_peer(entry: &Entry) {
    let wakeup_fd = entry.wakeup_fd();
    if wakeup_fd >= 0 {
        notify_fd(wakeup_fd);
    }
}

/// Notifies the process at the other end of a wake-up fd.
pub(crate) fn notify_fd(wakeup_fd: c_int) {
    // If the socket is full then wake-ups are pending; if the peer has hung up then no thread sleeps.
    let _sent = rustix::net::send(
        private_fds::borrow(wakeup_fd),
        &[],
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    );
    slab::count(millrace_stream::slab::header::counter::NOTIFICATIONS);
}
