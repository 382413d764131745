//! A list of documents that a cursor returns.

use std::collections::VecDeque;

use bson::RawDocumentBuf;

/// Documents made in advance, first in, first out. Knows how many bytes they are without looking at them.
#[derive(Debug, Default)]
pub(crate) struct DocumentList {
    documents: VecDeque<RawDocumentBuf>,
    /// The sum over the documents.
    bytes: usize,
}

impl DocumentList {
    /// Appends a document.
    pub(crate) fn push(&mut self, document: RawDocumentBuf) {
        self.bytes += document.as_bytes().len();
        self.documents.push_back(document);
    }

    /// Takes the first document; none at the end.
    pub(crate) fn pop(&mut self) -> Option<RawDocumentBuf> {
        let document = self.documents.pop_front()?;
        self.bytes -= document.as_bytes().len();
        Some(document)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.documents.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &RawDocumentBuf> {
        self.documents.iter()
    }

    /// How many bytes the documents are.
    pub(crate) const fn bytes(&self) -> usize {
        self.bytes
    }
}
