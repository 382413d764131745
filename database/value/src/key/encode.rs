//! Values to bytes.

use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument};
use bson::{Bson, Document};

use super::{DEPTH_MAX, TypeBits, number, tag};
use crate::{
    Collation, Error, ErrorCode, Number, Result, binary_len, canonical_rank, db_pointer_parts,
    scalar_ref,
};

impl Collation {
    /// Appends `value` to `out` and what its order does not see to `type_bits`; see [the module's
    /// page](super).
    ///
    /// # Errors
    /// `InvalidBSON` for a nested value that is no BSON, `Overflow` for one that is nested too deep. `out` is
    /// as before then; `type_bits` is not.
    pub fn encode_key(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        value: RawBsonRef<'_>,
        descending: bool,
    ) -> Result<()> {
        complete(out, descending, |out| {
            self.encode_raw(out, type_bits, value, DEPTH_MAX)
        })
    }

    /// Appends an owned value; see [`encode_key`](Self::encode_key).
    ///
    /// # Errors
    /// As [`encode_key`](Self::encode_key).
    pub fn encode_key_bson(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        value: &Bson,
        descending: bool,
    ) -> Result<()> {
        complete(out, descending, |out| {
            self.encode_owned(out, type_bits, value, DEPTH_MAX)
        })
    }

    /// Bytes that are equal for two values exactly if [`compare_bson`](Self::compare_bson) says that the values
    /// are: a hash key for grouping. Values that are nested deeper than any stored one are distinguished by
    /// how they are written.
    #[must_use]
    pub fn equality_key(self, value: &Bson) -> Vec<u8> {
        let mut key = Vec::new();
        if self
            .encode_key_bson(&mut key, &mut TypeBits::new(), value, false)
            .is_err()
        {
            key.push(tag::MAX_KEY);
            key.extend_from_slice(value.to_string().as_bytes());
        }
        key
    }

    fn encode_raw(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        value: RawBsonRef<'_>,
        depth: usize,
    ) -> Result<()> {
        match value {
            RawBsonRef::Document(document) => {
                out.push(tag::DOCUMENT);
                self.encode_raw_fields(out, type_bits, document, depth)
            }
            RawBsonRef::Array(array) => self.encode_raw_array(out, type_bits, array, depth),
            RawBsonRef::JavaScriptCodeWithScope(value) => {
                out.push(tag::CODE_WITH_SCOPE);
                encode_text(out, value.code.as_bytes());
                // The scope of code is never compared by a collation.
                Self::SIMPLE.encode_raw_fields(out, type_bits, value.scope, depth)
            }
            scalar => {
                self.encode_scalar(out, type_bits, scalar);
                Ok(())
            }
        }
    }

    fn encode_raw_array(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        array: &RawArray,
        depth: usize,
    ) -> Result<()> {
        let depth = deeper(depth)?;
        out.push(tag::ARRAY);
        for element in array.iter_elements() {
            self.encode_raw(out, type_bits, element?.value()?, depth)?;
        }
        out.push(tag::END);
        Ok(())
    }

    fn encode_raw_fields(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        document: &RawDocument,
        depth: usize,
    ) -> Result<()> {
        let depth = deeper(depth)?;
        for element in document.iter_elements() {
            let element = element?;
            out.push(canonical_rank(element.element_type()) + 1);
            encode_c_string(out, element.key().as_str());
            self.encode_raw(out, type_bits, element.value()?, depth)?;
        }
        out.push(tag::END);
        Ok(())
    }

    fn encode_owned(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        value: &Bson,
        depth: usize,
    ) -> Result<()> {
        match value {
            Bson::Document(document) => {
                out.push(tag::DOCUMENT);
                self.encode_owned_fields(out, type_bits, document, depth)
            }
            Bson::Array(array) => {
                let depth = deeper(depth)?;
                out.push(tag::ARRAY);
                for element in array {
                    self.encode_owned(out, type_bits, element, depth)?;
                }
                out.push(tag::END);
                Ok(())
            }
            Bson::JavaScriptCodeWithScope(value) => {
                out.push(tag::CODE_WITH_SCOPE);
                encode_text(out, value.code.as_bytes());
                // The scope of code is never compared by a collation.
                Self::SIMPLE.encode_owned_fields(out, type_bits, &value.scope, depth)
            }
            Bson::DbPointer(pointer) => {
                let pointer = RawBson::DbPointer(pointer.clone());
                self.encode_scalar(out, type_bits, pointer.as_raw_bson_ref());
                Ok(())
            }
            value => {
                if let Some(scalar) = scalar_ref(value) {
                    self.encode_scalar(out, type_bits, scalar);
                }
                Ok(())
            }
        }
    }

    fn encode_owned_fields(
        self,
        out: &mut Vec<u8>,
        type_bits: &mut TypeBits,
        document: &Document,
        depth: usize,
    ) -> Result<()> {
        let depth = deeper(depth)?;
        for (name, value) in document {
            if name.contains('\0') {
                return Err(Error::new(
                    ErrorCode::BadValue,
                    "a field name must not contain a NUL",
                ));
            }
            out.push(canonical_rank(value.element_type()) + 1);
            encode_c_string(out, name);
            self.encode_owned(out, type_bits, value, depth)?;
        }
        out.push(tag::END);
        Ok(())
    }

    /// Appends a value that holds no other.
    fn encode_scalar(self, out: &mut Vec<u8>, type_bits: &mut TypeBits, value: RawBsonRef<'_>) {
        match value {
            RawBsonRef::Double(value) => number::encode(out, type_bits, Number::Double(value)),
            RawBsonRef::Int32(value) => number::encode(out, type_bits, Number::Int32(value)),
            RawBsonRef::Int64(value) => number::encode(out, type_bits, Number::Int64(value)),
            RawBsonRef::Decimal128(_) => {
                if let Some(value) = Number::from_raw(value) {
                    number::encode(out, type_bits, value);
                }
            }
            RawBsonRef::String(text) => self.encode_string(out, type_bits, text, false),
            RawBsonRef::Symbol(text) => self.encode_string(out, type_bits, text, true),
            RawBsonRef::ObjectId(id) => {
                out.push(tag::OBJECT_ID);
                out.extend_from_slice(&id.bytes());
            }
            RawBsonRef::Boolean(value) => out.push(if value { tag::TRUE } else { tag::FALSE }),
            RawBsonRef::Null => out.push(tag::NULL),
            RawBsonRef::Undefined => out.push(tag::UNDEFINED),
            RawBsonRef::MinKey => out.push(tag::MIN_KEY),
            RawBsonRef::MaxKey => out.push(tag::MAX_KEY),
            RawBsonRef::DateTime(value) => {
                out.push(tag::DATE);
                let ordered = value.timestamp_millis() ^ i64::MIN;
                out.extend_from_slice(&ordered.to_be_bytes());
            }
            RawBsonRef::Timestamp(value) => {
                out.push(tag::TIMESTAMP);
                out.extend_from_slice(&value.time.to_be_bytes());
                out.extend_from_slice(&value.increment.to_be_bytes());
            }
            RawBsonRef::Binary(value) => {
                out.push(tag::BINARY);
                encode_length(out, binary_len(value.subtype, value.bytes));
                out.push(value.subtype.into());
                out.extend_from_slice(value.bytes);
            }
            RawBsonRef::RegularExpression(value) => {
                out.push(tag::REGEX);
                encode_c_string(out, value.pattern.as_str());
                encode_c_string(out, value.options.as_str());
            }
            RawBsonRef::JavaScriptCode(code) => {
                out.push(tag::CODE);
                encode_text(out, code.as_bytes());
            }
            RawBsonRef::DbPointer(_) => encode_db_pointer(out, value),
            // Callers take these apart themselves.
            RawBsonRef::Document(_)
            | RawBsonRef::Array(_)
            | RawBsonRef::JavaScriptCodeWithScope(_) => {}
        }
    }

    fn encode_string(self, out: &mut Vec<u8>, type_bits: &mut TypeBits, text: &str, symbol: bool) {
        type_bits.push(symbol);
        out.push(tag::STRING);
        encode_text(out, &self.sort_key(text));
    }
}

/// Runs `encode`, complements what it appended if `descending`, and removes it if it failed.
fn complete(
    out: &mut Vec<u8>,
    descending: bool,
    encode: impl FnOnce(&mut Vec<u8>) -> Result<()>,
) -> Result<()> {
    let start = out.len();
    let result = encode(out);
    if result.is_err() {
        out.truncate(start);
    } else if descending {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
    result
}

fn encode_db_pointer(out: &mut Vec<u8>, value: RawBsonRef<'_>) {
    if let Some(parts) = db_pointer_parts(value) {
        out.push(tag::DB_POINTER);
        encode_length(out, parts.namespace.len());
        out.extend_from_slice(&parts.namespace);
        out.extend_from_slice(&parts.id);
    }
}

/// Appends a length. BSON keeps lengths in 32 bits, so that none is cut.
fn encode_length(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
}

/// Appends a text that may contain NUL.
fn encode_text(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    let mut parts = text.split(|byte| *byte == 0);
    if let Some(first) = parts.next() {
        out.extend_from_slice(first);
    }
    for part in parts {
        out.extend_from_slice(&[0, tag::TEXT_NUL]);
        out.extend_from_slice(part);
    }
    out.extend_from_slice(&[0, tag::TEXT_END]);
}

/// Appends a text that contains no NUL.
fn encode_c_string(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
    out.push(0);
}

/// One level less.
fn deeper(depth: usize) -> Result<usize> {
    depth.checked_sub(1).ok_or_else(|| {
        Error::new(
            ErrorCode::Overflow,
            "a value is nested too deep to be an index key",
        )
    })
}
