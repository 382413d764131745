//! Writing messages.

use bson::RawDocument;

use crate::compressed::PREFIX_LEN;
use crate::op_msg::CHECKSUM_LEN;
use crate::{Compressor, HEADER_LEN, Header, MsgFlags, OpCode, Result};

/// The flag of an OP_REPLY that says that the server can wait for data; always set.
const REPLY_AWAIT_CAPABLE: i32 = 8;

/// A message that is being appended to a vector: everything up to its document is there.
///
/// The caller appends exactly one BSON document and calls [`Frame::finish`], or takes everything
/// back with [`Frame::abandon`].
#[derive(Debug)]
#[must_use = "a frame has no length before it is finished"]
pub struct Frame {
    start: usize,
    document_start: usize,
    op_code: OpCode,
}

impl Frame {
    /// Begins an OP_MSG that answers the message `response_to` (0 for a request).
    pub fn begin_msg(out: &mut Vec<u8>, request_id: i32, response_to: i32) -> Self {
        let start = begin(out, OpCode::Msg, request_id, response_to);
        out.extend_from_slice(&MsgFlags::NONE.bits().to_le_bytes());
        out.push(0);
        Self {
            start,
            document_start: out.len(),
            op_code: OpCode::Msg,
        }
    }

    /// Begins an OP_REPLY, the answer to an OP_QUERY.
    pub fn begin_reply(out: &mut Vec<u8>, request_id: i32, response_to: i32) -> Self {
        let start = begin(out, OpCode::Reply, request_id, response_to);
        out.extend_from_slice(&REPLY_AWAIT_CAPABLE.to_le_bytes());
        out.extend_from_slice(&0_i64.to_le_bytes()); // no cursor
        out.extend_from_slice(&0_i32.to_le_bytes()); // the first document is number 0
        out.extend_from_slice(&1_i32.to_le_bytes()); // and the only one
        Self {
            start,
            document_start: out.len(),
            op_code: OpCode::Reply,
        }
    }

    /// Where the message starts in the vector.
    #[must_use]
    pub const fn start(&self) -> usize {
        self.start
    }

    /// Where its document starts, as an index into the vector.
    #[must_use]
    pub const fn document_start(&self) -> usize {
        self.document_start
    }

    /// Takes back the document, so that another one can be written.
    pub fn rewind(&self, out: &mut Vec<u8>) {
        out.truncate(self.document_start);
    }

    /// Takes back the whole message: truncates `out` to where the message starts.
    pub fn abandon(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }

    /// Sets the flags (an OP_REPLY has none of them) and the length, appends the checksum if the
    /// flags ask for one, and returns where the message starts.
    pub fn finish(self, out: &mut Vec<u8>, flags: MsgFlags) -> usize {
        let checksum = self.op_code == OpCode::Msg && flags.contains(MsgFlags::CHECKSUM_PRESENT);
        if self.op_code == OpCode::Msg {
            let at = self.start + HEADER_LEN;
            out[at..at + 4].copy_from_slice(&flags.bits().to_le_bytes());
        }
        let length = out.len() - self.start + if checksum { CHECKSUM_LEN } else { 0 };
        write_length(out, self.start, length);
        if checksum {
            let sum = crc32c::crc32c(&out[self.start..]);
            out.extend_from_slice(&sum.to_le_bytes());
        }
        self.start
    }

    /// Replaces the finished message that starts at `start` and ends with `out` by its compressed
    /// form.
    ///
    /// # Errors
    /// [`ErrorKind::Compression`](crate::ErrorKind::Compression); `out` is as it was.
    pub fn compress(out: &mut Vec<u8>, start: usize, compressor: Compressor) -> Result<()> {
        let payload_start = start + HEADER_LEN;
        let payload_len = out.len() - payload_start;
        let mut compressed = Vec::new();
        compressor.compress(&out[payload_start..], &mut compressed)?;

        let op_code = OpCode::Compressed.number().to_le_bytes();
        let (header, _) = out[start..].split_at_mut(HEADER_LEN);
        let mut original = [0; 4];
        original.copy_from_slice(&header[12..]);
        header[12..].copy_from_slice(&op_code);

        out.truncate(payload_start);
        out.extend_from_slice(&original);
        out.extend_from_slice(&i32::try_from(payload_len).unwrap_or(i32::MAX).to_le_bytes());
        out.push(compressor.number());
        debug_assert_eq!(out.len(), payload_start + PREFIX_LEN);
        out.extend_from_slice(&compressed);
        let length = out.len() - start;
        write_length(out, start, length);
        Ok(())
    }
}

/// Appends a whole OP_MSG with its document sequences, as a client sends it.
pub fn encode_msg(
    out: &mut Vec<u8>,
    request_id: i32,
    flags: MsgFlags,
    body: &RawDocument,
    sequences: &[(&str, &[&RawDocument])],
) {
    let frame = Frame::begin_msg(out, request_id, 0);
    out.extend_from_slice(body.as_bytes());
    for (name, documents) in sequences {
        out.push(1);
        let at = out.len();
        out.extend_from_slice(&[0; 4]);
        out.extend_from_slice(name.as_bytes());
        out.push(0);
        for document in *documents {
            out.extend_from_slice(document.as_bytes());
        }
        let length = out.len() - at;
        write_length(out, at, length);
    }
    frame.finish(out, flags);
}

/// Appends a whole OP_QUERY, as an old client sends it.
pub fn encode_query(out: &mut Vec<u8>, request_id: i32, namespace: &str, query: &RawDocument) {
    let start = begin(out, OpCode::Query, request_id, 0);
    out.extend_from_slice(&0_i32.to_le_bytes());
    out.extend_from_slice(namespace.as_bytes());
    out.push(0);
    out.extend_from_slice(&0_i32.to_le_bytes());
    out.extend_from_slice(&(-1_i32).to_le_bytes());
    out.extend_from_slice(query.as_bytes());
    let length = out.len() - start;
    write_length(out, start, length);
}

fn begin(out: &mut Vec<u8>, op_code: OpCode, request_id: i32, response_to: i32) -> usize {
    let start = out.len();
    Header {
        message_len: 0,
        request_id,
        response_to,
        op_code: op_code.number(),
    }
    .write(out);
    start
}

/// Writes a length at `at`. Lengths above 2 GiB do not occur: documents are limited to 16 MiB.
fn write_length(out: &mut [u8], at: usize, length: usize) {
    let length = i32::try_from(length).unwrap_or(i32::MAX);
    out[at..at + 4].copy_from_slice(&length.to_le_bytes());
}
