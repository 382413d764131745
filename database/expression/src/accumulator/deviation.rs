//! `$stdDevPop` and `$stdDevSamp`.

use bson::Bson;
use millrace_value::{Number, Result};

use crate::accumulator::{Accumulator, Input, damaged_state, state_array};

/// Mean and squared distance from it, updated as numbers come (Welford 1962) and merged pairwise
/// (Chan, Golub, LeVeque 1979).
#[derive(Clone, Copy, Debug, Default)]
struct Moments {
    count: f64,
    mean: f64,
    squares: f64,
}

impl Moments {
    fn add(&mut self, value: f64) {
        self.count += 1.0;
        let distance = value - self.mean;
        self.mean += distance / self.count;
        self.squares += distance * (value - self.mean);
    }

    fn merge(&mut self, other: Self) {
        if other.count == 0.0 {
            return;
        }
        if self.count == 0.0 {
            *self = other;
            return;
        }
        let count = self.count + other.count;
        let distance = other.mean - self.mean;
        self.mean += distance * (other.count / count);
        self.squares += other.squares + distance * distance * (self.count * other.count / count);
        self.count = count;
    }

    /// The deviation when `excess` is taken from the count; null when nothing is left.
    fn deviation(self, excess: f64) -> Bson {
        let divisor = self.count - excess;
        if divisor <= 0.0 {
            return Bson::Null;
        }
        Bson::Double((self.squares / divisor).sqrt())
    }
}

/// The standard deviation of the numbers; `SAMPLE` tells that they are a sample of a larger population.
#[derive(Debug, Default)]
pub(crate) struct Deviation<const SAMPLE: bool>(Moments);

/// `$stdDevPop`
pub(crate) type Population = Deviation<false>;
/// `$stdDevSamp`
pub(crate) type Sample = Deviation<true>;

impl<const SAMPLE: bool> Accumulator for Deviation<SAMPLE> {
    fn add(&mut self, input: Input) -> Result<()> {
        if let Some(number) = input.value.as_ref().and_then(Number::from_bson) {
            self.0.add(number.as_f64());
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        let Moments {
            count,
            mean,
            squares,
        } = self.0;
        Bson::Array(vec![
            Bson::Double(count),
            Bson::Double(mean),
            Bson::Double(squares),
        ])
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        match state_array(state)?.as_slice() {
            &[
                Bson::Double(count),
                Bson::Double(mean),
                Bson::Double(squares),
            ] => {
                self.0.merge(Moments {
                    count,
                    mean,
                    squares,
                });
                Ok(())
            }
            _ => Err(damaged_state()),
        }
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(self.0.deviation(if SAMPLE { 1.0 } else { 0.0 })))
    }
}
