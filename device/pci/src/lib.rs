//! A PCI function that a process owns.
//!
//! # Purpose
//! A driver in user space needs four things of the function it drives: its registers, its interrupts, a
//! reset, and an address space in which the function may reach memory. [`Function`] is these four, whoever
//! provides them: the kernel's VFIO, or another process that serves a device (vfio-user), or a model.
//!
//! # Trust
//! A function may answer anything at any time, and may be pulled out: every read is data to be checked,
//! and reads of all ones mean that it may be gone (`Function::is_present`).

mod address;
mod argument;
mod bar;
pub mod barrier;
pub mod binding;
mod capability;
mod disks;
mod domain;
mod error;
#[cfg(any(test, feature = "exercise"))]
pub mod exercise;
mod function;
mod mapping;
mod region;
mod sysfs;
pub mod vfio;
#[cfg(feature = "vfio-user")]
pub mod vfio_user;

pub use address::Address;
pub use bar::{Bar, MappedArea, Register, RegisterFile};
pub use error::{Error, ErrorKind, Result};
pub use function::{Function, Identity};

use error::refused;
