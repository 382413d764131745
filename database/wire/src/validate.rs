//! The check that bytes are BSON from end to end, made before any of them are interpreted.
//!
//! What passes can be read with the crate `bson` to the last element without an error: lengths and
//! terminators fit, element types are known, keys and strings are UTF-8, booleans are 0 or 1, nesting
//! stays within [`NESTING_DEPTH_MAX`]. The check reads each byte about once and
//! allocates nothing; its recursion is as deep as the document nests.

use bson::RawDocument;

use crate::header::read_i32;
use crate::{DOCUMENT_LEN_MAX, Error, ErrorKind, NESTING_DEPTH_MAX, Result};

/// The shortest document: its length and the terminator.
const DOCUMENT_LEN_MIN: usize = 5;

/// Splits off the document that `bytes` start with, after checking it.
///
/// # Errors
/// [`ErrorKind::InvalidBson`], [`ErrorKind::DocumentLength`], [`ErrorKind::NestingDepth`].
pub fn validate_document(bytes: &[u8]) -> Result<(&RawDocument, &[u8])> {
    let length = read_i32(bytes, 0).ok_or_else(|| invalid("not enough bytes for a length"))?;
    let length = usize::try_from(length)
        .ok()
        .filter(|length| (DOCUMENT_LEN_MIN..=DOCUMENT_LEN_MAX).contains(length))
        .ok_or_else(|| {
            Error::new(
                ErrorKind::DocumentLength,
                format!(
                    "BSONObj size: {length} (0x{length:X}) is invalid. Size must be between 0 and \
                     {DOCUMENT_LEN_MAX}(16MB)"
                ),
            )
        })?;
    let (document, rest) = bytes
        .split_at_checked(length)
        .ok_or_else(|| invalid("incorrect BSON length"))?;
    let mut reader = Reader {
        bytes: document,
        offset: 0,
    };
    reader.document(1)?;
    let document =
        RawDocument::from_bytes(document).map_err(|error| invalid(&error.to_string()))?;
    Ok((document, rest))
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorKind::InvalidBson, format!("invalid BSON: {what}"))
}

/// A position in the bytes of the outermost document.
struct Reader<'a> {
    bytes: &'a [u8],
    offset: usize,
}

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let end = self
            .offset
            .checked_add(count)
            .ok_or_else(|| invalid("incorrect length"))?;
        let taken = self
            .bytes
            .get(self.offset..end)
            .ok_or_else(|| invalid("incorrect BSON length: an element goes past the end"))?;
        self.offset = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8> {
        Ok(self.take(1)?[0])
    }

    /// A length field: never negative.
    fn length(&mut self) -> Result<usize> {
        let at = self.offset;
        self.take(4)?;
        read_i32(self.bytes, at)
            .and_then(|length| usize::try_from(length).ok())
            .ok_or_else(|| invalid("negative length"))
    }

    /// A string without a length, ended by a zero byte: keys, patterns.
    fn c_string(&mut self) -> Result<()> {
        let rest = &self.bytes[self.offset..];
        let length = rest
            .iter()
            .position(|byte| *byte == 0)
            .ok_or_else(|| invalid("a field name is not terminated"))?;
        utf8(&rest[..length])?;
        self.offset += length + 1;
        Ok(())
    }

    /// A string with a length that counts its final zero byte.
    fn string(&mut self) -> Result<()> {
        let length = self.length()?;
        let content = self.take(length)?;
        match content.split_last() {
            Some((0, text)) => utf8(text),
            _ => Err(invalid("a string is not terminated")),
        }
    }

    fn document(&mut self, depth: usize) -> Result<()> {
        if depth > NESTING_DEPTH_MAX {
            return Err(Error::new(
                ErrorKind::NestingDepth,
                format!("BSONObj exceeded maximum nested object depth: {NESTING_DEPTH_MAX}"),
            ));
        }
        let start = self.offset;
        let length = self.length()?;
        let end = start
            .checked_add(length)
            .filter(|end| *end <= self.bytes.len());
        let (Some(end), true) = (end, length >= DOCUMENT_LEN_MIN) else {
            return Err(invalid("incorrect BSON length of an embedded document"));
        };
        loop {
            let kind = self.byte()?;
            if kind == 0 {
                break;
            }
            self.c_string()?;
            self.element(kind, depth)?;
            if self.offset >= end {
                return Err(invalid("an element goes past the end of its document"));
            }
        }
        if self.offset != end {
            return Err(invalid("a document ends before its length says so"));
        }
        Ok(())
    }

    fn element(&mut self, kind: u8, depth: usize) -> Result<()> {
        match kind {
            // undefined, null, min key, max key
            0x06 | 0x0A | 0xFF | 0x7F => {}
            // 32-bit integer
            0x10 => drop(self.take(4)?),
            // double, date, timestamp, 64-bit integer
            0x01 | 0x09 | 0x11 | 0x12 => drop(self.take(8)?),
            // ObjectId
            0x07 => drop(self.take(12)?),
            // decimal
            0x13 => drop(self.take(16)?),
            // string, code, symbol
            0x02 | 0x0D | 0x0E => self.string()?,
            // document, array
            0x03 | 0x04 => self.document(depth + 1)?,
            0x05 => self.binary()?,
            0x08 => {
                if self.byte()? > 1 {
                    return Err(invalid("a boolean is neither 0 nor 1"));
                }
            }
            // regular expression: pattern and options
            0x0B => {
                self.c_string()?;
                self.c_string()?;
            }
            // DBPointer: a namespace and an ObjectId
            0x0C => {
                self.string()?;
                self.take(12)?;
            }
            0x0F => self.code_with_scope(depth)?,
            other => return Err(invalid(&format!("unknown element type 0x{other:02X}"))),
        }
        Ok(())
    }

    fn binary(&mut self) -> Result<()> {
        /// The subtype that repeats its length inside.
        const OLD_BINARY: u8 = 2;
        let length = self.length()?;
        let subtype = self.byte()?;
        let content = self.take(length)?;
        if subtype == OLD_BINARY {
            let inner = read_i32(content, 0).and_then(|inner| usize::try_from(inner).ok());
            if inner.and_then(|inner| inner.checked_add(4)) != Some(length) {
                return Err(invalid("incorrect length inside of an old binary"));
            }
        }
        Ok(())
    }

    fn code_with_scope(&mut self, depth: usize) -> Result<()> {
        let start = self.offset;
        let length = self.length()?;
        self.string()?;
        self.document(depth + 1)?;
        if self.offset - start != length {
            return Err(invalid("incorrect length of code with scope"));
        }
        Ok(())
    }
}

fn utf8(bytes: &[u8]) -> Result<()> {
    // Most keys and strings are short and ASCII: that test is one pass without branches.
    if bytes.is_ascii() || std::str::from_utf8(bytes).is_ok() {
        Ok(())
    } else {
        Err(invalid("a string or field name is not UTF-8"))
    }
}
