//! Elements of documents as bytes, to be copied without being read.

use bson::raw::RawIter;
use bson::spec::ElementType;
use bson::{RawDocument, raw::RawElement};

use crate::Result;

/// One element: `type byte | name | 0 | value`.
pub(super) struct Element<'d> {
    pub(super) name: &'d str,
    pub(super) kind: ElementType,
    /// The whole element.
    pub(super) bytes: &'d [u8],
    /// Its value.
    pub(super) value: &'d [u8],
}

/// The elements of a document. An array is read as the document that encodes it.
pub(super) struct Elements<'d> {
    bytes: &'d [u8],
    iter: RawIter<'d>,
    /// Where the next element begins.
    offset: usize,
}

/// The bytes of a document's length, which come first.
const LENGTH_BYTES: usize = 4;

impl<'d> Elements<'d> {
    pub(super) fn new(document: &'d RawDocument) -> Self {
        Self {
            bytes: document.as_bytes(),
            iter: document.iter_elements(),
            offset: LENGTH_BYTES,
        }
    }

    /// Reads the encoded document or array `value`.
    pub(super) fn of_value(value: &'d [u8]) -> Result<Self> {
        Ok(Self::new(RawDocument::from_bytes(value)?))
    }

    fn element(&mut self, element: &RawElement<'d>) -> Element<'d> {
        let name = element.key().as_str();
        let value_start = self.offset + 1 + name.len() + 1;
        let end = value_start + element.size();
        let start = std::mem::replace(&mut self.offset, end);
        Element {
            name,
            kind: element.element_type(),
            bytes: &self.bytes[start..end],
            value: &self.bytes[value_start..end],
        }
    }
}

impl<'d> Iterator for Elements<'d> {
    type Item = Result<Element<'d>>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.iter.next()? {
            Ok(element) => Some(Ok(self.element(&element))),
            Err(error) => Some(Err(error.into())),
        }
    }
}
