//! What comes along with a packet: descriptors, and who has sent it.

use std::ffi::c_int;
use std::mem;
use std::os::fd::RawFd;

use millrace_stream::control::DESCRIPTORS_MAX;

use crate::errno::{self, Errno, Outcome};
use crate::{hidden, real};

/// Who has sent a packet, as the kernel knew it then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sender {
    /// The process; 0 if this namespace of processes does not have it.
    pub(crate) process: i32,
    /// The real user.
    pub(crate) user: u32,
}

/// Descriptors that came with a packet; those that are not taken are closed.
#[derive(Debug, Default)]
pub(crate) struct Descriptors([Option<RawFd>; DESCRIPTORS_MAX]);

impl Descriptors {
    /// The first one.
    pub(crate) fn take(&mut self) -> Option<RawFd> {
        self.0[0].take()
    }

    /// Whether there are two.
    pub(crate) fn is_both(&self) -> bool {
        self.0[1].is_some()
    }

    /// Both of two.
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
            None => hidden::close_raw(fd),
        }
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for fd in self.0.iter().flatten() {
            hidden::close_raw(*fd);
        }
    }
}

/// A header, as the kernel lays it out: the length with the header, the level, the kind.
const HEADER: usize = size_of::<usize>() + 8;
/// Room for both, each at a multiple of a word.
const WORDS: usize =
    (2 * HEADER + 4 * DESCRIPTORS_MAX + size_of::<libc::ucred>()) / size_of::<usize>() + 2;
const SIZE: usize = WORDS * size_of::<usize>();

/// Receives a packet: how many bytes, and what came along. The kernel closes descriptors that do not fit.
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
    // SAFETY: the header names `bytes` and `space` with their sizes; both live until the call is over, and nobody
    // else has them.
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

/// Takes apart what the kernel has written.
fn read(mut control: &[u8]) -> (Descriptors, Option<Sender>) {
    let (mut descriptors, mut sender) = (Descriptors::default(), None);
    while let Some((length, kind)) = header(control) {
        let body = control.get(HEADER..length).unwrap_or_default();
        match kind {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for number in body.chunks_exact(4).filter_map(number) {
                    descriptors.push(number);
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                // `struct ucred`: process, user, group.
                sender = number(body)
                    .zip(body.get(4..).and_then(number))
                    .map(|(process, user)| Sender {
                        process,
                        user: u32::from_ne_bytes(user.to_ne_bytes()),
                    });
            }
            _ => {}
        }
        let next = length.next_multiple_of(size_of::<usize>());
        control = control.get(next..).unwrap_or_default();
    }
    (descriptors, sender)
}

/// The length, the level and the kind of what begins there.
fn header(control: &[u8]) -> Option<(usize, (c_int, c_int))> {
    let (length, rest) = control.split_first_chunk()?;
    let length = usize::from_ne_bytes(*length);
    let kind = (number(rest)?, number(rest.get(4..)?)?);
    (HEADER <= length && length <= control.len()).then_some((length, kind))
}

fn number(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().copied().map(i32::from_ne_bytes)
}
