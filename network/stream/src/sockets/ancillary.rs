//! The ancillary data of a packet: descriptors and the sender's credentials.
//!
//! The one unsafe module of this crate, and the one receipt of packets: the preload passes its own `recvmsg`, since it
//! stands before the C library's name. `rustix` cannot represent a sender in another pid namespace, whose process id
//! the kernel reports as 0, and a broker must be able to receive such packets.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::{mem, slice};

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
pub struct Received {
    /// Bytes of the packet that were stored: 0 to the length of the buffer.
    pub bytes: usize,
    /// Whether descriptors were truncated (`MSG_CTRUNC`).
    pub is_cut: bool,
    /// The descriptors that came with the packet, close-on-exec.
    pub descriptors: Vec<OwnedFd>,
    /// The packet's sender; `None` without `SO_PASSCRED`.
    pub sender: Option<Sender>,
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

/// What a control message of the kernel carries.
#[derive(Debug)]
pub enum Piece {
    /// A descriptor that the kernel has installed for this process, and that nothing owns yet.
    Descriptor(RawFd),
    /// The credentials of the packet's sender.
    Sender(Sender),
}

/// Receives a packet with all of its descriptors, so that the kernel closes none by truncation.
///
/// # Errors
/// Any errno of `recvmsg`.
pub fn receive(socket: impl AsFd, bytes: &mut [u8], flags: RecvFlags) -> Result<Received> {
    let flags = i32::from_ne_bytes(flags.bits().to_ne_bytes()) | libc::MSG_CMSG_CLOEXEC;
    let socket = socket.as_fd().as_raw_fd();
    let recvmsg = |message: *mut libc::msghdr| {
        // SAFETY: `receive_with` passes a header whose buffers it borrows for the call.
        let count = unsafe { libc::recvmsg(socket, message, flags) };
        let failed = || Errno::from_io_error(&std::io::Error::last_os_error());
        usize::try_from(count).map_err(|_| failed().unwrap_or(Errno::IO))
    };
    let (mut descriptors, mut sender) = (Vec::new(), None);
    let take = |piece| match piece {
        Piece::Descriptor(fd) => {
            // SAFETY: the kernel has just installed this descriptor in this process, and nothing else owns it.
            descriptors.push(unsafe { OwnedFd::from_raw_fd(fd) });
        }
        Piece::Sender(found) => sender = Some(found),
    };
    // SAFETY: the closure calls `recvmsg`, and returns its result.
    let received = unsafe { receive_with::<{ words(DESCRIPTORS) }, _>(bytes, recvmsg, take) };
    let (bytes, is_cut) = received?;
    Ok(Received {
        bytes,
        is_cut,
        descriptors,
        sender,
    })
}

/// Receives a packet by the caller's `recvmsg`, and passes what its control messages carry to `take`. `WORDS` is the
/// size of the control buffer, of [`words`]: the kernel closes the descriptors that do not fit. Returns the packet's
/// bytes, and whether descriptors were truncated. Nothing is allocated.
///
/// # Errors
/// Those of `recvmsg`.
///
/// # Safety
/// `recvmsg` calls the kernel's `recvmsg` with the header that it gets, and returns the result of that call. Nothing else
/// owns the descriptors that `take` gets.
pub unsafe fn receive_with<const WORDS: usize, E>(
    bytes: &mut [u8],
    recvmsg: impl FnOnce(*mut libc::msghdr) -> std::result::Result<usize, E>,
    take: impl FnMut(Piece),
) -> std::result::Result<(usize, bool), E> {
    let mut space = [0_usize; WORDS];
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
    let count = recvmsg(&raw mut message)?;
    let length = (message.msg_controllen as usize).min(size_of_val(&space));
    // SAFETY: `space` has at least `length` initialized bytes, any of which is a valid `u8`, and outlives the slice.
    let control = unsafe { slice::from_raw_parts(space.as_ptr().cast(), length) };
    parse(control, take);
    Ok((count, message.msg_flags & libc::MSG_CTRUNC != 0))
}

/// Passes what the messages of a control buffer carry to `take`. Unknown or truncated messages are skipped.
fn parse(control: &[u8], mut take: impl FnMut(Piece)) {
    let mut rest = control;
    while let Some((length, kind)) = header(rest) {
        let Some(body) = rest.get(HEADER..length) else {
            return;
        };
        rest = rest
            .get(length.next_multiple_of(size_of::<usize>())..)
            .unwrap_or_default();
        match kind {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                let numbers = body.chunks_exact(4).filter_map(i32_at_start);
                numbers.for_each(|fd| take(Piece::Descriptor(fd)));
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => {
                if let Some(found) = sender(body) {
                    take(Piece::Sender(found));
                }
            }
            _ => {}
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

    #[test]
    fn credentials_come_with_passcred_only() {
        let kind = SocketType::SEQPACKET;
        let pair = socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None);
        let (ours, theirs) = pair.expect("a pair");
        let mut senders = Vec::new();
        for ask in [false, true] {
            set_socket_passcred(&ours, ask).expect("an option");
            send(&theirs, b"x", SendFlags::empty()).expect("there is room");
            let taken = receive(&ours, &mut [0; 8], RecvFlags::empty()).expect("it is there");
            assert_eq!((taken.bytes, taken.is_cut), (1, false));
            senders.push(taken.sender);
        }
        let us = Sender {
            user: rustix::process::getuid().as_raw(),
            process: std::process::id(),
        };
        assert_eq!(senders, [None, Some(us)]);
        let flags = RecvFlags::DONTWAIT;
        let error = receive(&ours, &mut [0; 8], flags).expect_err("there is none");
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
                parse(&control[..size], |piece| panic!("{piece:?}"));
            }
        }
    }
}
