//! OP_COMPRESSED: another message, compressed.
//!
//! ```text
//!   +----------------+------------------+--------------+------------------------------+
//!   | originalOpcode | uncompressedSize | compressorId | the payload, compressed      |
//!   +----------------+------------------+--------------+------------------------------+
//!      4 bytes          4 bytes            1 byte        uncompressedSize has no header
//! ```

use crate::header::read_i32;
use crate::{
    Compressor, Error, ErrorKind, HEADER_LEN, Header, MESSAGE_LEN_MAX, Message, OpCode, Result,
};

/// The length of what precedes the compressed payload, in bytes.
pub(crate) const PREFIX_LEN: usize = 9;

/// A view of an OP_COMPRESSED: its header, the original operation code, the announced length and
/// the compressed payload, which is not inflated yet.
#[derive(Clone, Copy, Debug)]
pub struct Compressed<'a> {
    header: Header,
    compressor: Compressor,
    original: OpCode,
    payload_len: usize,
    compressed: &'a [u8],
}

impl<'a> Compressed<'a> {
    /// Reads what precedes the compressed payload.
    ///
    /// # Errors
    /// [`ErrorKind::Compression`], also for a compressed message inside of a compressed one and for
    /// announced lengths above the limit; [`ErrorKind::OpCode`].
    pub fn parse(message: &Message<'a>) -> Result<Self> {
        let payload = message.payload();
        let (Some(original), Some(size), Some(number)) =
            (read_i32(payload, 0), read_i32(payload, 4), payload.get(8))
        else {
            return Err(Error::new(
                ErrorKind::Compression,
                "compressed message is too short",
            ));
        };
        let compressor = Compressor::from_number(*number)?;
        let original = OpCode::from_number(original)?;
        if original == OpCode::Compressed {
            return Err(Error::new(
                ErrorKind::Compression,
                "compressed message is nested",
            ));
        }
        let payload_len = usize::try_from(size)
            .ok()
            .filter(|size| *size <= MESSAGE_LEN_MAX - HEADER_LEN)
            .ok_or_else(|| {
                Error::new(
                    ErrorKind::Compression,
                    "Decompressed message would be larger than maximum message size",
                )
            })?;
        let compressed = &payload[PREFIX_LEN..];
        Ok(Self {
            header: message.header,
            compressor,
            original,
            payload_len,
            compressed,
        })
    }

    /// The algorithm that the payload is compressed with.
    #[must_use]
    pub const fn compressor(&self) -> Compressor {
        self.compressor
    }

    /// How long the message is once inflated, header included: reserve that much memory before.
    #[must_use]
    pub const fn inflated_len(&self) -> usize {
        self.payload_len + HEADER_LEN
    }

    /// Replaces `out` with the original message.
    ///
    /// # Errors
    /// [`ErrorKind::Compression`] if the data is corrupt or not as long as announced.
    pub fn inflate(&self, out: &mut Vec<u8>) -> Result<()> {
        out.clear();
        let header = Header {
            message_len: self.inflated_len(),
            op_code: self.original.number(),
            ..self.header
        };
        header.write(out);
        out.resize(self.inflated_len(), 0);
        self.compressor
            .decompress(self.compressed, &mut out[HEADER_LEN..])
    }
}
