//! Functions that another process serves, over a socket (the vfio-user protocol, version 0.1).
//!
//! # Trust
//! The server sees all memory that is mapped for its function, and nothing else of this process. What it
//! answers is checked; an answer that breaks the protocol, or none within [`ANSWER_TIMEOUT`], ends the
//! connection, so that the server lets go of the memory, and all calls fail with
//! [`ErrorKind::Gone`](crate::ErrorKind::Gone) from then on. What has to come within that time is the
//! answer's head, and then its payload, each as a whole.
//!
//! Two things are left to trust, because they turn an access of this process into SIGBUS:
//! - A server that hands over a file of registers does not make it shorter later.
//! - A server has the file of the memory that is mapped for it, and may write to it: nothing hinders it from
//!   punching holes. What was there is lost, and pages come anew, as zeros, when they are next touched; with
//!   huge pages, if there are none left by then, that touch is the signal. A server does not do that.
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
#[cfg(any(test, feature = "exercise"))]
pub(crate) mod exercise;
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
/// [`ErrorKind::NotFound`](crate::ErrorKind::NotFound) if no server listens there,
/// [`ErrorKind::Permission`](crate::ErrorKind::Permission) if the socket is not accessible,
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) if the server speaks another version or serves
/// another kind of device, [`ErrorKind::Protocol`](crate::ErrorKind::Protocol) if its answers are invalid.
pub fn connect(path: &Path) -> Result<Arc<dyn Function>> {
    let connection = Connection::connect(path)?;
    let function = UserFunction::new(path.display().to_string(), connection)?;
    Ok(Arc::new(function))
}
