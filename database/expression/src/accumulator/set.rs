//! `$addToSet`.

use std::collections::HashSet;

use bson::Bson;
use millrace_value::{Collation, Result, size};

use crate::accumulator::{Accumulator, Collated, Input, state_array};

/// `$addToSet`: all different values that are not missing. MongoDB promises no order; they come out in
/// the order in which they were first seen.
#[derive(Debug)]
pub(super) struct AddToSet {
    collation: Collation,
    values: Vec<Bson>,
    seen: HashSet<Vec<u8>>,
    bytes: usize,
}

impl AddToSet {
    fn insert(&mut self, value: Bson) {
        let key = self.collation.equality_key(&value);
        let key_bytes = key.len() + size_of::<Vec<u8>>();
        if self.seen.insert(key) {
            self.bytes += key_bytes + size::value_bytes(&value);
            self.values.push(value);
        }
    }
}

impl Collated for AddToSet {
    fn with_collation(collation: Collation) -> Self {
        Self {
            collation,
            values: Vec::new(),
            seen: HashSet::new(),
            bytes: 0,
        }
    }
}

impl Accumulator for AddToSet {
    fn add(&mut self, input: Input) -> Result<()> {
        if let Some(value) = input.value {
            self.insert(value);
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.bytes = 0;
        self.seen.clear();
        Bson::Array(std::mem::take(&mut self.values))
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        state_array(state)?
            .into_iter()
            .for_each(|value| self.insert(value));
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(Bson::Array(std::mem::take(&mut self.values))))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
