//! A document sequence: the section of an OP_MSG that carries many documents beside the body.

use bson::RawDocument;

use crate::header::read_i32;

/// A named run of documents, all of them checked.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    name: &'a str,
    bytes: &'a [u8],
    count: usize,
}

impl<'a> Sequence<'a> {
    /// `bytes` must consist of `count` checked documents.
    pub(crate) const fn new(name: &'a str, bytes: &'a [u8], count: usize) -> Self {
        Self { name, bytes, count }
    }

    /// The field of the command that the documents belong to (`documents`, `updates`, ...).
    #[must_use]
    pub const fn name(&self) -> &'a str {
        self.name
    }

    /// The number of documents; may be 0.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether the sequence has no documents.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The documents, one after the other.
    #[must_use]
    pub const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// The documents in the order of the message, without copying.
    #[must_use]
    pub const fn documents(&self) -> SequenceDocuments<'a> {
        SequenceDocuments {
            rest: self.bytes,
            count: self.count,
        }
    }
}

/// An iterator over the documents of a [`Sequence`], with an exact length.
#[derive(Clone, Debug)]
pub struct SequenceDocuments<'a> {
    rest: &'a [u8],
    count: usize,
}

impl<'a> Iterator for SequenceDocuments<'a> {
    type Item = &'a RawDocument;

    fn next(&mut self) -> Option<&'a RawDocument> {
        let length = usize::try_from(read_i32(self.rest, 0)?).ok()?;
        let (first, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        self.count = self.count.saturating_sub(1);
        RawDocument::from_bytes(first).ok()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl ExactSizeIterator for SequenceDocuments<'_> {}
