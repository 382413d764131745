//! `$min` and `$max`.

use std::cmp::Ordering;

use bson::Bson;
use millrace_value::{Collation, Result, size};

use crate::accumulator::{Accumulator, Collated, Input, is_nullish};

/// The least or the greatest value in MongoDB's order; null if there is none but null and missing.
#[derive(Debug)]
pub(crate) struct Extreme<const GREATEST: bool> {
    collation: Collation,
    value: Option<Bson>,
    bytes: usize,
}

/// `$min`
pub(crate) type Min = Extreme<false>;
/// `$max`
pub(crate) type Max = Extreme<true>;

impl<const GREATEST: bool> Collated for Extreme<GREATEST> {
    fn with_collation(collation: Collation) -> Self {
        Self {
            collation,
            value: None,
            bytes: 0,
        }
    }
}

impl<const GREATEST: bool> Accumulator for Extreme<GREATEST> {
    fn add(&mut self, input: Input) -> Result<()> {
        if is_nullish(input.value.as_ref()) {
            return Ok(());
        }
        let wanted = if GREATEST {
            Ordering::Greater
        } else {
            Ordering::Less
        };
        if let Some(value) = input.value {
            if self
                .value
                .as_ref()
                .is_none_or(|old| self.collation.compare_bson(&value, old) == wanted)
            {
                self.bytes = size::value_bytes(&value);
                self.value = Some(value);
            }
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.bytes = 0;
        self.value.take().unwrap_or(Bson::Null)
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        self.add(Input {
            value: Some(state),
            key: Vec::new(),
        })
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(self.value.take().unwrap_or(Bson::Null)))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
