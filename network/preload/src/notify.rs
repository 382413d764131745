//! Waking the peer of a connection.

use std::ffi::c_int;

use rustix::net::SendFlags;

use crate::entry::Entry;
use crate::{private_fds, slab};

/// Wakes the peer.
#[cold]
pub(crate) fn notify_peer(entry: &Entry) {
    let wakeup_fd = entry.wakeup_fd();
    if wakeup_fd >= 0 {
        notify_fd(wakeup_fd);
    }
}

/// Wakes who has the other end of a bell.
pub(crate) fn notify_fd(wakeup_fd: c_int) {
    // If it is full then rings are pending; if the peer is gone then nobody sleeps.
    let _sent = rustix::net::send(
        private_fds::borrow(wakeup_fd),
        &[],
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    );
    slab::count(millrace_stream::slab::header::counter::BELLS);
}
