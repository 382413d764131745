//! The life of a connection in this process.

use std::ffi::c_int;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use millrace_stream::control::{Link, Mode};
use millrace_stream::slab::header::counter;
use millrace_stream::{End, Geometry, RingPair, Side};
use millrace_window::Window;

use crate::broker;
use crate::connection_fds::ConnectionFds;
use crate::entry::{Entry, FDS, Kind, RefKind};
use crate::errno::{Errno, Outcome};
use crate::multiplex::hooks;
use crate::notify;
use crate::private_fds;
use crate::service;
use crate::settings;
use crate::slab::{self, Record, Slab, flag, mode};
use crate::stream_end::{self, CONNRESET};

/// The connection that a number means.
#[inline]
pub(crate) fn lookup(fd: c_int) -> Option<&'static Entry> {
    FDS.lookup(fd)
        .filter(|entry| entry.kind() == Kind::Connection)
}

/// The connection that a number means, and its record.
pub(crate) fn recorded(fd: c_int) -> Option<(&'static Entry, &'static Record)> {
    let entry = lookup(fd)?;
    Some((entry, entry.record()?))
}

/// Whether a connection has ended by both sides.
pub(crate) fn is_over(fd: c_int, entry: &'static Entry) -> bool {
    if !entry.pin(fd, RefKind::Syscall) {
        return true;
    }
    let is_over = entry.is_closed();
    entry.release(RefKind::Syscall);
    is_over
}

/// Makes the entry of a connection from its descriptors, with the options of the kernel's socket `model`: the
/// connecting one, or the listener. The memory's descriptor becomes private or is closed, the wake-up fd stays open.
pub(crate) fn establish(
    ends: &ConnectionFds,
    side: Side,
    model: c_int,
    family: c_int,
) -> Outcome<&'static Entry> {
    // Without a private descriptor the connection does not outlive an exec.
    let memory = private_fds::hide_if_room(private_fds::borrow(ends.memory)).ok();
    let mapped = map(&ends.link, side, ends.memory);
    private_fds::close_raw(ends.memory);
    let made =
        mapped.and_then(|lane| record(&ends.link, side, model, family).map(|made| (lane, made)));
    let entry = made.and_then(|(lane, (slab, record))| {
        let entry = Entry::connection(lane, slab, record, memory);
        match &entry {
            Ok(entry) => service::begin(entry, record, ends.wakeup_fd),
            Err(_) => slab.release(record),
        }
        entry
    });
    match (&entry, memory) {
        (Ok(_), _) => slab::count(match side {
            Side::Connecting => counter::CONNECTS,
            Side::Accepting => counter::ACCEPTS,
        }),
        (Err(_), Some(memory)) => private_fds::close(memory),
        (Err(_), None) => {}
    }
    entry
}

/// Maps the memory of a connection that the broker or a lease handed over.
fn map(link: &Link, side: Side, memory: RawFd) -> Outcome<RingPair> {
    let geometry = Geometry {
        ring_lines: link.ring_lines,
    };
    attach(memory, geometry, side)
}

/// Maps the memory of a connection.
pub(crate) fn attach(memory: RawFd, geometry: Geometry, side: Side) -> Outcome<RingPair> {
    let window = Window::attach(private_fds::borrow(memory)).map_err(|_| Errno(libc::ENOMEM))?;
    RingPair::new(&window, geometry, side).map_err(|_| Errno(libc::ENOMEM))
}

fn record(
    link: &Link,
    side: Side,
    model: c_int,
    family: c_int,
) -> Outcome<(Slab, &'static Record)> {
    broker::introduce();
    let slab = match Slab::own() {
        Some(slab) => slab,
        None => Slab::create()?,
    };
    let record = slab.allocate().ok_or(Errno(libc::ENOMEM))?;
    let mode = match link.mode {
        Mode::Direct => mode::DIRECT,
        Mode::Forwarded => mode::FORWARDED,
    };
    record.mode.store(mode, Ordering::Relaxed);
    record
        .side
        .store(u32::from(side == Side::Accepting), Ordering::Relaxed);
    record
        .options
        .ring_lines
        .store(link.ring_lines, Ordering::Relaxed);
    let [local, peer] = [link.local, link.peer].map(|address| {
        let shown = if family == libc::AF_INET6 {
            address.mapped()
        } else {
            address.canonical()
        };
        SocketAddr::from(shown)
    });
    record.set_addresses(&local, &peer);
    settings::carry(model, family, record);
    Ok((slab, record))
}

/// Gives the program's number to an entry.
pub(crate) fn enter(fd: c_int, entry: &'static Entry) -> Outcome<()> {
    if entry.add_number(fd) {
        return Ok(());
    }
    Err(Errno(libc::EMFILE))
}

/// Number of closes that have begun, and of those that have ended.
static CLOSING: AtomicU32 = AtomicU32::new(0);
static CLOSED: AtomicU32 = AtomicU32::new(0);

/// Version of the descriptor table, to be read before and after an operation of the kernel: equal versions mean that
/// the table and the kernel agreed in between. `None` while a number has left the table but not the kernel; `own` is
/// the number of such closes that the caller itself has begun.
pub(crate) fn fd_table_consistent(own: u32) -> Option<u32> {
    let left = CLOSED.load(Ordering::SeqCst);
    let others = CLOSING
        .load(Ordering::SeqCst)
        .wrapping_sub(own)
        .wrapping_sub(left);
    // In the child of a fork the close of its own thread is not counted as ended.
    (others == 0 || others > u32::MAX / 2).then_some(left)
}

/// In the child of a fork: the other threads are not there.
pub(crate) fn after_fork() {
    CLOSED.store(CLOSING.load(Ordering::SeqCst), Ordering::SeqCst);
}

/// Takes a number from its entry, before the kernel closes or replaces it. The kernel's part comes before
/// [`ClosingFd::finish`].
pub(crate) fn begin_close(fd: c_int) -> Option<ClosingFd> {
    FDS.lookup(fd)?;
    CLOSING.fetch_add(1, Ordering::SeqCst);
    let Some(entry) = FDS.remove(fd) else {
        CLOSED.fetch_add(1, Ordering::SeqCst);
        return None;
    };
    entry.hold(RefKind::Syscall);
    if entry.drop_number(fd) {
        hooks::forget(entry);
        match entry.kind() {
            Kind::Connection => on_last_close(entry),
            Kind::Listener => reset_unaccepted(entry),
            _ => {}
        }
        entry.detach_wakeup();
    }
    Some(ClosingFd(entry))
}

/// An entry that has lost a number.
#[must_use]
#[derive(Debug)]
pub(crate) struct ClosingFd(&'static Entry);

impl ClosingFd {
    /// After the kernel has closed the number.
    pub(crate) fn finish(self) {
        CLOSED.fetch_add(1, Ordering::SeqCst);
        self.0.release(RefKind::Syscall);
    }
}

/// Ends a connection when its last number in this process closes. If no other process has this end, the peer is
/// notified: by a reset if unread bytes are lost or the program asked for one, else by a hint to check for the hang-up.
pub(crate) fn on_last_close(entry: &'static Entry) {
    let (Some(record), Some(slab)) = (entry.record(), entry.slab()) else {
        return;
    };
    if record.is_held_by_others(slab) {
        return;
    }
    let is_hard = record.options.linger.load(Ordering::Relaxed) == 0;
    if !record.has(flag::RESET) && (is_hard || loses(entry, record)) {
        // The peer sees the reset after all bytes that were sent; the kernel reports the hang-up when the wake-up fd
        // closes.
        stream_end::reset(entry, record, CONNRESET);
        notify::notify_peer(entry);
    } else {
        if record.mode.load(Ordering::Relaxed) == mode::FORWARDED && !record.has(flag::SEND_SHUT) {
            // The end in the stream distinguishes an orderly close from the exit of a forwarder.
            let _unsaid = stream_end::finish(entry, record);
        }
        stream_end::close(entry, record);
    }
}

/// Resets the connections that a listener has not accepted. Other processes that share the listener may still accept
/// them; when the last of those closes it, the remaining connections end without a reset.
pub(crate) fn reset_unaccepted(entry: &'static Entry) {
    let Some(channel) = entry.channel() else {
        return;
    };
    if entry.listener.is_shared.load(Ordering::Relaxed) {
        return;
    }
    while let Ok(Some(ends)) = broker::incoming(channel, &entry.listener.channel_owner, true) {
        if let Ok(mut lane) = map(&ends.link, Side::Accepting, ends.memory) {
            lane.sender.reset(CONNRESET);
            notify::notify_fd(ends.wakeup_fd);
        }
        private_fds::close_raw(ends.memory);
        private_fds::close_raw(ends.wakeup_fd);
    }
}

/// Whether received bytes remain unread.
fn loses(entry: &Entry, record: &Record) -> bool {
    let Ok(_guard) = record.receive.take() else {
        return false;
    };
    // SAFETY: the lock is held, and the caller holds the entry.
    let (Some(peer_state), Some(receiver)) = (entry.peer_state(), unsafe { entry.receiver() })
    else {
        return false;
    };
    let cursor = record.receive.receive_cursor();
    match receiver.peek(peer_state, &cursor, &mut [0]) {
        Ok(next) => next.bytes > 0 && next.end != Some(End::Finished),
        Err(_) => true,
    }
}
