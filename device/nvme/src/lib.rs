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
//!    is possible the memory is leaked, never returned.
//! 2. Whatever a controller answers leads to an error at worst. Completions are checked against the table of
//!    commands in flight; an unexpected or repeated one ends in a reset. (What a controller
//!    writes to memory handle_unexpected is for the IOMMU to confine: to memory that is mapped for it.)
//! 3. Every request that was accepted completes exactly once, with its token.
//! 4. A write with FUA that succeeded, and all writes that had completed when a later flush succeeded, are on
//!    media. The driver keeps no data of its own. If the controller's volatile cache may be lost by a reset that its
//!    owner did not request, a flush fails once with [`CommandError::CacheLost`]: of each queue pair and each
//!    [`SharedHandle`] the flushes in flight, or else the next one. Pairs and handles made after such a report need not
//!    repeat it.
//! 5. After a queue pair is made, submitting and polling allocate nothing.
//!
//! Requests of one queue pair may be executed in any order (NVMe has no order between commands); a request
//! that was split is not atomic, see [`Namespace::atomic_write`].
//!
//! # Threads, clock, memory
//! The library spawns no thread and reads no clock: [`Host`] provides the time and the pauses of a wait. Waits use the
//! processor only as long as there is nothing better: admin commands, which may take an hour, pause in
//! [`Host::rest`]; a wait for I/O has several modes ([`Waiting`]).
//! The owner of a queue pair finds commands that time out: as long as commands are in flight it polls or waits at least
//! once a second. A command that never completes is aborted after its timeout, the controller
//! is reset after as long again, and so for each time that it is sent again.
//! A [`QueuePair`] is `Send` and not `Sync`; a [`SharedQueue`] lets many threads use one. The queue pair's
//! rings and lists take `64 + 32 + list` bytes an entry, where a list has 8 bytes for each device page of
//! the longest transfer.
//! Recoveries are counted ([`Controller::recovery`]), and the last cause is kept ([`Controller::last_failure`]):
//! logging is left to the owner of the controller.
//!
//! # Example
//! ```
//! use std::sync::Arc;
//! use std::time::{Duration, Instant};
//!
//! use millrace_memory::{Arena, ArenaOptions};
//! use millrace_nvme::{Controller, Lba, Options, QueueOptions, Request, SystemHost};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let model = millrace_nvme_model::Controller::new(millrace_nvme_model::Options::default())?;
//! # let function = model.function();
//! # let stepper = millrace_nvme_model::Stepper::new(model.clone());
//! // `function` is, for example, `millrace_pci::vfio::open("0000:01:00.0".parse()?, Default::default())?`.
//! let host = Arc::new(SystemHost::new(Instant::now()));
//! let controller = Controller::open(function, host, Options::default())?;
//! let namespace = controller.namespace(controller.namespaces()?[0])?;
//! let arena = Arena::new(Arc::clone(controller.domain()), &ArenaOptions::default())?;
//! let mut pair = controller.queue_pair(QueueOptions::default())?;
//!
//! let mut buffer = arena.try_buffer(4096)?;
//! buffer.fill(7);
//! pair.submit(&namespace, Request::write(Lba(0), buffer, 1))?;
//! pair.wait(Duration::from_secs(1), |completion| {
//!     assert_eq!((completion.token, completion.result), (1, Ok(())));
//! });
//! # drop((pair, controller, stepper));
//! # Ok(())
//! # }
//! ```
//!
//! # Limits
//! Namespaces with metadata are refused, as are controllers without the NVM command set. A single command
//! moves at most 512 device pages (2 MiB with pages of 4 KiB), so that its PRP list is one page; longer
//! requests are split. A single command deallocates or zeroes 1 GiB at most, and deallocates
//! 2^18 blocks. Completion delays that a controller asks for (CRD) are not kept.
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
mod profile;
mod queue_pair;
mod recovery;
mod request;
mod rings;
mod shape;
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
pub use recovery::Recovery;
pub use request::{Completion, Data, Lba, Operation, Refusal, Refused, Request};
pub use shared_queue::{SharedHandle, SharedQueue};
pub use spec::status::Status;
