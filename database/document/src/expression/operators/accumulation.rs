//! Accumulators as expressions: they take a list of values, or a single array of them.

use bson::Bson;

use super::operand::number;
use super::{Operator, present};
use crate::Result;
use crate::expression::Value;
use crate::expression::frame::Frame;
use crate::value::{Number, compare_bson};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::variadic("$avg", 0, None, |x, frame| over(x, frame, average)),
    Operator::variadic("$max", 0, None, |x, frame| {
        over(x, frame, |values| {
            Ok(values
                .max_by(|a, b| compare_bson(a, b))
                .cloned()
                .unwrap_or(Bson::Null))
        })
    }),
    Operator::variadic("$min", 0, None, |x, frame| {
        over(x, frame, |values| {
            Ok(values
                .min_by(|a, b| compare_bson(a, b))
                .cloned()
                .unwrap_or(Bson::Null))
        })
    }),
    Operator::variadic("$stdDevPop", 0, None, |x, frame| {
        over(x, frame, |v| deviation(v, 0.0))
    }),
    Operator::variadic("$stdDevSamp", 0, None, |x, frame| {
        over(x, frame, |v| deviation(v, 1.0))
    }),
    Operator::variadic("$sum", 0, None, |x, frame| over(x, frame, sum)),
];

type Values<'v> = &'v mut dyn Iterator<Item = &'v Bson>;

/// Calls `accumulate` with the values that are neither null nor missing.
fn over(
    operands: &[Value<'_>],
    frame: Frame<'_>,
    accumulate: fn(Values<'_>) -> Result<Bson>,
) -> Result<Option<Bson>> {
    frame.check()?;
    let result = match operands {
        [only] => match only.as_deref() {
            Some(Bson::Array(items)) => {
                accumulate(&mut items.iter().filter(|item| present(Some(item)).is_some()))
            }
            single => accumulate(&mut present(single).into_iter()),
        },
        several => accumulate(&mut several.iter().filter_map(|value| present(value.as_deref()))),
    };
    result.map(Some)
}

/// Adds numbers such that the order of large and small doubles does not matter much: integers and
/// decimals apart from doubles, and those with the rounding error kept (Neumaier's summation).
#[derive(Debug)]
struct Total {
    /// Integers while they fit 64 bits, and decimals.
    exact: Number,
    doubles: f64,
    error: f64,
    has_doubles: bool,
    count: i64,
}

impl Total {
    fn of(values: Values<'_>) -> Self {
        let mut total = Self {
            exact: Number::Int32(0),
            doubles: 0.0,
            error: 0.0,
            has_doubles: false,
            count: 0,
        };
        for value in values.filter_map(|value| number(Some(value))) {
            total.count += 1;
            match value {
                Number::Double(double) => {
                    total.has_doubles = true;
                    total.add_double(double);
                }
                exact => match total.exact.add(exact) {
                    // The integers do not fit any longer.
                    Number::Double(_) => {
                        total.add_double(total.exact.as_f64());
                        total.add_double(exact.as_f64());
                        total.has_doubles = true;
                        total.exact = Number::Int64(0);
                    }
                    sum => total.exact = sum,
                },
            }
        }
        total
    }

    fn add_double(&mut self, value: f64) {
        let sum = self.doubles + value;
        if sum.is_finite() {
            let (large, small) = if self.doubles.abs() >= value.abs() {
                (self.doubles, value)
            } else {
                (value, self.doubles)
            };
            self.error += (large - sum) + small;
        }
        self.doubles = sum;
    }

    fn sum(&self) -> Number {
        if !self.has_doubles {
            return self.exact;
        }
        let mut whole = Self { ..*self };
        match self.exact {
            Number::Decimal(_) => self.exact.add(Number::Double(self.doubles + self.error)),
            integers => {
                whole.add_double(integers.as_f64());
                let error = if whole.doubles.is_finite() {
                    whole.error
                } else {
                    0.0
                };
                Number::Double(whole.doubles + error)
            }
        }
    }
}

fn sum(values: Values<'_>) -> Result<Bson> {
    Ok(Total::of(values).sum().to_bson())
}

fn average(values: Values<'_>) -> Result<Bson> {
    let total = Total::of(values);
    let average = total.sum().divide(Number::Int64(total.count));
    Ok(average.map_or(Bson::Null, Number::to_bson))
}

/// The standard deviation by Welford's method; `excess` is what is taken from the count.
fn deviation(values: Values<'_>, excess: f64) -> Result<Bson> {
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for value in values
        .filter_map(|value| number(Some(value)))
        .map(Number::as_f64)
    {
        count += 1.0;
        let distance = value - mean;
        mean += distance / count;
        squares += distance * (value - mean);
    }
    let divisor = count - excess;
    Ok(if divisor > 0.0 {
        Bson::Double((squares / divisor).sqrt())
    } else {
        Bson::Null
    })
}
