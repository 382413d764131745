//! The changes of one commit, gathered.

use std::collections::HashMap;
use std::sync::Arc;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument};
use millrace_engine::{CommitSeq, Counter, KEY_LEN_MAX, ReadSet};
use millrace_value::ident::Ident;
use millrace_value::key::TypeBits;
use millrace_value::{Collation, Error, ErrorCode, ReadView, Result, document_text};

use super::internal;
use crate::collection::{Collection, Index, RecordKind, multikey_key};
use crate::committer::{Changes, Committer, Target};
use crate::index::{IndexEntry, IndexKey, IndexKeys};

/// How many bytes the entries of one document in all indexes may take: a commit that puts others in
/// their place holds them twice.
const ENTRIES_BYTES_MAX: usize = 64 * 1024 * 1024;

/// Up to how many bytes of entries in a new index the other 63 need not be looked at: what they hold
/// without having been checked together stays small.
const ENTRIES_BYTES_UNCHECKED: usize = 256 * 1024;

/// Changes to documents that are committed together: of one collection, or of several that are
/// [selected](Self::select) one after the other. Reads made through it are guarded: the commit fails with
/// `WriteConflict` when one of them is no longer so.
#[derive(Debug)]
pub struct WriteSet<'a> {
    committer: &'a Committer,
    view: &'a ReadView,
    target: Target<'a>,
    read_set: ReadSet,
    changes: Changes<'a>,
    /// What the selected collection grows by.
    counted: Counter,
    /// What this set put (some) or deleted (none) under keys that must be unique, by engine key:
    /// the engine does not know yet.
    pending: HashMap<Vec<u8>, Option<Vec<u8>>>,
    /// Multikey masks that are stored with the commit.
    multikey: Vec<(&'a Arc<Index>, u64)>,
}

impl<'a> WriteSet<'a> {
    /// An empty set of changes to `collection`, a present one of the catalog that `committer` belongs to.
    /// Reads are made at `view` and count from now, or from its state if it is fixed.
    #[must_use]
    pub fn new(committer: &'a Committer, view: &'a ReadView, collection: &'a Collection) -> Self {
        Self {
            committer,
            view,
            target: target(committer, collection),
            read_set: view.read_set(),
            changes: Changes::default(),
            counted: Counter::default(),
            pending: HashMap::new(),
            multikey: Vec::new(),
        }
    }

    /// Turns to `collection`, a present one of the same catalog: what follows is done to it. The caller
    /// keeps the descriptions of all collections of the set from changing until the commit.
    pub fn select(&mut self, collection: &'a Collection) {
        self.add_counted();
        self.target = target(self.committer, collection);
    }

    /// How many bytes the changes take.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.changes.batch.bytes()
    }

    /// Whether there is nothing to commit.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.batch.is_empty()
    }

    /// The document with this record id.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn read(&mut self, record_id: &[u8]) -> Result<Option<Vec<u8>>> {
        self.read_key(&self.target.collection.record_key(record_id))
    }

    fn read_key(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        if let Some(pending) = self.pending.get(key) {
            return Ok(pending.clone());
        }
        self.read_set.add(key);
        self.view.get(key)
    }

    fn is_taken(&mut self, key: &[u8]) -> Result<bool> {
        if let Some(pending) = self.pending.get(key) {
            return Ok(pending.is_some());
        }
        self.read_set.add(key);
        self.view.get_with(key, &mut |_| {})
    }

    /// Adds a document under `record_id`.
    ///
    /// # Errors
    /// `DuplicateKey`, `KeyTooLong`, and what makes index keys impossible; the set is unchanged then.
    /// After a failure of the engine it must not be committed.
    pub fn insert(&mut self, record_id: &[u8], document: &RawDocument) -> Result<()> {
        let record_key = self.target.collection.record_key(record_id);
        check_key("_id", &record_key)?;
        if self.is_taken(&record_key)? {
            return Err(self.duplicate_id(document));
        }
        let entries = self.bounded_entries(document, record_id)?;
        for (index, keys) in &entries {
            self.check_unique(index, keys, &[], document)?;
        }
        for (index, keys) in &entries {
            for entry in &keys.entries {
                self.put_entry(index, entry);
            }
            self.note_multikey(index, keys.multikey)?;
        }
        self.changes.insert(self.target, &record_key, document);
        // A capped collection may remove the document again before the commit; others only ask whether
        // the key is taken.
        let remembered = match self.target.collection.kind {
            RecordKind::Clustered => Vec::new(),
            RecordKind::Sequenced => document.as_bytes().to_vec(),
        };
        self.pending.insert(record_key, Some(remembered));
        self.count(1, document.as_bytes().len());
        Ok(())
    }

    /// Puts `new` in the place of `old`, which was read through this set and is not changed by it
    /// otherwise.
    ///
    /// # Errors
    /// As [`WriteSet::insert`].
    pub fn replace(
        &mut self,
        record_id: &[u8],
        old: &RawDocument,
        new: &RawDocument,
    ) -> Result<()> {
        let before = self.entries(old, record_id)?;
        let after = self.bounded_entries(new, record_id)?;
        for ((index, keys), (_, old_keys)) in after.iter().zip(&before) {
            self.check_unique(index, keys, &old_keys.entries, new)?;
        }
        for ((index, keys), (_, old_keys)) in after.iter().zip(&before) {
            for entry in &old_keys.entries {
                if find_entry(&keys.entries, &entry.key).is_none() {
                    self.delete_entry(index, entry, record_id)?;
                }
            }
            for entry in &keys.entries {
                match find_entry(&old_keys.entries, &entry.key) {
                    Some(same) if same.value == entry.value => {}
                    Some(_) if self.is_foreign(index, entry, record_id)? => {}
                    _ => self.put_entry(index, entry),
                }
            }
            self.note_multikey(index, keys.multikey)?;
        }
        let key = self.target.collection.record_key(record_id);
        self.changes.update(self.target, &key, old, new);
        self.count(0, new.as_bytes().len());
        self.count(0, 0_usize.wrapping_sub(old.as_bytes().len()));
        Ok(())
    }

    /// Removes a document that was read through this set.
    ///
    /// # Errors
    /// When its index keys cannot be made.
    pub fn delete(&mut self, record_id: &[u8], document: &RawDocument) -> Result<()> {
        for (index, keys) in self.entries(document, record_id)? {
            for entry in &keys.entries {
                self.delete_entry(index, entry, record_id)?;
            }
        }
        let key = self.target.collection.record_key(record_id);
        self.changes.delete(self.target, &key, document)?;
        self.pending.insert(key, None);
        self.counted.count -= 1;
        self.count(0, 0_usize.wrapping_sub(document.as_bytes().len()));
        Ok(())
    }

    /// Enters an existing document into one index.
    ///
    /// # Errors
    /// `DuplicateKey` when another document has one of the keys of a unique index.
    pub fn index_existing(
        &mut self,
        index: &'a Arc<Index>,
        record_id: &[u8],
        document: &RawDocument,
    ) -> Result<()> {
        let keys = Entries::new(index, document, record_id)?;
        for entry in &keys.entries {
            check_key(&index.spec.name, &entry.key)?;
        }
        if keys.bytes() > ENTRIES_BYTES_UNCHECKED {
            // Together with the other indexes it may be more than a later write of the document can do.
            self.bounded_entries(document, record_id)?;
        }
        if index.spec.unique {
            for entry in &keys.entries {
                if self.is_foreign(index, entry, record_id)? {
                    return Err(duplicate_key(self.target.collection, index, document));
                }
            }
        }
        for entry in &keys.entries {
            self.put_entry(index, entry);
        }
        self.note_multikey(index, keys.multikey)
    }

    /// Commits the changes.
    ///
    /// # Errors
    /// `WriteConflict` when something read has changed since.
    pub fn commit(self) -> Result<Option<CommitSeq>> {
        self.commit_and(|| {})
    }

    /// As [`commit`](Self::commit); `publish` runs once the changes are visible and before observers learn of
    /// them.
    pub(crate) fn commit_and(mut self, publish: impl FnOnce()) -> Result<Option<CommitSeq>> {
        if self.changes.batch.is_empty() {
            return Ok(None);
        }
        self.add_counted();
        for (index, mask) in &self.multikey {
            index.add_multikey(*mask);
        }
        let commit_seq = self.committer.commit(&self.changes, &self.read_set, || {
            for (index, mask) in &self.multikey {
                index.multikey_committed(*mask);
            }
            publish();
        })?;
        Ok(Some(commit_seq))
    }

    /// Puts what the selected collection grows by into the batch.
    fn add_counted(&mut self) {
        let counted = std::mem::take(&mut self.counted);
        if counted != Counter::default() {
            let key = self.target.collection.counter_key();
            self.changes.batch.add(&key, counted);
        }
    }

    /// Counts documents and bytes; both wrap, so that a negative difference can be passed.
    fn count(&mut self, documents: i64, bytes: usize) {
        #[expect(
            clippy::cast_possible_wrap,
            reason = "differences are passed as wrapped sizes"
        )]
        let bytes = bytes as i64;
        self.counted = self.counted.plus(Counter {
            count: documents,
            bytes,
        });
    }

    /// Removes an entry of the record, unless it is another record's.
    fn delete_entry(&mut self, index: &Index, entry: &Entry, record_id: &[u8]) -> Result<()> {
        if self.is_foreign(index, entry, record_id)? {
            return Ok(());
        }
        self.changes.batch.delete(&entry.key);
        if index.spec.unique {
            self.pending.insert(entry.key.clone(), None);
        }
        Ok(())
    }

    /// Whether the key of a unique index that is being built belongs to another record: until the build
    /// has found the duplicate, the records that were there before may have keys in common. In an index
    /// that is ready they have not.
    fn is_foreign(&mut self, index: &Index, entry: &Entry, record_id: &[u8]) -> Result<bool> {
        if index.ready || !index.spec.unique {
            return Ok(false);
        }
        Ok(match self.read_key(&entry.key)? {
            Some(value) => IndexEntry::parse(true, &entry.key, &value)?.record_id != record_id,
            None => false,
        })
    }

    /// The entries that a document has in the engine.
    fn entries(
        &self,
        document: &RawDocument,
        record_id: &[u8],
    ) -> Result<Vec<(&'a Arc<Index>, Entries)>> {
        let collection = self.target.collection;
        let indexes = collection.stored_indexes();
        indexes
            .map(|index| Ok((index, Entries::new(index, document, record_id)?)))
            .collect()
    }

    /// The entries that a document is to have, if the engine can take them.
    fn bounded_entries(
        &self,
        document: &RawDocument,
        record_id: &[u8],
    ) -> Result<Vec<(&'a Arc<Index>, Entries)>> {
        let collection = self.target.collection;
        let mut all = Vec::new();
        let mut bytes = 0;
        for index in collection.stored_indexes() {
            let entries = Entries::new(index, document, record_id)?;
            for entry in &entries.entries {
                check_key(&index.spec.name, &entry.key)?;
            }
            bytes += entries.bytes();
            if bytes > ENTRIES_BYTES_MAX {
                return Err(Error::new(
                    ErrorCode::CannotBuildIndexKeys,
                    format!(
                        "the keys of one document in all indexes take more than {ENTRIES_BYTES_MAX} bytes"
                    ),
                ));
            }
            all.push((index, entries));
        }
        Ok(all)
    }

    fn check_unique(
        &mut self,
        index: &Index,
        keys: &Entries,
        own: &[Entry],
        document: &RawDocument,
    ) -> Result<()> {
        if !index.spec.unique {
            return Ok(());
        }
        for entry in &keys.entries {
            if find_entry(own, &entry.key).is_none() && self.is_taken(&entry.key)? {
                return Err(duplicate_key(self.target.collection, index, document));
            }
        }
        Ok(())
    }

    fn put_entry(&mut self, index: &Index, entry: &Entry) {
        self.changes.batch.put(&entry.key, &entry.value);
        if index.spec.unique {
            self.pending
                .insert(entry.key.clone(), Some(entry.value.clone()));
        }
    }

    /// Stores an index's larger multikey mask with this commit, if need be.
    fn note_multikey(&mut self, index: &'a Arc<Index>, mask: u64) -> Result<()> {
        let mut known = index.multikey_stored();
        for (other, noted) in &self.multikey {
            if other.ident == index.ident {
                known |= noted;
            }
        }
        if mask & !known == 0 {
            return Ok(());
        }
        let key = multikey_key(index.ident);
        let stored = match self.read_key(&key)? {
            Some(bytes) => u64::from_le_bytes(
                bytes
                    .as_slice()
                    .try_into()
                    .map_err(|_| internal("a multikey mask is damaged"))?,
            ),
            None => 0,
        };
        let mask = mask | stored;
        self.changes.batch.put(&key, &mask.to_le_bytes());
        self.pending.insert(key, Some(mask.to_le_bytes().to_vec()));
        self.multikey.push((index, mask));
        Ok(())
    }

    fn duplicate_id(&self, document: &RawDocument) -> Error {
        match self.target.collection.id_index() {
            Some(index) => duplicate_key(self.target.collection, index, document),
            None => internal("a collection has no index on _id"),
        }
    }
}

fn target<'a>(committer: &Committer, collection: &'a Collection) -> Target<'a> {
    Target {
        collection,
        detail: committer.detail(collection),
    }
}

/// The engine keys and values of one document in one index.
#[derive(Debug)]
struct Entries {
    multikey: u64,
    /// In ascending order of their keys, each of which is there once.
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    pub key: Vec<u8>,
    value: Vec<u8>,
}

impl Entries {
    fn new(index: &Index, document: &RawDocument, record_id: &[u8]) -> Result<Self> {
        let keys = IndexKeys::of(&index.spec, document)?;
        let unique = index.spec.unique;
        let entries = keys
            .keys
            .iter()
            .map(|IndexKey { fields, type_bits }| Entry {
                key: IndexEntry::key(index.ident, unique, fields, record_id),
                value: IndexEntry::value(unique, record_id, type_bits),
            })
            .collect();
        Ok(Self {
            multikey: keys.multikey,
            entries,
        })
    }

    fn bytes(&self) -> usize {
        let sizes = self.entries.iter().map(|e| e.key.len() + e.value.len());
        sizes.sum()
    }
}

/// The entry with this key, of entries in the order of their keys.
fn find_entry<'e>(entries: &'e [Entry], key: &[u8]) -> Option<&'e Entry> {
    let found = entries.binary_search_by(|entry| entry.key.as_slice().cmp(key));
    found.ok().map(|position| &entries[position])
}

/// Checks that the engine can take a key, so that one document's fails alone and not with its batch.
fn check_key(index: &str, key: &[u8]) -> Result<()> {
    if key.len() > KEY_LEN_MAX {
        return Err(Error::new(
            ErrorCode::KeyTooLong,
            format!(
                "key too large to index: {} bytes in index {index}, at most {KEY_LEN_MAX} are possible",
                key.len()
            ),
        ));
    }
    Ok(())
}

/// The record id of a document in a clustered collection, whose default collation is `collation`: its encoded
/// `_id`.
///
/// # Errors
/// When the `_id` is too large to be a key.
pub fn clustered_record_id(id: RawBsonRef<'_>, collation: Collation) -> Result<Vec<u8>> {
    let mut record_id = Vec::with_capacity(24);
    collation.encode_key(&mut record_id, &mut TypeBits::new(), id, false)?;
    Ok(record_id)
}

/// The engine key of the document with this `_id` in a clustered collection; none otherwise.
///
/// # Errors
/// As [`clustered_record_id`].
pub fn clustered_key(collection: &Collection, id: RawBsonRef<'_>) -> Result<Option<Vec<u8>>> {
    if collection.kind != RecordKind::Clustered {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(Ident::LEN + 24);
    key.extend_from_slice(&collection.ident.prefix());
    collection
        .collation()
        .encode_key(&mut key, &mut TypeBits::new(), id, false)?;
    Ok(Some(key))
}

/// MongoDB's error for a document that has a key of a unique index which another one has.
fn duplicate_key(collection: &Collection, index: &Index, document: &RawDocument) -> Error {
    let mut key_value = Document::new();
    for field in &index.spec.fields {
        let path = field.path.to_string();
        let mut value = Some(Bson::Document(
            Document::try_from(document).unwrap_or_default(),
        ));
        for component in field.path.components() {
            value = match value {
                Some(Bson::Document(mut inner)) => inner.remove(&**component),
                _ => None,
            };
        }
        key_value.insert(path, value.unwrap_or(Bson::Null));
    }
    let key_pattern = index
        .spec
        .document
        .get_document("key")
        .cloned()
        .unwrap_or_default();
    let message = format!(
        "E11000 duplicate key error collection: {} index: {} dup key: {}",
        collection.namespace,
        index.spec.name,
        document_text(&key_value)
    );
    let mut details = Document::new();
    details.insert("keyPattern", key_pattern);
    details.insert("keyValue", key_value);
    Error::new(ErrorCode::DuplicateKey, message).with_details(details)
}
