//! The stream of all stages that look at one document at a time.

use bson::Document;
use millrace_expression::{EvaluationContext, Variables};
use millrace_value::{Collation, Operation, Result};

use super::DocumentStream;

/// Gives what `step` makes of every document of `source`; leaves out those of which it makes nothing.
pub(crate) struct FilterMap<F> {
    source: Box<dyn DocumentStream>,
    variables: Variables,
    collation: Collation,
    step: F,
}

impl<F> FilterMap<F>
where
    F: FnMut(Document, &EvaluationContext<'_>) -> Result<Option<Document>> + Send + 'static,
{
    /// The stream, boxed. `variables` and `collation` are those that `step` evaluates with.
    pub(crate) fn boxed(
        source: Box<dyn DocumentStream>,
        variables: Variables,
        collation: Collation,
        step: F,
    ) -> Box<dyn DocumentStream> {
        Box::new(Self {
            source,
            variables,
            collation,
            step,
        })
    }
}

impl<F> DocumentStream for FilterMap<F>
where
    F: FnMut(Document, &EvaluationContext<'_>) -> Result<Option<Document>> + Send,
{
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let eval = EvaluationContext::new(operation, &self.variables, self.collation);
        while let Some(document) = self.source.next(operation)? {
            operation.check()?;
            if let Some(document) = (self.step)(document, &eval)? {
                return Ok(Some(document));
            }
        }
        Ok(None)
    }

    fn memory_bytes(&self) -> usize {
        self.source.memory_bytes()
    }
}
