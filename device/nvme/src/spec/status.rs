//! How a command ended (Base 4.6.1).

use std::fmt;

/// The status field of a completion, without its phase bit.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u16);

impl Status {
    /// Successful completion (generic status 00h): no error.
    pub const SUCCESS: Self = Self(0);
    /// The command was ended by an Abort command.
    pub const ABORT_REQUESTED: Self = Self::generic(0x07);
    /// Invalid namespace or format (generic status 0Bh).
    pub const NO_NAMESPACE: Self = Self::generic(0x0b);
    /// Compare failure: the blocks differ (NVM, Compare).
    pub const COMPARE_FAILURE: Self = Self::new(2, 0x85);

    const fn new(kind: u16, code: u16) -> Self {
        Self(kind << 8 | code)
    }

    const fn generic(code: u16) -> Self {
        Self::new(0, code)
    }

    /// The type: 0 generic, 1 command specific, 2 media and data, 3 path, 7 vendor specific (SCT).
    #[must_use]
    pub const fn kind(self) -> u16 {
        (self.0 >> 8) & 7
    }

    /// The code within the type (SC).
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0 & 0xff
    }

    /// Whether the command must not be sent again (DNR).
    #[must_use]
    pub const fn is_final(self) -> bool {
        self.0 >> 14 & 1 == 1
    }

    /// Whether the error log has more (M).
    #[must_use]
    pub const fn has_more(self) -> bool {
        self.0 >> 13 & 1 == 1
    }

    /// Whether the command did what it was to do.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.0 & 0x7ff == 0
    }

    /// Whether both are the same status, whatever their flags.
    #[must_use]
    pub const fn is(self, other: Self) -> bool {
        self.kind() == other.kind() && self.code() == other.code()
    }

    /// Name of the status in the specification.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match (self.kind(), self.code()) {
            (0, 0x00) => "successful completion",
            (0, 0x01) => "invalid command opcode",
            (0, 0x02) => "invalid field in command",
            (0, 0x03) => "command id conflict",
            (0, 0x04) => "data transfer error",
            (0, 0x05) => "aborted by power loss notification",
            (0, 0x06) => "internal error",
            (0, 0x07) => "abort requested",
            (0, 0x08) => "aborted: submission queue deleted",
            (0, 0x0b) => "invalid namespace or format",
            (0, 0x0c) => "command sequence error",
            (0, 0x0d) => "invalid SGL segment descriptor",
            (0, 0x0e) => "invalid number of SGL descriptors",
            (0, 0x0f) => "data SGL length invalid",
            (0, 0x11) => "SGL descriptor type invalid",
            (0, 0x13) => "PRP offset invalid",
            (0, 0x14) => "atomic write unit exceeded",
            (0, 0x1c) => "sanitize failed",
            (0, 0x1d) => "sanitize in progress",
            (0, 0x20) => "namespace is write protected",
            (0, 0x21) => "command interrupted",
            (0, 0x22) => "transient transport error",
            (0, 0x80) => "LBA out of range",
            (0, 0x81) => "capacity exceeded",
            (0, 0x82) => "namespace not ready",
            (0, 0x84) => "format in progress",
            (1, 0x00) => "completion queue invalid",
            (1, 0x01) => "invalid queue identifier",
            (1, 0x02) => "invalid queue size",
            (1, 0x03) => "abort command limit exceeded",
            (1, 0x05) => "asynchronous event request limit exceeded",
            (1, 0x08) => "invalid interrupt vector",
            (1, 0x09) => "invalid log page",
            (1, 0x0a) => "invalid format",
            (1, 0x0c) => "invalid queue deletion",
            (1, 0x0d) => "feature identifier not saveable",
            (1, 0x0e) => "feature not changeable",
            (1, 0x80) => "conflicting attributes",
            (1, 0x82) => "attempted write to read only range",
            (2, 0x80) => "write fault",
            (2, 0x81) => "unrecovered read error",
            (2, 0x85) => "compare failure",
            (2, 0x86) => "access denied",
            (2, 0x87) => "deallocated or unwritten block",
            _ => "unnamed status",
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, code) = (self.kind(), self.code());
        write!(f, "{} (type {kind:#x}, code {code:#04x})", self.name())
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
