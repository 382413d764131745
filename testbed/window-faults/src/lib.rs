//! A window in memory that does everything which real ones may do.
//!
//! # Purpose
//! A protocol that forgets a fence works on the machine where it was written. [`Pair`] is two sides of a window
//! in one process, each a [`Medium`](millrace_window::Medium) that does what the attributes allow and no more,
//! chosen by a seed. A protocol that holds for many seeds and all attributes holds because of its fences: the
//! tests leave out each step of `millrace-window` in turn, and some seed then fails.
//!
//! # What a side may do
//! 1. *Stores wait*, each word by itself, and reach memory in any order, but for two of one word. A release holds
//!    those of cached coherent memory back until the earlier ones are done; a drain all.
//! 2. *Loads are early*: they give what memory held at some time after the last fence that orders them, or what it
//!    holds now. Two loads of one word never go back.
//! 3. *Cached memory that is not coherent*: stores change lines of the side's own cache. A changed line reaches
//!    memory as a whole (that is where payload tears: at 64 bytes), by a write-back or at any time by itself, or
//!    never. Loads that find a line in the cache get what it held when it was fetched, for ever. Lines are fetched
//!    without being asked for, and dropped. Write-backs and invalidations wait until a fence orders them;
//!    without one they may never be done, and an invalidation may come earlier than loads before it.
//! 4. *Write-combining*: stores leave in any order, and need not leave at all without a drain. Loads are early;
//!    only a full fence orders them.
//! 5. *Uncached*: stores and loads are done in order; stores wait.
//! 6. *A side dies* between any two accesses ([`Pair::kill`]). Of what waited some is done, in an order that was
//!    allowed, and the rest is lost.
//!
//! This is weaker than each of x86-64, Arm and POWER where they differ, so that what holds here holds on all.
//!
//! # What is not shown
//! A load that is done after a store which follows it: the value must be given at once. The fences against that
//! ([`Site::BeforeWord`](millrace_window::Site::BeforeWord) for loads,
//! [`Site::AfterPoll`](millrace_window::Site::AfterPoll) for stores) are shown to be needed by their other duties
//! alone, and on uncached memory not at all.
//!
//! # Determinism
//! Used from one thread, the same seed and the same calls give the same run. Threads may share a pair; its lock
//! then decides.
//!
//! # Cost
//! Every store is remembered for ever.
//!
//! # Beside it
//! [`loom`] has words of the crate of that name instead, for models of a few steps in every interleaving.
//!
//! # Example
//! ```
//! use millrace_window::{Attributes, Window};
//! use millrace_window_faults::{Pair, Side};
//!
//! let pair = Pair::new(256, Attributes::SHARED_MEMORY, 7);
//! let (ours, theirs) = (Window::new(pair.medium(Side::A)), Window::new(pair.medium(Side::B)));
//! let mut outgoing = ours.outgoing(0..128)?;
//! let incoming = theirs.incoming(0..128)?;
//! outgoing.slot(0, 64)?.publish(1);
//! pair.pass_time();
//! assert_eq!(incoming.poll(0)?.word(), 1);
//! # Ok::<(), millrace_window::Error>(())
//! ```

#![forbid(unsafe_code)]

pub mod loom;
mod memory_history;
mod pair;
mod pending;
mod processor;

pub use pair::{FaultyMedium, Pair, Side};
