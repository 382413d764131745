//! Elements of documents as bytes, found without being decoded.
//!
//! [`Elements`] finds where elements begin and end and checks nothing else: names and strings need not be
//! UTF-8, nested documents are not looked into. That is enough to copy, compare and skip them, at a
//! fraction of what decoding costs. Whatever the bytes are, it stays within them and ends.

use bson::RawDocument;
use bson::spec::ElementType;

use crate::{Error, ErrorCode, Result};

/// One element: `type byte | name | 0 | value`.
#[derive(Clone, Copy, Debug)]
pub struct Element<'d> {
    /// The field's name, without the zero byte.
    pub name: &'d [u8],
    /// The BSON type of the element's value.
    pub kind: ElementType,
    /// The bytes of the whole element: type, name and value.
    pub bytes: &'d [u8],
    /// The bytes of the value, without type and name.
    pub value: &'d [u8],
}

impl<'d> Element<'d> {
    /// The value if it is a document.
    #[must_use]
    pub fn document(&self) -> Option<&'d RawDocument> {
        let is_document = self.kind == ElementType::EmbeddedDocument;
        is_document
            .then(|| RawDocument::from_bytes(self.value).ok())
            .flatten()
    }

    /// The value if it is a string.
    #[must_use]
    pub fn string(&self) -> Option<&'d str> {
        if self.kind != ElementType::String {
            return None;
        }
        let text = self.value.get(4..self.value.len().checked_sub(1)?)?;
        std::str::from_utf8(text).ok()
    }

    /// The value if it is an `int` or a `long`.
    #[must_use]
    pub fn integer(&self) -> Option<i64> {
        match self.kind {
            ElementType::Int32 => Some(i64::from(i32::from_le_bytes(self.value.try_into().ok()?))),
            ElementType::Int64 => Some(i64::from_le_bytes(self.value.try_into().ok()?)),
            _ => None,
        }
    }

    /// Whether the value stands for true where a bool or a number is asked for; none if it is neither
    /// a bool nor a binary number.
    #[must_use]
    pub fn truth(&self) -> Option<bool> {
        match self.kind {
            ElementType::Boolean => Some(self.value != [0]),
            ElementType::Double => Some(f64::from_le_bytes(self.value.try_into().ok()?) != 0.0),
            _ => self.integer().map(|number| number != 0),
        }
    }
}

/// The elements of a document. An array is read as the document that encodes it. Ends after the first
/// error.
#[derive(Clone, Debug)]
pub struct Elements<'d> {
    /// What follows, up to the document's last zero byte and without it.
    rest: &'d [u8],
}

/// The bytes of a length, of a document or of a string.
const LENGTH_BYTES: usize = 4;

impl<'d> Elements<'d> {
    /// The elements of `document` in their order, which are checked while they are read.
    #[must_use]
    pub fn new(document: &'d RawDocument) -> Self {
        let bytes = document.as_bytes();
        // A `RawDocument` has its length and its last zero byte; what lies between is not checked yet.
        Self {
            rest: &bytes[LENGTH_BYTES..bytes.len() - 1],
        }
    }

    /// Reads the encoded document or array `value`.
    ///
    /// # Errors
    /// `InvalidBSON` if it has not the length it says, or does not end with a zero byte.
    pub fn of_value(value: &'d [u8]) -> Result<Self> {
        Ok(Self::new(RawDocument::from_bytes(value)?))
    }

    fn take(&mut self) -> Result<Element<'d>> {
        let bytes = self.rest;
        let kind = ElementType::from(bytes[0]).ok_or_else(|| invalid("an unknown type"))?;
        let name_end = 1 + zero(&bytes[1..])?;
        let value = &bytes[name_end + 1..];
        let len = value_len(kind, value)?;
        if len > value.len() {
            return Err(invalid("an element that goes past its end"));
        }
        let end = name_end + 1 + len;
        self.rest = &bytes[end..];
        Ok(Element {
            name: &bytes[1..name_end],
            kind,
            bytes: &bytes[..end],
            value: &value[..len],
        })
    }
}

impl<'d> Iterator for Elements<'d> {
    type Item = Result<Element<'d>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let element = self.take();
        if element.is_err() {
            self.rest = &[];
        }
        Some(element)
    }
}

/// The place of the first zero byte.
fn zero(bytes: &[u8]) -> Result<usize> {
    bytes
        .iter()
        .position(|&byte| byte == 0)
        .ok_or_else(|| invalid("a name or pattern without an end"))
}

/// How long the value of this type is that `bytes` begin with (bsonspec.org, version 1.1). It may be
/// longer than `bytes`.
fn value_len(kind: ElementType, bytes: &[u8]) -> Result<usize> {
    let prefixed = |more: usize| -> Result<usize> {
        let length = bytes
            .first_chunk::<LENGTH_BYTES>()
            .and_then(|length| usize::try_from(i32::from_le_bytes(*length)).ok())
            .ok_or_else(|| invalid("a length that is none"))?;
        length
            .checked_add(more)
            .ok_or_else(|| invalid("a length that is none"))
    };
    Ok(match kind {
        ElementType::Null | ElementType::Undefined | ElementType::MinKey | ElementType::MaxKey => 0,
        ElementType::Boolean => 1,
        ElementType::Int32 => 4,
        ElementType::Double
        | ElementType::DateTime
        | ElementType::Timestamp
        | ElementType::Int64 => 8,
        ElementType::ObjectId => 12,
        ElementType::Decimal128 => 16,
        ElementType::EmbeddedDocument
        | ElementType::Array
        | ElementType::JavaScriptCodeWithScope => prefixed(0)?,
        ElementType::String | ElementType::JavaScriptCode | ElementType::Symbol => {
            prefixed(LENGTH_BYTES)?
        }
        ElementType::Binary => prefixed(LENGTH_BYTES + 1)?,
        ElementType::DbPointer => prefixed(LENGTH_BYTES + 12)?,
        ElementType::RegularExpression => {
            let pattern = zero(bytes)?;
            pattern + 1 + zero(&bytes[pattern + 1..])? + 1
        }
    })
}

fn invalid(what: &str) -> Error {
    Error::new(ErrorCode::InvalidBSON, format!("BSON has {what}"))
}

#[cfg(test)]
mod tests {
    use bson::{Document, RawDocumentBuf, doc};
    use proptest::prelude::*;

    use super::*;
    use crate::testing::arbitrary;

    proptest! {
        #[test]
        fn they_are_the_elements_that_decoding_finds(document in arbitrary::any_document()) {
            let raw = RawDocumentBuf::try_from(&document).expect("BSON");
            let mut elements = Elements::new(&raw);
            let mut joined = Vec::new();
            for expected in raw.iter_elements() {
                let expected = expected.expect("an element");
                let element = elements.next().expect("one more").expect("an element");
                prop_assert_eq!(element.name, expected.key().as_str().as_bytes());
                prop_assert_eq!(element.kind, expected.element_type());
                prop_assert_eq!(element.value.len(), expected.size());
                joined.extend_from_slice(element.bytes);
            }
            prop_assert!(elements.next().is_none());
            prop_assert_eq!(&joined[..], &raw.as_bytes()[4..raw.as_bytes().len() - 1]);
        }

        #[test]
        fn any_bytes_are_elements_or_an_error(
            document in arbitrary::any_document(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        ) {
            let mut bytes = RawDocumentBuf::try_from(&document).expect("BSON").into_bytes();
            let last = bytes.len() - 1;
            for (place, byte) in changes {
                // The frame stays: without it there is no `RawDocument`.
                let place = place.index(last + 1);
                if place >= 4 && place < last {
                    bytes[place] = byte;
                }
            }
            let damaged = RawDocument::from_bytes(&bytes).expect("the frame is whole");
            let read: usize = Elements::new(damaged)
                .map_while(Result::ok)
                .map(|element| element.bytes.len())
                .sum();
            prop_assert!(read <= bytes.len() - 5);
        }
    }

    #[test]
    fn values_are_read_if_they_have_the_type() {
        let document: Document =
            doc! {"a": {"b": 1}, "s": "text", "i": 7, "l": -7_i64, "d": 0.0, "t": true};
        let raw = RawDocumentBuf::try_from(&document).expect("BSON");
        let elements: Vec<_> = Elements::new(&raw)
            .map(|element| element.expect("BSON"))
            .collect();
        let documents: Vec<_> = elements.iter().map(|e| e.document().is_some()).collect();
        assert_eq!(documents, [true, false, false, false, false, false]);
        let strings: Vec<_> = elements.iter().map(Element::string).collect();
        assert_eq!(strings, [None, Some("text"), None, None, None, None]);
        let integers: Vec<_> = elements.iter().map(Element::integer).collect();
        assert_eq!(integers, [None, None, Some(7), Some(-7), None, None]);
        let truths: Vec<_> = elements.iter().map(Element::truth).collect();
        assert_eq!(
            truths,
            [None, None, Some(true), Some(true), Some(false), Some(true)]
        );
    }
}
