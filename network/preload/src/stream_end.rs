//! The ends of a connection's stream: orderly, by a reset, and by the last close.

use std::sync::atomic::Ordering;

use crate::entry::Entry;
use crate::errno::{Errno, Outcome};
use crate::notify::notify_peer;
use crate::slab::{self, Record, flag};

/// `ECONNRESET` in the width that a ring carries.
pub(crate) const CONNRESET: u16 = 104;
const _: () = assert!(CONNRESET as i32 == libc::ECONNRESET);

/// Sends the end of the stream, or marks it as pending if there is no room.
pub(crate) fn finish(entry: &Entry, record: &Record) -> Outcome<()> {
    let guard = record.send.take()?;
    // SAFETY: the lock is held, and the caller has pinned the entry.
    let (Some(peer_state), Some(sender)) = (entry.peer_state(), unsafe { entry.sender() }) else {
        return Err(Errno(libc::EBADF));
    };
    // The end lies where something may be reserved.
    record.void();
    let mut cursor = record.send.send_cursor();
    let mut must_notify = false;
    for _ in 0..2 {
        match sender.finish(peer_state, &mut cursor) {
            Ok(true) => {
                record
                    .flags
                    .fetch_and(!flag::FINISH_WAITS, Ordering::Relaxed);
                must_notify = sender.wake(peer_state, &mut cursor);
                break;
            }
            Ok(false) => {
                record.set(flag::FINISH_WAITS);
                if !sender.arm(peer_state, &mut cursor) {
                    break;
                }
            }
            Err(_) => {
                entry.mark_corrupt();
                break;
            }
        }
    }
    record.send.set_send_cursor(&cursor);
    drop(guard);
    if must_notify {
        notify_peer(entry);
    }
    Ok(())
}

/// Resets the connection with an error number, if it is not over.
pub(crate) fn reset(entry: &Entry, record: &Record, errno: u16) {
    let Ok(_guard) = record.send.take_poisoned() else {
        return;
    };
    // SAFETY: the lock is held, and the caller has pinned the entry.
    if let Some(sender) = unsafe { entry.sender() } {
        sender.reset(errno);
        slab::count(millrace_stream::slab::header::counter::RESETS);
    }
}

/// Hints to the peer that this end was closed.
pub(crate) fn close(entry: &Entry, record: &Record) {
    let Ok(_guard) = record.send.take_poisoned() else {
        return;
    };
    // SAFETY: the lock is held, and the caller has pinned the entry.
    if let Some(sender) = unsafe { entry.sender() } {
        // The hint stands where the reset does.
        if record.has(flag::RESET) {
            sender.reset(CONNRESET);
        } else {
            sender.close();
        }
    }
}
