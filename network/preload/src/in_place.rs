//! Sending and receiving without copies, by the functions of `millrace_sockets.h`.
//!
//! A reservation is a flag and two words of the record; the lock is not held between the calls. While the flag is set
//! no other bytes are sent, so that the sender's position is the reservation's. `docs/user-level-sockets.md` states the
//! results of other calls meanwhile.

use std::ffi::c_int;
use std::ops::ControlFlow;
use std::ptr;

use libc::{MSG_DONTWAIT, iovec};
use millrace_stream::Reserved;

use crate::entry::{Entry, FDS};
use crate::errno::{Errno, Outcome};
use crate::notify::notify_peer;
use crate::readiness::{IN, OUT};
use crate::receive::{Attempt, attempt_by, target, wait_for_bytes};
use crate::send::{allowed, is_over, is_record, is_special, take_error, wait_for_room};
use crate::slab::{Record, flag};
use crate::wait::Wait;

/// An empty piece.
const NOTHING: iovec = iovec {
    iov_base: ptr::null_mut(),
    iov_len: 0,
};

/// Reserves up to `length` bytes in up to `places.len()` pieces, and returns their size in bytes.
pub(crate) fn reserve(
    fd: c_int,
    entry: &'static Entry,
    places: &mut [iovec],
    length: usize,
    flags: c_int,
) -> Outcome<usize> {
    if length == 0 {
        return Err(Errno(libc::EINVAL));
    }
    check(places, flags)?;
    let mut wait = Wait::new(OUT);
    loop {
        let room = try_reserve(fd, entry, places, length)?;
        if room > 0 {
            return Ok(room);
        }
        wait_for_room(fd, entry, flags, &mut wait)?;
    }
}

fn check(places: &mut [iovec], flags: c_int) -> Outcome<()> {
    if flags & !MSG_DONTWAIT != 0 || places.is_empty() {
        return Err(Errno(libc::EINVAL));
    }
    places.fill(NOTHING);
    Ok(())
}

fn try_reserve(
    fd: c_int,
    entry: &'static Entry,
    places: &mut [iovec],
    length: usize,
) -> Outcome<usize> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let _guard = entry.take_direction(fd, &record.send)?;
    if !FDS.holds(fd, entry) || !is_record(entry, record) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the lock is held, and the entry was looked at again.
    let (Some(peer_state), Some(sender)) = (entry.peer_state(), unsafe { entry.sender() }) else {
        return Err(Errno(libc::EBADF));
    };
    if is_special(record, peer_state) && is_over(entry, record)? {
        take_error(record)?;
        return Err(Errno(libc::EPIPE));
    }
    let mut cursor = record.send.send_cursor();
    let length = allowed(record, peer_state, length);
    let reserved = sender.reserve(peer_state, &mut cursor, length);
    record.send.set_send_cursor(&cursor);
    let Ok(reserved) = reserved else {
        entry.mark_corrupt();
        return Err(take_error(record).err().unwrap_or(Errno(libc::ECONNRESET)));
    };
    let mut room = 0;
    for (place, found) in places.iter_mut().zip(sender.places(reserved)) {
        *place = iovec {
            iov_base: found.cast().as_ptr(),
            iov_len: found.len(),
        };
        room += found.len();
    }
    if room > 0 {
        record.reserve(room);
    }
    Ok(room)
}

/// Sends the first `length` bytes of the reservation, and frees the rest.
pub(crate) fn commit(fd: c_int, entry: &'static Entry, length: usize) -> Outcome<usize> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let guard = entry.take_direction(fd, &record.send)?;
    if !FDS.holds(fd, entry) || !is_record(entry, record) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the lock is held, and the entry was looked at again.
    let (Some(peer_state), Some(sender)) = (entry.peer_state(), unsafe { entry.sender() }) else {
        return Err(Errno(libc::EBADF));
    };
    let reserved = end_reservation(entry, record, length)?;
    if length == 0 {
        return Ok(0);
    }
    if is_special(record, peer_state) && is_over(entry, record)? {
        // As for a send after which the peer is found closed: the bytes are lost.
        return Ok(length);
    }
    let mut cursor = record.send.send_cursor();
    let reserved = Reserved::at(&cursor, reserved);
    let sent = sender.commit(&mut cursor, reserved, length);
    let must_notify = sent.is_ok() && sender.wake(peer_state, &mut cursor);
    record.send.set_send_cursor(&cursor);
    drop(guard);
    if must_notify {
        notify_peer(entry);
    }
    sent.map_err(|_| {
        entry.mark_corrupt();
        take_error(record).err().unwrap_or(Errno(libc::ECONNRESET))
    })?;
    Ok(length)
}

/// Ends the reservation after `length` of its bytes were written, and returns its size in bytes.
fn end_reservation(entry: &Entry, record: &Record, length: usize) -> Outcome<usize> {
    match record.reserved()? {
        Some(reserved) if length <= reserved => {
            record.void();
            Ok(reserved)
        }
        // An end or a reset of the connection may have voided it.
        None if record.has(flag::SEND_SHUT | flag::RESET) => {
            is_over(entry, record)?;
            Err(Errno(libc::EPIPE))
        }
        _ => Err(Errno(libc::EINVAL)),
    }
}

/// Lends the next received bytes in place, in up to `places.len()` pieces, and returns their number; 0 at the end.
pub(crate) fn borrow(
    fd: c_int,
    entry: &'static Entry,
    places: &mut [iovec],
    flags: c_int,
) -> Outcome<usize> {
    check(places, flags)?;
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let target = target(record, usize::MAX, libc::MSG_PEEK);
    let mut wait = Wait::new(IN);
    loop {
        let mut used = 0;
        let shown = attempt_by(fd, entry, true, |peer_state, receiver, cursor| {
            receiver.borrow(peer_state, cursor, usize::MAX, |piece| {
                places[used] = iovec {
                    iov_base: piece.address()?.cast_mut().cast(),
                    iov_len: piece.length(),
                };
                used += 1;
                Ok(if used < places.len() {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                })
            })
        })?;
        let count = match shown {
            Attempt::Bytes(count) if count >= target || used == places.len() => return Ok(count),
            Attempt::Bytes(count) => {
                wait.is_for_more = true;
                count
            }
            Attempt::Again => continue,
            Attempt::End => return Ok(0),
            Attempt::Empty => 0,
        };
        match wait_for_bytes(fd, entry, flags, &mut wait) {
            Ok(()) => {}
            Err(_) if count > 0 => return Ok(count),
            Err(errno) => return Err(errno),
        }
    }
}

/// Receives up to `length` bytes, as many as there are, without a copy.
pub(crate) fn consume(fd: c_int, entry: &'static Entry, length: usize) -> Outcome<usize> {
    if length == 0 {
        return Ok(0);
    }
    let taken = attempt_by(fd, entry, false, |peer_state, receiver, cursor| {
        receiver.consume(peer_state, cursor, length)
    })?;
    Ok(match taken {
        Attempt::Bytes(count) => count,
        Attempt::Again | Attempt::Empty | Attempt::End => 0,
    })
}
