//! How commands end (NVM Express base specification 1.4, section 4.6.1).

use std::fmt;

/// The status field of a completion without its phase: code in bits 7:0, code type in 10:8, more in 13, do
/// not retry in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

const MORE: u16 = 1 << 13;
const DO_NOT_RETRY: u16 = 1 << 14;

impl Status {
    /// Success (generic status 00h): the command completed without an error.
    pub const SUCCESS: Self = Self::generic(0x00);
    /// Invalid Command Opcode (generic status 01h): not an offered command.
    pub const INVALID_OPCODE: Self = Self::generic(0x01);
    /// Invalid Field in Command (generic status 02h): a field has a reserved or unsupported value.
    pub const INVALID_FIELD: Self = Self::generic(0x02);
    /// Command ID Conflict (generic status 03h): the identifier is in use.
    pub const ID_CONFLICT: Self = Self::generic(0x03);
    /// Data Transfer Error (generic status 04h): the host's memory could not be accessed.
    pub const DATA_TRANSFER: Self = Self::generic(0x04);
    /// Internal Error (generic status 06h): the controller failed to execute the command.
    pub const INTERNAL: Self = Self::generic(0x06);
    /// Command Abort Requested (generic status 07h): ended by an Abort command.
    pub const ABORT_REQUESTED: Self = Self::generic(0x07);
    /// Command Aborted due to SQ Deletion.
    pub const ABORTED_BY_DELETION: Self = Self::generic(0x08);
    /// Invalid Namespace or Format (generic status 0Bh): no such active namespace.
    pub const INVALID_NAMESPACE: Self = Self::generic(0x0b);
    /// Command Sequence Error (generic status 0Ch): the command is not allowed at this time.
    pub const SEQUENCE: Self = Self::generic(0x0c);
    /// Invalid SGL Segment Descriptor (generic status 0Dh): a wrong chain of segments.
    pub const SGL_SEGMENT: Self = Self::generic(0x0d);
    /// Invalid Number of SGL Descriptors (generic status 0Eh): more descriptors than the model accepts.
    pub const SGL_NUMBER: Self = Self::generic(0x0e);
    /// Data SGL Length Invalid (generic status 0Fh): not the length of the transfer, or not whole dwords.
    pub const SGL_LENGTH: Self = Self::generic(0x0f);
    /// SGL Descriptor Type Invalid (generic status 11h): an unsupported descriptor type or subtype.
    pub const SGL_TYPE: Self = Self::generic(0x11);
    /// PRP Offset Invalid (generic status 13h): a PRP entry is not aligned as it must be.
    pub const PRP_OFFSET: Self = Self::generic(0x13);
    /// LBA Out of Range (generic status 80h): blocks beyond the namespace's end.
    pub const LBA_OUT_OF_RANGE: Self = Self::generic(0x80);
    /// Namespace Not Ready (generic status 82h): the namespace cannot be accessed at this time.
    pub const NAMESPACE_NOT_READY: Self = Self::generic(0x82);

    /// Completion Queue Invalid (command specific status 00h): no such completion queue.
    pub const COMPLETION_QUEUE: Self = Self::specific(0x00);
    /// Invalid Queue Identifier (command specific status 01h): in use, out of range, or of no queue.
    pub const QUEUE_ID: Self = Self::specific(0x01);
    /// Invalid Queue Size (command specific status 02h): fewer than 2 entries, above CAP.MQES, or wrong entry sizes.
    pub const QUEUE_SIZE: Self = Self::specific(0x02);
    /// Abort Command Limit Exceeded (command specific status 03h): more than ACL allows.
    pub const ABORT_LIMIT: Self = Self::specific(0x03);
    /// Asynchronous Event Request Limit Exceeded (command specific status 05h): more than AERL allows.
    pub const EVENT_LIMIT: Self = Self::specific(0x05);
    /// Invalid Interrupt Vector (command specific status 08h): beyond the function's MSI-X vectors.
    pub const VECTOR: Self = Self::specific(0x08);
    /// Invalid Log Page (command specific status 09h): an identifier that is not offered.
    pub const LOG_PAGE: Self = Self::specific(0x09);
    /// Invalid Format (command specific status 0Ah): a block format or setting that is not offered.
    pub const FORMAT: Self = Self::specific(0x0a);
    /// Invalid Queue Deletion (command specific status 0Ch): a submission queue still uses it.
    pub const QUEUE_DELETION: Self = Self::specific(0x0c);
    /// Feature Identifier Not Saveable (command specific status 0Dh): Save is set in Set Features.
    pub const NOT_SAVEABLE: Self = Self::specific(0x0d);
    /// Feature Not Changeable (command specific status 0Eh): the value cannot be set.
    pub const NOT_CHANGEABLE: Self = Self::specific(0x0e);

    /// Write Fault (media status 80h): the data could not be written.
    pub const WRITE_FAULT: Self = Self::media(0x80);
    /// Unrecovered Read Error (media status 81h): the data could not be read.
    pub const READ_ERROR: Self = Self::media(0x81);
    /// Compare Failure (media status 85h): the blocks differ from the host's data.
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

    /// Whether the command succeeded: status type and code are zero, whatever More and Do Not Retry are.
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
