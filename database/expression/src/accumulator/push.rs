//! `$push`.

use bson::Bson;
use millrace_value::{Result, size};

use crate::accumulator::{Accumulator, Input, state_array};

/// `$push`: all values that are not missing, in their order.
#[derive(Debug, Default)]
pub(super) struct Push {
    values: Vec<Bson>,
    bytes: usize,
}

impl Accumulator for Push {
    fn add(&mut self, input: Input) -> Result<()> {
        if let Some(value) = input.value {
            self.bytes += size::value_bytes(&value);
            self.values.push(value);
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.bytes = 0;
        Bson::Array(std::mem::take(&mut self.values))
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        let values = state_array(state)?;
        self.bytes += values.iter().map(size::value_bytes).sum::<usize>();
        self.values.extend(values);
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(Bson::Array(std::mem::take(&mut self.values))))
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}
