//! BSON written straight into a buffer.

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, RawDocumentBuf};

/// The element types that [`DocumentWriter`] writes itself (bsonspec.org, version 1.1).
const TYPE_DOUBLE: u8 = 0x01;
const TYPE_STRING: u8 = 0x02;
const TYPE_DOCUMENT: u8 = 0x03;
const TYPE_ARRAY: u8 = 0x04;
const TYPE_BOOLEAN: u8 = 0x08;
const TYPE_INT32: u8 = 0x10;
const TYPE_INT64: u8 = 0x12;

/// Appends one BSON document, field by field, to a buffer that may hold other bytes before it. Nested
/// documents and arrays are opened and closed in place; lengths are filled in when they close.
///
/// Field names must not contain NUL; in debug builds that is asserted.
#[derive(Debug)]
pub struct DocumentWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Where each open document or array began.
    open: Vec<usize>,
}

impl<'a> DocumentWriter<'a> {
    /// Begins a document at the end of `out`.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        Self {
            out,
            open: vec![start],
        }
    }

    fn header(&mut self, element_type: u8, name: &str) {
        debug_assert!(!name.contains('\0'), "a field name contains NUL");
        self.out.push(element_type);
        self.out.extend_from_slice(name.as_bytes());
        self.out.push(0);
    }

    /// Appends a field with a 64-bit double.
    pub fn double(&mut self, name: &str, value: f64) {
        self.header(TYPE_DOUBLE, name);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a field with a UTF-8 string; a zero byte in it is allowed.
    pub fn string(&mut self, name: &str, value: &str) {
        self.header(TYPE_STRING, name);
        self.out.extend_from_slice(&length(value.len() + 1));
        self.out.extend_from_slice(value.as_bytes());
        self.out.push(0);
    }

    /// Appends a field with a boolean value.
    pub fn boolean(&mut self, name: &str, value: bool) {
        self.header(TYPE_BOOLEAN, name);
        self.out.push(u8::from(value));
    }

    /// Appends a field with a 32-bit integer.
    pub fn int32(&mut self, name: &str, value: i32) {
        self.header(TYPE_INT32, name);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a field with a 64-bit integer.
    pub fn int64(&mut self, name: &str, value: i64) {
        self.header(TYPE_INT64, name);
        self.out.extend_from_slice(&value.to_le_bytes());
    }

    /// Appends a count: as a 32-bit integer if it fits, as MongoDB does.
    pub fn count(&mut self, name: &str, value: u64) {
        if let Ok(small) = i32::try_from(value) {
            self.int32(name, small);
        } else {
            self.int64(name, i64::try_from(value).unwrap_or(i64::MAX));
        }
    }

    /// Appends a copy of a document.
    pub fn document(&mut self, name: &str, value: &RawDocument) {
        self.header(TYPE_DOCUMENT, name);
        self.out.extend_from_slice(value.as_bytes());
    }

    /// Appends any value.
    ///
    /// # Errors
    /// When `bson` cannot encode it.
    pub fn value(&mut self, name: &str, value: &Bson) -> bson::error::Result<()> {
        match value {
            Bson::Double(v) => self.double(name, *v),
            Bson::String(v) => self.string(name, v),
            Bson::Boolean(v) => self.boolean(name, *v),
            Bson::Int32(v) => self.int32(name, *v),
            Bson::Int64(v) => self.int64(name, *v),
            other => {
                // The one element of a document of its own, without its length and final NUL.
                let mut single = Document::new();
                single.insert(name, other.clone());
                let bytes = single.to_vec()?;
                self.out.extend_from_slice(&bytes[4..bytes.len() - 1]);
            }
        }
        Ok(())
    }

    /// Appends any raw value.
    ///
    /// # Errors
    /// When `bson` cannot read it.
    pub fn raw(&mut self, name: &str, value: RawBsonRef<'_>) -> bson::error::Result<()> {
        match value {
            RawBsonRef::Document(document) => {
                self.document(name, document);
                Ok(())
            }
            other => self.value(name, &Bson::try_from(other)?),
        }
    }

    /// Appends all fields of a document.
    pub fn fields_of(&mut self, document: &RawDocument) {
        let bytes = document.as_bytes();
        self.out.extend_from_slice(&bytes[4..bytes.len() - 1]);
    }

    /// Opens a nested document; the fields that follow go into it until [`close`](Self::close).
    pub fn open_document(&mut self, name: &str) {
        self.header(TYPE_DOCUMENT, name);
        self.open_nested();
    }

    /// Opens a nested array; its elements must be named `0`, `1`, ...
    pub fn open_array(&mut self, name: &str) {
        self.header(TYPE_ARRAY, name);
        self.open_nested();
    }

    /// Writes the header of an embedded document and returns the buffer, to which the caller must append
    /// exactly one BSON document.
    pub fn embed(&mut self, name: &str) -> &mut Vec<u8> {
        self.header(TYPE_DOCUMENT, name);
        self.out
    }

    fn open_nested(&mut self) {
        self.open.push(self.out.len());
        self.out.extend_from_slice(&[0; 4]);
    }

    /// Closes the innermost nested document or array.
    ///
    /// # Panics
    /// When none is open but the outermost.
    pub fn close(&mut self) {
        assert!(self.open.len() > 1, "no nested document is open");
        self.close_innermost();
    }

    fn close_innermost(&mut self) {
        let start = self
            .open
            .pop()
            .expect("the outermost document is open until finish");
        self.out.push(0);
        let len = length(self.out.len() - start);
        self.out[start..start + 4].copy_from_slice(&len);
    }

    /// How many bytes the document has so far.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.out.len() - self.open[0]
    }

    /// Removes what was appended after the document had `bytes` bytes. Nothing opened since may be
    /// open still.
    pub fn truncate(&mut self, bytes: usize) {
        let len = self.open[0] + bytes;
        self.out.truncate(len);
    }

    /// Takes the element `name`, which must be a document and the last one, off the end again. `bytes`
    /// is what [`bytes`](Self::bytes) answered before it was appended.
    ///
    /// # Errors
    /// When what lies there is not one document.
    pub fn take_last_document(
        &mut self,
        bytes: usize,
        name: &str,
    ) -> bson::error::Result<RawDocumentBuf> {
        let element = self.open[0] + bytes;
        // The type byte, the name and its NUL come first.
        let document = RawDocumentBuf::from_bytes(self.out[element + name.len() + 2..].to_vec())?;
        self.truncate(bytes);
        Ok(document)
    }

    /// Closes everything that is open; the document is complete.
    pub fn finish(mut self) {
        while !self.open.is_empty() {
            self.close_innermost();
        }
    }
}

/// A length field. Documents are bounded far below 2 GiB before they are written.
fn length(len: usize) -> [u8; 4] {
    i32::try_from(len)
        .expect("a reply is shorter than 2 GiB")
        .to_le_bytes()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn what_is_written_reads_as_the_same_document() {
        let mut out = b"before".to_vec();
        let mut writer = DocumentWriter::new(&mut out);
        writer.int32("a", 1);
        writer.open_document("b");
        writer.open_array("c");
        writer.string("0", "x");
        writer.value("1", &Bson::Null).expect("null can be written");
        writer.close();
        writer.double("d", 1.5);
        writer.close();
        writer.boolean("e", true);
        writer.count("f", 5_000_000_000);
        let bytes = writer.bytes();
        writer.string("gone", "x");
        writer.truncate(bytes);
        writer.finish();
        let read = Document::from_reader(&out[6..]).expect("well-formed");
        assert_eq!(
            read,
            doc! {"a": 1, "b": {"c": ["x", null], "d": 1.5}, "e": true, "f": 5_000_000_000_i64}
        );
    }
}
