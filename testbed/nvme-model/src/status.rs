//! How commands end (NVM Express base specification 1.4, section 4.6.1).

use std::fmt;

/// The status field of a completion without its phase: code in bits 7:0, code type in 10:8, more in 13, do
/// not retry in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

const MORE: u16 = 1 << 13;
const DO_NOT_RETRY: u16 = 1 << 14;

impl Status {
    /// Success.
    pub const SUCCESS: Self = Self::generic(0x00);
    /// Invalid Command Opcode.
    pub const INVALID_OPCODE: Self = Self::generic(0x01);
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = Self::generic(0x02);
    /// Command ID Conflict.
    pub const ID_CONFLICT: Self = Self::generic(0x03);
    /// Data Transfer Error.
    pub const DATA_TRANSFER: Self = Self::generic(0x04);
    /// Internal Error.
    pub const INTERNAL: Self = Self::generic(0x06);
    /// Command Abort Requested.
    pub const ABORT_REQUESTED: Self = Self::generic(0x07);
    /// Command Aborted due to SQ Deletion.
    pub const ABORTED_BY_DELETION: Self = Self::generic(0x08);
    /// Invalid Namespace or Format.
    pub const INVALID_NAMESPACE: Self = Self::generic(0x0b);
    /// Command Sequence Error.
    pub const SEQUENCE: Self = Self::generic(0x0c);
    /// Invalid SGL Segment Descriptor.
    pub const SGL_SEGMENT: Self = Self::generic(0x0d);
    /// Invalid Number of SGL Descriptors.
    pub const SGL_NUMBER: Self = Self::generic(0x0e);
    /// Data SGL Length Invalid.
    pub const SGL_LENGTH: Self = Self::generic(0x0f);
    /// SGL Descriptor Type Invalid.
    pub const SGL_TYPE: Self = Self::generic(0x11);
    /// PRP Offset Invalid.
    pub const PRP_OFFSET: Self = Self::generic(0x13);
    /// LBA Out of Range.
    pub const LBA_OUT_OF_RANGE: Self = Self::generic(0x80);
    /// Namespace Not Ready.
    pub const NAMESPACE_NOT_READY: Self = Self::generic(0x82);

    /// Completion Queue Invalid.
    pub const COMPLETION_QUEUE: Self = Self::specific(0x00);
    /// Invalid Queue Identifier.
    pub const QUEUE_ID: Self = Self::specific(0x01);
    /// Invalid Queue Size.
    pub const QUEUE_SIZE: Self = Self::specific(0x02);
    /// Abort Command Limit Exceeded.
    pub const ABORT_LIMIT: Self = Self::specific(0x03);
    /// Asynchronous Event Request Limit Exceeded.
    pub const EVENT_LIMIT: Self = Self::specific(0x05);
    /// Invalid Interrupt Vector.
    pub const VECTOR: Self = Self::specific(0x08);
    /// Invalid Log Page.
    pub const LOG_PAGE: Self = Self::specific(0x09);
    /// Invalid Format.
    pub const FORMAT: Self = Self::specific(0x0a);
    /// Invalid Queue Deletion.
    pub const QUEUE_DELETION: Self = Self::specific(0x0c);
    /// Feature Identifier Not Saveable.
    pub const NOT_SAVEABLE: Self = Self::specific(0x0d);
    /// Feature Not Changeable.
    pub const NOT_CHANGEABLE: Self = Self::specific(0x0e);

    /// Write Fault.
    pub const WRITE_FAULT: Self = Self::media(0x80);
    /// Unrecovered Read Error.
    pub const READ_ERROR: Self = Self::media(0x81);
    /// Compare Failure.
    pub const COMPARE: Self = Self::media(0x85);

    const fn generic(code: u16) -> Self {
        Self(code)
    }

    const fn specific(code: u16) -> Self {
        Self(1 << 8 | code)
    }

    const fn media(code: u16) -> Self {
        Self(2 << 8 | code)
    }

    /// The same with Do Not Retry set.
    #[must_use]
    pub const fn do_not_retry(self) -> Self {
        Self(self.0 | DO_NOT_RETRY)
    }

    /// The same with More set: the error log has an entry about it.
    #[must_use]
    pub const fn more(self) -> Self {
        Self(self.0 | MORE)
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}/{:#04x}", self.0 >> 8 & 7, self.0 & 0xff)
    }
}
