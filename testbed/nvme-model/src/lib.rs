//! An NVMe controller in software, for tests of drivers.
//!
//! # Purpose
//! Hardware does not lose its cache on demand, complete commands that nobody gave, or vanish at the
//! thousandth one. This controller does, from a seed. It is written from the specifications alone (NVM
//! Express base specification 1.4 and 2.0, NVM command set specification 1.0) and shares no structure and
//! no constant with the driver, so that a wrong layout cannot pass twice. It also tells what the driver did
//! against the rules ([`Controller::violations`]) and which memory it let the controller reach without
//! having mapped it ([`Controller::dma_faults`]).
//!
//! # Use
//! [`Controller::function`] is a PCI function in this process. Nothing happens but in [`Controller::step`]:
//! on one thread, with one seed, everything happens again in the same way. Another thread may step in a
//! loop instead, a [`Stepper`] say. Time is counted in steps. [`Service`] serves a controller to another
//! process over vfio-user; the binary of this crate does that from the command line, with faults in words
//! ([`Faults::add`]).
//!
//! ```
//! use millrace_nvme_model::{Controller, Options};
//!
//! let controller = Controller::new(Options::default())?;
//! let function = controller.function();
//! assert_eq!(function.identity()?.class, 0x01_08_02);
//! controller.step();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is checked of the driver
//! [`Rule`] names each rule; a breach is answered as the specification says and recorded. Memory is used as
//! hardware may use it: what was fetched goes on while the controller stops, and after a fatal status, until
//! CSTS.RDY is zero, the function is reset, or bus mastering is off. Unmapping before that what it was given is
//! a breach ([`Rule::UnmappedInUse`]), whether it would have been used or not.
//!
//! # Limits
//! No metadata, no protection information, no namespace management, no fused commands, no firmware commands,
//! no controller memory buffer, contiguous queues only. Blocks are kept in memory, those never written cost
//! nothing. Reads and writes are executed at once when they are fetched, unless a fault delays them; a step
//! takes a bounded number of commands from each queue. A doorbell that is written twice between two steps is
//! seen once.
//!
//! # Threads
//! A doorbell costs the host one atomic store. The other registers go through a lock that a step holds only
//! while it takes the list of stores. Mapping and unmapping memory waits for the step that is under way.

mod bytes;
mod command;
mod config_space;
mod controller;
mod error;
mod fault_words;
mod faults;
mod function;
mod host;
mod lines;
mod medium;
mod options;
mod random;
mod registers;
mod server;
mod state;
mod status;
mod stepper;
mod violation;

pub use controller::Controller;
pub use error::{Error, ErrorKind, Result};
pub use faults::{Fault, FaultRule, Faults, IdentifyLie, Target, When};
pub use host::DmaFault;
pub use options::{Commands, Deallocated, NamespaceOptions, Options, SglSupport};
pub use server::Service;
pub use state::{Counters, Event};
pub use status::Status;
pub use stepper::Stepper;
pub use violation::{Rule, Violation};
