//! The ancillary data of a packet: descriptors and the sender's credentials.
//!
//! The one unsafe module of this crate. `rustix` cannot represent a sender in another pid namespace, whose process id
//! the kernel reports as 0, and a broker must be able to receive such packets.

use std::mem;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::{Errno, Result};
use rustix::net::RecvFlags;

/// The credentials of a packet's sender, as the kernel reports them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sender {
    /// The real user id of the process.
    pub user: u32,
    /// The process id; 0 if it is not in this pid namespace.
    pub process: u32,
}

/// A received packet with its ancillary data.
#[derive(Debug)]
pub(super) struct Taken {
    /// Bytes of the packet.
    pub(super) bytes: usize,
    /// Whether descriptors were truncated (`MSG_CTRUNC`).
    pub(super) is_cut: bool,
    pub(super) descriptors: Vec<OwnedFd>,
    /// `None` without `SO_PASSCRED`.
    pub(super) sender: Option<Sender>,
}

/// The most descriptors of a packet (`SCM_MAX_FD`).
const DESCRIPTORS: usize = 253;
/// Bytes of `cmsghdr`: the length including the header, the level, the kind.
const HEADER: usize = size_of::<usize>() + 8;

/// The words of a control buffer for `descriptors` descriptors and the sender's credentials, each aligned to a word.
#[must_use]
pub const fn words(descriptors: usize) -> usize {
    (2 * HEADER + 4 * descriptors + size_of::<libc::ucred>()) / size_of::<usize>() + 2
}

/// A control message of the kernel.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Descriptors that the kernel has installed for this process: see [`numbers`].
    Descriptors(&'a [u8]),
    /// The credentials of the packet's sender.
    Sender(Sender),
}

/// Parses a control buffer. Unknown or truncated messages are skipped.
pub fn pieces(control: &[u8]) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = control;
    std::iter::from_fn(move || {
        loop {
            let (length, kind) = header(rest)?;
            let body = rest.get(HEADER..length)?;
            rest = rest
                .get(length.next_multiple_of(size_of::<usize>())..)
                .unwrap_or_default();
            match kind {
                (libc::SOL_SOCKET, libc::SCM_RIGHTS) => return Some(Piece::Descriptors(body)),
                (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                    if let Some(sender) = sender(body) {
                        return Some(Piece::Sender(sender));
                    }
                }
                _ => {}
            }
        }
    })
}

/// The descriptor numbers in the body of [`Piece::Descriptors`].
pub fn numbers(body: &[u8]) -> impl Iterator<Item = RawFd> {
    body.chunks_exact(4).filter_map(i32_at_start)
}

/// Receives a packet with all of its descriptors, so that the kernel closes none by truncation.
pub(super) fn take(socket: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> Result<Taken> {
    let mut space = [0_usize; words(DESCRIPTORS)];
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: `msghdr` consists of integers and pointers; all-zero bytes are a valid value with null pointers.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = space.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&space) as _;
    let flags = i32::from_ne_bytes(flags.bits().to_ne_bytes()) | libc::MSG_CMSG_CLOEXEC;
    let socket = socket.as_fd().as_raw_fd();
    // SAFETY: `message` points to `bytes` and `space` with their sizes. Both outlive the call, and this function
    // borrows them exclusively.
    let count = unsafe { libc::recvmsg(socket, &raw mut message, flags) };
    let Ok(count) = usize::try_from(count) else {
        return Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::IO));
    };
    let mut taken = Taken {
        bytes: count,
        is_cut: message.msg_flags & libc::MSG_CTRUNC != 0,
        descriptors: Vec::new(),
        sender: None,
    };
    let length = message.msg_controllen as usize;
    let control: Vec<u8> = space.iter().flat_map(|word| word.to_ne_bytes()).collect();
    taken.read(control.get(..length).unwrap_or(&control));
    Ok(taken)
}

impl Taken {
    fn read(&mut self, control: &[u8]) {
        for piece in pieces(control) {
            match piece {
                Piece::Descriptors(body) => {
                    for number in numbers(body) {
                        // SAFETY: the kernel has just installed this descriptor in this process, and nothing else owns
                        // it.
                        self.descriptors
                            .push(unsafe { OwnedFd::from_raw_fd(number) });
                    }
                }
                Piece::Sender(sender) => self.sender = Some(sender),
            }
        }
    }
}

/// The length, the level and the kind of the first control message.
fn header(control: &[u8]) -> Option<(usize, (i32, i32))> {
    let (length, rest) = control.split_first_chunk()?;
    let level = i32_at_start(rest)?;
    let kind = i32_at_start(rest.get(4..)?)?;
    let length = usize::from_ne_bytes(*length);
    (length >= HEADER).then_some((length, (level, kind)))
}

/// Decodes `struct ucred`: process, user, group.
fn sender(body: &[u8]) -> Option<Sender> {
    Some(Sender {
        process: u32::try_from(i32_at_start(body)?).ok()?,
        user: u32::from_ne_bytes(*body.get(4..)?.first_chunk()?),
    })
}

fn i32_at_start(bytes: &[u8]) -> Option<i32> {
    bytes.first_chunk().copied().map(i32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::set_socket_passcred;
    use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, send, socketpair};

    use super::*;

    fn empty() -> Taken {
        Taken {
            bytes: 0,
            is_cut: false,
            descriptors: Vec::new(),
            sender: None,
        }
    }

    #[test]
    fn credentials_come_with_passcred_only() {
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.expect("a pair");
        let mut senders = Vec::new();
        for ask in [false, true] {
            set_socket_passcred(&ours, ask).expect("an option");
            send(&theirs, b"x", SendFlags::empty()).expect("there is room");
            let taken = take(&ours, &mut [0; 8], RecvFlags::empty()).expect("it is there");
            assert_eq!((taken.bytes, taken.is_cut), (1, false));
            senders.push(taken.sender);
        }
        let us = Sender {
            user: rustix::process::getuid().as_raw(),
            process: std::process::id(),
        };
        assert_eq!(senders, [None, Some(us)]);
        let flags = RecvFlags::DONTWAIT;
        let error = take(&ours, &mut [0; 8], flags).expect_err("there is none");
        assert_eq!(error, Errno::AGAIN);
    }

    #[test]
    fn what_the_kernel_could_not_write_is_nothing() {
        for length in [0_usize, 1, HEADER - 1, HEADER, HEADER + 4, usize::MAX] {
            let mut control = length.to_ne_bytes().to_vec();
            control.extend(libc::SOL_SOCKET.to_ne_bytes());
            control.extend(libc::SCM_CREDENTIALS.to_ne_bytes());
            control.extend([0xff; 8]);
            for size in 0..=control.len() {
                let mut taken = empty();
                taken.read(&control[..size]);
                assert_eq!(taken.sender, None);
            }
        }
    }
}
