//! The stream of stages that ask the database for documents about itself.

use bson::Document;
use millrace_value::{Operation, Result};

use super::context::Context;
use super::{DocumentStream, Documents};

/// Asks once, when the first document is wanted.
pub(crate) struct Report<F> {
    ask: F,
    context: Context,
    documents: Option<Documents>,
}

impl<F> Report<F>
where
    F: Fn(&Context, &Operation) -> Result<Vec<Document>> + Send + 'static,
{
    /// The stream, boxed.
    pub(crate) fn boxed(context: &Context, ask: F) -> Box<dyn DocumentStream> {
        Box::new(Self {
            ask,
            context: context.clone(),
            documents: None,
        })
    }
}

impl<F> DocumentStream for Report<F>
where
    F: Fn(&Context, &Operation) -> Result<Vec<Document>> + Send,
{
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let documents = match &mut self.documents {
            Some(documents) => documents,
            none => none.insert(Documents::new((self.ask)(&self.context, operation)?)),
        };
        documents.next(operation)
    }

    fn memory_bytes(&self) -> usize {
        self.documents
            .as_ref()
            .map_or(0, DocumentStream::memory_bytes)
    }
}
