//! Iterators and snapshots of RocksDB that keep their database open.
//!
//! RocksDB's wrapper ties both to a borrow of the database. A cursor of the engine has no such borrow to
//! live in: it is returned to the caller and may outlive the engine. Here each is kept together with a
//! share of the database, and this module is the only place where the borrow's lifetime is extended.

use std::sync::Arc;

use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions, SnapshotWithThreadMode};

use crate::database::{Database, Db};
use crate::scratch::ScratchDatabase;

/// The share that keeps a database open.
enum Owner {
    Data(Arc<Database>),
    Scratch(Arc<ScratchDatabase>),
}

impl Owner {
    fn db(&self) -> &Db {
        match self {
            Self::Data(database) => database.db(),
            Self::Scratch(database) => database.db(),
        }
    }
}

/// Extends the lifetime of a database's borrow to `'static`.
///
/// # Safety
/// The result, and whatever borrows from it, must not be used once `owner` and its clones are gone.
unsafe fn extend_lifetime(owner: &Owner) -> &'static Db {
    let database: *const Db = owner.db();
    // SAFETY: the pointer comes from a reference, so it is valid now. The database is behind an Arc and
    // neither moved nor mutably borrowed while a clone of the Arc exists, which the caller sees to.
    unsafe { &*database }
}

/// An iterator over one state of the database, with what must outlive it.
pub(crate) struct HeldIterator {
    // Fields are dropped in this order: the iterator, then the snapshot it was made from, then the
    // database.
    iterator: DBRawIteratorWithThreadMode<'static, Db>,
    _snapshot: Option<Arc<HeldSnapshot>>,
    _owner: Owner,
}

impl HeldIterator {
    /// An iterator over the data, in the database's present state or in that of `snapshot`.
    pub(crate) fn of_data(
        owner: Arc<Database>,
        mut bounds: ReadOptions,
        snapshot: Option<Arc<HeldSnapshot>>,
    ) -> Self {
        if let Some(snapshot) = &snapshot {
            bounds.set_snapshot(&snapshot.snapshot);
        }
        let owner = Owner::Data(owner);
        // SAFETY: the iterator is stored beside `owner`, in a field that is dropped before it, and leaves
        // this module only as borrows of the whole.
        let db = unsafe { extend_lifetime(&owner) };
        let iterator = db.raw_iterator_opt(bounds);
        Self {
            iterator,
            _snapshot: snapshot,
            _owner: owner,
        }
    }

    /// An iterator over the column family `family` of a scratch database, if there is one of this name.
    pub(crate) fn of_scratch(
        owner: Arc<ScratchDatabase>,
        family: &str,
        bounds: ReadOptions,
    ) -> Option<Self> {
        let owner = Owner::Scratch(owner);
        // SAFETY: as in `of_data`. The handle of the family is dropped when this function returns; the
        // iterator itself keeps the family's data alive, even when the family is dropped.
        let db = unsafe { extend_lifetime(&owner) };
        let iterator = {
            let handle = db.cf_handle(family)?;
            db.raw_iterator_cf_opt(&handle, bounds)
        };
        Some(Self {
            iterator,
            _snapshot: None,
            _owner: owner,
        })
    }

    pub(crate) fn get(&self) -> &DBRawIteratorWithThreadMode<'static, Db> {
        &self.iterator
    }

    pub(crate) fn get_mut(&mut self) -> &mut DBRawIteratorWithThreadMode<'static, Db> {
        &mut self.iterator
    }
}

/// A snapshot of the database, with the database.
pub(crate) struct HeldSnapshot {
    // Dropped before the database.
    snapshot: SnapshotWithThreadMode<'static, Db>,
    database: Arc<Database>,
}

impl HeldSnapshot {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        // SAFETY: the snapshot is stored beside `database`, in a field that is dropped before it, and
        // never leaves this module.
        let db = unsafe { extend_lifetime(&Owner::Data(Arc::clone(&database))) };
        Self {
            snapshot: db.snapshot(),
            database,
        }
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Options for reads in this state. They must not be used after the snapshot is dropped.
    pub(crate) fn read_options(&self) -> ReadOptions {
        let mut options = ReadOptions::default();
        options.set_snapshot(&self.snapshot);
        options
    }
}
