//! Operators on arrays that take their operands by name: `$firstN`, `$lastN`, `$minN`, `$maxN`,
//! `$sortArray`, `$zip`.

use std::cmp::Ordering;
use std::sync::Arc;

use bson::{Bson, Document};
use millrace_value::{Collation, Error, ErrorCode, Number, Result, type_alias};

use super::operand::{int64, shown};
use super::parser::Parser;
use super::{Operands, Operator, Parameter, Signature, present, type_name};
use crate::frame::Frame;
use crate::{Custom, Expression, Node, Scope, Value, memory, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::named("$firstN", &N_OF, |operands, frame| {
        n_of(operands, frame, |items, n| {
            items[..n.min(items.len())].to_vec()
        })
    }),
    Operator::named("$lastN", &N_OF, |operands, frame| {
        n_of(operands, frame, |items, n| {
            items[items.len().saturating_sub(n)..].to_vec()
        })
    }),
    Operator::named("$minN", &N_OF, |operands, frame| {
        n_of(operands, frame, |items, n| {
            extreme(items, n, |a, b| frame.collation().compare_bson(a, b))
        })
    }),
    Operator::named("$maxN", &N_OF, |operands, frame| {
        n_of(operands, frame, |items, n| {
            extreme(items, n, |a, b| frame.collation().compare_bson(b, a))
        })
    }),
    Operator::custom("$sortArray", SortArray::parse),
    Operator::custom("$zip", Zip::parse),
];

static N_OF: Signature = Signature {
    not_object: (
        5_787_801,
        "specification must be an object; found {op}: {type}",
    ),
    unknown: (5_787_901, "Unknown argument for 'n' operator: {name}"),
    missing: "Missing value for '{name}'",
    parameters: &[
        Parameter::required("n", 5_787_906),
        Parameter::required("input", 5_787_907),
    ],
};

fn n_of<'a>(
    operands: Operands<'a>,
    frame: Frame<'a>,
    take: impl Fn(&[Bson], usize) -> Vec<Bson>,
) -> Result<Value<'a>> {
    let n = operands.value(0, frame)?;
    let n = n.as_deref();
    if n.and_then(Number::from_bson).is_none() {
        return Err(Error::location(
            5_787_902,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                shown(n)
            ),
        ));
    }
    let number = n.and_then(int64).ok_or_else(|| {
        Error::location(
            5_787_903,
            format!(
                "Value for 'n' must be of integral type, but found {}",
                shown(n)
            ),
        )
    })?;
    let count = usize::try_from(number)
        .ok()
        .filter(|&count| count > 0)
        .ok_or_else(|| {
            Error::location(
                5_787_908,
                format!("'n' must be greater than 0, found {number}"),
            )
        })?;
    let input = operands.value(1, frame)?;
    let Some(Bson::Array(items)) = input.as_deref() else {
        return Err(Error::location(5_788_200, "Input must be an array"));
    };
    Ok(owned(Bson::Array(take(items, count))))
}

/// The first `n` in this order; null does not count.
fn extreme(items: &[Bson], n: usize, order: impl Fn(&Bson, &Bson) -> Ordering) -> Vec<Bson> {
    let mut kept: Vec<&Bson> = items
        .iter()
        .filter(|item| present(Some(item)).is_some())
        .collect();
    kept.sort_by(|a, b| order(a, b));
    kept.into_iter().take(n).cloned().collect()
}

#[derive(Debug)]
struct SortArray {
    input: Expression,
    order: SortOrder,
}

#[derive(Debug)]
enum SortOrder {
    Whole {
        descending: bool,
    },
    /// Dotted paths, with whether each is descending.
    Fields(Vec<(Vec<String>, bool)>),
}

impl SortArray {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        let Bson::Document(fields) = operand else {
            return Err(Error::location(
                2_942_500,
                format!(
                    "$sortArray requires an object as an argument, found: {}",
                    type_alias(operand)
                ),
            ));
        };
        if let Some(name) = fields
            .keys()
            .find(|name| !["input", "sortBy"].contains(&name.as_str()))
        {
            return Err(Error::location(
                2_942_501,
                format!("$sortArray found an unknown argument: {name}"),
            ));
        }
        let required = |name: &str, code: i32| {
            fields.get(name).ok_or_else(|| {
                Error::location(
                    code,
                    format!("$sortArray requires '{name}' to be specified"),
                )
            })
        };
        let input = parser.operand(required("input", 2_942_502)?, scope)?;
        let order = SortOrder::parse(required("sortBy", 2_942_503)?)?;
        Ok(Node::Custom(Arc::new(Self { input, order })))
    }
}

impl SortOrder {
    fn parse(pattern: &Bson) -> Result<Self> {
        let Bson::Document(pattern) = pattern else {
            return Ok(Self::Whole {
                descending: direction(pattern)?,
            });
        };
        if pattern.is_empty() {
            return Err(Error::location(
                15976,
                "$sort stage must have at least one sort key",
            ));
        }
        let fields = pattern.iter().map(|(path, value)| {
            if path
                .split('.')
                .any(|part| part.is_empty() || part.starts_with('$'))
            {
                return Err(Error::location(
                    16410,
                    format!("FieldPath field names may not be empty or start with '$': '{path}'"),
                ));
            }
            Ok((
                path.split('.').map(str::to_owned).collect(),
                direction(value)?,
            ))
        });
        Ok(Self::Fields(fields.collect::<Result<_>>()?))
    }

    fn compare(&self, a: &Bson, b: &Bson, collation: Collation) -> Ordering {
        let fields = match (self, a, b) {
            (Self::Whole { descending }, _, _) => {
                return directed(collation.compare_bson(a, b), *descending);
            }
            (Self::Fields(fields), Bson::Document(a), Bson::Document(b)) => {
                return compare_fields(fields, a, b, collation);
            }
            (Self::Fields(fields), _, _) => fields,
        };
        // Elements that are not objects have no fields: they are compared as they are.
        let descending = fields.first().is_some_and(|(_, descending)| *descending);
        directed(collation.compare_bson(a, b), descending)
    }
}

/// Whether a direction is a descending one.
fn direction(value: &Bson) -> Result<bool> {
    match int64(value) {
        Some(1) => Ok(false),
        Some(-1) => Ok(true),
        _ => Err(Error::new(
            ErrorCode::BadValue,
            format!("Illegal key in $sort specification: {}", shown(Some(value))),
        )),
    }
}

fn directed(order: Ordering, descending: bool) -> Ordering {
    if descending { order.reverse() } else { order }
}

fn compare_fields(
    fields: &[(Vec<String>, bool)],
    a: &Document,
    b: &Document,
    collation: Collation,
) -> Ordering {
    fields
        .iter()
        .map(|(path, descending)| {
            let order = collation.compare_bson(nested(a, path), nested(b, path));
            directed(order, *descending)
        })
        .find(|order| order.is_ne())
        .unwrap_or(Ordering::Equal)
}

/// The value at a path through objects and array positions; missing sorts as null.
fn nested<'a>(document: &'a Document, path: &[String]) -> &'a Bson {
    let Some((first, rest)) = path.split_first() else {
        return &Bson::Null;
    };
    let mut value = document.get(first);
    for name in rest {
        value = match value {
            Some(Bson::Document(document)) => document.get(name),
            Some(Bson::Array(items)) => name.parse::<usize>().ok().and_then(|at| items.get(at)),
            _ => None,
        };
    }
    value.unwrap_or(&Bson::Null)
}

impl Custom for SortArray {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let input = self.input.eval(frame)?;
        let items = match present(input.as_deref()) {
            None => return Ok(owned(Bson::Null)),
            Some(Bson::Array(items)) => items,
            other => {
                return Err(Error::location(
                    2_942_504,
                    format!(
                        "The input argument to $sortArray must be an array, but was of type: {}",
                        type_name(other)
                    ),
                ));
            }
        };
        frame.check()?;
        let mut sorted = items.clone();
        sorted.sort_by(|a, b| self.order.compare(a, b, frame.collation()));
        Ok(owned(Bson::Array(sorted)))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        visit(&self.input);
    }
}

#[derive(Debug)]
struct Zip {
    inputs: Vec<Expression>,
    defaults: Vec<Expression>,
    use_longest: bool,
}

impl Zip {
    fn parse(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
        let Bson::Document(fields) = operand else {
            return Err(Error::location(
                34460,
                format!(
                    "$zip only supports an object as an argument, found {}",
                    type_alias(operand)
                ),
            ));
        };
        let mut zip = Self {
            inputs: Vec::new(),
            defaults: Vec::new(),
            use_longest: false,
        };
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("inputs", value) => zip.inputs = parse_list(parser, name, 34461, value, scope)?,
                ("defaults", value) => {
                    zip.defaults = parse_list(parser, name, 34462, value, scope)?
                }
                ("useLongestLength", Bson::Boolean(value)) => zip.use_longest = *value,
                ("useLongestLength", other) => {
                    return Err(Error::location(
                        34463,
                        format!(
                            "'useLongestLength' must be a bool, found {}",
                            type_alias(other)
                        ),
                    ));
                }
                (other, _) => {
                    return Err(Error::location(
                        34464,
                        format!("$zip found an unknown argument: {other}"),
                    ));
                }
            }
        }
        if zip.inputs.is_empty() {
            return Err(Error::location(
                34465,
                "$zip requires at least one input array",
            ));
        }
        if !zip.defaults.is_empty() && !zip.use_longest {
            return Err(Error::location(
                34466,
                "cannot specify defaults unless useLongestLength is true",
            ));
        }
        if !zip.defaults.is_empty() && zip.defaults.len() != zip.inputs.len() {
            return Err(Error::location(
                34467,
                "defaults and inputs must have the same length",
            ));
        }
        Ok(Node::Custom(Arc::new(zip)))
    }
}

fn parse_list(
    parser: &mut Parser,
    name: &str,
    code: i32,
    value: &Bson,
    scope: &Scope,
) -> Result<Vec<Expression>> {
    let Bson::Array(items) = value else {
        return Err(Error::location(
            code,
            format!(
                "'{name}' must be an array of expressions, found {}",
                type_alias(value)
            ),
        ));
    };
    items
        .iter()
        .map(|item| parser.operand(item, scope))
        .collect()
}

impl Custom for Zip {
    fn evaluate<'a>(&'a self, frame: Frame<'a>) -> Result<Value<'a>> {
        let meter = frame.meter();
        let values = |expressions: &'a [Expression]| {
            expressions
                .iter()
                .map(|expression| meter.hold(expression.eval(frame)?))
                .collect::<Result<Vec<_>>>()
        };
        let inputs = values(&self.inputs)?;
        let mut arrays = Vec::with_capacity(inputs.len());
        for input in &inputs {
            match present(input.as_deref()) {
                None => return Ok(owned(Bson::Null)),
                Some(Bson::Array(items)) => arrays.push(items),
                other => {
                    return Err(Error::location(
                        34468,
                        format!(
                            "$zip found a non-array expression in input: {}",
                            shown(other)
                        ),
                    ));
                }
            }
        }
        let lengths = arrays.iter().map(|items| items.len());
        let length = if self.use_longest {
            lengths.max()
        } else {
            lengths.min()
        }
        .unwrap_or(0);
        let defaults = values(&self.defaults)?;
        let mut zipped = Vec::new();
        for row in 0..length {
            frame.check()?;
            let tuple = arrays.iter().enumerate().map(|(column, items)| {
                let default = || defaults.get(column).and_then(|value| value.as_deref());
                items
                    .get(row)
                    .or_else(default)
                    .cloned()
                    .unwrap_or(Bson::Null)
            });
            let tuple = Bson::Array(tuple.collect());
            meter.add(memory::value_bytes(&tuple))?;
            zipped.push(tuple);
        }
        Ok(owned(Bson::Array(zipped)))
    }

    fn visit(&self, visit: &mut dyn FnMut(&Expression)) {
        self.inputs.iter().chain(&self.defaults).for_each(visit);
    }
}
