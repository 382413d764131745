//! Documents that flow from stage to stage.

use bson::Document;
use millrace_value::{Operation, Result};

/// A source of documents that is asked for one at a time.
///
/// A stream owns all its state, so that a cursor can keep it from one `getMore` to the next; the
/// operation under which it runs is given anew with every call. After the end or an error it must not
/// be asked again.
pub trait DocumentStream: Send {
    /// The next document; none at the end.
    ///
    /// # Errors
    /// Whatever reading, evaluating or spilling can fail with, and the operation's interruption.
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>>;

    /// About how many bytes of memory this stream and all it reads from hold right now.
    fn memory_bytes(&self) -> usize;
}

/// A stream over documents held in memory.
#[derive(Debug)]
pub struct Documents {
    documents: std::vec::IntoIter<Document>,
    /// Memory held by those not yet handed out.
    bytes: usize,
}

impl Documents {
    /// The given documents, in their order.
    #[must_use]
    pub fn new(documents: Vec<Document>) -> Self {
        let bytes = documents
            .iter()
            .map(millrace_value::size::document_bytes)
            .sum();
        Self {
            documents: documents.into_iter(),
            bytes,
        }
    }

    /// A stream that ends without any document.
    #[must_use]
    pub fn empty() -> Self {
        Self::new(Vec::new())
    }
}

impl DocumentStream for Documents {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        operation.check()?;
        let document = self.documents.next();
        if let Some(document) = &document {
            self.bytes = self
                .bytes
                .saturating_sub(millrace_value::size::document_bytes(document));
        }
        Ok(document)
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
