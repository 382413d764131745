//! `$avg`.

use bson::Bson;
use millrace_value::{Decimal, Number, Result};

use crate::accumulator::sum::Total;
use crate::accumulator::{Accumulator, Input, damaged_state, state_array};

/// `$avg`: the mean of the numbers; null if there are none.
#[derive(Debug, Default)]
pub(crate) struct Average {
    total: Total,
    count: i64,
}

impl Accumulator for Average {
    fn add(&mut self, input: Input) -> Result<()> {
        if let Some(number) = input.value.as_ref().and_then(Number::from_bson) {
            self.total.add(number);
            self.count += 1;
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        Bson::Array(vec![self.total.state(), Bson::Int64(self.count)])
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        let mut parts = state_array(state)?;
        let (Some(Bson::Int64(count)), Some(total)) = (parts.pop(), parts.pop()) else {
            return Err(damaged_state());
        };
        self.count += count;
        self.total.merge(total)
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        if self.count == 0 {
            return Ok(Some(Bson::Null));
        }
        if let Some(sum) = self.total.decimal() {
            let mean = sum.divide(Decimal::from_i64(self.count));
            return Ok(Some(Number::Decimal(mean).to_bson()));
        }
        Ok(Some(Bson::Double(self.total.binary() / self.count as f64)))
    }
}
