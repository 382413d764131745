//! OP_MSG: a command or its reply.
//!
//! ```text
//!   +----------+--------------------------------------------+-----------+
//!   | flagBits | sections                                   | [crc32c]  |
//!   +----------+--------------------------------------------+-----------+
//!      4 bytes   kind 0: 00 document                          4 bytes, if flag bit 0 is set:
//!                kind 1: 01 length name 00 document*          of all bytes before it
//! ```

use bson::RawDocument;

use crate::header::{read_i32, read_u32};
use crate::validate::validate_document;
use crate::{Error, ErrorKind, Header, Message, Result, Sequence};

/// How many document sequences a message may carry (`bulkWrite` has two).
pub const SEQUENCES_MAX: usize = 2;

/// The length of the checksum, in bytes.
pub(crate) const CHECKSUM_LEN: usize = 4;

/// The flag bits of an OP_MSG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MsgFlags(u32);

impl MsgFlags {
    /// The empty set: a reply is wanted and no checksum follows.
    pub const NONE: Self = Self(0);
    /// Bit 0: a CRC-32C of 4 bytes follows the sections.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// In a request: no reply is wanted. In a reply: another one follows by itself.
    pub const MORE_TO_COME: Self = Self(1 << 1);
    /// The sender of a request accepts replies with [`MsgFlags::MORE_TO_COME`].
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    /// The lower half of the bits must be understood by the receiver, the upper half may be ignored.
    const REQUIRED_MASK: u32 = 0xFFFF;

    /// The bits as the message carries them.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The flags with these bits.
    ///
    /// # Errors
    /// [`ErrorKind::IllegalFlag`] for bits that must be understood and are not.
    pub fn from_bits(bits: u32) -> Result<Self> {
        let known = Self::CHECKSUM_PRESENT.0 | Self::MORE_TO_COME.0 | Self::EXHAUST_ALLOWED.0;
        if bits & Self::REQUIRED_MASK & !known != 0 {
            return Err(Error::new(
                ErrorKind::IllegalFlag,
                format!("Message contains illegal flags value: Ob{bits:032b}"),
            ));
        }
        Ok(Self(bits & known))
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The union of these flags and `other`.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// These flags without those that `other` has.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// A view of an OP_MSG. Its documents are checked.
#[derive(Clone, Copy, Debug)]
pub struct OpMsg<'a> {
    /// The header of the message: its length and request numbers.
    pub header: Header,
    /// The flags; bits that are optional and unknown are cleared.
    pub flags: MsgFlags,
    /// The command or reply: the document of the section of kind 0.
    pub body: &'a RawDocument,
    sequences: [Option<Sequence<'a>>; SEQUENCES_MAX],
}

impl<'a> OpMsg<'a> {
    /// Reads and checks an OP_MSG.
    ///
    /// # Errors
    /// Every kind of [`ErrorKind`] except [`ErrorKind::Compression`].
    pub fn parse(message: &Message<'a>) -> Result<Self> {
        let payload = message.payload();
        let bits = read_u32(payload, 0).ok_or_else(|| Error::truncated("flags"))?;
        let flags = MsgFlags::from_bits(bits)?;
        let mut sections = &payload[4..];
        if flags.contains(MsgFlags::CHECKSUM_PRESENT) {
            sections = verify_checksum(message, sections)?;
        }

        let mut body = None;
        let mut sequences = [None; SEQUENCES_MAX];
        while let Some((kind, rest)) = sections.split_first() {
            sections = match kind {
                0 => read_body(rest, &mut body)?,
                1 => read_sequence(rest, &mut sequences)?,
                other => {
                    return Err(Error::new(
                        ErrorKind::SectionKind,
                        format!("Unknown section kind {other}"),
                    ));
                }
            };
        }
        let body = body.ok_or_else(|| {
            Error::new(ErrorKind::MissingBody, "OP_MSG messages must have a body")
        })?;
        refuse_sequence_in_body(body, &sequences)?;
        Ok(Self {
            header: message.header,
            flags,
            body,
            sequences,
        })
    }

    /// The document sequences, in the order of the message.
    pub fn sequences(&self) -> impl Iterator<Item = &Sequence<'a>> {
        self.sequences.iter().flatten()
    }

    /// The document sequence called `name`; `None` if the message has none of that name.
    #[must_use]
    pub fn sequence(&self, name: &str) -> Option<&Sequence<'a>> {
        self.sequences().find(|sequence| sequence.name() == name)
    }
}

/// Checks the checksum at the end of `message`, of whose sections the rest is returned.
fn verify_checksum<'a>(message: &Message<'a>, sections: &'a [u8]) -> Result<&'a [u8]> {
    let Some((sections, expected)) = sections.split_last_chunk::<CHECKSUM_LEN>() else {
        return Err(Error::truncated("checksum"));
    };
    let covered = message.bytes().len() - CHECKSUM_LEN;
    if crc32c::crc32c(&message.bytes()[..covered]) != u32::from_le_bytes(*expected) {
        return Err(Error::new(
            ErrorKind::Checksum,
            "OP_MSG checksum does not match contents",
        ));
    }
    Ok(sections)
}

/// Reads a section of kind 0 and returns what follows it.
fn read_body<'a>(bytes: &'a [u8], body: &mut Option<&'a RawDocument>) -> Result<&'a [u8]> {
    if body.is_some() {
        return Err(Error::new(
            ErrorKind::MultipleBodies,
            "Multiple body sections in message",
        ));
    }
    let (document, rest) = validate_document(bytes)?;
    *body = Some(document);
    Ok(rest)
}

/// Reads a section of kind 1 and returns what follows it.
fn read_sequence<'a>(
    bytes: &'a [u8],
    sequences: &mut [Option<Sequence<'a>>; SEQUENCES_MAX],
) -> Result<&'a [u8]> {
    let length = read_i32(bytes, 0)
        .and_then(|length| usize::try_from(length).ok())
        .filter(|length| *length >= 4)
        .ok_or_else(|| Error::truncated("document sequence"))?;
    let (section, rest) = bytes
        .split_at_checked(length)
        .ok_or_else(|| Error::truncated("document sequence"))?;
    let section = &section[4..];
    let name_len = section
        .iter()
        .position(|byte| *byte == 0)
        .ok_or_else(|| Error::truncated("document sequence's name"))?;
    let name = std::str::from_utf8(&section[..name_len]).map_err(|_| {
        Error::new(
            ErrorKind::InvalidBson,
            "the name of a document sequence is not UTF-8",
        )
    })?;
    let documents = &section[name_len + 1..];

    if sequences.iter().flatten().any(|other| other.name() == name) {
        return Err(Error::new(
            ErrorKind::DuplicateSequence,
            format!("Duplicate document sequence: {name}"),
        ));
    }
    let slot = sequences
        .iter_mut()
        .find(|slot| slot.is_none())
        .ok_or_else(|| {
            Error::new(
                ErrorKind::TooManySequences,
                "Too many document sequences in OP_MSG",
            )
        })?;

    let mut count = 0;
    let mut remaining = documents;
    while !remaining.is_empty() {
        (_, remaining) = validate_document(remaining)?;
        count += 1;
    }
    *slot = Some(Sequence::new(name, documents, count));
    Ok(rest)
}

/// A field given both in the body and as a sequence would have two meanings.
fn refuse_sequence_in_body(
    body: &RawDocument,
    sequences: &[Option<Sequence<'_>>; SEQUENCES_MAX],
) -> Result<()> {
    if sequences.iter().all(Option::is_none) {
        return Ok(());
    }
    for element in body.iter_elements().flatten() {
        let name = element.key().as_str();
        if sequences
            .iter()
            .flatten()
            .any(|sequence| sequence.name() == name)
        {
            return Err(Error::new(
                ErrorKind::DuplicateField,
                format!("Duplicate field between body and document sequence {name}"),
            ));
        }
    }
    Ok(())
}
