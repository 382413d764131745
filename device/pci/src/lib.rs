//! PCI functions driven by a process.
//!
//! # Purpose
//! A driver in user space needs four things of the function it drives: its registers, its interrupts, a
//! reset, and an address space in which the function may reach memory. [`Function`] is these four, with several
//! providers: the kernel's VFIO, another process that serves a device (vfio-user), or a model.
//!
//! # Trust
//! A function may return any value at any time, and may be removed: every read is untrusted data,
//! and reads of all ones may mean a removal (`Function::is_present`).

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
