//! Structures without locks for threads that poll, and ways to wait.
//!
//! # Purpose
//! A data path that goes around the kernel has no system call in which to wait for another thread. What it
//! needs instead is here: bounded rings between threads ([`ring`]), reference-counted memory ([`Shared`]),
//! waiting that spins first and sleeps later ([`Event`]), the time that a thread spins, by what it found before
//! ([`spin`]), and the set of what it polls ([`HotSet`]).
//!
//! None of them takes a lock, but not all are lock-free: [`ring`] says which threads can delay others.
//!
//! # How orderings are checked
//! Every structure is generic over a [`Platform`]: its atomic words, its fences, and what it does while it
//! spins. On [`Native`] these are the standard library's. The tests bring platforms of loom, which runs a
//! small program in every interleaving, and of shuttle, which runs a larger one in many random ones.
//!
//! The code of a structure contains no memory ordering. Each place that needs one is a [`Site`], and the
//! platform maps it to an ordering. That is how the *mutation check* works: the tests weaken one site
//! at a time and require that each model of that site then fails, and for the expected reason. A
//! site that no model misses has a stronger ordering than it needs.
//!
//! What the models leave out:
//! - Load buffering, which loom does not run: a load that sees a store which comes after it. In a ring that is
//!   a consumer that reads, out of the slot which it is about to give back, the item that the next producer
//!   writes. The missing order is detected as a race for the slot.
//! - Accesses that are sequentially consistent, which loom takes for weaker ones. There are none: what has
//!   that ordering are fences, and without theirs, or with one that acquires and releases, sleepers are lost.
//! - Some orders: of the accesses to a word loom remembers the last when it looks for others worth trying. And
//!   the model of two sleepers has a bound on preemptions, three, as without one it takes too long.
//!
//! # Threads, clock, memory
//! The crate spawns no thread and reads no clock. Structures allocate when they are made and never
//! afterwards; a vector that items are appended to grows if it has no room
//! ([`try_pop_many`](ring::Consumer::try_pop_many)).
//!
//! # Systems
//! The crate is for Linux and builds on the other systems that have Rust's standard library. There [`Native`] sleeps on a
//! [`CondvarParker`], and `Futex`, `EventFd` and `NativeEventFd` are absent, as the kernel calls below them are.
//!
//! # Example
//! ```
//! use millrace_sync::ring::{self, Multi, Single};
//!
//! let (mut producer, mut consumer) = ring::bounded::<u64, Multi, Single>(4);
//! let mut other = producer.clone();
//! assert_eq!(producer.try_push(1), Ok(()));
//! assert_eq!(other.try_push_many(&[2, 3, 4, 5]), 3);
//! assert_eq!(producer.try_push(9), Err(9));
//! assert_eq!(consumer.try_pop(), Some(1));
//! ```

mod event;
mod hot_set;
mod platform;
pub mod ring;
mod shared;
mod site;
pub mod spin;

pub use event::{Announced, Event};
pub use hot_set::{HotKey, HotSet};
pub use platform::{CondvarParker, Native, Parker, Platform, Word};
#[cfg(target_os = "linux")]
pub use platform::{EventFd, Futex, NativeEventFd};
pub use shared::Shared;
pub use site::{End, Site};
