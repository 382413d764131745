//! Waiting for several descriptors at once: epoll, poll and select, with user-level and kernel descriptors mixed, and
//! the parts that every blocking call uses.
//!
//! # Parts
//! - [`Source`](crate::readiness::Source), [`PollTarget`](poll_target::PollTarget): the view of a user-level connection
//!   for its waiters.
//! - [`interest`]: the interest of one set in one descriptor; edges, one shots.
//! - [`set`]: an epoll set: its members, the *hot* ones (polled by loads) and the *armed* ones (whose peers notify);
//!   [`kernel_watched`] holds the members that the kernel reports, [`wait`] the loop of `epoll_wait`.
//! - [`sets`]: all sets of the process, and their updates when descriptors close, move and fork.
//! - [`poll`], [`select`]: the calls without a set.
//! - [`spin`], [`sleepers`]: the time of spinning before a sleep, and the list of sleeping threads.
//! - [`touched`]: the count of calls that may change kernel descriptors.
//! - [`calls`]: the C library's names.
//!
//! # Cost
//! A wait costs loads for each hot member, nothing for an armed one. A member is hot while it is used, and
//! armed when it was idle long enough, or before its waiter sleeps.
//!
//! # Limits
//! - A signal that arrives while a thread still spins does not end the wait by `EINTR`: for the program it
//!   arrived before the call.
//! - A nested set with user-level members counts as two levels for the kernel's limit of nesting.

pub(crate) mod calls;
pub(crate) mod events;
pub(crate) mod hooks;
pub(crate) mod interest;
pub(crate) mod kernel;
pub(crate) mod kernel_watched;
pub(crate) mod lock;
pub(crate) mod members;
pub(crate) mod poll;
pub(crate) mod poll_target;
pub(crate) mod select;
pub(crate) mod set;
pub(crate) mod set_guard;
pub(crate) mod sets;
pub(crate) mod sleepers;
pub(crate) mod spin;
pub(crate) mod touched;
pub(crate) mod wait;

#[cfg(test)]
mod tests;
