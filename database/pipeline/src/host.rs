//! What stages need of the database around them.

use std::fmt::Debug;

use bson::Document;
use millrace_engine::Scratch;
use millrace_value::{Collation, Operation, Result};

use super::DocumentStream;

/// What `$merge` does with one document of its target.
#[derive(Clone, Debug, PartialEq)]
pub enum MergeAction {
    /// Leaves the target as it is: neither inserts nor changes.
    Keep,
    /// Inserts the document, or puts it in the place of the one found.
    Write(Document),
}

/// The database as stages see it; the command layer implements it.
///
/// Every method may be called from any thread, also while streams it returned are still being read.
pub trait Host: Send + Sync + Debug {
    /// Every document of a collection (or view) that matches `filter` in MongoDB's query language,
    /// and no other; strings are compared by `collation`. A collection that does not exist is empty. An index may be used.
    ///
    /// # Errors
    /// A filter that cannot be parsed; a failure of the engine.
    fn open(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        filter: Option<&Document>,
        collation: Collation,
    ) -> Result<Box<dyn DocumentStream>>;

    /// Makes `documents` the whole content of a collection, creating it if need be and keeping the
    /// indexes and options it had (`$out`). Readers see the old content until all are written; when
    /// the stream fails, the old content stays. Documents without an `_id` get one.
    ///
    /// # Errors
    /// What the stream fails with; duplicate keys; a failure of the engine.
    fn replace_collection(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        documents: &mut dyn DocumentStream,
    ) -> Result<()>;

    /// Finds the document of a collection whose fields equal those of `key` (field paths and their
    /// values), asks `decide` what is to become of it and does that, as one atomic step (`$merge`).
    /// `decide` may be called again when another writer was faster.
    ///
    /// # Errors
    /// What `decide` fails with; duplicate keys; a changed `_id`; a failure of the engine.
    fn merge(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        key: &Document,
        collation: Collation,
        decide: &mut dyn FnMut(Option<&Document>) -> Result<MergeAction>,
    ) -> Result<()>;

    /// Whether a collection has a unique index, neither partial nor sparse, over exactly `fields` in
    /// any order. `_id` always has one, even in a collection that does not exist yet.
    ///
    /// # Errors
    /// A failure of the engine.
    fn has_unique_index(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        fields: &[String],
    ) -> Result<bool>;

    /// The documents of `$collStats`, whose argument is `spec`.
    ///
    /// # Errors
    /// `NamespaceNotFound` where MongoDB reports it; a failure of the engine.
    fn collection_stats(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
        spec: &Document,
    ) -> Result<Vec<Document>>;

    /// The documents of `$indexStats`: one an index.
    ///
    /// # Errors
    /// A failure of the engine.
    fn index_stats(
        &self,
        operation: &Operation,
        database: &str,
        collection: &str,
    ) -> Result<Vec<Document>>;

    /// The documents of `$currentOp`, whose argument is `spec`.
    ///
    /// # Errors
    /// Options that are not understood.
    fn current_operations(&self, operation: &Operation, spec: &Document) -> Result<Vec<Document>>;

    /// The documents of `$listSessions` and `$listLocalSessions`, whose argument is `spec`.
    ///
    /// # Errors
    /// Options that are not understood.
    fn sessions(&self, operation: &Operation, spec: &Document) -> Result<Vec<Document>>;

    /// Space to spill to.
    ///
    /// # Errors
    /// A failure of the engine.
    fn scratch(&self) -> Result<Box<dyn Scratch>>;
}
