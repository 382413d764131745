//! Calls that send and receive bytes.

use std::ffi::{c_int, c_void};

use libc::{iovec, off_t, off64_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::connection::lookup;
use crate::entry::Entry;
use crate::errno::{Errno, Outcome, to_c_result};
use crate::multiplex::touched::touched;
use crate::pieces::{self, Pieces, PiecesMut};
use crate::real;
use crate::receive::{discard, receive, receive_pieces};
use crate::send::{send as send_bytes, send_pieces};

/// A count of bytes as the C library returns it; -1 with `errno` after an error.
#[inline]
pub(super) fn counted(outcome: Outcome<usize>) -> ssize_t {
    // A slice has at most `isize::MAX` bytes.
    to_c_result(outcome.map(|count| ssize_t::try_from(count).unwrap_or(ssize_t::MAX)))
}

/// A socket has no places to read from or write to.
fn unseekable() -> ssize_t {
    counted(Err(Errno(libc::ESPIPE)))
}

/// # Safety
/// `bytes` has `size` readable bytes.
#[inline]
pub(super) unsafe fn sending(
    fd: c_int,
    entry: &'static Entry,
    bytes: *const c_void,
    size: usize,
    flags: c_int,
) -> Outcome<usize> {
    // SAFETY: there are `size` bytes, as this function asks for.
    match unsafe { pieces::bytes(bytes, size) } {
        Ok(bytes) => send_bytes(fd, entry, bytes, flags),
        // As the kernel: errors of the connection come before those of the buffer.
        Err(fault) => send_bytes(fd, entry, &[], flags).and(Err(fault)),
    }
}

/// # Safety
/// There is room for `size` bytes.
#[inline]
pub(super) unsafe fn receiving(
    fd: c_int,
    entry: &'static Entry,
    bytes: *mut c_void,
    size: usize,
    flags: c_int,
) -> Outcome<usize> {
    if flags & libc::MSG_TRUNC != 0 {
        // Nothing is written, so that there need be no room.
        return discard(fd, entry, size, flags);
    }
    // SAFETY: there is room for `size` bytes, as this function asks for.
    match unsafe { pieces::room(bytes, size) } {
        Ok(bytes) => receive(fd, entry, bytes, flags),
        Err(fault) if pieces::is_high(bytes) => Err(fault),
        Err(fault) => faulty(fd, entry, flags, fault),
    }
}

/// As the kernel: the call waits for bytes before it finds that they have no buffer.
#[cold]
fn faulty(fd: c_int, entry: &'static Entry, flags: c_int, fault: Errno) -> Outcome<usize> {
    match receive(fd, entry, &mut [0], flags | libc::MSG_PEEK) {
        Ok(1..) => Err(fault),
        outcome => outcome,
    }
}

/// # Safety
/// `first` has `count` pieces, each with the bytes that it states.
unsafe fn gathering(
    fd: c_int,
    entry: &'static Entry,
    first: *const iovec,
    count: c_int,
) -> Outcome<usize> {
    // SAFETY: the pieces and their bytes are there, as this function asks for.
    let pieces = unsafe { Pieces::new(first, pieces::count(count)) }?;
    if pieces.size()? == 0 {
        // As the kernel: a write of no bytes succeeds without a look at the connection.
        return Ok(0);
    }
    send_pieces(fd, entry, pieces, 0)
}

/// # Safety
/// `first` has `count` pieces, each with the room that it states.
unsafe fn scattering(
    fd: c_int,
    entry: &'static Entry,
    first: *const iovec,
    count: c_int,
    flags: c_int,
) -> Outcome<usize> {
    // SAFETY: the pieces and their room are there, as this function asks for.
    let mut pieces = unsafe { PiecesMut::new(first, pieces::count(count)) }?;
    if pieces.size()? == 0 {
        return Ok(0);
    }
    receive_pieces(fd, entry, &mut pieces, flags)
}

/// `MSG_DONTWAIT` if the flags of `preadv2` contain `RWF_NOWAIT`; else 0.
const fn at_once(flags: c_int) -> c_int {
    if flags & libc::RWF_NOWAIT == 0 {
        0
    } else {
        libc::MSG_DONTWAIT
    }
}

/// Flags of `preadv2` and `pwritev2` that are advice alone: `RWF_HIPRI`, `RWF_DSYNC`, `RWF_SYNC`.
const ADVICE: c_int = libc::RWF_HIPRI | libc::RWF_DSYNC | libc::RWF_SYNC;

/// As `recvfrom(2)`: on a stream no address comes along.
///
/// # Safety
/// There is room for `size` bytes, and the pointers are null or valid.
unsafe fn receiving_from(
    fd: c_int,
    entry: &'static Entry,
    bytes: *mut c_void,
    size: usize,
    flags: c_int,
    from: *mut sockaddr,
    from_size: *mut socklen_t,
) -> Outcome<usize> {
    // SAFETY: there is room for `size` bytes, as this function asks for.
    let received = unsafe { receiving(fd, entry, bytes, size, flags) }?;
    if !from.is_null() {
        pieces::check(from_size, size_of::<socklen_t>())?;
        // SAFETY: the pointer is valid, as this function asks for; `check` excluded null.
        unsafe { from_size.write(0) };
    }
    Ok(received)
}

export_points! {
    fn send(fd: c_int, bytes: *const c_void, size: size_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => touched(real::send(fd, bytes, size, flags)),
            Some(entry) => counted(sending(fd, entry, bytes, size, flags)),
        }
    }

    fn recv(fd: c_int, bytes: *mut c_void, size: size_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => real::recv(fd, bytes, size, flags),
            Some(entry) => counted(receiving(fd, entry, bytes, size, flags)),
        }
    }

    fn write(fd: c_int, bytes: *const c_void, size: size_t) -> ssize_t {
        match lookup(fd) {
            None => touched(real::write(fd, bytes, size)),
            Some(entry) => counted(sending(fd, entry, bytes, size, 0)),
        }
    }

    fn read(fd: c_int, bytes: *mut c_void, size: size_t) -> ssize_t {
        match lookup(fd) {
            None => real::read(fd, bytes, size),
            // As the kernel: a read of no bytes does not wait.
            Some(_) if size == 0 => 0,
            Some(entry) => counted(receiving(fd, entry, bytes, size, 0)),
        }
    }

    fn sendto(fd: c_int, bytes: *const c_void, size: size_t, flags: c_int, to: *const sockaddr, to_size: socklen_t) -> ssize_t {
        match lookup(fd) {
            None => touched(real::sendto(fd, bytes, size, flags, to, to_size)),
            // A connected stream has one peer, and the kernel ignores another address.
            Some(entry) => counted(sending(fd, entry, bytes, size, flags)),
        }
    }

    fn recvfrom(fd: c_int, bytes: *mut c_void, size: size_t, flags: c_int, from: *mut sockaddr, from_size: *mut socklen_t) -> ssize_t {
        match lookup(fd) {
            None => real::recvfrom(fd, bytes, size, flags, from, from_size),
            Some(entry) => counted(receiving_from(fd, entry, bytes, size, flags, from, from_size)),
        }
    }

    fn writev(fd: c_int, first: *const iovec, count: c_int) -> ssize_t {
        match lookup(fd) {
            None => touched(real::writev(fd, first, count)),
            Some(entry) => counted(gathering(fd, entry, first, count)),
        }
    }

    fn readv(fd: c_int, first: *const iovec, count: c_int) -> ssize_t {
        match lookup(fd) {
            None => real::readv(fd, first, count),
            Some(entry) => counted(scattering(fd, entry, first, count, 0)),
        }
    }

    fn pread(fd: c_int, bytes: *mut c_void, size: size_t, offset: off_t) -> ssize_t {
        match lookup(fd) {
            None => real::pread(fd, bytes, size, offset),
            Some(_) => unseekable(),
        }
    }

    fn pread64(fd: c_int, bytes: *mut c_void, size: size_t, offset: off64_t) -> ssize_t {
        match lookup(fd) {
            None => real::pread64(fd, bytes, size, offset),
            Some(_) => unseekable(),
        }
    }

    fn pwrite(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t {
        match lookup(fd) {
            None => real::pwrite(fd, bytes, size, offset),
            Some(_) => unseekable(),
        }
    }

    fn pwrite64(fd: c_int, bytes: *const c_void, size: size_t, offset: off64_t) -> ssize_t {
        match lookup(fd) {
            None => real::pwrite64(fd, bytes, size, offset),
            Some(_) => unseekable(),
        }
    }

    fn preadv(fd: c_int, first: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        match lookup(fd) {
            None => real::preadv(fd, first, count, offset),
            Some(_) => unseekable(),
        }
    }

    fn preadv64(fd: c_int, first: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
        match lookup(fd) {
            None => real::preadv64(fd, first, count, offset),
            Some(_) => unseekable(),
        }
    }

    fn pwritev(fd: c_int, first: *const iovec, count: c_int, offset: off_t) -> ssize_t {
        match lookup(fd) {
            None => real::pwritev(fd, first, count, offset),
            Some(_) => unseekable(),
        }
    }

    fn pwritev64(fd: c_int, first: *const iovec, count: c_int, offset: off64_t) -> ssize_t {
        match lookup(fd) {
            None => real::pwritev64(fd, first, count, offset),
            Some(_) => unseekable(),
        }
    }

    fn preadv2(fd: c_int, first: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => real::preadv2(fd, first, count, offset, flags),
            Some(_) if offset != -1 => unseekable(),
            Some(_) if flags & !(ADVICE | libc::RWF_NOWAIT) != 0 => counted(Err(Errno(libc::EOPNOTSUPP))),
            Some(entry) => counted(scattering(fd, entry, first, count, at_once(flags))),
        }
    }

    fn preadv64v2(fd: c_int, first: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => real::preadv64v2(fd, first, count, offset, flags),
            Some(_) if offset != -1 => unseekable(),
            Some(_) if flags & !(ADVICE | libc::RWF_NOWAIT) != 0 => counted(Err(Errno(libc::EOPNOTSUPP))),
            Some(entry) => counted(scattering(fd, entry, first, count, at_once(flags))),
        }
    }

    fn pwritev2(fd: c_int, first: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => touched(real::pwritev2(fd, first, count, offset, flags)),
            Some(_) if offset != -1 => unseekable(),
            Some(_) if flags & !ADVICE != 0 => counted(Err(Errno(libc::EOPNOTSUPP))),
            Some(entry) => counted(gathering(fd, entry, first, count)),
        }
    }

    fn pwritev64v2(fd: c_int, first: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => touched(real::pwritev64v2(fd, first, count, offset, flags)),
            Some(_) if offset != -1 => unseekable(),
            Some(_) if flags & !ADVICE != 0 => counted(Err(Errno(libc::EOPNOTSUPP))),
            Some(entry) => counted(gathering(fd, entry, first, count)),
        }
    }

    fn __read_chk(fd: c_int, bytes: *mut c_void, size: size_t, room: size_t) -> ssize_t {
        match lookup(fd) {
            None => real::__read_chk(fd, bytes, size, room),
            // The next definition aborts the program, as its contract demands.
            Some(_) if room < size => real::__read_chk(fd, bytes, size, room),
            Some(entry) => counted(receiving(fd, entry, bytes, size, 0)),
        }
    }

    fn __recv_chk(fd: c_int, bytes: *mut c_void, size: size_t, room: size_t, flags: c_int) -> ssize_t {
        match lookup(fd) {
            None => real::__recv_chk(fd, bytes, size, room, flags),
            Some(_) if room < size => real::__recv_chk(fd, bytes, size, room, flags),
            Some(entry) => counted(receiving(fd, entry, bytes, size, flags)),
        }
    }

    fn __recvfrom_chk(fd: c_int, bytes: *mut c_void, size: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_size: *mut socklen_t) -> ssize_t {
        match lookup(fd) {
            None => real::__recvfrom_chk(fd, bytes, size, room, flags, from, from_size),
            Some(_) if room < size => real::__recvfrom_chk(fd, bytes, size, room, flags, from, from_size),
            Some(entry) => counted(receiving_from(fd, entry, bytes, size, flags, from, from_size)),
        }
    }

    fn __pread_chk(fd: c_int, bytes: *mut c_void, size: size_t, offset: off_t, room: size_t) -> ssize_t {
        match lookup(fd) {
            None => real::__pread_chk(fd, bytes, size, offset, room),
            Some(_) => unseekable(),
        }
    }

    fn __pread64_chk(fd: c_int, bytes: *mut c_void, size: size_t, offset: off64_t, room: size_t) -> ssize_t {
        match lookup(fd) {
            None => real::__pread64_chk(fd, bytes, size, offset, room),
            Some(_) => unseekable(),
        }
    }
}
