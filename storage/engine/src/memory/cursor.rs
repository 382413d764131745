//! A cursor over a shared map.

use std::ops::Bound;
use std::sync::Arc;

use super::Map;
use crate::{Cursor, KeyRange, Result};

/// A key and its value.
type Entry = (Arc<[u8]>, Arc<[u8]>);

/// Remembers the entry it stands on and finds its neighbours by searching the map again.
#[derive(Debug)]
pub(super) struct MapCursor {
    map: Arc<Map>,
    range: KeyRange,
    entry: Option<Entry>,
}

impl MapCursor {
    pub(super) fn new(map: Arc<Map>, range: KeyRange) -> Self {
        Self {
            map,
            range,
            entry: None,
        }
    }

    fn entry(&self) -> &Entry {
        self.entry.as_ref().expect("the cursor stands on a key")
    }

    /// Moves to the first key of the range that is not less than (or, excluded, greater than) `key`.
    fn move_to_first_from(&mut self, key: &[u8], excluded: bool) -> bool {
        let start = key.max(&self.range.start);
        let bound = if excluded && start == key {
            Bound::Excluded(start)
        } else {
            Bound::Included(start)
        };
        let entry = self.map.range::<[u8], _>((bound, Bound::Unbounded)).next();
        self.stand_on(entry.map(|(key, value)| (Arc::clone(key), Arc::clone(value))))
    }

    /// Moves to the last key of the range that lies within `bound`.
    fn move_to_last_within(&mut self, bound: Bound<&[u8]>) -> bool {
        let entry = self
            .map
            .range::<[u8], _>((Bound::Unbounded, bound))
            .next_back();
        self.stand_on(entry.map(|(key, value)| (Arc::clone(key), Arc::clone(value))))
    }

    fn stand_on(&mut self, entry: Option<Entry>) -> bool {
        self.entry = entry.filter(|(key, _)| self.range.contains(key));
        self.entry.is_some()
    }
}

impl Cursor for MapCursor {
    fn seek_first(&mut self) -> Result<bool> {
        Ok(self.move_to_first_from(&[], false))
    }

    fn seek_last(&mut self) -> Result<bool> {
        let end = self.range.end.clone();
        Ok(self.move_to_last_within(end.as_deref().map_or(Bound::Unbounded, Bound::Excluded)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<bool> {
        Ok(self.move_to_first_from(key, false))
    }

    fn seek_back(&mut self, key: &[u8]) -> Result<bool> {
        if self.range.end.as_deref().is_some_and(|end| end <= key) {
            return self.seek_last();
        }
        Ok(self.move_to_last_within(Bound::Included(key)))
    }

    fn next(&mut self) -> Result<bool> {
        let Some((key, _)) = self.entry.take() else {
            return Ok(false);
        };
        Ok(self.move_to_first_from(&key, true))
    }

    fn previous(&mut self) -> Result<bool> {
        let Some((key, _)) = self.entry.take() else {
            return Ok(false);
        };
        Ok(self.move_to_last_within(Bound::Excluded(&key)))
    }

    fn key(&self) -> &[u8] {
        &self.entry().0
    }

    fn value(&self) -> &[u8] {
        &self.entry().1
    }
}
