//! The readiness of a descriptor: `EPOLL*` bits, and the trait of pollable descriptors.

use std::os::fd::RawFd;

/// A set of `EPOLL*` bits.
pub(crate) type Ready = u32;

pub(crate) const IN: Ready = libc::EPOLLIN as Ready;
pub(crate) const PRI: Ready = libc::EPOLLPRI as Ready;
pub(crate) const OUT: Ready = libc::EPOLLOUT as Ready;
pub(crate) const ERR: Ready = libc::EPOLLERR as Ready;
pub(crate) const HUP: Ready = libc::EPOLLHUP as Ready;
pub(crate) const RDNORM: Ready = libc::EPOLLRDNORM as Ready;
pub(crate) const WRNORM: Ready = libc::EPOLLWRNORM as Ready;
pub(crate) const RDHUP: Ready = libc::EPOLLRDHUP as Ready;

pub(crate) const EDGE: u32 = libc::EPOLLET as u32;
pub(crate) const ONCE: u32 = libc::EPOLLONESHOT as u32;
pub(crate) const EXCLUSIVE: u32 = libc::EPOLLEXCLUSIVE as u32;
pub(crate) const WAKEUP: u32 = libc::EPOLLWAKEUP as u32;

/// Bits whose edge is an arrival.
pub(crate) const NEWS: u32 = IN | RDNORM | PRI;
/// Bits that are set when room is freed.
pub(crate) const ROOM: u32 = OUT | WRNORM;
/// Reported whether asked for or not.
pub(crate) const ALWAYS: u32 = ERR | HUP;
/// Where the state begins in the second part of [`Source::progress`].
pub(crate) const STATE: u32 = 56;

/// A descriptor that can be polled by loads. The entry is pinned, or its number is known to be open.
pub(crate) trait Source {
    /// Current readiness: loads alone, and one question to the kernel if the peer hinted at a close.
    fn ready(&self) -> Ready;
    /// Announces a waiter for `events`, then re-checks; non-empty means do not block.
    fn arm(&self, events: u32) -> Ready;
    /// Wake-up fd: readable after a wake-up, and hung up after the peer's exit.
    fn wakeup_fd(&self) -> RawFd;
    /// Reads all wake-ups. True if the peer has hung up.
    fn drain(&self) -> bool;
    /// Counters of arrivals | of sends without room; above [`STATE`], of ends of directions and of calls that asked for
    /// one.
    fn progress(&self) -> (u64, u64);
}
