//! Listeners and their channels: registration with a broker and with the next one, and ends of channels.
//!
//! # Invariants
//! 1. A thread that changes a listener's channel holds [`CHANNELS`], and checks first whether another thread did so
//!    before.
//! 2. A channel that has ended stays open beside the next one, until that ends too, unless the listener is shut down:
//!    other threads may be about to use its number, or sleep for it. They find its end. (A thread in `poll` reads the
//!    number again when it wakes, but a new file under the number does not wake it: so the next channel may not have
//!    the same number.)
//! 3. A listener has its channel before the sets are updated. The sets read it under their own locks, so that one of
//!    both sees what the other did.
//! 4. A listener is counted ([`lost_channels::note`]) before it is marked disconnected, both under [`CHANNELS`]. The
//!    channel stays in the sets: its end wakes threads that sleep there.

use std::ffi::c_int;

use rustix::net::Shutdown;

use crate::broker_link::is_dead;
use crate::entry::{CONTROL, Entry, FDS, Kind, RefKind};
use crate::errno::Outcome;
use crate::lock::{Guard, Lock, Refused};
use crate::multiplex::hooks;
use crate::socket_kind::is_stream;
use crate::{broker, connection, lost_channels, private_fds};

/// Backlog that a new broker is given: the kernel does not return the value that the program set.
const BACKLOG_AGAIN: u32 = 4096;

/// Lock of all changes to channels of listeners.
static CHANNELS: Lock = Lock::new();

/// Takes [`CHANNELS`]. The holder waits for the other locks: a signal handler above code that has one of these may
/// neither wait for the holder, nor wait itself.
fn change() -> Result<Guard<'static>, Refused> {
    if broker::is_own() || CONTROL.is_own() || hooks::has_own() {
        return Err(Refused);
    }
    CHANNELS.take()
}

/// Registers a listening TCP socket with the broker, once.
pub(crate) fn announce(fd: c_int, backlog: c_int) {
    if let Some(entry) = FDS.lookup(fd) {
        announce_again(fd, entry);
        return;
    }
    if !is_stream(fd) {
        return;
    }
    // In a signal handler, perhaps: the listener is the kernel's alone then.
    let Ok(_guard) = change() else {
        return;
    };
    if FDS.lookup(fd).is_some() {
        return;
    }
    // The kernel takes a negative backlog for the largest one.
    let backlog = u32::try_from(backlog).unwrap_or(u32::MAX);
    let Some(channel) = broker::listen(fd, backlog) else {
        return;
    };
    match Entry::listener(channel) {
        Ok(entry) => {
            // A number too high to be kept is the kernel's alone.
            let _is_kept = hooks::moved(fd, || entry.add_number(fd));
        }
        Err(_) => private_fds::close(channel),
    }
}

/// Channel of a listener. A listener without one is registered with the next broker, once there is one. Other processes
/// that share the listener register it too: several channels of one address take turns.
#[cold]
pub(crate) fn announce_again(fd: c_int, entry: &'static Entry) -> Option<c_int> {
    if !entry.pin(fd, RefKind::Syscall) {
        return None;
    }
    let channel = match change() {
        Ok(_guard) => entry.channel().or_else(|| open_again(fd, entry)),
        Err(Refused) => None,
    };
    entry.release(RefKind::Syscall);
    channel
}

/// The caller has [`CHANNELS`] and a hold.
fn open_again(fd: c_int, entry: &'static Entry) -> Option<c_int> {
    if entry.kind() != Kind::Listener {
        return None;
    }
    let channel = broker::listen(fd, BACKLOG_AGAIN)?;
    entry.listener.channel_owner.set(channel);
    entry.listener.attach_channel(channel);
    hooks::change_channel(entry);
    Some(channel)
}

/// Marks a listener as disconnected, after a thread has found its channel at the end, unless it has another by now.
///
/// # Errors
/// `EBADF` if the number means another by now.
pub(crate) fn mark_disconnected(fd: c_int, entry: &'static Entry) -> Outcome<()> {
    entry.held(fd, || {
        let guard = change();
        let has_ended = || entry.channel().is_some_and(is_dead);
        // Without the lock, a signal handler would find the end again and again.
        if guard.is_err() || has_ended() {
            disconnect(entry);
        }
        Ok(())
    })
}

/// Shuts down the channel of a listener whose broker exited, as leases may keep it open. All waiters wake, read its
/// last packets, and then find its end.
pub(crate) fn close_if_broker_exited(fd: c_int, entry: &'static Entry) {
    if !entry.listener.channel_owner.is_gone() {
        return;
    }
    let end = || {
        let Ok(_guard) = change() else {
            return Ok(());
        };
        if let Some(channel) = entry
            .channel()
            .filter(|_| entry.listener.channel_owner.is_gone())
        {
            rustix::net::shutdown(private_fds::borrow(channel), Shutdown::Both)?;
        }
        Ok(())
    };
    // It is looked at again after the next connection of the kernel's.
    let _ = entry.held(fd, end);
}

/// Closes the channel of a socket that was shut down.
pub(crate) fn stop(fd: c_int) {
    let listener = FDS
        .lookup(fd)
        .filter(|entry| entry.kind() == Kind::Listener);
    let Some(entry) = listener.filter(|entry| entry.pin(fd, RefKind::Syscall)) else {
        return;
    };
    connection::reset_unaccepted(entry);
    let guard = change();
    let channel = entry.listener.close();
    hooks::change_channel(entry);
    if let Some(channel) = channel {
        private_fds::close(channel);
    }
    drop(guard);
    entry.release(RefKind::Syscall);
}

/// The caller has [`CHANNELS`] and a hold.
fn disconnect(entry: &'static Entry) {
    lost_channels::note();
    entry.listener.disconnect();
}

/// Number of lost channels whose listeners are all marked disconnected.
pub(crate) fn noted() -> u32 {
    let _guard = change();
    lost_channels::noted()
}

/// Resets the lock in the child of a fork, which lacks the thread that held it.
pub(crate) fn after_fork() {
    CHANNELS.reset();
}
