//! Waking the peer of a connection.

use std::ffi::c_int;

use rustix::net::SendFlags;

use crate::entry::Entry;
use crate::{hidden, slab};

/// Wakes the peer.
#[cold]
pub(crate) fn ring(entry: &Entry) {
    let bell = entry.bell();
    if bell >= 0 {
        ring_at(bell);
    }
}

/// Wakes who has the other end of a bell.
pub(crate) fn ring_at(bell: c_int) {
    // If it is full then rings are pending; if the peer is gone then nobody sleeps.
    let _sent = rustix::net::send(
        hidden::borrow(bell),
        &[],
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    );
    slab::count(millrace_stream::slab::header::counter::BELLS);
}
