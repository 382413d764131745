//! Arrays as sets: order and repetition do not matter.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use bson::Bson;
use millrace_value::{Collation, Error, Result, is_truthy};

use super::{Operator, null, present, type_name};
use crate::frame::Frame;
use crate::{Value, memory};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::binary("$setDifference", difference),
    Operator::variadic("$setEquals", 0, None, equals),
    Operator::variadic("$setIntersection", 0, None, intersection),
    Operator::binary("$setIsSubset", is_subset),
    Operator::variadic("$setUnion", 0, None, union),
    Operator::unary("$allElementsTrue", all_elements_true),
    Operator::unary("$anyElementTrue", any_element_true),
];

/// A value in MongoDB's order, so that equal numbers of different types are one element.
#[derive(Clone, Copy, Debug)]
struct Ordered<'a> {
    value: &'a Bson,
    collation: Collation,
}

impl<'a> Ordered<'a> {
    const fn new(value: &'a Bson, frame: Frame<'_>) -> Self {
        Self {
            value,
            collation: frame.collation(),
        }
    }
}

impl Ord for Ordered<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.collation.compare_bson(self.value, other.value)
    }
}

impl PartialOrd for Ordered<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Ordered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Ordered<'_> {}

fn set_of<'a>(items: &'a [Bson], frame: Frame<'_>) -> Result<BTreeSet<Ordered<'a>>> {
    frame.check()?;
    Ok(items.iter().map(|item| Ordered::new(item, frame)).collect())
}

fn to_array(set: &BTreeSet<Ordered<'_>>) -> Bson {
    Bson::Array(set.iter().map(|item| item.value.clone()).collect())
}

/// The operands' arrays; `None` if one of them is null. An operand of another type is an error with
/// `code`.
fn arrays<'a>(
    operator: &str,
    code: i32,
    operands: &'a [Value<'_>],
) -> Result<Option<Vec<&'a [Bson]>>> {
    let mut arrays = Vec::with_capacity(operands.len());
    for operand in operands {
        match present(operand.as_deref()) {
            None => return Ok(None),
            Some(Bson::Array(items)) => arrays.push(items.as_slice()),
            other => {
                return Err(Error::location(
                    code,
                    format!(
                        "All operands of {operator} must be arrays. One argument is of type: {}",
                        type_name(other)
                    ),
                ));
            }
        }
    }
    Ok(Some(arrays))
}

/// Both operands' arrays, for operators that say which one is wrong.
fn two_arrays<'a>(
    operator: &str,
    codes: (i32, i32),
    first: Option<&'a Bson>,
    second: Option<&'a Bson>,
) -> Result<(&'a [Bson], &'a [Bson])> {
    let array = |which: &str, code: i32, operand: Option<&'a Bson>| match operand {
        Some(Bson::Array(items)) => Ok(items.as_slice()),
        other => Err(Error::location(
            code,
            format!(
                "both operands of {operator} must be arrays. {which} argument is of type: {}",
                type_name(other)
            ),
        )),
    };
    Ok((
        array("First", codes.0, first)?,
        array("Second", codes.1, second)?,
    ))
}

fn difference(
    first: Option<&Bson>,
    second: Option<&Bson>,
    frame: Frame<'_>,
) -> Result<Option<Bson>> {
    if present(first).is_none() || present(second).is_none() {
        return null();
    }
    let (first, second) = two_arrays("$setDifference", (17048, 17049), first, second)?;
    let mut seen = set_of(second, frame)?;
    let rest = first
        .iter()
        .filter(|item| seen.insert(Ordered::new(item, frame)))
        .cloned()
        .collect();
    Ok(Some(Bson::Array(rest)))
}

fn is_subset(
    first: Option<&Bson>,
    second: Option<&Bson>,
    frame: Frame<'_>,
) -> Result<Option<Bson>> {
    let (first, second) = two_arrays("$setIsSubset", (17046, 17042), first, second)?;
    let second = set_of(second, frame)?;
    Ok(Some(Bson::Boolean(
        first
            .iter()
            .all(|item| second.contains(&Ordered::new(item, frame))),
    )))
}

fn equals(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    if operands.len() < 2 {
        return Err(Error::location(
            17045,
            format!(
                "$setEquals needs at least two arguments had: {}",
                operands.len()
            ),
        ));
    }
    let mut first: Option<BTreeSet<Ordered<'_>>> = None;
    for operand in operands {
        let Some(Bson::Array(items)) = operand.as_deref() else {
            return Err(Error::location(
                17044,
                format!(
                    "All operands of $setEquals must be arrays. One argument is of type: {}",
                    type_name(operand.as_deref())
                ),
            ));
        };
        let set = set_of(items, frame)?;
        match &first {
            None => first = Some(set),
            Some(first) if *first != set => return Ok(Some(Bson::Boolean(false))),
            Some(_) => {}
        }
    }
    Ok(Some(Bson::Boolean(true)))
}

fn intersection(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let Some(arrays) = arrays("$setIntersection", 17047, operands)? else {
        return null();
    };
    let Some((first, rest)) = arrays.split_first() else {
        return Ok(Some(Bson::Array(Vec::new())));
    };
    let mut common = set_of(first, frame)?;
    for items in rest {
        let other = set_of(items, frame)?;
        common.retain(|item| other.contains(item));
    }
    Ok(Some(to_array(&common)))
}

fn union(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let Some(arrays) = arrays("$setUnion", 17043, operands)? else {
        return null();
    };
    let meter = frame.meter();
    let mut all = BTreeSet::new();
    for item in arrays.into_iter().flatten() {
        if all.insert(Ordered::new(item, frame)) {
            frame.check()?;
            meter.add(memory::value_bytes(item))?;
        }
    }
    Ok(Some(to_array(&all)))
}

fn all_elements_true(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let Some(Bson::Array(items)) = operand else {
        return Err(Error::location(
            17040,
            format!(
                "$allElementsTrue's argument must be an array, but is {}",
                type_name(operand)
            ),
        ));
    };
    Ok(Some(Bson::Boolean(items.iter().all(is_truthy))))
}

fn any_element_true(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let Some(Bson::Array(items)) = operand else {
        return Err(Error::location(
            17041,
            format!(
                "$anyElementTrue's argument must be an array, but is {}",
                type_name(operand)
            ),
        ));
    };
    Ok(Some(Bson::Boolean(items.iter().any(is_truthy))))
}
