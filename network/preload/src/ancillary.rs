//! Control messages of a packet: descriptors, and the credentials of its sender.

use std::ffi::c_int;
use std::os::fd::RawFd;

use millrace_stream::control::DESCRIPTORS_MAX;
use millrace_stream::sockets::ancillary::{Piece, Sender, receive_with, words};

use crate::errno::{self, Errno, Outcome};
use crate::{private_fds, real};

/// Descriptors that came with a packet; those that are not taken out are closed on drop.
#[derive(Debug, Default)]
pub(crate) struct Descriptors([Option<RawFd>; DESCRIPTORS_MAX]);

impl Descriptors {
    /// Takes the first descriptor out; `None` if no descriptor came.
    pub(crate) fn take(&mut self) -> Option<RawFd> {
        self.0[0].take()
    }

    /// Whether two descriptors came with the packet.
    pub(crate) fn is_both(&self) -> bool {
        self.0[1].is_some()
    }

    /// Both descriptors, or `None` if fewer came; a single one is closed.
    pub(crate) fn both(mut self) -> Option<[RawFd; 2]> {
        let [Some(first), Some(second)] = self.0 else {
            return None;
        };
        self.0 = [None; DESCRIPTORS_MAX];
        Some([first, second])
    }

    fn push(&mut self, fd: RawFd) {
        match self.0.iter_mut().find(|place| place.is_none()) {
            Some(place) => *place = Some(fd),
            None => private_fds::close_raw(fd),
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for fd in self.0.iter().flatten() {
            private_fds::close_raw(*fd);
        }
    }
}

const WORDS: usize = words(DESCRIPTORS_MAX);

/// Receives a packet: its size in bytes, its descriptors, and its sender. The kernel closes descriptors that do not
/// fit.
pub(crate) fn receive(
    socket: RawFd,
    bytes: &mut [u8],
    flags: c_int,
) -> Outcome<(usize, Descriptors, Option<Sender>)> {
    let recvmsg = |message: *mut libc::msghdr| {
        let before = errno::get();
        // SAFETY: `receive_with` passes a header whose buffers it borrows for the call.
        let count = unsafe { real::recvmsg(socket, message, flags) };
        usize::try_from(count).map_err(|_| {
            let failed = errno::get();
            errno::set(before);
            Errno(failed)
        })
    };
    let (mut descriptors, mut sender) = (Descriptors::default(), None);
    let take = |piece| match piece {
        Piece::Descriptor(fd) => descriptors.push(fd),
        Piece::Sender(found) => sender = Some(found),
    };
    // SAFETY: the closure calls the C library's `recvmsg`, and returns its result; `Descriptors` is the owner.
    let (count, _) = unsafe { receive_with::<WORDS, _>(bytes, recvmsg, take) }?;
    Ok((count, descriptors, sender))
}
