//! Scratch space in a database of its own.
//!
//! The scratch spaces of an engine are column families of a second RocksDB database, in the folder
//! `scratch` within the engine's. It writes no log - which a database that recycles its logs could not
//! leave out for some families - and its files never count against the data's. One column family a
//! scratch space makes freeing it a matter of forgetting its files: nothing is compacted. Both are created
//! by the first write, so that a sort that asked for scratch space and did not need it costs nothing.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use millrace_engine::{Batch, Cursor, Error, ErrorKind, KeyRange, Operation, Result, Scratch};
use rocksdb::{ReadOptions, WriteBatch, WriteOptions};

use crate::cursor::RocksCursor;
use crate::database::{Database, Db};
use crate::error::engine_error;
use crate::held::HeldIterator;
use crate::keys;

/// The folder of the scratch database within the engine's.
const FOLDER: &str = "scratch";

/// How many bytes wait to be written together.
const PENDING_BYTES_MAX: usize = 256 * 1024;

/// The open scratch database.
pub(crate) struct ScratchDatabase {
    // Dropped before the data's database, which keeps the folder locked.
    db: Db,
    _data: Arc<Database>,
}

impl ScratchDatabase {
    pub(crate) const fn db(&self) -> &Db {
        &self.db
    }
}

/// All scratch spaces of an engine.
pub(crate) struct ScratchSpaces {
    data: Arc<Database>,
    folder: PathBuf,
    /// For the database and for its column families.
    options: rocksdb::Options,
    opened: Mutex<Option<Arc<ScratchDatabase>>>,
    /// How many were created.
    created: AtomicU64,
}

impl ScratchSpaces {
    /// Removes what an earlier process has left; nothing is opened yet.
    pub(crate) fn new(data: Arc<Database>, mut options: rocksdb::Options) -> Result<Self> {
        options.create_if_missing(true);
        let folder = data.folder().join(FOLDER);
        if let Some(environment) = data.files.environment(&folder)? {
            options.set_env(&environment);
        }
        if data.files.exists(&folder) {
            Db::destroy(&options, data.files.rocksdb_name(&folder))
                .map_err(|error| engine_error("cannot remove old scratch space", error))?;
        }
        Ok(Self {
            data,
            folder,
            options,
            opened: Mutex::default(),
            created: AtomicU64::new(0),
        })
    }

    /// Creates a column family for a scratch space; returns the database and the family's name.
    fn create(&self) -> Result<(Arc<ScratchDatabase>, String)> {
        let database = {
            let mut opened = self.opened.lock().expect("no holder of the lock panics");
            if let Some(database) = &*opened {
                Arc::clone(database)
            } else {
                let files = &self.data.files;
                files.create_folder(&self.folder)?;
                let db = Db::open(&self.options, files.rocksdb_name(&self.folder))
                    .map_err(|error| engine_error("cannot open the scratch database", error))?;
                let database = Arc::new(ScratchDatabase {
                    db,
                    _data: Arc::clone(&self.data),
                });
                *opened = Some(Arc::clone(&database));
                database
            }
        };
        let family = self.created.fetch_add(1, Ordering::Relaxed).to_string();
        database
            .db
            .create_cf(&family, &self.options)
            .map_err(|error| engine_error("cannot create a scratch space", error))?;
        Ok((database, family))
    }
}

pub(crate) struct RocksScratch {
    spaces: Arc<ScratchSpaces>,
    state: RefCell<State>,
    bytes_stored: u64,
}

/// What a read may change: it writes out what waits.
#[derive(Default)]
struct State {
    created: Option<(Arc<ScratchDatabase>, String)>,
    pending: Batch,
}

impl RocksScratch {
    pub(crate) fn new(spaces: Arc<ScratchSpaces>) -> Self {
        Self {
            spaces,
            state: RefCell::default(),
            bytes_stored: 0,
        }
    }

    /// Writes out what waits; returns where everything is.
    fn write_out(&self) -> Result<(Arc<ScratchDatabase>, String)> {
        let mut state = self.state.borrow_mut();
        let (database, name) = match &state.created {
            Some(created) => created.clone(),
            None => state.created.insert(self.spaces.create()?).clone(),
        };
        if state.pending.is_empty() {
            return Ok((database, name));
        }
        let pending = mem::take(&mut state.pending);
        let family = database.db.cf_handle(&name).ok_or_else(|| gone(&name))?;
        let mut records = WriteBatch::with_capacity_bytes(pending.bytes() * 2);
        for operation in pending.operations() {
            // `put` makes no other.
            if let Operation::Put { key, value } = operation {
                keys::with_stored(key, |stored| records.put_cf(&family, stored, value));
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        database
            .db
            .write_opt(records, &options)
            .map_err(|error| engine_error("cannot write to a scratch space", error))?;
        drop(family);
        Ok((database, name))
    }
}

fn gone(family: &str) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("the scratch space {family} is gone"),
    )
}

impl Scratch for RocksScratch {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        Batch::validate_put(key, value)?;
        let pending = &mut self.state.get_mut().pending;
        pending.put(key, value);
        self.bytes_stored += (key.len() + value.len()) as u64;
        if pending.bytes() >= PENDING_BYTES_MAX {
            self.write_out()?;
        }
        Ok(())
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let (database, name) = self.write_out()?;
        let db = database.db();
        let family = db.cf_handle(&name).ok_or_else(|| gone(&name))?;
        keys::with_stored(key, |stored| {
            db.get_cf_opt(&family, stored, &ReadOptions::default())
        })
        .map_err(|error| engine_error("cannot read a scratch space", error))
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>> {
        let (database, name) = self.write_out()?;
        let bounds = RocksCursor::bounds(&KeyRange::all());
        let iterator = HeldIterator::of_scratch(database, &name, bounds);
        Ok(Box::new(RocksCursor::new(
            iterator.ok_or_else(|| gone(&name))?,
        )))
    }

    fn bytes_stored(&self) -> u64 {
        self.bytes_stored
    }
}

impl Drop for RocksScratch {
    fn drop(&mut self) {
        if let Some((database, family)) = self.state.get_mut().created.take() {
            // What cannot be dropped now is removed when the folder is opened again.
            if let Err(error) = database.db.drop_cf(&family) {
                tracing::warn!(%error, family, "cannot drop a scratch space");
            }
        }
    }
}

impl fmt::Debug for RocksScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksScratch")
            .field("bytes_stored", &self.bytes_stored)
            .finish_non_exhaustive()
    }
}
