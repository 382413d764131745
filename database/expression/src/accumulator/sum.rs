//! `$sum`.

use bson::spec::BinarySubtype;
use bson::{Binary, Bson};
use millrace_value::{Decimal, Number, Result};

use crate::accumulator::{Accumulator, Input, damaged_state, state_array};

/// A sum of numbers of all four kinds. Integers are summed exactly, doubles with a compensation for
/// what each addition rounds away, decimals as decimals; the kinds meet only in the result.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Total {
    /// Cannot overflow: it takes 2^64 additions of the largest 64-bit integer.
    integers: i128,
    doubles: f64,
    /// What rounding took from `doubles`.
    compensation: f64,
    /// The sum without compensation, for infinities and NaN.
    doubles_plain: f64,
    decimals: Option<Decimal>,
    any_int64: bool,
    any_double: bool,
}

/// How many bits of an integer sum are converted to a double at once.
const PART_BITS: u32 = 40;
const PART_MASK: i128 = (1 << PART_BITS) - 1;

/// Two to the power of `exponent`, which is small.
fn exp2(exponent: u32) -> f64 {
    f64::from(exponent).exp2()
}

impl Total {
    pub(super) fn add(&mut self, number: Number) {
        match number {
            Number::Int32(value) => self.integers += i128::from(value),
            Number::Int64(value) => {
                self.integers += i128::from(value);
                self.any_int64 = true;
            }
            Number::Double(value) => {
                self.add_double(value);
                self.any_double = true;
            }
            Number::Decimal(value) => self.add_decimal(value),
        }
    }

    fn add_decimal(&mut self, value: Decimal) {
        self.decimals = Some(self.decimals.map_or(value, |sum| sum.add(value)));
    }

    /// Knuth's two-sum: `sum + error` is exactly `doubles + value`.
    fn add_double(&mut self, value: f64) {
        let sum = self.doubles + value;
        let virtual_value = sum - self.doubles;
        let error = (self.doubles - (sum - virtual_value)) + (value - virtual_value);
        self.doubles = sum;
        self.compensation += error;
        self.doubles_plain += value;
    }

    /// The sum of what is not decimal, as a double.
    pub(super) fn binary(&self) -> f64 {
        let mut total = *self;
        // Parts of 40 bits convert without rounding, and so does what is left above them.
        let part = |shift: u32| ((self.integers >> shift) & PART_MASK) as f64 * exp2(shift);
        total.add_double((self.integers >> (2 * PART_BITS)) as f64 * exp2(2 * PART_BITS));
        total.add_double(part(PART_BITS));
        total.add_double(part(0));
        let sum = total.doubles + total.compensation;
        if sum.is_nan() {
            total.doubles_plain
        } else {
            sum
        }
    }

    /// The sum as a decimal, if any decimal is part of it.
    pub(super) fn decimal(&self) -> Option<Decimal> {
        let decimals = self.decimals?;
        let mut sum = decimals;
        if self.integers != 0 {
            let integers = i64::try_from(self.integers)
                .map_or_else(|_| Number::Double(self.integers as f64), Number::Int64);
            sum = sum.add(integers.as_decimal());
        }
        if self.any_double {
            sum = sum
                .add(Decimal::from_f64(self.doubles))
                .add(Decimal::from_f64(self.compensation));
        }
        Some(sum)
    }

    pub(super) fn result(&self) -> Number {
        if let Some(decimal) = self.decimal() {
            return Number::Decimal(decimal);
        }
        if self.any_double {
            return Number::Double(self.binary());
        }
        match (i32::try_from(self.integers), i64::try_from(self.integers)) {
            (Ok(value), _) if !self.any_int64 => Number::Int32(value),
            (_, Ok(value)) => Number::Int64(value),
            _ => Number::Double(self.integers as f64),
        }
    }

    pub(super) fn state(&self) -> Bson {
        let integers = self.integers.to_le_bytes().to_vec();
        Bson::Array(vec![
            Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes: integers,
            }),
            Bson::Double(self.doubles),
            Bson::Double(self.compensation),
            Bson::Double(self.doubles_plain),
            self.decimals
                .map_or(Bson::Null, |value| Bson::Decimal128(value.to_bson())),
            Bson::Boolean(self.any_int64),
            Bson::Boolean(self.any_double),
        ])
    }

    pub(super) fn merge(&mut self, state: Bson) -> Result<()> {
        let parts = state_array(state)?;
        let [
            Bson::Binary(integers),
            Bson::Double(doubles),
            Bson::Double(compensation),
            Bson::Double(doubles_plain),
            decimals,
            Bson::Boolean(any_int64),
            Bson::Boolean(any_double),
        ] = parts.as_slice()
        else {
            return Err(damaged_state());
        };
        let integers =
            <[u8; 16]>::try_from(integers.bytes.as_slice()).map_err(|_| damaged_state())?;
        self.integers += i128::from_le_bytes(integers);
        self.add_double(*doubles);
        self.doubles_plain += doubles_plain - doubles;
        self.compensation += compensation;
        if let Bson::Decimal128(value) = decimals {
            self.add_decimal(Decimal::from_bson(*value));
        }
        self.any_int64 |= any_int64;
        self.any_double |= any_double;
        Ok(())
    }
}

/// `$sum`: what is not a number counts as nothing.
#[derive(Debug, Default)]
pub(crate) struct Sum(Total);

impl Accumulator for Sum {
    fn add(&mut self, input: Input) -> Result<()> {
        if let Some(number) = input.value.as_ref().and_then(Number::from_bson) {
            self.0.add(number);
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.0.state()
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        self.0.merge(state)
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        Ok(Some(self.0.result().to_bson()))
    }
}
