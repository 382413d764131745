//! Control messages of a packet: descriptors, and the credentials of its sender.

use std::ffi::c_int;
use std::mem;
use std::os::fd::RawFd;

use millrace_stream::control::DESCRIPTORS_MAX;
use millrace_stream::sockets::ancillary::{Piece, Sender, numbers, pieces, words};

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
const SIZE: usize = WORDS * size_of::<usize>();

/// Receives a packet: its size in bytes, its descriptors, and its sender. The kernel closes descriptors that do not
/// fit.
pub(crate) fn receive(
    socket: RawFd,
    bytes: &mut [u8],
    flags: c_int,
) -> Outcome<(usize, Descriptors, Option<Sender>)> {
    let mut space = [0_usize; WORDS];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a message header is integers and pointers, for which zero stands for none.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = SIZE as _;
    let before = errno::get();
    // SAFETY: the header names `bytes` and `space` with their sizes; both outlive the call, and no other reference to
    // them is used.
    let count = unsafe { real::recvmsg(socket, &raw mut message, flags) };
    let Ok(count) = usize::try_from(count) else {
        let failed = errno::get();
        errno::set(before);
        return Err(Errno(failed));
    };
    let mut control = [0; SIZE];
    for (place, word) in control.chunks_exact_mut(size_of::<usize>()).zip(space) {
        place.copy_from_slice(&word.to_ne_bytes());
    }
    let (descriptors, sender) = read(
        control
            .get(..message.msg_controllen as usize)
            .unwrap_or(&control),
    );
    Ok((count, descriptors, sender))
}

/// Parses the control messages of a packet.
fn read(control: &[u8]) -> (Descriptors, Option<Sender>) {
    let (mut descriptors, mut sender) = (Descriptors::default(), None);
    for piece in pieces(control) {
        match piece {
            Piece::Descriptors(body) => numbers(body).for_each(|fd| descriptors.push(fd)),
            Piece::Sender(found) => sender = Some(found),
        }
    }
    (descriptors, sender)
}
