//! Accumulators: what `$group` and its relatives compute from many documents.
//!
//! An [`Accumulation`] is the parsed `{$operator: argument}`; for every group it starts an
//! [`Accumulator`], which is given an [`Input`] a document. An accumulator can put what it has so far
//! into a BSON value and merge such values later, so that groups can be spilled to disk.
//!
//! Adding an accumulator is one file and one row of [`OPERATORS`].

mod average;
mod count;
mod deviation;
mod extreme;
mod merge_objects;
mod percentile;
mod position;
mod push;
mod ranked;
mod set;
mod sum;

use std::fmt;
use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Collation, Error, Number, Result, display, type_alias};

use crate::sort::SortPattern;
use crate::{EvaluationContext, Expression, Scope};

pub(crate) use average::Average;
pub(crate) use deviation::{Population, Sample};
pub(crate) use extreme::{Max, Min};
pub(crate) use sum::Sum;

/// What an accumulator is given of one document.
#[derive(Debug)]
pub struct Input {
    /// The argument's value; none if missing.
    pub(crate) value: Option<Bson>,
    /// The document's sort key, for accumulators that have `sortBy`; else empty.
    pub(crate) key: Vec<u8>,
}

/// The state of one accumulation over one group.
pub trait Accumulator: fmt::Debug + Send {
    /// Takes in one document.
    fn add(&mut self, input: Input) -> Result<()>;

    /// Everything taken in so far, as a value that [`merge`](Self::merge) understands.
    fn state(&mut self) -> Bson;

    /// Takes in what another accumulator of this kind took in later documents.
    fn merge(&mut self, state: Bson) -> Result<()>;

    /// The result; none if missing.
    fn finish(&mut self) -> Result<Option<Bson>>;

    /// Memory held beyond a constant.
    fn memory_bytes(&self) -> usize {
        0
    }
}

/// An accumulator that compares values.
pub(crate) trait Collated: Accumulator + Sized {
    /// The accumulator that has taken in nothing and compares strings by `collation`.
    fn with_collation(collation: Collation) -> Self;
}

/// Starts an accumulator that compares strings by the collation; the number is the value of `n`, 1 for
/// those without.
type Start = Arc<dyn Fn(usize, Collation) -> Box<dyn Accumulator> + Send + Sync>;

/// What parsing an argument gives.
struct Parsed {
    input: Expression,
    sort_by: Option<SortPattern>,
    /// `n`, evaluated against the group's id.
    count: Option<Expression>,
    start: Start,
}

/// One row of the table of accumulators.
struct Operator {
    name: &'static str,
    parse: fn(&'static str, &Bson, &Scope) -> Result<Parsed>,
}

/// All accumulators, by name.
const OPERATORS: &[Operator] = &[
    Operator {
        name: "$addToSet",
        parse: comparing::<set::AddToSet>,
    },
    Operator {
        name: "$avg",
        parse: unary::<Average>,
    },
    Operator {
        name: "$bottom",
        parse: ranked::parse_bottom,
    },
    Operator {
        name: "$bottomN",
        parse: ranked::parse_bottom_n,
    },
    Operator {
        name: "$count",
        parse: count::parse,
    },
    Operator {
        name: "$first",
        parse: unary::<position::First>,
    },
    Operator {
        name: "$firstN",
        parse: position::parse_first_n,
    },
    Operator {
        name: "$last",
        parse: unary::<position::Last>,
    },
    Operator {
        name: "$lastN",
        parse: position::parse_last_n,
    },
    Operator {
        name: "$max",
        parse: comparing::<Max>,
    },
    Operator {
        name: "$maxN",
        parse: ranked::parse_max_n,
    },
    Operator {
        name: "$median",
        parse: percentile::parse_median,
    },
    Operator {
        name: "$mergeObjects",
        parse: unary::<merge_objects::MergeObjects>,
    },
    Operator {
        name: "$min",
        parse: comparing::<Min>,
    },
    Operator {
        name: "$minN",
        parse: ranked::parse_min_n,
    },
    Operator {
        name: "$percentile",
        parse: percentile::parse_percentile,
    },
    Operator {
        name: "$push",
        parse: unary::<push::Push>,
    },
    Operator {
        name: "$stdDevPop",
        parse: unary::<Population>,
    },
    Operator {
        name: "$stdDevSamp",
        parse: unary::<Sample>,
    },
    Operator {
        name: "$sum",
        parse: unary::<Sum>,
    },
    Operator {
        name: "$top",
        parse: ranked::parse_top,
    },
    Operator {
        name: "$topN",
        parse: ranked::parse_top_n,
    },
];

/// A parsed accumulator `{$operator: argument}` of `$group`, `$bucket` or `$bucketAuto`.
#[derive(Clone)]
pub struct Accumulation {
    name: &'static str,
    input: Expression,
    sort_by: Option<SortPattern>,
    count: Option<Expression>,
    start: Start,
}

impl fmt::Debug for Accumulation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Accumulation")
            .field("name", &self.name)
            .field("input", &self.input)
            .field("sort_by", &self.sort_by)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Accumulation {
    /// Parses the argument of the accumulator called `operator`.
    ///
    /// # Errors
    /// 15952 for an unknown name; MongoDB's codes for arguments that are not valid.
    pub fn parse(operator: &str, argument: &Bson, scope: &Scope) -> Result<Self> {
        let row = OPERATORS
            .binary_search_by(|row| row.name.cmp(operator))
            .map_err(|_| Error::location(15952, format!("unknown group operator '{operator}'")))?;
        let operator = &OPERATORS[row];
        let Parsed {
            input,
            sort_by,
            count,
            start,
        } = (operator.parse)(operator.name, argument, scope)?;
        Ok(Self {
            name: operator.name,
            input,
            sort_by,
            count,
            start,
        })
    }

    /// The operator's name with its dollar sign, `$sum` for example.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What is evaluated for every document.
    pub const fn expression(&self) -> &Expression {
        &self.input
    }

    /// What documents are ordered by, for accumulators that have `sortBy`.
    pub const fn sort_by(&self) -> Option<&SortPattern> {
        self.sort_by.as_ref()
    }

    /// What the accumulator takes of `document`.
    pub fn input(&self, document: &Document, eval: &EvaluationContext<'_>) -> Result<Input> {
        let key = match &self.sort_by {
            Some(pattern) => pattern.key(document)?,
            None => Vec::new(),
        };
        Ok(Input {
            value: self.input.evaluate(document, eval)?,
            key,
        })
    }

    /// An accumulator for the group with this id.
    pub fn start(
        &self,
        group: &Bson,
        eval: &EvaluationContext<'_>,
    ) -> Result<Box<dyn Accumulator>> {
        let Some(count) = &self.count else {
            return Ok((self.start)(1, eval.collation));
        };
        let empty = Document::new();
        let root = group.as_document().unwrap_or(&empty);
        let count = element_count(count.evaluate(root, eval)?)?;
        Ok((self.start)(count, eval.collation))
    }
}

/// The argument of an accumulator that takes any expression.
fn unary<A>(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed>
where
    A: Accumulator + Default + 'static,
{
    any(name, argument, scope, |_, _| Box::new(A::default()))
}

/// The argument of an accumulator that takes any expression and compares its values.
fn comparing<A>(name: &'static str, argument: &Bson, scope: &Scope) -> Result<Parsed>
where
    A: Collated + 'static,
{
    any(name, argument, scope, |_, collation| {
        Box::new(A::with_collation(collation))
    })
}

/// Parses an argument that is any expression.
fn any(
    name: &'static str,
    argument: &Bson,
    scope: &Scope,
    start: fn(usize, Collation) -> Box<dyn Accumulator>,
) -> Result<Parsed> {
    if matches!(argument, Bson::Array(_)) {
        return Err(Error::location(
            40237,
            format!("The {name} accumulator is a unary operator"),
        ));
    }
    Ok(Parsed {
        input: Expression::parse(argument, scope)?,
        sort_by: None,
        count: None,
        start: Arc::new(start),
    })
}

/// The argument of an accumulator of the form `{n, input}`.
fn n_of(
    name: &'static str,
    argument: &Bson,
    scope: &Scope,
    start: impl Fn(usize, Collation) -> Box<dyn Accumulator> + Send + Sync + 'static,
) -> Result<Parsed> {
    let Bson::Document(fields) = argument else {
        return Err(Error::location(
            5787900,
            format!(
                "specification must be an object; found {}",
                display::element(name, argument)
            ),
        ));
    };
    let (mut input, mut count) = (None, None);
    for (field, value) in fields {
        match field.as_str() {
            "input" => input = Some(Expression::parse(value, scope)?),
            "n" => count = Some(Expression::parse(value, scope)?),
            _ => {
                return Err(Error::location(
                    5787901,
                    format!("Unknown argument for 'n' operator: {field}"),
                ));
            }
        }
    }
    let count = count.ok_or_else(|| Error::location(5787906, "Missing value for 'n'"))?;
    let input = input.ok_or_else(|| Error::location(5787907, "Missing value for 'input'"))?;
    check_constant_count(&count)?;
    Ok(Parsed {
        input,
        sort_by: None,
        count: Some(count),
        start: Arc::new(start),
    })
}

/// Refuses a constant `n` that is not valid when it is parsed, as MongoDB does.
fn check_constant_count(count: &Expression) -> Result<()> {
    count.as_constant().map_or(Ok(()), |value| {
        element_count(Some(value.clone())).map(|_| ())
    })
}

/// `n` as a count.
fn element_count(value: Option<Bson>) -> Result<usize> {
    let value = value.unwrap_or(Bson::Null);
    let number = Number::from_bson(&value).ok_or_else(|| {
        Error::location(
            5787902,
            format!(
                "Value for 'n' must be of integral type, but found {} of type {}",
                display::value(&value),
                type_alias(&value)
            ),
        )
    })?;
    let count = number.as_i64_exact().ok_or_else(|| {
        Error::location(
            5787903,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                display::value(&value)
            ),
        )
    })?;
    usize::try_from(count)
        .ok()
        .filter(|count| *count > 0)
        .ok_or_else(|| {
            Error::location(
                5787908,
                format!("'n' must be greater than 0, found {count}"),
            )
        })
}

/// Whether accumulators that look for values pass over this one.
fn is_nullish(value: Option<&Bson>) -> bool {
    matches!(value, None | Some(Bson::Null | Bson::Undefined))
}

/// The array that a state of several parts is.
fn state_array(state: Bson) -> Result<Vec<Bson>> {
    match state {
        Bson::Array(values) => Ok(values),
        _ => Err(damaged_state()),
    }
}

/// The error for a state that no accumulator wrote.
fn damaged_state() -> Error {
    Error::new(
        millrace_value::ErrorCode::InternalError,
        "scratch space does not hold the accumulator state that was written to it",
    )
}
