//! What is asked of a collection.

use bson::{Document, RawDocumentBuf};
use millrace_matcher::Matcher;
use millrace_update::projection::Projection;
use millrace_value::Collation;

/// Which index, or which direction of the collection, a client insists on.
#[derive(Clone, Debug, PartialEq)]
pub enum Hint {
    /// The index of this name.
    Name(String),
    /// The index of this name, hidden or not: the server's own reads, which no client asked for.
    Internal(String),
    /// The index with these keys.
    Keys(Document),
    /// No index: natural order, backward if negative.
    Natural(i32),
}

/// A find, or the reading half of an update, delete, count, distinct or aggregation.
#[derive(Clone, Debug)]
pub struct Query {
    /// The condition that the documents meet.
    pub filter: Matcher,
    /// The filter as the client wrote it.
    pub filter_document: RawDocumentBuf,
    /// In which order; none or empty: as they come. `{$natural: 1 or -1}` is the collection's own.
    pub sort: Option<Document>,
    /// The number of matching documents to leave out, after sorting.
    pub skip: u64,
    /// The number of documents to return at most; `None` for all.
    pub limit: Option<u64>,
    /// The index or order that the client insists on; `None` leaves the choice to the planner.
    pub hint: Option<Hint>,
    /// The least index key, included; needs a hint.
    pub min: Option<Document>,
    /// The first index key that is too great; needs a hint.
    pub max: Option<Document>,
    /// What of a document to return; all of it if none.
    pub projection: Option<Projection>,
    /// Return the index key instead of the document.
    pub return_key: bool,
    /// Add the record's id as `$recordId`.
    pub show_record_id: bool,
    /// Whether a sort may spill to disk.
    pub allow_disk_use: bool,
    /// Whether the end of a capped collection is only the end for now.
    pub tailable: bool,
}

impl Query {
    /// The rule by which strings are compared: that of the filter, and of the sort.
    #[must_use]
    pub const fn collation(&self) -> Collation {
        self.filter.collation()
    }

    /// Every document that satisfies `filter`, which was parsed from `filter_document`.
    #[must_use]
    pub const fn new(filter: Matcher, filter_document: RawDocumentBuf) -> Self {
        Self {
            filter,
            filter_document,
            sort: None,
            skip: 0,
            limit: None,
            hint: None,
            min: None,
            max: None,
            projection: None,
            return_key: false,
            show_record_id: false,
            allow_disk_use: true,
            tailable: false,
        }
    }
}
