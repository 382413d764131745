//! The header that every message starts with.
//!
//! ```text
//!   0        4           8            12       16
//!   +--------+-----------+------------+--------+----------
//!   | length | requestID | responseTo | opCode | payload     little endian, signed
//!   +--------+-----------+------------+--------+----------
//!   length counts the whole message, header included
//! ```

use crate::{Error, ErrorKind, MESSAGE_LEN_MAX, Result};

/// The length of a header, in bytes.
pub const HEADER_LEN: usize = 16;

/// The operations this crate understands; [`OpCode::number`] is the `opCode` of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpCode {
    /// The reply to [`OpCode::Query`].
    Reply,
    /// The operation of old drivers; still used for their first `isMaster`.
    Query,
    /// Another operation, compressed.
    Compressed,
    /// A command or its reply.
    Msg,
}

impl OpCode {
    /// The `opCode` of the header: 1, 2004, 2012 or 2013.
    #[must_use]
    pub const fn number(self) -> i32 {
        match self {
            Self::Reply => 1,
            Self::Query => 2004,
            Self::Compressed => 2012,
            Self::Msg => 2013,
        }
    }

    /// The operation with this number.
    ///
    /// # Errors
    /// [`ErrorKind::OpCode`] for all others, among them those that MongoDB removed in release 5.1.
    pub fn from_number(number: i32) -> Result<Self> {
        match number {
            1 => Ok(Self::Reply),
            2004 => Ok(Self::Query),
            2012 => Ok(Self::Compressed),
            2013 => Ok(Self::Msg),
            other => Err(Error::new(
                ErrorKind::OpCode,
                format!("Operations with opcode {other} are not supported"),
            )),
        }
    }
}

/// The header of a message: four signed 32-bit numbers, 16 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The length of the whole message, in bytes.
    pub message_len: usize,
    /// The sender's number for this message.
    pub request_id: i32,
    /// The number of the message that this one answers; 0 in requests.
    pub response_to: i32,
    /// The operation, not checked yet: see [`OpCode::from_number`].
    pub op_code: i32,
}

impl Header {
    /// Reads a header from the start of `bytes`; `None` if they do not suffice.
    ///
    /// # Errors
    /// [`ErrorKind::MessageLength`]
    pub fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(length) = read_i32(bytes, 0) else {
            return Ok(None);
        };
        // The length is checked as soon as its four bytes are there: a peer with another protocol
        // may never send the rest of a header.
        let message_len = usize::try_from(length)
            .ok()
            .filter(|length| (HEADER_LEN..=MESSAGE_LEN_MAX).contains(length))
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::MessageLength,
                    format!(
                        "message length {length} is invalid. Min: {HEADER_LEN}, \
                         Max: {MESSAGE_LEN_MAX}"
                    ),
                )
            })?;
        let (Some(request_id), Some(response_to), Some(op_code)) =
            (read_i32(bytes, 4), read_i32(bytes, 8), read_i32(bytes, 12))
        else {
            return Ok(None);
        };
        Ok(Some(Self {
            message_len,
            request_id,
            response_to,
            op_code,
        }))
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        let length = i32::try_from(self.message_len).unwrap_or(i32::MAX);
        out.extend_from_slice(&length.to_le_bytes());
        out.extend_from_slice(&self.request_id.to_le_bytes());
        out.extend_from_slice(&self.response_to.to_le_bytes());
        out.extend_from_slice(&self.op_code.to_le_bytes());
    }
}

/// A whole message whose payload is not looked at yet.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The header, its length checked against the bytes.
    pub header: Header,
    /// The operation that the header's `op_code` stands for.
    pub op_code: OpCode,
    bytes: &'a [u8],
}

impl<'a> Message<'a> {
    /// Reads the message that `bytes` consist of.
    ///
    /// # Errors
    /// [`ErrorKind::MessageLength`] also when `bytes` are not exactly one message,
    /// [`ErrorKind::OpCode`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        let header = Header::parse(bytes)?.ok_or_else(|| Error::truncated("header"))?;
        if header.message_len != bytes.len() {
            return Err(Error::new(
                ErrorKind::MessageLength,
                format!(
                    "message of {} bytes has {} bytes",
                    header.message_len,
                    bytes.len()
                ),
            ));
        }
        Ok(Self {
            header,
            op_code: OpCode::from_number(header.op_code)?,
            bytes,
        })
    }

    /// The bytes that follow the header; may be empty.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        &self.bytes[HEADER_LEN..]
    }

    /// The bytes of the whole message, header included.
    #[must_use]
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// The little-endian number at `offset`, if it is there.
pub(crate) fn read_i32(bytes: &[u8], offset: usize) -> Option<i32> {
    read_four(bytes, offset).map(i32::from_le_bytes)
}

/// As [`read_i32`], for fields that hold bits.
pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    read_four(bytes, offset).map(u32::from_le_bytes)
}

fn read_four(bytes: &[u8], offset: usize) -> Option<[u8; 4]> {
    bytes.get(offset..offset.checked_add(4)?)?.try_into().ok()
}
