//! What is known of one collection and its indexes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bson::{Bson, Document, Uuid, doc};
use millrace_value::ident::Ident;
use millrace_value::{Collation, Result};

use crate::index::IndexSpec;
use crate::namespace::Namespace;
use crate::validation::Validator;

/// How the documents of a collection are keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// By their encoded `_id`: a look-up by `_id` is one read, and natural order is the order of `_id`.
    Clustered,
    /// By a sequence number in insertion order, with an index on `_id`: capped collections.
    Sequenced,
}

/// One index of a collection. The index on `_id` of a clustered collection has no keys of its own.
///
/// Immutable but for [`IndexState`], which all successive descriptions of the index share: a query that
/// was planned on an older one learns what happened since.
#[derive(Debug)]
pub struct Index {
    /// The prefix of the engine keys of the index's entries.
    pub ident: Ident,
    /// The indexed fields and the options of the index.
    pub spec: IndexSpec,
    /// Whether the build has ended; an index that is not ready is maintained but not read.
    pub ready: bool,
    state: Arc<IndexState>,
}

/// The state that changes while an index is in use. Nothing else is published through these, and the
/// engine's commits order them with the entries they describe, so `Relaxed` suffices.
#[derive(Debug, Default)]
struct IndexState {
    /// Bit *i* is set once a document had an array along field *i*. Set before the first such entry is
    /// committed, never cleared: readers may assume more than is so, never less.
    multikey: AtomicU64,
    /// The bits of `multikey` that a commit has stored. Set after it, so that a write that finds a bit
    /// here may rely on it being in the engine, and a write that does not stores it once more. A bit that
    /// is only in `multikey` may belong to a commit that was refused.
    multikey_stored: AtomicU64,
    /// How many queries used the index since the server started (`$indexStats`).
    accesses: AtomicU64,
    /// Set before the index's keys are removed.
    dropped: AtomicBool,
}

impl Index {
    /// An index whose stored mask of multikey fields is `multikey`.
    #[must_use]
    pub fn new(ident: Ident, spec: IndexSpec, ready: bool, multikey: u64) -> Self {
        let state = IndexState {
            multikey: AtomicU64::new(multikey),
            multikey_stored: AtomicU64::new(multikey),
            ..IndexState::default()
        };
        Self {
            ident,
            spec,
            ready,
            state: Arc::new(state),
        }
    }

    /// The same index with another specification of the same keys.
    pub fn with_spec(&self, spec: IndexSpec) -> Self {
        Self {
            ident: self.ident,
            spec,
            ready: self.ready,
            state: Arc::clone(&self.state),
        }
    }

    /// The same index, built.
    pub(crate) fn made_ready(&self) -> Self {
        Self {
            ready: true,
            ..self.with_spec(self.spec.clone())
        }
    }

    /// Which fields are multikey, as a mask; fields from the 64th on share the last bit.
    #[must_use]
    pub fn multikey(&self) -> u64 {
        self.state.multikey.load(Ordering::Relaxed)
    }

    /// Whether field `position` may have several keys in one document.
    #[must_use]
    pub fn is_field_multikey(&self, position: usize) -> bool {
        self.multikey() & Self::field_bit(position) != 0
    }

    /// The bit of field `position` in the multikey mask.
    #[must_use]
    pub fn field_bit(position: usize) -> u64 {
        1 << position.min(63)
    }

    /// Tells readers of fields that are about to become multikey.
    pub fn add_multikey(&self, mask: u64) {
        self.state.multikey.fetch_or(mask, Ordering::Relaxed);
    }

    /// The part of the multikey mask that is in the engine.
    pub(crate) fn multikey_stored(&self) -> u64 {
        self.state.multikey_stored.load(Ordering::Relaxed)
    }

    /// To be called once a commit that stores `mask` has succeeded.
    pub(crate) fn multikey_committed(&self, mask: u64) {
        self.state.multikey_stored.fetch_or(mask, Ordering::Relaxed);
    }

    /// Counts a use of the index.
    pub fn record_access(&self) {
        self.state.accesses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the index was used since the server started.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.state.accesses.load(Ordering::Relaxed)
    }

    /// Whether the index has been dropped. A state of the engine that was fixed before this returned
    /// false has all keys of the index.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.state.dropped.load(Ordering::Acquire)
    }

    /// To be called before the commit that removes the index's keys; with `false` when it failed.
    pub(crate) fn set_dropped(&self, dropped: bool) {
        self.state.dropped.store(dropped, Ordering::Release);
    }
}

/// One collection. Immutable but for flags and counters: a change of its options or indexes makes a
/// new one that takes its place in the catalog.
#[derive(Debug)]
pub struct Collection {
    /// The database and the name of the collection.
    pub namespace: Namespace,
    /// The identity of the collection, which a rename keeps.
    pub uuid: Uuid,
    /// The prefix of the engine keys of the collection's documents.
    pub ident: Ident,
    /// The kind of record id that its documents are stored under.
    pub kind: RecordKind,
    /// The options it was created with, as `listCollections` shows them.
    pub options: Document,
    /// Its indexes, the one on `_id` first.
    pub indexes: Vec<Arc<Index>>,
    /// State that survives a change of options or indexes.
    pub(crate) shared: Arc<Shared>,
    /// The validator that the options ask for, parsed when first needed.
    pub(crate) validator: OnceLock<Option<Validator>>,
}

/// The option of collections that do not outlive the server's run.
pub const TEMPORARY: &str = "temp";

/// The part of a collection that all its successive descriptions share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Set before the collection's keys are removed; cursors on it end with `QueryPlanKilled`.
    pub(crate) dropped: AtomicBool,
    /// The numbers of a capped collection's documents, read from the engine when first needed. Its
    /// lock is held from taking a number to the commit that uses it, so that documents appear in the
    /// order of their numbers.
    pub(crate) sequence: Mutex<Option<Sequence>>,
    /// How often something was inserted: tailable cursors that await data compare it.
    pub(crate) inserts: AtomicU64,
}

/// The numbers of a capped collection's documents.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// No document has a smaller number.
    pub(crate) first: u64,
    /// The number of the next document.
    pub(crate) next: u64,
}

impl Collection {
    /// The validator of the collection; none if it has none or validation is off.
    ///
    /// # Errors
    /// When the stored validator cannot be parsed.
    pub fn validator(&self) -> Result<Option<&Validator>> {
        if let Some(parsed) = self.validator.get() {
            return Ok(parsed.as_ref());
        }
        let parsed = Validator::from_options(&self.options, self.collation())?;
        Ok(self.validator.get_or_init(|| parsed).as_ref())
    }

    /// A collection that no catalog knows, for tests that write its keys by themselves.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn detached(
        namespace: Namespace,
        ident: Ident,
        kind: RecordKind,
        indexes: Vec<Arc<Index>>,
    ) -> Self {
        Self {
            namespace,
            uuid: Uuid::from_bytes([7; 16]),
            ident,
            kind,
            options: Document::new(),
            indexes,
            shared: Arc::default(),
            validator: OnceLock::new(),
        }
    }

    /// Marks the collection as dropped, as the catalog does before it removes the keys.
    #[cfg(feature = "testing")]
    pub fn mark_dropped(&self) {
        self.shared.dropped.store(true, Ordering::Release);
    }

    /// The key under which the engine counts the collection's documents and bytes.
    #[must_use]
    pub fn counter_key(&self) -> Vec<u8> {
        counter_key(self.ident)
    }

    /// The engine key of the document with this record id.
    #[must_use]
    pub fn record_key(&self, record_id: &[u8]) -> Vec<u8> {
        self.ident.key(record_id)
    }

    /// The default collation, which is that of the index on `_id`. Only the simple one can be asked for.
    #[must_use]
    pub const fn collation(&self) -> Collation {
        Collation::SIMPLE
    }

    /// The index of this name, ready or not; `None` if there is none.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// The index on `_id`; `None` if the collection has none.
    #[must_use]
    pub fn id_index(&self) -> Option<&Arc<Index>> {
        self.index("_id_")
    }

    /// The indexes that have entries of their own: all but the one on `_id` of a clustered collection.
    pub fn stored_indexes(&self) -> impl Iterator<Item = &Arc<Index>> {
        let clustered = self.kind == RecordKind::Clustered;
        self.indexes
            .iter()
            .filter(move |index| !(clustered && index.spec.name == "_id_"))
    }

    /// Whether the collection has been dropped since this description was read.
    #[must_use]
    pub fn is_dropped(&self) -> bool {
        self.shared.dropped.load(Ordering::Acquire)
    }

    /// Whether the collection is to go when the database is next opened: `$out` writes to one that
    /// becomes lasting when it is renamed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.options.get_bool(TEMPORARY).unwrap_or(false)
    }

    /// The limits of a capped collection.
    #[must_use]
    pub fn capped(&self) -> Option<Capped> {
        if !self.options.get_bool("capped").unwrap_or(false) {
            return None;
        }
        let bytes_max = as_i64(self.options.get("size")).unwrap_or(i64::MAX);
        let count_max = as_i64(self.options.get("max")).filter(|&max| max > 0);
        Some(Capped {
            bytes_max,
            count_max,
        })
    }

    /// How often something was inserted since the server started.
    #[must_use]
    pub fn inserts(&self) -> u64 {
        self.shared.inserts.load(Ordering::Acquire)
    }

    /// The catalog's entry.
    pub(crate) fn to_document(&self) -> Document {
        let indexes: Vec<Bson> = self
            .indexes
            .iter()
            .map(|index| {
                Bson::Document(doc! {
                    "ident": i64::from(index.ident.get()),
                    "spec": index.spec.document.clone(),
                    "ready": index.ready,
                })
            })
            .collect();
        doc! {
            "ns": self.namespace.as_str(),
            "uuid": self.uuid,
            "ident": i64::from(self.ident.get()),
            "kind": match self.kind {
                RecordKind::Clustered => "clustered",
                RecordKind::Sequenced => "sequenced",
            },
            "options": self.options.clone(),
            "indexes": indexes,
        }
    }

    /// The same collection with other indexes.
    pub(crate) fn with_indexes(&self, indexes: Vec<Arc<Index>>) -> Self {
        Self {
            indexes,
            ..self.clone_description()
        }
    }

    /// The same collection with other options.
    pub(crate) fn with_options(&self, options: Document) -> Self {
        Self {
            options,
            ..self.clone_description()
        }
    }

    /// The same collection under another name, no longer temporary.
    pub(crate) fn renamed(&self, namespace: Namespace) -> Self {
        let mut options = self.options.clone();
        options.remove(TEMPORARY);
        Self {
            namespace,
            options,
            ..self.clone_description()
        }
    }

    fn clone_description(&self) -> Self {
        Self {
            namespace: self.namespace.clone(),
            uuid: self.uuid,
            ident: self.ident,
            kind: self.kind,
            options: self.options.clone(),
            indexes: self.indexes.clone(),
            shared: Arc::clone(&self.shared),
            validator: OnceLock::new(),
        }
    }
}

/// The limits of a capped collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capped {
    /// How many bytes of documents it holds at most.
    pub bytes_max: i64,
    /// How many documents it holds at most.
    pub count_max: Option<i64>,
}

/// The key of the counter of the collection `ident`.
pub(crate) fn counter_key(ident: Ident) -> Vec<u8> {
    let mut rest = vec![b'k'];
    rest.extend_from_slice(&ident.prefix());
    Ident::CATALOG.key(&rest)
}

/// The engine key of an index's multikey mask.
#[must_use]
pub fn multikey_key(ident: Ident) -> Vec<u8> {
    let mut rest = vec![b'm'];
    rest.extend_from_slice(&ident.prefix());
    Ident::CATALOG.key(&rest)
}

/// The number of a catalog entry or an option as an integer; none if it is missing or not a number.
#[must_use]
pub fn as_i64(value: Option<&Bson>) -> Option<i64> {
    match value? {
        Bson::Int32(n) => Some(i64::from(*n)),
        Bson::Int64(n) => Some(*n),
        Bson::Double(n) if n.is_finite() =>
        {
            #[expect(
                clippy::cast_possible_truncation,
                reason = "options saturate at 64 bits"
            )]
            Some(*n as i64)
        }
        _ => None,
    }
}
