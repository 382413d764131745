//! `$percentile` and `$median`.

use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Number, Result, display, type_alias};

use crate::accumulator::{Accumulator, Input, Parsed, damaged_state, state_array};
use crate::{Expression, Scope};

/// Percentiles of the numbers, by the nearest rank: the result is always one of the values. MongoDB's
/// `approximate` method promises no more than that it is close to this.
#[derive(Debug)]
struct Percentile {
    ranks: Arc<[f64]>,
    single: bool,
    values: Vec<f64>,
}

impl Percentile {
    /// The value at percentile `rank` of the sorted values.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the rank is between 0 and 1, so that the position is within the length"
    )]
    fn at(&self, rank: f64) -> Bson {
        let position = (rank * self.values.len() as f64).ceil() as usize;
        self.values
            .get(position.saturating_sub(1))
            .map_or(Bson::Null, |value| Bson::Double(*value))
    }
}

impl Accumulator for Percentile {
    fn add(&mut self, input: Input) -> Result<()> {
        if let Some(number) = input.value.as_ref().and_then(Number::from_bson) {
            self.values.push(number.as_f64());
        }
        Ok(())
    }

    fn state(&mut self) -> Bson {
        Bson::Array(
            std::mem::take(&mut self.values)
                .into_iter()
                .map(Bson::Double)
                .collect(),
        )
    }

    fn merge(&mut self, state: Bson) -> Result<()> {
        for value in state_array(state)? {
            let Bson::Double(value) = value else {
                return Err(damaged_state());
            };
            self.values.push(value);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<Bson>> {
        self.values.sort_unstable_by(f64::total_cmp);
        let mut results: Vec<Bson> = self.ranks.iter().map(|rank| self.at(*rank)).collect();
        Ok(if self.single {
            results.pop()
        } else {
            Some(Bson::Array(results))
        })
    }

    fn memory_bytes(&self) -> usize {
        self.values.len() * size_of::<f64>()
    }
}

/// `$percentile: {input, p, method}`
pub(super) fn parse_percentile(
    name: &'static str,
    argument: &Bson,
    scope: &Scope,
) -> Result<Parsed> {
    let fields = check_fields(name, argument, &["input", "p", "method"])?;
    let ranks = fields.get("p").ok_or_else(|| missing(name, "p"))?;
    let constant = Expression::parse(ranks, scope)?;
    let values = match constant.as_constant() {
        Some(Bson::Array(values)) if !values.is_empty() => values.clone(),
        Some(other) => return Err(bad_ranks(other)),
        None => {
            return Err(Error::location(
                7750300,
                "The $percentile 'p' field must be an array of constant values",
            ));
        }
    };
    let ranks = values
        .iter()
        .map(|value| {
            Number::from_bson(value)
                .map(Number::as_f64)
                .filter(|rank| (0.0..=1.0).contains(rank))
                .ok_or_else(|| bad_rank(value))
        })
        .collect::<Result<Vec<f64>>>()?;
    parsed(name, fields, scope, ranks, false)
}

/// `$median: {input, method}`
pub(super) fn parse_median(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed> {
    let fields = check_fields(name, argument, &["input", "method"])?;
    parsed(name, fields, scope, vec![0.5], true)
}

fn parsed(
    name: &'static str,
    fields: &Document,
    scope: &Scope,
    ranks: Vec<f64>,
    single: bool,
) -> Result<Parsed> {
    let input = fields.get("input").ok_or_else(|| missing(name, "input"))?;
    match fields.get("method") {
        Some(Bson::String(method)) if method == "approximate" => {}
        Some(Bson::String(_)) => {
            return Err(Error::new(
                ErrorCode::BadValue,
                "Currently only 'approximate' can be used as percentile 'method'.",
            ));
        }
        Some(other) => {
            return Err(Error::new(
                ErrorCode::TypeMismatch,
                format!(
                    "BSON field '{name}.method' is the wrong type '{}', expected type 'string'",
                    type_alias(other)
                ),
            ));
        }
        None => return Err(missing(name, "method")),
    }
    let ranks: Arc<[f64]> = ranks.into();
    Ok(Parsed {
        input: Expression::parse(input, scope)?,
        sort_by: None,
        count: None,
        start: Arc::new(move |_, _| {
            Box::new(Percentile {
                ranks: Arc::clone(&ranks),
                single,
                values: Vec::new(),
            })
        }),
    })
}

fn check_fields<'a>(
    name: &'static str,
    argument: &'a Bson,
    allowed: &[&str],
) -> Result<&'a Document> {
    let Bson::Document(fields) = argument else {
        return Err(Error::location(
            if name == "$median" { 7436100 } else { 7429703 },
            format!(
                "specification must be an object; found {}",
                display::element(name, argument)
            ),
        ));
    };
    match fields
        .keys()
        .find(|field| !allowed.contains(&field.as_str()))
    {
        Some(field) => Err(Error::new(
            ErrorCode::IDLUnknownField,
            format!("BSON field '{name}.{field}' is an unknown field."),
        )),
        None => Ok(fields),
    }
}

fn missing(name: &str, field: &str) -> Error {
    Error::new(
        ErrorCode::IDLFailedToParse,
        format!("BSON field '{name}.{field}' is missing but a required field"),
    )
}

fn bad_ranks(found: &Bson) -> Error {
    Error::location(
        7750301,
        format!(
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
            display::value(found)
        ),
    )
}

fn bad_rank(found: &Bson) -> Error {
    Error::location(
        if Number::from_bson(found).is_some() {
            7750303
        } else {
            7750302
        },
        format!(
            "The $percentile 'p' field must be an array of numbers from [0.0, 1.0], but found: {}",
            display::value(found)
        ),
    )
}
