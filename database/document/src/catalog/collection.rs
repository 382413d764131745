//! What is known of one collection and its indexes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bson::{Bson, Document, Uuid, doc};

use super::{Ident, Namespace};
use crate::index::IndexSpec;

/// How the documents of a collection are keyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// By their encoded `_id`: a look-up by `_id` is one read, and natural order is the order of `_id`.
    Clustered,
    /// By a sequence number in insertion order, with an index on `_id`: capped collections.
    Sequenced,
}

/// One index of a collection. The index on `_id` of a clustered collection has no keys of its own.
#[derive(Debug)]
pub struct Index {
    /// Where its entries lie.
    pub ident: Ident,
    /// What it indexes.
    pub spec: IndexSpec,
    /// Whether the build has ended; an index that is not ready is maintained but not read.
    pub ready: bool,
    /// Bit *i* is set once a document had an array along field *i*. Set before the first such entry is
    /// committed, never cleared: readers may assume more than is so, never less (`Relaxed`: the commit
    /// of the entry orders the two).
    multikey: AtomicU64,
    /// How many queries used the index since the server started (`$indexStats`).
    accesses: AtomicU64,
}

impl Index {
    pub(crate) const fn new(ident: Ident, spec: IndexSpec, ready: bool, multikey: u64) -> Self {
        Self {
            ident,
            spec,
            ready,
            multikey: AtomicU64::new(multikey),
            accesses: AtomicU64::new(0),
        }
    }

    /// The same index with another specification of the same keys.
    pub(crate) fn with_spec(&self, spec: IndexSpec) -> Self {
        Self {
            ident: self.ident,
            spec,
            ready: self.ready,
            multikey: AtomicU64::new(self.multikey()),
            accesses: AtomicU64::new(self.accesses()),
        }
    }

    /// Which fields are multikey, as a mask; fields from the 64th on share the last bit.
    #[must_use]
    pub fn multikey(&self) -> u64 {
        self.multikey.load(Ordering::Relaxed)
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

    pub(crate) fn add_multikey(&self, mask: u64) {
        self.multikey.fetch_or(mask, Ordering::Relaxed);
    }

    /// Counts a use of the index.
    pub fn record_access(&self) {
        self.accesses.fetch_add(1, Ordering::Relaxed);
    }

    /// How often the index was used since the server started.
    #[must_use]
    pub fn accesses(&self) -> u64 {
        self.accesses.load(Ordering::Relaxed)
    }
}

/// One collection. Immutable but for flags and counters: a change of its options or indexes makes a
/// new one that takes its place in the catalog.
#[derive(Debug)]
pub struct Collection {
    /// Its name.
    pub namespace: Namespace,
    /// Its identity across renames.
    pub uuid: Uuid,
    /// Where its documents lie.
    pub ident: Ident,
    /// How its documents are keyed.
    pub kind: RecordKind,
    /// The options it was created with, as `listCollections` shows them.
    pub options: Document,
    /// Its indexes, the one on `_id` first.
    pub indexes: Vec<Arc<Index>>,
    /// State that survives a change of options or indexes.
    pub(crate) shared: Arc<Shared>,
}

/// The part of a collection that all its successive descriptions share.
#[derive(Debug, Default)]
pub(crate) struct Shared {
    /// Set when the collection is dropped; cursors on it end with `QueryPlanKilled`.
    pub(crate) dropped: AtomicBool,
    /// The numbers of a capped collection's documents, read from the engine when first needed. Its lock is held from taking a number to the
    /// commit that uses it, so that documents appear in the order of their numbers.
    pub(crate) sequence: Mutex<Option<Sequence>>,
    /// How often something was inserted: tailable cursors that await data compare it.
    pub(crate) inserts: AtomicU64,
}

/// The numbers of a capped collection's documents.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sequence {
    /// No document has a smaller number.
    pub(crate) first: u64,
    /// The number of the next document.
    pub(crate) next: u64,
}

impl Collection {
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

    /// The index of this name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&Arc<Index>> {
        self.indexes.iter().find(|index| index.spec.name == name)
    }

    /// The index on `_id`.
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

    /// The same collection under another name.
    pub(crate) fn with_namespace(&self, namespace: Namespace) -> Self {
        Self {
            namespace,
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

pub(crate) fn as_i64(value: Option<&Bson>) -> Option<i64> {
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
