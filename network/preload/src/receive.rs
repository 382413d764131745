//! Receiving from a connection.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{MSG_DONTWAIT, MSG_ERRQUEUE, MSG_OOB, MSG_PEEK, MSG_TRUNC, MSG_WAITALL};
use millrace_stream::{End, PeerState, ReceiveCursor, Received, Receiver, Urgent};

use crate::entry::{Entry, FDS};
use crate::errno::{Errno, Outcome};
use crate::notify::notify_peer;
use crate::pieces::PiecesMut;
use crate::readiness::IN;
use crate::send::{is_record, take_error};
use crate::slab::{Record, flag, mode, option};
use crate::stream_end::finish;
use crate::wait::Wait;

/// Receives in a row that find nothing, after which the kernel is asked for the peer.
const EMPTY_MAX: u32 = 64;
/// Bytes that are taken at once to be thrown away.
const DISCARD_CHUNK: usize = 4096;
/// Bytes that are looked at through several pieces at most.
const PEEKED_MAX: usize = 1 << 20;

/// Outcome of one attempt to receive without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    /// Number of bytes: at least one, or none for an empty buffer.
    Bytes(usize),
    /// No bytes are there yet.
    Empty,
    /// Bytes arrived during the check.
    Again,
    /// The end of the stream.
    End,
}

/// Receives as `recv(2)`; the number of bytes, 0 at the end.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    entry: &'static Entry,
    into: &mut [u8],
    flags: c_int,
) -> Outcome<usize> {
    if flags & !MSG_DONTWAIT != 0 {
        return receive_slowly(fd, entry, into, flags, None);
    }
    match attempt(fd, entry, into, false)? {
        Attempt::Bytes(bytes) if is_enough(entry, bytes, into.len()) => Ok(bytes),
        first => receive_slowly(fd, entry, into, flags, Some(first)),
    }
}

#[inline]
fn is_enough(entry: &Entry, bytes: usize, size: usize) -> bool {
    bytes == size
        || entry
            .record()
            .is_none_or(|record| bytes >= record.options.low_water.load(Ordering::Relaxed) as usize)
}

#[cold]
fn receive_slowly(
    fd: c_int,
    entry: &'static Entry,
    into: &mut [u8],
    flags: c_int,
    mut first: Option<Attempt>,
) -> Outcome<usize> {
    if flags & MSG_OOB != 0 {
        return urgent(fd, entry, into, flags & MSG_PEEK != 0);
    }
    if flags & MSG_ERRQUEUE != 0 {
        return Err(Errno(libc::EAGAIN));
    }
    if flags & MSG_TRUNC != 0 && !into.is_empty() {
        return discard(fd, entry, into.len(), flags);
    }
    let peeks = flags & MSG_PEEK != 0;
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let target = target(record, into.len(), flags);
    let mut done = 0;
    let mut wait = Wait::new(IN);
    loop {
        // A peek starts from the first byte again.
        let start = if peeks { 0 } else { done };
        let attempted = match first.take() {
            Some(attempted) => Ok(attempted),
            None => attempt(fd, entry, &mut into[start..], peeks),
        };
        match attempted {
            Ok(Attempt::Bytes(bytes)) => {
                done = start + bytes;
                if done >= target {
                    return Ok(done);
                }
                wait.is_for_more = peeks;
            }
            Ok(Attempt::Again) => continue,
            Ok(Attempt::End) => return Ok(done),
            Ok(Attempt::Empty) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        }
        match wait_for_bytes(fd, entry, flags, &mut wait) {
            Ok(()) => {}
            Err(_) if done > 0 => return Ok(done),
            Err(errno) => return Err(errno),
        }
    }
}

/// After there were no bytes, or not enough: waits, unless the call must not.
pub(crate) fn wait_for_bytes(
    fd: c_int,
    entry: &'static Entry,
    flags: c_int,
    wait: &mut Wait,
) -> Outcome<()> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    if flags & MSG_DONTWAIT != 0 || record.options.has(option::NONBLOCK) {
        return Err(Errno(libc::EAGAIN));
    }
    let timeout = record.options.receive_timeout.load(Ordering::Relaxed);
    wait.wait(fd, entry, timeout)
}

/// Takes the urgent byte, or peeks at it, without waiting.
fn urgent(fd: c_int, entry: &'static Entry, into: &mut [u8], peeks: bool) -> Outcome<usize> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let guard = entry.take_direction(fd, &record.receive)?;
    if !FDS.holds(fd, entry) || !is_record(entry, record) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the lock is held, and the entry was looked at again.
    let (Some(peer_state), Some(receiver)) = (entry.peer_state(), unsafe { entry.receiver() })
    else {
        return Err(Errno(libc::EBADF));
    };
    let mut cursor = record.receive.receive_cursor();
    let found = receiver.urgent(peer_state, &mut cursor, peeks);
    record.receive.set_receive_cursor(&cursor);
    drop(guard);
    match found {
        Ok(Urgent::Byte(byte)) => {
            if let Some(place) = into.first_mut() {
                *place = byte;
            }
            Ok(into.len().min(1))
        }
        Ok(Urgent::Announced) => Err(Errno(libc::EAGAIN)),
        Ok(Urgent::Nothing) => Err(Errno(libc::EINVAL)),
        Err(_) => {
            entry.mark_corrupt();
            Err(Errno(libc::ECONNRESET))
        }
    }
}

/// How many bytes a blocking call waits for.
pub(crate) fn target(record: &Record, size: usize, flags: c_int) -> usize {
    let low_water = record.options.low_water.load(Ordering::Relaxed) as usize;
    let target = if flags & MSG_WAITALL != 0 {
        size
    } else {
        low_water.min(size)
    };
    if flags & MSG_PEEK != 0 {
        // A peek sees at most the ring.
        let lines = record.options.ring_lines.load(Ordering::Relaxed) as usize;
        return target.min(lines * 32);
    }
    target
}

/// Takes bytes and throws them away.
pub(crate) fn discard(
    fd: c_int,
    entry: &'static Entry,
    size: usize,
    flags: c_int,
) -> Outcome<usize> {
    let flags = flags & !MSG_TRUNC;
    let mut discarded = 0;
    while discarded < size {
        let mut bytes = [0; DISCARD_CHUNK];
        let part = (size - discarded).min(DISCARD_CHUNK);
        // After the first part the call does not wait.
        let how = if discarded > 0 && flags & MSG_WAITALL == 0 {
            flags | MSG_DONTWAIT
        } else {
            flags
        };
        match receive(fd, entry, &mut bytes[..part], how) {
            Ok(0) => break,
            Ok(taken) => discarded += taken,
            Err(_) if discarded > 0 => break,
            Err(errno) => return Err(errno),
        }
        if flags & MSG_PEEK != 0 {
            break;
        }
    }
    Ok(discarded)
}

/// Receives into pieces as `readv(2)` does.
pub(crate) fn receive_pieces(
    fd: c_int,
    entry: &'static Entry,
    pieces: &mut PiecesMut<'_>,
    flags: c_int,
) -> Outcome<usize> {
    let size = pieces.size()?;
    let mut how = flags;
    if pieces.iter().filter(|piece| !piece.is_empty()).count() > 1 && flags & MSG_PEEK != 0 {
        return peek_pieces(fd, entry, pieces, size, flags);
    }
    let (mut done, mut was_asked) = (0, false);
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        was_asked = true;
        match receive(fd, entry, piece, how) {
            Ok(bytes) => {
                done += bytes;
                if bytes < piece.len() {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
        if flags & MSG_WAITALL == 0 {
            how |= MSG_DONTWAIT;
        }
    }
    if !was_asked {
        return receive(fd, entry, &mut [], flags);
    }
    Ok(done)
}

/// Looks into pieces: all of them from the same place of the stream.
fn peek_pieces(
    fd: c_int,
    entry: &'static Entry,
    pieces: &mut PiecesMut<'_>,
    size: usize,
    flags: c_int,
) -> Outcome<usize> {
    let mut bytes = vec![0; size.min(PEEKED_MAX)];
    let count = receive(fd, entry, &mut bytes, flags)?;
    let mut rest = &bytes[..count];
    for piece in pieces.iter() {
        let (part, tail) = rest.split_at(piece.len().min(rest.len()));
        piece[..part.len()].copy_from_slice(part);
        rest = tail;
    }
    Ok(count)
}

/// Takes the received bytes, or peeks at them, and notifies a peer that waits for room.
#[inline]
fn attempt(fd: c_int, entry: &'static Entry, into: &mut [u8], peeks: bool) -> Outcome<Attempt> {
    // A receive into an empty buffer waits for bytes nevertheless.
    if into.is_empty() {
        let looked = attempt_by(fd, entry, true, |peer_state, receiver, cursor| {
            receiver.peek(peer_state, cursor, &mut [0])
        })?;
        return Ok(match looked {
            Attempt::Bytes(_) => Attempt::Bytes(0),
            other => other,
        });
    }
    attempt_by(fd, entry, peeks, |peer_state, receiver, cursor| {
        if peeks {
            receiver.peek(peer_state, cursor, into)
        } else {
            receiver.receive(peer_state, cursor, into)
        }
    })
}

/// Receives by a call of the receiver, which takes nothing if it `peeks`, and notifies a peer that waits for room.
#[inline]
pub(crate) fn attempt_by(
    fd: c_int,
    entry: &'static Entry,
    peeks: bool,
    receive: impl FnOnce(
        &PeerState,
        &mut Receiver,
        &mut ReceiveCursor,
    ) -> millrace_stream::Result<Received>,
) -> Outcome<Attempt> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let guard = entry.take_direction(fd, &record.receive)?;
    if !FDS.holds(fd, entry) || !is_record(entry, record) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the lock is held, and the entry was looked at again.
    let (Some(peer_state), Some(receiver)) = (entry.peer_state(), unsafe { entry.receiver() })
    else {
        return Err(Errno(libc::EBADF));
    };
    let mut cursor = record.receive.receive_cursor();
    let received = receive(peer_state, receiver, &mut cursor);
    let must_notify = !peeks && receiver.wake(peer_state, &mut cursor);
    if !peeks {
        record.receive.set_receive_cursor(&cursor);
    }
    drop(guard);
    if must_notify {
        notify_peer(entry);
    }
    match received {
        Ok(received) if received.bytes > 0 => {
            if entry.connection.empty.load(Ordering::Relaxed) != 0 {
                entry.connection.empty.store(0, Ordering::Relaxed);
            }
            Ok(Attempt::Bytes(received.bytes))
        }
        Ok(received) => nothing(entry, record, received.end),
        Err(_) => {
            entry.mark_corrupt();
            nothing(entry, record, None)
        }
    }
}

/// Reason why an attempt found no bytes.
#[cold]
fn nothing(entry: &Entry, record: &Record, end: Option<End>) -> Outcome<Attempt> {
    match end {
        Some(End::Reset(errno)) if record.set(flag::RESET) => {
            record.error.store(u32::from(errno), Ordering::Relaxed);
        }
        _ => {}
    }
    if end == Some(End::Finished) {
        record.set(flag::END_SEEN);
        return Ok(Attempt::End);
    }
    if record.has(flag::RESET) {
        // A broken pipe is an error of the sender only.
        if record.error.load(Ordering::Relaxed) != libc::EPIPE.unsigned_abs() {
            take_error(record)?;
        }
        record.set(flag::END_SEEN);
        return Ok(Attempt::End);
    }
    if record.has(flag::RECEIVE_SHUT | flag::END_SEEN) {
        return Ok(Attempt::End);
    }
    if record.has(flag::FINISH_WAITS) {
        finish(entry, record)?;
    }
    let is_hinted = entry
        .peer_state()
        .is_none_or(|peer_state| peer_state.closing() != millrace_stream::Closing::Open);
    let empty = entry.connection.empty.fetch_add(1, Ordering::Relaxed);
    let was_gone = record.has(flag::HUNG_UP);
    if was_gone || ((is_hinted || empty % EMPTY_MAX == EMPTY_MAX - 1) && entry.check_peer()) {
        // Bytes that the peer published before its exit are visible now, though they may not have been at the check.
        // And the connection may have been reset.
        let is_readable = entry
            .peer_state()
            .is_some_and(|peer_state| peer_state.is_readable(record.receive.position()));
        if is_readable || record.has(flag::RESET) {
            return Ok(Attempt::Again);
        }
        record.set(flag::END_SEEN);
        if record.mode.load(Ordering::Relaxed) == mode::FORWARDED && record.set(flag::RESET) {
            // The forwarder exited, and bytes on its way may be lost.
            return Err(Errno(libc::ECONNRESET));
        }
        return Ok(Attempt::End);
    }
    Ok(Attempt::Empty)
}
