//! Cached TCP sockets: each connection replaces a socket that was made for nothing.
//!
//! The kernel needs as long to make and close a socket as to make a connection's wake-up fd. So the socket that a
//! connection replaces is kept for a moment, if it is pristine ([`pristine_sockets`](crate::pristine_sockets)), and
//! serves the program's next `socket`. It is kept for at most [`KEPT`], and never across an event that may change its
//! owner: a fork, another namespace.
//!
//! # What it gains
//! 12 % more short connections a second (connect, 64 bytes there and back, close). 20,000 connections by
//! `talk exchanges tcp:7000 ask 20000` under the preload in a fresh network namespace, client and server pinned to one of
//! two processors each and scheduled ahead of other work (`chrt -f 1`), in direct mode, with a debug broker; beside the
//! same build where [`save`] returns `None`, by a switch, five rounds in turn. The numbers are in `bench/RESULTS.md`.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use libc::{AF_INET6, SOCK_CLOEXEC, SOCK_NONBLOCK};
use rustix::fs::OFlags;

use crate::clock::now;
use crate::errno::Outcome;
use crate::private_fds;

/// For how long a socket is kept.
const KEPT: Duration = Duration::from_millis(10);
/// Number of cached sockets.
const PLACES: usize = 16;

/// Private number, kind and expiry time of each cached socket; 0 is a free slot.
static SPARES: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

const NUMBER: u64 = (1 << 20) - 1;
const IS_V6: u64 = 1 << 20;
const IS_NONBLOCKING: u64 = 1 << 21;
/// Position of the time in a word, whose unit is [`UNIT`] nanoseconds: enough for years.
const TIME: u32 = 22;
const UNIT: u64 = 1 << 14;

fn time(at: Duration) -> u64 {
    u64::try_from(at.as_nanos()).unwrap_or(u64::MAX) / UNIT
}

/// A private copy of a socket that is about to be replaced, if there is room in the cache.
pub(crate) fn save(fd: c_int) -> Option<RawFd> {
    let is_room = SPARES
        .iter()
        .any(|place| place.load(Ordering::Relaxed) == 0);
    let copy = || private_fds::hide_if_room(private_fds::borrow(fd)).ok();
    is_room.then(copy).flatten()
}

/// Puts the result of [`save`], the only copy by now, into the cache.
pub(crate) fn keep(copy: RawFd, family: c_int, flags: OFlags) {
    let mut word = time(now() + KEPT) << TIME;
    if family == AF_INET6 {
        word |= IS_V6;
    }
    if flags.contains(OFlags::NONBLOCK) {
        word |= IS_NONBLOCKING;
    }
    let number = u64::try_from(copy).unwrap_or(u64::MAX);
    let free = |place: &&AtomicU64| {
        place
            .compare_exchange(0, word | number, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    };
    if number > NUMBER || SPARES.iter().find(free).is_none() {
        private_fds::close(copy);
    }
}

/// A socket for a program, under the lowest free number. `None`: the kernel makes one.
pub(crate) fn take(family: c_int, flags: c_int) -> Option<RawFd> {
    let wanted = if family == AF_INET6 { IS_V6 } else { 0 };
    let mut now_at = None;
    for place in &SPARES {
        let word = place.load(Ordering::Relaxed);
        if word == 0 {
            continue;
        }
        let is_old = word >> TIME <= *now_at.get_or_insert_with(|| time(now()));
        if !is_old && word & IS_V6 != wanted {
            continue;
        }
        if place
            .compare_exchange(word, 0, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            continue;
        }
        let copy = RawFd::try_from(word & NUMBER).unwrap_or(-1);
        let given = if is_old {
            None
        } else {
            give(copy, word, flags).ok()
        };
        private_fds::close(copy);
        if given.is_some() {
            return given;
        }
    }
    None
}

fn give(copy: RawFd, word: u64, flags: c_int) -> Outcome<RawFd> {
    let is_nonblocking = flags & SOCK_NONBLOCK != 0;
    let copy = private_fds::borrow(copy);
    if is_nonblocking != (word & IS_NONBLOCKING != 0) {
        let wanted = if is_nonblocking {
            OFlags::NONBLOCK
        } else {
            OFlags::empty()
        };
        rustix::fs::fcntl_setfl(copy, wanted)?;
    }
    let given = rustix::io::fcntl_dupfd_cloexec(copy, 0)?;
    let given = private_fds::into_raw(given);
    if flags & SOCK_CLOEXEC == 0 {
        let cleared =
            rustix::io::fcntl_setfd(private_fds::borrow(given), rustix::io::FdFlags::empty());
        debug_assert!(cleared.is_ok(), "the descriptor was just made");
    }
    Ok(given)
}

/// Closes all cached sockets.
pub(crate) fn drop_all() {
    for place in &SPARES {
        let word = place.swap(0, Ordering::AcqRel);
        if word != 0 {
            private_fds::close(RawFd::try_from(word & NUMBER).unwrap_or(-1));
        }
    }
}
