//! A driver for NVMe controllers, in user space.
//!
//! # Purpose
//! Reads and writes of an NVMe namespace without the kernel: a thread builds a command in memory that the
//! controller reads, rings a doorbell, and finds the completion in memory that the controller writes. The
//! controller is whatever [`millrace_pci::Function`] stands for one: hardware behind VFIO, a process that
//! serves vfio-user, a model in this process.
//!
//! ```text
//!   thread                                            Controller (shared by all threads)
//!     | Request {operation, lba, Data, token}           | admin queue: identify, log pages, features,
//!     v                                                 |   abort, asynchronous events; behind a lock
//!   QueuePair (belongs to one thread)                   | epoch: one atomic word, read at every poll
//!     | split by transfer limit and boundary            v
//!     | PRP list or SGL                               reset: disables, re-enables, next epoch;
//!     v                                                 each QueuePair then makes its queues anew and
//!   submission ring --doorbell--> device                sends again, or fails, what was in flight
//!   completion ring <------------ device
//!     | command id checked against the table
//!     v
//!   Completion {token, result, Data}
//! ```
//!
//! # What is promised
//! 1. A command's memory belongs to the driver from submission until the device can no longer reach it: its
//!    completion was seen, its queue was deleted, or the controller was disabled or reset. If none of these
//!    can be had the memory is given up, never handed back.
//! 2. Whatever a controller writes or answers leads to an error at worst. Completions are checked against
//!    the table of commands in flight; one that was not asked for, or comes twice, ends in a reset.
//! 3. Every request that was accepted completes exactly once, with its token.
//! 4. A write with FUA that succeeded, and all writes that had completed when a later flush succeeded, are on
//!    media. The driver keeps no data of its own.
//! 5. After a queue pair is made, submitting and polling allocate nothing.
//!
//! Requests of one queue pair may be executed in any order (NVMe has no order between commands); a request
//! that was split is not atomic, see [`Namespace::atomic_write`].
//!
//! # Threads, clock, memory
//! No thread is spawned and no clock is read: [`Host`] brings the time and says what to do while waiting.
//! A [`QueuePair`] is `Send` and not `Sync`; a [`SharedQueue`] lets many threads use one. The queue pair's
//! rings and lists take `64 + 16 + list` bytes an entry, where a list has 8 bytes for each device page of
//! the longest transfer.
//!
//! # Limits
//! Namespaces with metadata are refused, as are controllers without the NVM command set. A single command
//! moves at most 512 device pages (2 MiB with pages of 4 KiB), so that its PRP list is one page; longer
//! requests are split. Completion delays that a controller asks for (CRD) are not kept.
//!
//! Sources: NVM Express Base Specification 1.4 and 2.0 (cited as "Base"), NVM Command Set Specification
//! 1.0 ("NVM"); section numbers are those of Base 1.4 unless said otherwise.

#![forbid(unsafe_code)]

mod admin;
mod admin_commands;
mod check;
mod claim;
mod commands;
mod control;
mod controller;
mod doorbell;
mod epoch;
mod error;
mod events;
mod host;
mod interrupt;
mod namespace;
mod options;
mod queue_pair;
mod request;
mod rings;
mod shared_queue;
pub mod spec;
mod transfer;

pub use controller::{Controller, Erase};
pub use epoch::Condition;
pub use error::{CommandError, Error, ErrorKind, Result};
pub use events::{AsyncEvent, EventKind};
pub use host::{Host, SystemHost};
pub use namespace::Namespace;
pub use options::{Options, QueueOptions, ScatterGather, Waiting};
pub use queue_pair::QueuePair;
pub use request::{Completion, Data, Lba, Operation, Refusal, Refused, Request};
pub use shared_queue::{SharedHandle, SharedQueue};
pub use spec::status::Status;
