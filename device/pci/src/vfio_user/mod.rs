//! Functions that another process serves, over a socket (the vfio-user protocol, version 0.1).
//!
//! # Trust
//! The server sees all memory that is mapped for its function, and nothing else of this process. What it
//! answers is checked; an answer that breaks the protocol, or none within [`ANSWER_TIMEOUT`], ends the
//! connection, and all calls fail with [`ErrorKind::Gone`](crate::ErrorKind::Gone) from then on. One thing is
//! left to trust: a server that hands over a file of registers and makes it shorter later turns an access to
//! them into SIGBUS.
//!
//! # Cost
//! A register that the server lets be mapped is reached as memory. Any other access is a message and its
//! answer, one at a time for all threads.
//!
//! # Limits
//! All memory is handed over with its file. A server that wants to read or write it by messages instead
//! breaks the protocol as it is spoken here.
//!
//! Source: the protocol's specification in libvfio-user, docs/vfio-user.rst.

mod connection;
mod function;
mod message;

#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::Arc;

pub use self::connection::ANSWER_TIMEOUT;
use self::connection::Connection;
use self::function::UserFunction;
use crate::{Function, Result};

/// Connects to the server that listens at `path`.
///
/// # Errors
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if nobody listens there,
/// [`ErrorKind::Permission`](crate::ErrorKind::Permission) if the socket is not ours to use,
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the server speaks another version or serves
/// no PCI function, [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) if its answers make no sense.
pub fn connect(path: &Path) -> Result<Arc<dyn Function>> {
    let connection = Connection::connect(path)?;
    let function = UserFunction::new(path.display().to_string(), connection)?;
    Ok(Arc::new(function))
}
