//! The crate's error.

use std::error::Error as StdError;
use std::result;

/// Kinds of failure that a caller can act on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No such function, or its address cannot be read as one.
    NotFound,
    /// The function is not under an IOMMU, or the kernel's IOMMU driver is off.
    NoIommu,
    /// The IOMMU does not remap interrupts, so that a device could forge them.
    NoInterruptRemapping,
    /// The kernel drives other functions of the same IOMMU group; the context names them.
    GroupNotViable,
    /// The kernel or another process drives the function; the context names the driver.
    InUse,
    /// The user may not open what is needed.
    Permission,
    /// The limit of locked memory (RLIMIT_MEMLOCK) is too low.
    LockLimit,
    /// The offset or number lies outside.
    OutOfRange,
    /// The function or its provider cannot do this.
    Unsupported,
    /// The function was pulled out, or the process that serves it has ended.
    Gone,
    /// The provider answered against its own rules.
    Protocol,
    /// Anything else that the kernel refused.
    Refused,
}

impl ErrorKind {
    const fn text(self) -> &'static str {
        match self {
            Self::NotFound => "no such PCI function",
            Self::NoIommu => "no IOMMU",
            Self::NoInterruptRemapping => "no interrupt remapping",
            Self::GroupNotViable => "the IOMMU group is not free",
            Self::InUse => "in use",
            Self::Permission => "not permitted",
            Self::LockLimit => "not enough memory may be locked",
            Self::OutOfRange => "out of range",
            Self::Unsupported => "not supported",
            Self::Gone => "the device was removed",
            Self::Protocol => "the provider broke its protocol",
            Self::Refused => "refused",
        }
    }
}

/// A failure, with what was attempted and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {context}", .kind.text())]
pub struct Error {
    kind: ErrorKind,
    context: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// Result whose error is this crate's [`Error`].
pub type Result<T> = result::Result<T, Error>;

impl Error {
    /// A failure of `kind`; `context` names the operation or the finding, and the remedy where it is known.
    #[must_use]
    pub fn new(kind: ErrorKind, context: impl Into<String>) -> Self {
        Self {
            kind,
            context: context.into(),
            source: None,
        }
    }

    /// This error with its cause as the source.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Kind of the failure, for the caller to match on.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }
}

/// Error of a system call whose errno alone determines the kind.
pub(crate) fn refused(errno: rustix::io::Errno, attempted: &str) -> Error {
    use rustix::io::Errno;
    let kind = match errno {
        Errno::NODEV | Errno::NXIO => ErrorKind::Gone,
        Errno::ACCESS | Errno::PERM => ErrorKind::Permission,
        Errno::NOTTY | Errno::OPNOTSUPP => ErrorKind::Unsupported,
        Errno::BUSY => ErrorKind::InUse,
        _ => ErrorKind::Refused,
    };
    Error::new(kind, attempted).caused_by(errno)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_the_kind_and_the_context_and_not_the_source() {
        let error = Error::new(ErrorKind::InUse, "0000:01:00.0: nvme");
        let error = error.caused_by(std::io::Error::other("busy"));
        assert_eq!(error.to_string(), "in use: 0000:01:00.0: nvme");
        assert_eq!(
            error.source().map(ToString::to_string),
            Some("busy".to_owned())
        );
    }
}
