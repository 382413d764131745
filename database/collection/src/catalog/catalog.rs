//! The set of collections: look-up, and the changes that are not writes of documents.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use bson::{Document, Uuid};
use millrace_engine::{Batch, CommitSeq, Counter, Engine, ReadSet};
use millrace_value::ident::Ident;
use millrace_value::{Environment, Error, ErrorCode, Operation, ReadView, Result};
use parking_lot::{ArcRwLockReadGuard, Mutex, RawRwLock, RwLock};

use super::entry::{self, entry_key, next_ident_key, put_entry};
use super::logical;
use super::state::CatalogState;
use super::views::{SYSTEM_VIEWS, Views, is_a_view};
use crate::collection::{Collection, Index, RecordKind, Shared, multikey_key};
use crate::committer::{Changes, Committer};
use crate::index::IndexSpec;
use crate::namespace::Namespace;

/// Where a collection's current description is found.
type Slot = Arc<RwLock<Arc<Collection>>>;

/// The set of collections.
///
/// Thread safety: `collections` is locked only for look-ups and for adding and removing names.
/// A write to a collection holds its slot shared ([`Catalog::share`]) from reading the description until
/// the commit; a change of the description holds it exclusively, so that every write is made under the
/// list of indexes that is in force when it commits. `changes` lets one structural change run at a time;
/// it is taken before any slot. No thread waits for a slot while holding `collections`, nor for
/// `collections` while holding a slot. `views` is locked like `collections`, and changed only under
/// `changes`. Observers of a commit are called while the caller holds `changes` or the slot of a write.
pub struct Catalog {
    committer: Committer,
    latest: ReadView,
    collections: RwLock<BTreeMap<Namespace, Slot>>,
    pub(super) views: RwLock<Views>,
    pub(super) changes: Mutex<NextIdent>,
}

/// The next ident that was never used.
pub(super) struct NextIdent(u32);

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog")
            .field("committer", &self.committer)
            .finish_non_exhaustive()
    }
}

/// A collection's description, held so that it does not change.
#[derive(Debug)]
pub struct CollectionGuard(ArcRwLockReadGuard<RawRwLock, Arc<Collection>>);

impl CollectionGuard {
    /// The description of the collection, as it is while the guard lives.
    #[must_use]
    pub fn collection(&self) -> &Arc<Collection> {
        &self.0
    }
}

impl Catalog {
    /// Reads the catalog of the committer's engine and removes what an unclean stop left behind.
    ///
    /// # Errors
    /// When the engine fails or an entry cannot be read.
    pub fn open(committer: Committer) -> Result<Self> {
        let mut collections = BTreeMap::new();
        let mut unfinished = Vec::new();
        let mut temporary = Vec::new();
        let latest = ReadView::latest(Arc::clone(committer.engine()));
        for collection in entry::read_entries(&latest, "")? {
            if collection.indexes.iter().any(|index| !index.ready) {
                unfinished.push(collection.namespace.clone());
            }
            if collection.is_temporary() {
                temporary.push(collection.namespace.clone());
            }
            collections.insert(
                collection.namespace.clone(),
                Arc::new(RwLock::new(Arc::new(collection))),
            );
        }
        let next = entry::read_next_ident(&latest)?;
        let catalog = Self {
            committer,
            latest,
            collections: RwLock::new(collections),
            views: RwLock::default(),
            changes: Mutex::new(NextIdent(next)),
        };
        catalog.read_views()?;
        for namespace in temporary {
            catalog.drop_collection(&namespace)?;
            unfinished.retain(|other| *other != namespace);
        }
        for namespace in unfinished {
            tracing::warn!(%namespace, "an index build was interrupted; its index is removed");
            catalog.change_indexes(&namespace, |indexes| {
                indexes.retain(|index| index.ready);
                Ok(())
            })?;
        }
        Ok(catalog)
    }

    /// The engine below, for its upkeep and its statistics: what reads takes a view, what writes the committer.
    #[must_use]
    pub const fn engine(&self) -> &Arc<dyn Engine> {
        self.committer.engine()
    }

    /// The committer, through which every write to the engine goes.
    #[must_use]
    pub const fn committer(&self) -> &Committer {
        &self.committer
    }

    /// The view at which `operation` reads: the one chosen for it, or the latest. This is the one place
    /// that decides; whatever reads for a command asks here.
    #[must_use]
    pub fn read_view<'a>(&'a self, operation: &'a Operation) -> &'a ReadView {
        operation.view().unwrap_or(&self.latest)
    }

    /// The latest view: for the catalog's own reads and for work that follows the present state whatever
    /// its operation reads, as the build of an index does.
    #[must_use]
    pub const fn latest(&self) -> &ReadView {
        &self.latest
    }

    /// The collections and views that there are at `view`.
    #[must_use]
    pub const fn at<'a>(&'a self, view: &'a ReadView) -> CatalogState<'a> {
        CatalogState::new(self, view)
    }

    /// The error for a command on a collection that is not there: because it is a view, or at all.
    pub fn missing(&self, namespace: &Namespace) -> Error {
        match self.view(namespace) {
            Some(_) => is_a_view(namespace),
            None => namespace_not_found(namespace),
        }
    }

    fn slot(&self, namespace: &Namespace) -> Option<Slot> {
        self.collections.read().get(namespace).cloned()
    }

    /// The collection's present description; `None` if there is no collection of this name. It may
    /// change after the call.
    #[must_use]
    pub fn find(&self, namespace: &Namespace) -> Option<Arc<Collection>> {
        let slot = self.slot(namespace)?;
        let current = Arc::clone(&slot.read());
        // The slot may have gone to another name before it was this caller's turn to read it.
        Some(current).filter(|c| !c.is_dropped() && c.namespace == *namespace)
    }

    /// The collection's present description, kept from changing while the guard lives. Hold it no
    /// longer than one commit takes.
    #[must_use]
    pub fn share(&self, namespace: &Namespace) -> Option<CollectionGuard> {
        let slot = self.slot(namespace)?;
        let guard = RwLock::read_arc(&slot);
        let same = !guard.is_dropped() && guard.namespace == *namespace;
        same.then(|| CollectionGuard(guard))
    }

    /// As [`Catalog::share`], if the name still means the collection that `known` describes.
    #[must_use]
    pub fn share_same(&self, known: &Collection) -> Option<CollectionGuard> {
        self.share(&known.namespace)
            .filter(|guard| guard.collection().uuid == known.uuid)
    }

    /// The names of all databases that have a collection, in byte order.
    #[must_use]
    pub fn databases(&self) -> BTreeSet<String> {
        self.collections
            .read()
            .keys()
            .map(|ns| ns.database().to_owned())
            .collect()
    }

    /// The collections of a database, by name.
    #[must_use]
    pub fn collections(&self, database: &str) -> Vec<Arc<Collection>> {
        let slots: Vec<Slot> = self
            .collections
            .read()
            .iter()
            .filter(|(namespace, _)| namespace.database() == database)
            .map(|(_, slot)| Arc::clone(slot))
            .collect();
        slots
            .iter()
            .map(|slot| Arc::clone(&slot.read()))
            .filter(|c| !c.is_dropped() && c.namespace.database() == database)
            .collect()
    }

    /// The collection with this UUID in a database.
    #[must_use]
    pub fn find_by_uuid(&self, database: &str, uuid: Uuid) -> Option<Arc<Collection>> {
        self.collections(database)
            .into_iter()
            .find(|collection| collection.uuid == uuid)
    }

    /// A database whose name differs from `database` only by case.
    fn database_of_other_case(&self, database: &str) -> Option<String> {
        self.collections
            .read()
            .keys()
            .map(Namespace::database)
            .find(|name| *name != database && name.eq_ignore_ascii_case(database))
            .map(str::to_owned)
    }

    /// Creates a collection.
    ///
    /// # Errors
    /// `NamespaceExists` when there is one of this name, or a view.
    pub fn create(
        &self,
        namespace: &Namespace,
        options: Document,
        environment: &dyn Environment,
    ) -> Result<Arc<Collection>> {
        let mut changes = self.changes.lock();
        if self.view(namespace).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("A view already exists. NS: {namespace}"),
            ));
        }
        self.create_locked(&mut changes, namespace, options, environment)
    }

    /// Creates a collection; the caller holds `changes`.
    pub(super) fn create_locked(
        &self,
        changes: &mut NextIdent,
        namespace: &Namespace,
        options: Document,
        environment: &dyn Environment,
    ) -> Result<Arc<Collection>> {
        if self.find(namespace).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("Collection {namespace} already exists."),
            ));
        }
        if let Some(other) = self.database_of_other_case(namespace.database()) {
            return Err(Error::location(
                13297,
                format!(
                    "db already exists with different case already have: [{other}] trying to create [{}]",
                    namespace.database()
                ),
            ));
        }
        let mut changes_made = Changes::default();
        let batch = &mut changes_made.batch;
        let capped = options.get_bool("capped").unwrap_or(false);
        let kind = if capped {
            RecordKind::Sequenced
        } else {
            RecordKind::Clustered
        };
        let ident = changes.take(batch);
        let id_index = Index::new(changes.take(batch), IndexSpec::id(), true, 0);
        let collection = Arc::new(Collection {
            namespace: namespace.clone(),
            uuid: random_uuid(environment),
            ident,
            kind,
            options,
            indexes: vec![Arc::new(id_index)],
            shared: Arc::new(Shared::default()),
            validator: OnceLock::new(),
        });
        put_entry(batch, &collection)?;
        logical::create(&mut changes_made, &collection);
        self.committer.commit(&changes_made, &ReadSet::none(), || {
            let slot = Arc::new(RwLock::new(Arc::clone(&collection)));
            self.collections.write().insert(namespace.clone(), slot);
        })?;
        Ok(collection)
    }

    /// The collection, created with default options if there is none.
    ///
    /// # Errors
    /// As [`Catalog::create`], but that it exists is none; `CommandNotSupportedOnView` when a view has
    /// the name.
    pub fn find_or_create(
        &self,
        namespace: &Namespace,
        environment: &dyn Environment,
    ) -> Result<CollectionGuard> {
        loop {
            if let Some(guard) = self.share(namespace) {
                return Ok(guard);
            }
            self.refuse_view(namespace)?;
            match self.create(namespace, Document::new(), environment) {
                Err(error) if error.code() != ErrorCode::NamespaceExists => return Err(error),
                _ => {}
            }
        }
    }

    /// Removes a collection with its documents and indexes. Returns it and the commit sequence number, or
    /// none when there was none.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn drop_collection(
        &self,
        namespace: &Namespace,
    ) -> Result<Option<(Arc<Collection>, CommitSeq)>> {
        let _changes = self.changes.lock();
        self.drop_locked(namespace)
    }

    fn drop_locked(&self, namespace: &Namespace) -> Result<Option<(Arc<Collection>, CommitSeq)>> {
        let Some(slot) = self.slot(namespace) else {
            return Ok(None);
        };
        let current = slot.write();
        let dropped = Arc::clone(&current);
        let mut changes = Changes::default();
        self.delete_collection(&mut changes.batch, &dropped)?;
        logical::drop(&mut changes, &dropped);
        let commit_seq = self.commit_removal(&changes, Some(&dropped), &[], move || {
            drop(current);
            self.collections.write().remove(namespace);
            if namespace.collection() == SYSTEM_VIEWS {
                self.views.write().remove_database(namespace.database());
            }
        })?;
        Ok(Some((dropped, commit_seq)))
    }

    /// Commits `changes`, which remove the keys of a collection and of indexes, and publishes them. Both
    /// are marked as dropped before the removal becomes visible, so that a reader that finds no keys any
    /// more has the mark to check.
    fn commit_removal(
        &self,
        changes: &Changes<'_>,
        collection: Option<&Collection>,
        indexes: &[Arc<Index>],
        publish: impl FnOnce(),
    ) -> Result<CommitSeq> {
        let mark = |dropped: bool| {
            if let Some(collection) = collection {
                collection.shared.dropped.store(dropped, Ordering::Release);
            }
            indexes.iter().for_each(|index| index.set_dropped(dropped));
        };
        mark(true);
        let committed = self.committer.commit(changes, &ReadSet::none(), publish);
        if committed.is_err() {
            mark(false);
        }
        committed
    }

    fn delete_collection(&self, batch: &mut Batch, collection: &Collection) -> Result<()> {
        batch.delete(&entry_key(&collection.namespace));
        batch.delete_range(&collection.ident.range());
        let counted = self.latest.counter(&collection.counter_key())?;
        batch.add(
            &collection.counter_key(),
            Counter {
                count: -counted.count,
                bytes: -counted.bytes,
            },
        );
        for index in &collection.indexes {
            delete_index(batch, index);
        }
        Ok(())
    }

    /// Gives a collection another name; with `drop_target`, a collection of that name is removed in
    /// the same commit. A temporary collection becomes a lasting one.
    ///
    /// # Errors
    /// `NamespaceNotFound`, `NamespaceExists`, `CommandNotSupportedOnView`,
    /// `BackgroundOperationInProgressForNamespace`.
    pub fn rename(
        &self,
        source: &Namespace,
        target: &Namespace,
        drop_target: bool,
    ) -> Result<CommitSeq> {
        let _changes = self.changes.lock();
        if self.view(source).is_some() {
            return Err(Error::new(
                ErrorCode::CommandNotSupportedOnView,
                format!("cannot rename view: {source}"),
            ));
        }
        if self.view(target).is_some() {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                format!("a view already exists with that name: {target}"),
            ));
        }
        let not_found = || {
            Error::new(
                ErrorCode::NamespaceNotFound,
                format!("Source collection {source} does not exist"),
            )
        };
        let slot = self.slot(source).ok_or_else(not_found)?;
        if source == target {
            return Err(Error::new(
                ErrorCode::IllegalOperation,
                "Can't rename a collection to itself",
            ));
        }
        let mut changes = Changes::default();
        let target_slot = self.slot(target);
        if target_slot.is_some() && !drop_target {
            return Err(Error::new(
                ErrorCode::NamespaceExists,
                "target namespace exists",
            ));
        }
        let target_guard = target_slot.as_ref().map(|slot| slot.write());
        let replaced = target_guard.as_deref().cloned();
        if let Some(replaced) = &replaced {
            self.delete_collection(&mut changes.batch, replaced)?;
        }
        let mut current = slot.write();
        // The build of an index finds the collection by its name.
        if current.indexes.iter().any(|index| !index.ready) {
            return Err(Error::new(
                ErrorCode::BackgroundOperationInProgressForNamespace,
                format!(
                    "cannot perform operation: an index build is currently running for collection with UUID: {}",
                    current.uuid
                ),
            ));
        }
        let renamed = Arc::new(current.renamed(target.clone()));
        changes.batch.delete(&entry_key(source));
        put_entry(&mut changes.batch, &renamed)?;
        logical::rename(&mut changes, source, &renamed, replaced.as_deref());
        self.commit_removal(&changes, replaced.as_deref(), &[], || {
            *current = renamed.clone();
            drop(current);
            drop(target_guard);
            let mut collections = self.collections.write();
            collections.remove(source);
            collections.insert(target.clone(), Arc::clone(&slot));
        })
    }

    /// Changes a collection's options.
    ///
    /// # Errors
    /// `NamespaceNotFound`, or what `change` answers.
    pub fn change_options(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut Document) -> Result<()>,
    ) -> Result<CommitSeq> {
        let _changes = self.changes.lock();
        let slot = self
            .slot(namespace)
            .ok_or_else(|| self.missing(namespace))?;
        let mut current = slot.write();
        let mut options = current.options.clone();
        change(&mut options)?;
        let changed = Arc::new(current.with_options(options));
        let mut changes = Changes::default();
        put_entry(&mut changes.batch, &changed)?;
        logical::change_options(&mut changes, &current, &changed);
        self.committer
            .commit(&changes, &ReadSet::none(), move || *current = changed)
    }

    /// Changes a collection's list of indexes; those that are gone afterwards lose their keys in the
    /// same commit.
    ///
    /// # Errors
    /// `NamespaceNotFound`, or what `change` answers.
    pub fn change_indexes(
        &self,
        namespace: &Namespace,
        change: impl FnOnce(&mut Vec<Arc<Index>>) -> Result<()>,
    ) -> Result<CommitSeq> {
        let _changes = self.changes.lock();
        let slot = self
            .slot(namespace)
            .ok_or_else(|| self.missing(namespace))?;
        let mut current = slot.write();
        let mut indexes = current.indexes.clone();
        change(&mut indexes)?;
        let mut changes = Changes::default();
        let gone: Vec<_> = current
            .indexes
            .iter()
            .filter(|index| !indexes.iter().any(|kept| kept.ident == index.ident))
            .cloned()
            .collect();
        for index in &gone {
            delete_index(&mut changes.batch, index);
        }
        let changed = Arc::new(current.with_indexes(indexes));
        put_entry(&mut changes.batch, &changed)?;
        logical::change_indexes(&mut changes, &current, &changed);
        self.commit_removal(&changes, None, &gone, move || *current = changed)
    }

    /// Calls `look` with the latest view at a moment at which no write to the collection is under way.
    ///
    /// # Errors
    /// `NamespaceNotFound`, or what `look` answers.
    pub fn quiesce<T>(
        &self,
        namespace: &Namespace,
        look: impl FnOnce(&ReadView, &Arc<Collection>) -> Result<T>,
    ) -> Result<T> {
        let slot = self
            .slot(namespace)
            .ok_or_else(|| self.missing(namespace))?;
        let current = slot.write();
        if current.is_dropped() || current.namespace != *namespace {
            return Err(namespace_not_found(namespace));
        }
        look(&self.latest, &current)
    }

    /// Adds indexes that are not ready yet (or ready at once when the collection is empty) and returns
    /// them. From then on every write maintains them; [`crate::build_indexes`] enters what
    /// was there before.
    ///
    /// # Errors
    /// `NamespaceNotFound`, or what `choose` answers: it sees the present description and returns the
    /// specifications to add.
    pub fn add_indexes(
        &self,
        namespace: &Namespace,
        choose: impl FnOnce(&Collection) -> Result<Vec<IndexSpec>>,
    ) -> Result<Vec<Arc<Index>>> {
        let mut idents = self.changes.lock();
        let slot = self
            .slot(namespace)
            .ok_or_else(|| self.missing(namespace))?;
        let mut current = slot.write();
        let specs = choose(&current)?;
        if specs.is_empty() {
            return Ok(Vec::new());
        }
        let mut changes = Changes::default();
        let mut cursor = self.latest.cursor(current.ident.range())?;
        let empty = !cursor.seek_first()?;
        let added: Vec<_> = specs
            .into_iter()
            .map(|spec| Arc::new(Index::new(idents.take(&mut changes.batch), spec, empty, 0)))
            .collect();
        let mut indexes = current.indexes.clone();
        indexes.extend(added.iter().cloned());
        let changed = Arc::new(current.with_indexes(indexes));
        put_entry(&mut changes.batch, &changed)?;
        logical::change_indexes(&mut changes, &current, &changed);
        self.committer
            .commit(&changes, &ReadSet::none(), move || *current = changed)?;
        Ok(added)
    }

    /// Marks indexes as ready.
    ///
    /// # Errors
    /// `NamespaceNotFound` when the collection was dropped, `IndexBuildAborted` when an index was.
    pub fn finish_indexes(&self, namespace: &Namespace, built: &[Arc<Index>]) -> Result<CommitSeq> {
        self.change_indexes(namespace, |indexes| {
            for index in built {
                let position = indexes.iter().position(|other| other.ident == index.ident);
                let Some(position) = position else {
                    return Err(Error::new(
                        ErrorCode::IndexBuildAborted,
                        format!("Index build aborted: {} was dropped", index.spec.name),
                    ));
                };
                indexes[position] = Arc::new(indexes[position].made_ready());
            }
            Ok(())
        })
    }
}

impl NextIdent {
    /// A new ident; `batch` records that it is used.
    fn take(&mut self, batch: &mut Batch) -> Ident {
        let ident = Ident::new(self.0);
        self.0 = self
            .0
            .checked_add(1)
            .expect("four billion collections and indexes were created");
        batch.put(&next_ident_key(), &self.0.to_le_bytes());
        ident
    }
}

/// The error for a collection that is not there.
pub(crate) fn namespace_not_found(namespace: &Namespace) -> Error {
    Error::new(
        ErrorCode::NamespaceNotFound,
        format!("ns does not exist: {namespace}"),
    )
}

fn delete_index(batch: &mut Batch, index: &Index) {
    batch.delete_range(&index.ident.range());
    batch.delete(&multikey_key(index.ident));
}

fn random_uuid(environment: &dyn Environment) -> Uuid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&environment.random().to_le_bytes());
    bytes[8..].copy_from_slice(&environment.random().to_le_bytes());
    // Version 4, variant 1 (RFC 9562 section 5.4).
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    Uuid::from_bytes(bytes)
}
