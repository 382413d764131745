//! What can be wrong with a message.

/// The result of decoding; its error is [`Error`] unless another one is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The kinds of malformed input, by what the receiver does about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The length in the header is below the header's own or above the limit.
    MessageLength,
    /// The operation code is unknown or no longer spoken.
    OpCode,
    /// The message ends inside of a field, or goes on after its end.
    Truncated,
    /// A required flag bit is set that has no meaning.
    IllegalFlag,
    /// A section's kind byte is unknown.
    SectionKind,
    /// There is no section with a body.
    MissingBody,
    /// There are two sections with a body.
    MultipleBodies,
    /// There are more document sequences than [`SEQUENCES_MAX`](crate::SEQUENCES_MAX).
    TooManySequences,
    /// Two document sequences have one name.
    DuplicateSequence,
    /// A document sequence has the name of a field of the body.
    DuplicateField,
    /// The checksum is not that of the content.
    Checksum,
    /// A document is not BSON.
    InvalidBson,
    /// A document nests deeper than [`NESTING_DEPTH_MAX`](crate::NESTING_DEPTH_MAX).
    NestingDepth,
    /// A document is longer than [`DOCUMENT_LEN_MAX`](crate::DOCUMENT_LEN_MAX).
    DocumentLength,
    /// The compressor is unknown, or its output is not what was announced.
    Compression,
}

/// A malformed message: its kind and what was found, in words for the sender.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    kind: ErrorKind,
    message: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    pub(crate) fn truncated(what: &str) -> Self {
        Self::new(
            ErrorKind::Truncated,
            format!("message ends inside of its {what}"),
        )
    }

    /// The kind of malformed input; [`Error::code`] is derived from it.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// The description of the failure that is sent to the client as `errmsg`.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The error code that MongoDB's server answers with.
    #[must_use]
    pub const fn code(&self) -> i32 {
        match self.kind {
            ErrorKind::MessageLength | ErrorKind::OpCode => 17,
            ErrorKind::Truncated | ErrorKind::InvalidBson => 22,
            ErrorKind::IllegalFlag => 223,
            ErrorKind::SectionKind => 40432,
            ErrorKind::MissingBody => 40587,
            ErrorKind::MultipleBodies => 40430,
            ErrorKind::TooManySequences => 233,
            ErrorKind::DuplicateSequence => 40431,
            ErrorKind::DuplicateField => 40433,
            ErrorKind::Checksum => 288,
            ErrorKind::NestingDepth => 15,
            ErrorKind::DocumentLength => 10334,
            ErrorKind::Compression => 2,
        }
    }

    /// Whether the sender can be answered. When it cannot, nothing is known about where the next
    /// message starts or which request to answer, and the connection has to be closed in silence.
    #[must_use]
    pub const fn can_be_answered(&self) -> bool {
        !matches!(
            self.kind,
            ErrorKind::MessageLength | ErrorKind::OpCode | ErrorKind::Compression
        )
    }

    /// Whether the connection is closed after the answer, since the sender's protocol is not ours.
    #[must_use]
    pub const fn closes_connection(&self) -> bool {
        !self.can_be_answered()
            || matches!(
                self.kind,
                ErrorKind::IllegalFlag | ErrorKind::TooManySequences | ErrorKind::Checksum
            )
    }
}
