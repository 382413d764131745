//! Accumulators that keep the first or last *n* in some order: `$top`, `$topN`, `$bottom`, `$bottomN`,
//! `$minN`, `$maxN`.

use std::collections::BTreeMap;
use std::sync::Arc;

use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document};
use millrace_value::key::TypeBits;
use millrace_value::{Collation, Error, Result, display, size};

use crate::accumulator::{
    Accumulator, Input, Parsed, check_constant_count, damaged_state, is_nullish, n_of, state_array,
};
use crate::sort::SortPattern;
use crate::{Expression, Scope};

/// Where the key of a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// From the document, by `sortBy`.
    Given,
    /// From the value itself; null and missing do not take part.
    ByValue {
        descending: bool,
        collation: Collation,
    },
}

/// The first or last values of an order.
#[derive(Debug)]
struct Ranked {
    n: usize,
    order: Order,
    keep_last: bool,
    /// Whether the result is the one value instead of an array.
    single: bool,
    /// Values by key; the number of the addition keeps equal keys in the order they came.
    values: BTreeMap<(Vec<u8>, u64), Bson>,
    sequence: u64,
    bytes: usize,
}

impl Ranked {
    const fn new(n: usize, order: Order, keep_last: bool, single: bool) -> Self {
        Self {
            n,
            order,
            keep_last,
            single,
            values: BTreeMap::new(),
            sequence: 0,
            bytes: 0,
        }
    }

    fn insert(&mut self, key: Vec<u8>, value: Bson) {
        if self.values.len() == self.n && self.is_outranked(&key) {
            return;
        }
        self.bytes += key.len() + size::value_bytes(&value);
        self.values.insert((key, self.sequence), value);
        self.sequence += 1;
        if self.values.len() > self.n {
            let dropped = if self.keep_last {
                self.values.pop_first()
            } else {
                self.values.pop_last()
            };
            if let Some(((key, _), value)) = dropped {
                self.bytes -= key.len() + size::value_bytes(&value);
            }
        }
    }

    /// Whether a new value with this key would be dropped at once.
    fn is_outranked(&self, key: &[u8]) -> bool {
        if self.keep_last {
            self.values
                .first_key_value()
                .is_some_and(|((first, _), _)| key < first.as_slice())
        } else {
            self.values
                .last_key_value()
                .is_some_and(|((last, _), _)| key >= last.as_slice())
        }
    }
}

impl Accumulator for Ranked {
    fn add(&mut self, input: Input) -> Result<()> {
        let Order::ByValue {
            descending,
            collation,
        } = self.order
        else {
            self.insert(input.key, input.value.unwrap_or(Bson::Null));
            return Ok(());
        };
        if is_nullish(input.value.as_ref()) {
            return Ok(());
        }
        if let Some(value) = input.value {
            let mut key = Vec::new();
            collation.encode_key_bson(&mut key, &mut TypeBits::default(), &value, descending)?;
            self.insert(key, value);
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        self.bytes = 0;
        let pair = |((bytes, _), value): ((Vec<u8>, u64), Bson)| {
            let key = Bson::Binary(Binary {
                subtype: BinarySubtype::Generic,
                bytes,
            });
            Bson::Array(vec![key, value])
        };
        Bson::Array(
            std::mem::take(&mut self.values)
                .into_iter()
                .map(pair)
                .collect(),
        )
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        for pair in state_array(state)? {
            let mut pair = state_array(pair)?;
            let (Some(value), Some(Bson::Binary(key))) = (pair.pop(), pair.pop()) else {
                return Err(damaged_state());
            };
            self.insert(key.bytes, value);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        let mut values = std::mem::take(&mut self.values).into_values();
        Ok(if self.single {
            values.next()
        } else {
            Some(Bson::Array(values.collect()))
        })
    }

    fn memory_bytes(&self) -> usize {
        self.bytes
    }
}

/// `$minN`
pub(super) fn parse_min_n(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    n_of(name, argument, scope, |n, collation| {
        Box::new(Ranked::new(
            n,
            Order::ByValue {
                descending: false,
                collation,
            },
            false,
            false,
        ))
    })
}

/// `$maxN`
pub(super) fn parse_max_n(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    n_of(name, argument, scope, |n, collation| {
        Box::new(Ranked::new(
            n,
            Order::ByValue {
                descending: true,
                collation,
            },
            false,
            false,
        ))
    })
}

/// `$top`
pub(super) fn parse_top(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    parse_sorted(name, argument, scope, false, true)
}

/// `$topN`
pub(super) fn parse_top_n(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    parse_sorted(name, argument, scope, false, false)
}

/// `$bottom`
pub(super) fn parse_bottom(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    parse_sorted(name, argument, scope, true, true)
}

/// `$bottomN`
pub(super) fn parse_bottom_n(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    parse_sorted(name, argument, scope, true, false)
}

/// `{sortBy, output}`, and `n` unless `single`.
fn parse_sorted(
    name: &'static str,
    argument: &Bson,
    scope: &Scope,
    keep_last: bool,
    single: bool,
) -> Result<Parsed> {
    let Bson::Document(fields) = argument else {
        return Err(Error::location(
            5788001,
            format!(
                "specification must be an object; found {}",
                display::element(name, argument)
            ),
        ));
    };
    for field in fields.keys() {
        if !matches!(field.as_str(), "sortBy" | "output") && (single || field != "n") {
            return Err(Error::location(
                5788002,
                format!("Unknown argument to {name} '{field}'"),
            ));
        }
    }
    let count = parse_count(name, fields, scope, single)?;
    let output = fields
        .get("output")
        .ok_or_else(|| missing(5788004, name, "output"))?;
    let sort_by = match fields.get("sortBy") {
        Some(Bson::Document(sort_by)) => SortPattern::parse(sort_by, scope.collation())?,
        Some(other) => {
            return Err(Error::location(
                5788604,
                format!(
                    "expected 'sortBy' to already be an object in the arguments to {name}, found {}",
                    display::value(other)
                ),
            ));
        }
        None => return Err(missing(5788005, name, "sortBy")),
    };
    Ok(Parsed {
        input: Expression::parse(output, scope)?,
        sort_by: Some(sort_by),
        count,
        start: Arc::new(move |n, _| Box::new(Ranked::new(n, Order::Given, keep_last, single))),
    })
}

fn parse_count(
    name: &'static str,
    fields: &Document,
    scope: &Scope,
    single: bool,
) -> Result<Option<Expression>> {
    if single {
        return Ok(None);
    }
    let count = fields.get("n").ok_or_else(|| missing(5788003, name, "n"))?;
    let count = Expression::parse(count, scope)?;
    check_constant_count(&count)?;
    Ok(Some(count))
}

fn missing(code: i32, name: &str, field: &str) -> Error {
    Error::location(code, format!("Missing value for '{field}' in {name}"))
}
