//! A cursor over the data or over a scratch space.

use std::fmt;

use millrace_engine::{Cursor, KeyRange, Result};
use rocksdb::ReadOptions;

use crate::error::engine_error;
use crate::held::HeldIterator;
use crate::keys;

/// A position in an iterator of RocksDB. The iterator itself keeps within the range.
pub(crate) struct RocksCursor {
    iterator: HeldIterator,
    /// Whether the iterator stands on a key. RocksDB must not be asked to step from nowhere.
    standing: bool,
}

impl RocksCursor {
    pub(crate) const fn new(iterator: HeldIterator) -> Self {
        Self {
            iterator,
            standing: false,
        }
    }

    /// Options for an iterator that keeps within `range`.
    pub(crate) fn bounds(range: &KeyRange) -> ReadOptions {
        let (start, end) = keys::stored_bounds(range);
        let mut options = ReadOptions::default();
        options.set_iterate_lower_bound(start);
        options.set_iterate_upper_bound(end);
        options
    }

    /// Notes where the last movement led.
    fn arrive(&mut self) -> Result<bool> {
        let iterator = self.iterator.get();
        self.standing = iterator.valid();
        if !self.standing {
            iterator
                .status()
                .map_err(|error| engine_error("cannot move a cursor", error))?;
        }
        Ok(self.standing)
    }
}

impl Cursor for RocksCursor {
    fn seek_first(&mut self) -> Result<bool> {
        self.iterator.get_mut().seek_to_first();
        self.arrive()
    }

    fn seek_last(&mut self) -> Result<bool> {
        self.iterator.get_mut().seek_to_last();
        self.arrive()
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        keys::with_stored(key, |stored| self.iterator.get_mut().seek(stored));
        self.arrive()
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        keys::with_stored(key, |stored| self.iterator.get_mut().seek_for_prev(stored));
        self.arrive()
    }

    fn next(&mut self) -> Result<bool> {
        if !self.standing {
            return Ok(false);
        }
        self.iterator.get_mut().next();
        self.arrive()
    }

    fn previous(&mut self) -> Result<bool> {
        if !self.standing {
            return Ok(false);
        }
        self.iterator.get_mut().prev();
        self.arrive()
    }

    fn key(&self) -> &[u8] {
        keys::user_key(
            self.iterator
                .get()
                .key()
                .expect("the cursor stands on a key"),
        )
    }

    fn value(&self) -> &[u8] {
        self.iterator
            .get()
            .value()
            .expect("the cursor stands on a key")
    }
}

impl fmt::Debug for RocksCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksCursor")
            .field("standing", &self.standing)
            .finish_non_exhaustive()
    }
}
