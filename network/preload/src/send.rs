//! Sending by a connection.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use libc::{MSG_DONTWAIT, MSG_NOSIGNAL, MSG_OOB};
use millrace_stream::{Closing, PeerState};

use crate::entry::{Entry, FDS};
use crate::errno::{Errno, Outcome};
use crate::multiplex::hooks;
use crate::notify::notify_peer;
use crate::pieces::Pieces;
use crate::readiness::OUT;
use crate::slab::{Record, flag, option};
use crate::source;
use crate::wait::{self, Wait};

/// Largest sum of pieces, in bytes, that is copied and sent as one.
pub(crate) const GATHERED_MAX: usize = 4096;

/// Sends as `send(2)`; the number of bytes.
#[inline]
pub(crate) fn send(fd: c_int, entry: &'static Entry, bytes: &[u8], flags: c_int) -> Outcome<usize> {
    if flags & !(MSG_NOSIGNAL | MSG_DONTWAIT) == 0 {
        let sent = attempt(fd, entry, bytes);
        if sent == Ok(bytes.len()) {
            return sent;
        }
        return go_on(fd, entry, bytes, flags, Some(sent));
    }
    check(flags)?;
    match bytes {
        [ahead @ .., last] if flags & MSG_OOB != 0 => {
            send_urgent(fd, entry, ahead, *last, flags & !MSG_OOB)
        }
        _ => go_on(fd, entry, bytes, flags, None),
    }
}

/// Sends bytes of which the last is urgent.
#[cold]
fn send_urgent(
    fd: c_int,
    entry: &'static Entry,
    ahead: &[u8],
    last: u8,
    flags: c_int,
) -> Outcome<usize> {
    if !ahead.is_empty() {
        let sent = send(fd, entry, ahead, flags)?;
        if sent < ahead.len() {
            return Ok(sent);
        }
    }
    // Whether the connection still sends is found out as for other bytes.
    attempt(fd, entry, &[])?;
    let mut wait = Wait::new(OUT);
    loop {
        let outcome = attempt_urgent(fd, entry, last).and_then(|is_sent| {
            let record = entry.record().ok_or(Errno(libc::EBADF))?;
            if is_sent {
                return Ok(true);
            }
            if flags & MSG_DONTWAIT != 0 || record.options.has(option::NONBLOCK) {
                return Err(Errno(libc::EAGAIN));
            }
            let timeout = record.options.send_timeout.load(Ordering::Relaxed);
            wait.wait(fd, entry, timeout).map(|()| false)
        });
        match outcome {
            Ok(true) => return Ok(ahead.len() + 1),
            Ok(false) => {}
            Err(_) if !ahead.is_empty() => return Ok(ahead.len()),
            Err(errno) => return Err(errno),
        }
    }
}

fn attempt_urgent(fd: c_int, entry: &'static Entry, byte: u8) -> Outcome<bool> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let guard = entry.take_direction(fd, &record.send)?;
    if !FDS.holds(fd, entry) || !is_record(entry, record) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the lock is held, and the entry was looked at again.
    let (Some(peer_state), Some(sender)) = (entry.peer_state(), unsafe { entry.sender() }) else {
        return Err(Errno(libc::EBADF));
    };
    if record.reserved()?.is_some() {
        return Err(Errno(libc::EBUSY));
    }
    let mut cursor = record.send.send_cursor();
    let sent = sender.send_urgent(peer_state, &mut cursor, byte);
    let must_notify = matches!(sent, Ok(true)) && sender.wake(peer_state, &mut cursor);
    record.send.set_send_cursor(&cursor);
    drop(guard);
    if must_notify {
        notify_peer(entry);
    }
    sent.map_err(|_| {
        entry.mark_corrupt();
        Errno(libc::ECONNRESET)
    })
}

/// Sends as `writev(2)`; the number of bytes.
pub(crate) fn send_pieces(
    fd: c_int,
    entry: &'static Entry,
    pieces: Pieces<'_>,
    flags: c_int,
) -> Outcome<usize> {
    check(flags)?;
    let size = pieces.size()?;
    if size <= GATHERED_MAX {
        let mut gathered = [0u8; GATHERED_MAX];
        let mut end = 0;
        for piece in pieces.iter() {
            gathered[end..end + piece.len()].copy_from_slice(piece);
            end += piece.len();
        }
        return send(fd, entry, &gathered[..end], flags);
    }
    let is_reset = || entry.record().is_none_or(|record| record.has(flag::RESET));
    let was_reset = is_reset();
    let mut sent = 0;
    for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
        // An end of the connection after the first piece is reported by the next call.
        let how = if sent > 0 {
            flags | MSG_NOSIGNAL
        } else {
            flags
        };
        match send(fd, entry, piece, how) {
            Ok(bytes) => {
                sent += bytes;
                if bytes < piece.len() {
                    break;
                }
            }
            // The first piece was lost, as the peer has closed, and so are the others.
            Err(Errno(libc::EPIPE)) if sent > 0 && !was_reset && is_reset() => return Ok(size),
            Err(_) if sent > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(sent)
}

/// Unknown flags are ignored, as by the kernel's TCP.
fn check(flags: c_int) -> Outcome<()> {
    if flags & libc::MSG_FASTOPEN != 0 {
        return Err(Errno(libc::EOPNOTSUPP));
    }
    Ok(())
}

/// Continues after an attempt that did not send all bytes: waits, unless the call must not.
#[cold]
fn go_on(
    fd: c_int,
    entry: &'static Entry,
    bytes: &[u8],
    flags: c_int,
    first: Option<Outcome<usize>>,
) -> Outcome<usize> {
    let mut sent = 0;
    let mut wait = Wait::new(OUT);
    let mut outcome = first.unwrap_or_else(|| attempt(fd, entry, bytes));
    loop {
        match outcome {
            Ok(count) => sent += count,
            Err(_) if sent > 0 => return Ok(sent),
            Err(errno) => {
                if errno == Errno(libc::EPIPE) && flags & MSG_NOSIGNAL == 0 {
                    wait::raise_pipe();
                }
                return Err(errno);
            }
        }
        if sent == bytes.len() {
            return Ok(sent);
        }
        match wait_for_room(fd, entry, flags, &mut wait) {
            Ok(()) => outcome = attempt(fd, entry, &bytes[sent..]),
            Err(_) if sent > 0 => return Ok(sent),
            Err(errno) => return Err(errno),
        }
    }
}

/// After there was no room, or not enough: waits, unless the call must not.
pub(crate) fn wait_for_room(
    fd: c_int,
    entry: &'static Entry,
    flags: c_int,
    wait: &mut Wait,
) -> Outcome<()> {
    entry.connection.stalls.fetch_add(1, Ordering::Relaxed);
    if entry.watchers.load(Ordering::Relaxed) > 0 {
        // Room of which the peer notified may be used up again.
        hooks::broadcast(entry);
    }
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    if flags & MSG_DONTWAIT != 0 || record.options.has(option::NONBLOCK) {
        return Err(Errno(libc::EAGAIN));
    }
    let timeout = record.options.send_timeout.load(Ordering::Relaxed);
    wait.wait(fd, entry, timeout)
}

/// Sends as many bytes as there is room for, and notifies a sleeping peer.
#[inline]
fn attempt(fd: c_int, entry: &'static Entry, bytes: &[u8]) -> Outcome<usize> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let guard = entry.take_direction(fd, &record.send)?;
    if !FDS.holds(fd, entry) || !is_record(entry, record) {
        return Err(Errno(libc::EBADF));
    }
    // SAFETY: the lock is held, and the entry was looked at again.
    let (Some(peer_state), Some(sender)) = (entry.peer_state(), unsafe { entry.sender() }) else {
        return Err(Errno(libc::EBADF));
    };
    // An empty send loses nothing, and a closed peer does not reset it.
    let can_fail = !bytes.is_empty()
        || record.has(flag::SEND_SHUT | flag::RESET)
        || matches!(peer_state.closing(), Closing::Reset(_));
    if is_special(record, peer_state) && can_fail && is_over(entry, record)? {
        return Ok(bytes.len());
    }
    let mut cursor = record.send.send_cursor();
    let bytes = &bytes[..allowed(record, peer_state, bytes.len())];
    let sent = sender.send(peer_state, &mut cursor, bytes);
    let must_notify = matches!(sent, Ok(1..)) && sender.wake(peer_state, &mut cursor);
    record.send.set_send_cursor(&cursor);
    drop(guard);
    if must_notify {
        notify_peer(entry);
    }
    sent.map_err(|_| {
        entry.mark_corrupt();
        take_error(record).err().unwrap_or(Errno(libc::ECONNRESET))
    })
}

/// Number of bytes, of `bytes`, that `SO_SNDBUF` permits to send now.
#[inline]
pub(crate) fn allowed(record: &Record, peer_state: &PeerState, bytes: usize) -> usize {
    match record.options.lines_out_max.load(Ordering::Relaxed) {
        0 => bytes,
        limit if source::has_room(record, peer_state) => bytes.min(limit as usize * 64),
        _ => 0,
    }
}

/// Whether there may be more to a send than to look for room: then [`is_over`] is asked.
#[inline]
pub(crate) fn is_special(record: &Record, peer_state: &PeerState) -> bool {
    const ANY: u32 = flag::SEND_SHUT | flag::RESET | flag::HUNG_UP | flag::RESERVED;
    record.has(ANY) || peer_state.closing() != Closing::Open
}

/// Whether the entry is still that of the record.
#[inline]
pub(crate) fn is_record(entry: &Entry, record: &'static Record) -> bool {
    entry.record().is_some_and(|now| std::ptr::eq(now, record))
}

/// Takes the pending error of the socket, which is reported once.
pub(crate) fn take_error(record: &Record) -> Outcome<()> {
    if record.error.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    match c_int::try_from(record.error.swap(0, Ordering::Relaxed)) {
        Ok(0) => Ok(()),
        Ok(errno) => Err(Errno(errno)),
        Err(_) => Err(Errno(libc::ECONNRESET)),
    }
}

/// Records a reset by the peer, and its error for the first caller alone.
pub(crate) fn note_reset(entry: &Entry, record: &Record) {
    if record.has(flag::RESET) {
        return;
    }
    match entry.peer_state().map(|peer_state| peer_state.closing()) {
        Some(Closing::Reset(errno)) if record.set(flag::RESET) => {
            record.error.store(u32::from(errno), Ordering::Relaxed);
        }
        _ => {}
    }
}

/// Whether the bytes of a send are lost, because the peer has closed and this side did not know: as with TCP, the first
/// send after that succeeds, and the next one fails with `EPIPE`.
///
/// # Errors
/// `EPIPE` or the pending error after an end or a reset; `EBUSY` if room is reserved.
#[cold]
pub(crate) fn is_over(entry: &Entry, record: &Record) -> Outcome<bool> {
    if record.has(flag::SEND_SHUT) {
        take_error(record)?;
        return Err(Errno(libc::EPIPE));
    }
    note_reset(entry, record);
    if record.has(flag::RESET) {
        take_error(record)?;
        return Err(Errno(libc::EPIPE));
    }
    if record.reserved()?.is_some() {
        return Err(Errno(libc::EBUSY));
    }
    if !entry.check_peer() {
        return Ok(false);
    }
    if record.has(flag::RESET) {
        take_error(record)?;
        return Err(Errno(libc::EPIPE));
    }
    record
        .error
        .store(libc::EPIPE.unsigned_abs(), Ordering::Relaxed);
    record.set(flag::RESET);
    Ok(true)
}
