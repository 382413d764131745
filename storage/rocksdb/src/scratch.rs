//! Scratch space in a column family of its own.
//!
//! One column family a scratch space makes freeing it a matter of forgetting its files: nothing is
//! compacted, and its files never count against the data's. It is created by the first write, so that a
//! sort that asked for scratch space and did not need it costs nothing. Its memtables are not logged.

use std::cell::RefCell;
use std::fmt;
use std::mem;
use std::sync::Arc;

use millrace_engine::{Batch, Cursor, Error, ErrorKind, KeyRange, Operation, Result, Scratch};
use rocksdb::{ReadOptions, WriteBatch, WriteOptions};

use crate::cursor::RocksCursor;
use crate::database::{Database, SCRATCH_FAMILY_PREFIX};
use crate::error::engine_error;
use crate::held::HeldIterator;
use crate::keys;

/// How many bytes wait to be written together.
const PENDING_BYTES_MAX: usize = 256 * 1024;

pub(crate) struct RocksScratch {
    database: Arc<Database>,
    family: String,
    state: RefCell<State>,
    bytes_stored: u64,
}

/// What a read may change: it writes out what waits.
#[derive(Default)]
struct State {
    created: bool,
    pending: Batch,
}

impl RocksScratch {
    /// The scratch space with this number, which no other of the database has.
    pub(crate) fn new(database: Arc<Database>, number: u64) -> Self {
        Self {
            database,
            family: format!("{SCRATCH_FAMILY_PREFIX}{number}"),
            state: RefCell::default(),
            bytes_stored: 0,
        }
    }

    /// Writes out what waits, into the column family, which exists from then on.
    fn write_out(&self) -> Result<()> {
        let mut state = self.state.borrow_mut();
        let db = self.database.db();
        if !state.created {
            db.create_cf(&self.family, &self.database.scratch_options)
                .map_err(|error| engine_error("cannot create a scratch space", error))?;
            state.created = true;
        }
        if state.pending.is_empty() {
            return Ok(());
        }
        let pending = mem::take(&mut state.pending);
        let family = db.cf_handle(&self.family).ok_or_else(|| self.gone())?;
        let mut records = WriteBatch::with_capacity_bytes(pending.bytes() * 2);
        for operation in pending.operations() {
            // `put` makes no other.
            if let Operation::Put { key, value } = operation {
                keys::with_stored(key, |stored| records.put_cf(&family, stored, value));
            }
        }
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        db.write_opt(records, &options)
            .map_err(|error| engine_error("cannot write to a scratch space", error))
    }

    fn gone(&self) -> Error {
        Error::new(
            ErrorKind::Corruption,
            format!("the column family {} is gone", self.family),
        )
    }
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
        self.write_out()?;
        let db = self.database.db();
        let family = db.cf_handle(&self.family).ok_or_else(|| self.gone())?;
        keys::with_stored(key, |stored| {
            db.get_cf_opt(&family, stored, &ReadOptions::default())
        })
        .map_err(|error| engine_error("cannot read a scratch space", error))
    }

    fn cursor(&self) -> Result<Box<dyn Cursor>> {
        self.write_out()?;
        let owner = Arc::clone(&self.database);
        let bounds = RocksCursor::bounds(&KeyRange::all());
        let iterator =
            HeldIterator::of_family(owner, &self.family, bounds).ok_or_else(|| self.gone())?;
        Ok(Box::new(RocksCursor::new(iterator)))
    }

    fn bytes_stored(&self) -> u64 {
        self.bytes_stored
    }
}

impl Drop for RocksScratch {
    fn drop(&mut self) {
        if self.state.get_mut().created {
            // What cannot be dropped now is dropped when the folder is opened again.
            if let Err(error) = self.database.db().drop_cf(&self.family) {
                tracing::warn!(%error, family = self.family, "cannot drop a scratch space");
            }
        }
    }
}

impl fmt::Debug for RocksScratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksScratch")
            .field("family", &self.family)
            .field("bytes_stored", &self.bytes_stored)
            .finish_non_exhaustive()
    }
}
