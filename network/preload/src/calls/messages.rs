//! `sendmsg`, `recvmsg`, and several of them at once.

use std::ffi::{c_int, c_uint};

use libc::{cmsghdr, mmsghdr, msghdr, ssize_t, timespec};

use super::bytes::counted;
use crate::clock::now;
use crate::connection::lookup;
use crate::entry::{Entry, FDS};
use crate::errno::{Errno, Outcome, to_c_result};
use crate::multiplex::touched::touched;
use crate::pieces::{Pieces, PiecesMut, check};
use crate::receive::receive_pieces;
use crate::send::send_pieces;
use crate::{pristine_sockets, real};

/// How many messages a call takes.
const MESSAGES_MAX: usize = 1024;

export_points! {
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => match carries_ours(message) {
                true => counted(Err(Errno(libc::EOPNOTSUPP))),
                false => touched(real::sendmsg(fd, message, flags)),
            },
            Some(entry) => counted(send_one(fd, entry, message, flags)),
        }
    }

    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => real::recvmsg(fd, message, flags),
            Some(entry) => counted(receive_one(fd, entry, message, flags)),
        }
    }

    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let Some(entry) = lookup(fd) else {
            if each(messages, count).is_ok_and(|all| {
                all.iter().any(|message| carries_ours(&raw const message.msg_hdr))
            }) {
                return to_c_result(Err(Errno(libc::EOPNOTSUPP)));
            }
            return touched(real::sendmmsg(fd, messages, count, flags));
        };
        let all = each(messages, count);
        to_c_result(all.and_then(|all| many(all, |message| {
            let sent = send_one(fd, entry, &raw const message.msg_hdr, flags)?;
            let wanted = Pieces::new(message.msg_hdr.msg_iov, message.msg_hdr.msg_iovlen)?.size()?;
            Ok((sent, sent == wanted))
        })))
    }

    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int {
        let Some(entry) = lookup(fd) else {
            return real::recvmmsg(fd, messages, count, flags, timeout);
        };
        let all = each(messages, count);
        let timeout = timeout.as_ref();
        let end = timeout.and_then(|timeout| {
            let (seconds, nanos) = (timeout.tv_sec.try_into().ok()?, timeout.tv_nsec.try_into().ok()?);
            Some(now() + std::time::Duration::new(seconds, nanos))
        });
        let mut how = flags & !libc::MSG_WAITFORONE;
        to_c_result(all.and_then(|all| many(all, |message| {
            let received = receive_one(fd, entry, &raw mut message.msg_hdr, how)?;
            if flags & libc::MSG_WAITFORONE != 0 {
                how |= libc::MSG_DONTWAIT;
            }
            // As the kernel does: the time is looked at after a message.
            Ok((received, received > 0 && end.is_none_or(|end| now() < end)))
        })))
    }
}

/// # Safety
/// `messages` has `count` valid elements.
unsafe fn each<'a>(messages: *mut mmsghdr, count: c_uint) -> Outcome<&'a mut [mmsghdr]> {
    if count == 0 {
        return Ok(&mut []);
    }
    let count = (count as usize).min(MESSAGES_MAX);
    check(messages, count * size_of::<mmsghdr>())?;
    // SAFETY: there are `count` messages, as this function asks for; `check` excluded null.
    Ok(unsafe { std::slice::from_raw_parts_mut(messages, count) })
}

/// Runs `work` for each message in turn, until one fails or returns false; the number of messages done.
fn many(
    messages: &mut [mmsghdr],
    mut work: impl FnMut(&mut mmsghdr) -> Outcome<(usize, bool)>,
) -> Outcome<c_int> {
    let mut done = 0;
    for message in messages {
        match work(message) {
            Ok((bytes, goes_on)) => {
                message.msg_len = c_uint::try_from(bytes).unwrap_or(c_uint::MAX);
                done += 1;
                if !goes_on {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Too many pieces have an error of their own here.
fn of_message(errno: Errno) -> Errno {
    if errno == Errno(libc::EINVAL) {
        Errno(libc::EMSGSIZE)
    } else {
        errno
    }
}

/// # Safety
/// The message is valid, as the call asks for, or null.
unsafe fn send_one(
    fd: c_int,
    entry: &'static Entry,
    message: *const msghdr,
    flags: c_int,
) -> Outcome<usize> {
    check(message, size_of::<msghdr>())?;
    // SAFETY: the message is valid, as this function asks for.
    let header = unsafe { message.as_ref() }.ok_or(Errno(libc::EFAULT))?;
    // Descriptors in a message are ignored, as by TCP: a stream of bytes carries none.
    // SAFETY: the message describes pieces that are there.
    let pieces = unsafe { Pieces::new(header.msg_iov, header.msg_iovlen) }.map_err(of_message)?;
    send_pieces(fd, entry, pieces, flags)
}

/// # Safety
/// The message is valid, as the call asks for, or null.
unsafe fn receive_one(
    fd: c_int,
    entry: &'static Entry,
    message: *mut msghdr,
    flags: c_int,
) -> Outcome<usize> {
    check(message, size_of::<msghdr>())?;
    // SAFETY: the message is valid and the program's own, as this function asks for.
    let header = unsafe { message.as_mut() }.ok_or(Errno(libc::EFAULT))?;
    // SAFETY: the message describes pieces that have their room.
    let mut pieces =
        unsafe { PiecesMut::new(header.msg_iov, header.msg_iovlen) }.map_err(of_message)?;
    let received = receive_pieces(fd, entry, &mut pieces, flags)?;
    header.msg_namelen = 0;
    header.msg_controllen = 0;
    header.msg_flags = 0;
    Ok(received)
}

/// # Safety
/// The message and its control buffer are valid.
unsafe fn controls<'a>(header: &'a msghdr) -> impl Iterator<Item = &'a cmsghdr> {
    let mut next = if header.msg_controllen == 0 {
        std::ptr::null_mut()
    } else {
        // SAFETY: the header is valid, as this function asks for.
        unsafe { libc::CMSG_FIRSTHDR(header) }
    };
    std::iter::from_fn(move || {
        // SAFETY: `CMSG_FIRSTHDR` and `CMSG_NXTHDR` return null or a header within the control buffer.
        let control: &'a cmsghdr = unsafe { next.as_ref() }?;
        // SAFETY: both headers belong to the same message.
        next = unsafe { libc::CMSG_NXTHDR(header, control) };
        Some(control)
    })
}

/// Whether a message to a kernel socket carries a user-level descriptor, which would reach the receiver without the
/// memory of the connection.
///
/// # Safety
/// The message is valid, or null.
unsafe fn carries_ours(message: *const msghdr) -> bool {
    if check(message, size_of::<msghdr>()).is_err() {
        return false;
    }
    // SAFETY: the message is valid, as this function asks for.
    let Some(header) = (unsafe { message.as_ref() }) else {
        return false;
    };
    if header.msg_controllen == 0 {
        return false;
    }
    // SAFETY: the message is valid, as this function asks for.
    unsafe { controls(header) }
        .filter(|control| {
            control.cmsg_level == libc::SOL_SOCKET && control.cmsg_type == libc::SCM_RIGHTS
        })
        .any(|control| {
            // SAFETY: it is a control message.
            let first = unsafe { libc::CMSG_DATA(control) }.cast::<c_int>();
            // SAFETY: no message is shorter than its head.
            let head = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = control.cmsg_len.saturating_sub(head) / size_of::<c_int>();
            (0..count).any(|number| {
                // SAFETY: the length of the control message covers `count` descriptors.
                let place = unsafe { first.add(number) };
                // SAFETY: the message says that there is a descriptor at this place; it need not be aligned.
                let fd = unsafe { place.read_unaligned() };
                // The receiver has a copy of the descriptor.
                pristine_sockets::copied(fd, fd);
                lookup(fd).is_some() && FDS.lookup(fd).is_some()
            })
        })
}
