//! Lock-free structures for threads that poll, and ways to wait.
//!
//! # Purpose
//! A data path that goes around the kernel has no system call in which to wait for another thread. What it
//! needs instead is here: bounded rings between threads ([`ring`]), reference-counted memory ([`Shared`]),
//! and waiting that spins first and sleeps later ([`Event`]).
//!
//! # How orderings are checked
//! Every structure is generic over a [`Platform`]: its atomic words, its fences, and what it does while it
//! spins. On [`Native`] these are the standard library's. The tests bring platforms of loom, which runs a
//! program in all interleavings, and of shuttle, which runs a larger one in many random ones.
//!
//! No ordering stands in the code of a structure. Each place that needs one is a [`Site`], and the
//! platform says which ordering it has. That is how the *mutation check* works: the tests weaken one site
//! at a time and demand that a model then fails. A site that no model misses has a stronger ordering than
//! it needs.
//!
//! # Threads, clock, memory
//! The crate spawns no thread and reads no clock. Structures allocate when they are made and never
//! afterwards.
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
mod platform;
pub mod ring;
mod shared;
mod site;

pub use event::Event;
pub use platform::{EventFd, Futex, Native, NativeEventFd, Parker, Platform, Word};
pub use shared::Shared;
pub use site::Site;
