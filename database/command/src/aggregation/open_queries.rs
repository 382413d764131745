//! The queries that a pipeline reads from.

use std::sync::{Arc, Weak};

use bson::Document;
use millrace_pipeline::DocumentStream;
use millrace_query::executor::Executor;
use millrace_value::{Operation, Result};
use parking_lot::Mutex;

/// The queries that a pipeline has open. Between two batches they let go of the engine.
#[derive(Default)]
pub(crate) struct OpenQueries(Mutex<Vec<Weak<Mutex<Executor>>>>);

impl OpenQueries {
    /// A stream of the documents of a query.
    pub(crate) fn stream(&self, executor: Executor) -> Box<dyn DocumentStream> {
        let executor = Arc::new(Mutex::new(executor));
        let mut open = self.0.lock();
        // $lookup opens one for every document it looks up; those that have ended are removed
        // before the list grows.
        if open.len() == open.capacity() {
            open.retain(|query| query.strong_count() > 0);
        }
        open.push(Arc::downgrade(&executor));
        Box::new(QueryStream { executor })
    }

    /// Lets go of what the queries hold of the engine; they go on from where they were.
    pub(crate) fn save(&self) {
        self.0.lock().retain(|query| match query.upgrade() {
            Some(query) => {
                query.lock().save();
                true
            }
            None => false,
        });
    }
}

struct QueryStream {
    executor: Arc<Mutex<Executor>>,
}

impl DocumentStream for QueryStream {
    fn next(&mut self, operation: &Operation) -> Result<Option<Document>> {
        let record = self.executor.lock().next(operation)?;
        match record {
            Some(record) => Ok(Some(Document::try_from(record.document)?)),
            None => Ok(None),
        }
    }

    fn memory_bytes(&self) -> usize {
        size_of::<Executor>()
    }
}
