//! Arrays: access, construction, order. Operators that evaluate an expression for each element are in
//! `iteration`.

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Number, Result, type_alias};

use super::comparison::compare;
use super::operand::{int32, shown};
use super::string::{count, search_range};
use super::{Operator, null, present, type_name};
use crate::frame::Frame;
use crate::{VALUE_BYTES_MAX, Value, memory};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::binary("$arrayElemAt", element_at),
    Operator::unary("$arrayToObject", array_to_object),
    Operator::variadic("$concatArrays", 0, None, concat_arrays),
    Operator::binary("$in", contains),
    Operator::variadic("$indexOfArray", 2, Some(4), index_of_array),
    Operator::unary("$isArray", |x, _| {
        Ok(Some(Bson::Boolean(matches!(x, Some(Bson::Array(_))))))
    }),
    Operator::unary("$first", |x, _| end_of("$first", x, <[Bson]>::first)),
    Operator::unary("$last", |x, _| end_of("$last", x, <[Bson]>::last)),
    Operator::variadic("$range", 2, Some(3), range),
    Operator::unary("$reverseArray", reverse),
    Operator::unary("$size", size),
    Operator::variadic("$slice", 2, Some(3), slice),
];

/// An index from the front, or from the back if it is negative.
fn place_of(index: i32, length: usize) -> Option<usize> {
    let place = match usize::try_from(index) {
        Ok(index) => index,
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)?,
    };
    (place < length).then_some(place)
}

fn element_at(array: Option<&Bson>, index: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let (Some(array), Some(index)) = (present(array), present(index)) else {
        return null();
    };
    let Bson::Array(items) = array else {
        return Err(Error::location(
            28689,
            format!(
                "$arrayElemAt's first argument must be an array, but is {}",
                type_alias(array)
            ),
        ));
    };
    if Number::from_bson(index).is_none() {
        return Err(Error::location(
            28690,
            format!(
                "$arrayElemAt's second argument must be a numeric value, but is {}",
                type_alias(index)
            ),
        ));
    }
    let Some(index) = int32(index) else {
        return Err(Error::location(
            28691,
            format!(
                "$arrayElemAt's second argument must be representable as a 32-bit integer: {}",
                shown(Some(index))
            ),
        ));
    };
    Ok(place_of(index, items.len()).map(|place| items[place].clone()))
}

fn end_of(
    operator: &str,
    array: Option<&Bson>,
    end: fn(&[Bson]) -> Option<&Bson>,
) -> Result<Option<Bson>> {
    match present(array) {
        None => null(),
        Some(Bson::Array(items)) => Ok(end(items).cloned()),
        other => Err(Error::location(
            28689,
            format!(
                "{operator}'s argument must be an array, but is {}",
                type_name(other)
            ),
        )),
    }
}

/// How the elements of `$arrayToObject`'s input look.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PairForm {
    Arrays,
    Objects,
}

fn array_to_object(array: Option<&Bson>, frame: Frame<'_>) -> Result<Option<Bson>> {
    let items = match present(array) {
        None => return null(),
        Some(Bson::Array(items)) => items,
        other => {
            return Err(Error::location(
                40386,
                format!(
                    "$arrayToObject requires an array input, found: {}",
                    type_name(other)
                ),
            ));
        }
    };
    let form = match items.first() {
        None => return Ok(Some(Bson::Document(Document::new()))),
        Some(Bson::Array(_)) => PairForm::Arrays,
        Some(Bson::Document(_)) => PairForm::Objects,
        Some(other) => {
            return Err(Error::location(
                40398,
                format!(
                    "Unrecognised input type format for $arrayToObject: {}",
                    type_alias(other)
                ),
            ));
        }
    };
    let mut object = Document::new();
    for item in items {
        frame.check()?;
        let (key, value) = match (form, item) {
            (PairForm::Arrays, Bson::Array(pair)) => pair_of_array(pair)?,
            (PairForm::Objects, Bson::Document(pair)) => pair_of_object(pair)?,
            (form, other) => return Err(inconsistent(form, other)),
        };
        if key.contains('\0') {
            return Err(Error::location(
                4_940_400,
                "Key field cannot contain an embedded null byte",
            ));
        }
        object.insert(key, value.clone());
    }
    Ok(Some(Bson::Document(object)))
}

fn inconsistent(form: PairForm, found: &Bson) -> Error {
    let (code, first) = match form {
        PairForm::Arrays => (40396, "Array"),
        PairForm::Objects => (40391, "Object"),
    };
    Error::location(
        code,
        format!(
            "$arrayToObject requires a consistent input format. Elements must all be arrays or all be \
             objects. {first} was detected, now found: {}",
            type_alias(found)
        ),
    )
}

fn pair_of_array(pair: &[Bson]) -> Result<(&str, &Bson)> {
    match pair {
        [Bson::String(key), value] => Ok((key, value)),
        [key, _] => Err(Error::location(
            40395,
            format!(
                "$arrayToObject requires an array of key-value pairs, where the key must be of type \
                 string. Found key type: {}",
                type_alias(key)
            ),
        )),
        _ => Err(Error::location(
            40397,
            format!(
                "$arrayToObject requires an array of size 2 arrays,found array of size: {}",
                pair.len()
            ),
        )),
    }
}

fn pair_of_object(pair: &Document) -> Result<(&str, &Bson)> {
    if pair.len() != 2 {
        return Err(Error::location(
            40392,
            format!(
                "$arrayToObject requires an object keys of 'k' and 'v'. Found incorrect number of \
                 keys:{}",
                pair.len()
            ),
        ));
    }
    match (pair.get("k"), pair.get("v")) {
        (Some(Bson::String(key)), Some(value)) => Ok((key, value)),
        (Some(key), Some(_)) => Err(Error::location(
            40394,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v', where the value of 'k' must \
                 be of type string. Found type: {}",
                type_alias(key)
            ),
        )),
        _ => Err(Error::location(
            40393,
            format!(
                "$arrayToObject requires an object with keys 'k' and 'v'. Missing either or both keys \
                 from: {}",
                shown(Some(&Bson::Document(pair.clone())))
            ),
        )),
    }
}

fn concat_arrays(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let meter = frame.meter();
    let mut all = Vec::new();
    for operand in operands {
        frame.check()?;
        match present(operand.as_deref()) {
            None => return null(),
            Some(array @ Bson::Array(items)) => {
                meter.add(memory::value_bytes(array))?;
                all.extend_from_slice(items);
            }
            other => {
                return Err(Error::location(
                    28664,
                    format!(
                        "$concatArrays only supports arrays, not {}",
                        type_name(other)
                    ),
                ));
            }
        }
    }
    Ok(Some(Bson::Array(all)))
}

fn contains(value: Option<&Bson>, array: Option<&Bson>, frame: Frame<'_>) -> Result<Option<Bson>> {
    let Some(Bson::Array(items)) = array else {
        return Err(Error::location(
            40081,
            format!(
                "$in requires an array as a second argument, found: {}",
                type_name(array)
            ),
        ));
    };
    let found = items
        .iter()
        .any(|item| compare(Some(item), value, frame).is_eq());
    Ok(Some(Bson::Boolean(found)))
}

fn index_of_array(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let items = match present(operands[0].as_deref()) {
        None => return null(),
        Some(Bson::Array(items)) => items,
        other => {
            return Err(Error::location(
                40090,
                format!(
                    "$indexOfArray requires an array as a first argument, found: {}",
                    type_name(other)
                ),
            ));
        }
    };
    let (start, end) = search_range("$indexOfArray", operands)?;
    let end = end.unwrap_or(items.len()).min(items.len());
    let value = operands[1].as_deref();
    let found = items.get(start..end).and_then(|range| {
        range
            .iter()
            .position(|item| compare(Some(item), value, frame).is_eq())
    });
    found.map_or(Ok(Some(Bson::Int32(-1))), |at| count(start + at))
}

/// One bound of `$range`.
fn range_number(what: &str, value: Option<&Bson>, not_numeric: i32, not_int: i32) -> Result<i32> {
    if value.and_then(Number::from_bson).is_none() {
        return Err(Error::location(
            not_numeric,
            format!(
                "$range requires a numeric {what}, found value of type: {}",
                type_name(value)
            ),
        ));
    }
    value.and_then(int32).ok_or_else(|| {
        let article = if what.starts_with('e') { "an" } else { "a" };
        Error::location(
            not_int,
            format!(
                "$range requires {article} {what} that can be represented as a 32-bit integer, found \
                 value: {}",
                shown(value)
            ),
        )
    })
}

fn range(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let start = range_number("starting value", operands[0].as_deref(), 34443, 34444)?;
    let end = range_number("ending value", operands[1].as_deref(), 34445, 34446)?;
    let step = match operands.get(2) {
        Some(step) => range_number("step value", step.as_deref(), 34447, 34448)?,
        None => 1,
    };
    let (start, end, step) = (i64::from(start), i64::from(end), i64::from(step));
    if step == 0 {
        return Err(Error::location(
            34449,
            "$range requires a non-zero step value",
        ));
    }
    let distance = if step > 0 { end - start } else { start - end };
    let length = if distance > 0 {
        (distance - 1) / step.abs() + 1
    } else {
        0
    };
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    let bytes = length.saturating_mul(size_of::<Bson>());
    if bytes > VALUE_BYTES_MAX {
        return Err(Error::new(
            ErrorCode::ExceededMemoryLimit,
            format!(
                "$range would use too much memory ({bytes} bytes) and cannot spill to disk. Memory \
                 limit: {VALUE_BYTES_MAX} bytes"
            ),
        ));
    }
    frame.meter().add(bytes)?;
    let numbers = (0..length).scan(start, |next, _| {
        let number = *next;
        *next += step;
        Some(Number::from_i64(number).to_bson())
    });
    Ok(Some(Bson::Array(numbers.collect())))
}

fn reverse(array: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    match present(array) {
        None => null(),
        Some(Bson::Array(items)) => Ok(Some(Bson::Array(items.iter().rev().cloned().collect()))),
        other => Err(Error::location(
            34435,
            format!(
                "The argument to $reverseArray must be an array, but was of type: {}",
                type_name(other)
            ),
        )),
    }
}

fn size(array: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let Some(Bson::Array(items)) = array else {
        return Err(Error::location(
            17124,
            format!(
                "The argument to $size must be an array, but was of type: {}",
                type_name(array)
            ),
        ));
    };
    count(items.len())
}

/// A number of `$slice`; `which` is its ordinal.
fn slice_number(which: &str, value: &Bson, not_numeric: i32, not_int: i32) -> Result<i32> {
    if Number::from_bson(value).is_none() {
        return Err(Error::location(
            not_numeric,
            format!(
                "{which} argument to $slice must be a numeric value, but is of type: {}",
                type_alias(value)
            ),
        ));
    }
    int32(value).ok_or_else(|| {
        Error::location(
            not_int,
            format!(
                "{which} argument to $slice can't be represented as a 32-bit integer: {}",
                shown(Some(value))
            ),
        )
    })
}

fn slice(operands: &[Value<'_>], _: Frame<'_>) -> Result<Option<Bson>> {
    let Some(values) = operands
        .iter()
        .map(|v| present(v.as_deref()))
        .collect::<Option<Vec<_>>>()
    else {
        return null();
    };
    let Bson::Array(items) = values[0] else {
        return Err(Error::location(
            28724,
            format!(
                "First argument to $slice must be an array, but is of type: {}",
                type_alias(values[0])
            ),
        ));
    };
    let second = slice_number("Second", values[1], 28725, 28726)?;
    let magnitude = usize::try_from(second.unsigned_abs()).unwrap_or(usize::MAX);
    let taken = if let Some(third) = values.get(2) {
        let length = slice_number("Third", third, 28727, 28728)?;
        let Some(length) = usize::try_from(length).ok().filter(|&length| length > 0) else {
            return Err(Error::location(
                28729,
                format!("Third argument to $slice must be positive: {length}"),
            ));
        };
        let start = if second < 0 {
            items.len().saturating_sub(magnitude)
        } else {
            magnitude.min(items.len())
        };
        &items[start..start.saturating_add(length).min(items.len())]
    } else if second < 0 {
        &items[items.len().saturating_sub(magnitude)..]
    } else {
        &items[..magnitude.min(items.len())]
    };
    Ok(Some(Bson::Array(taken.to_vec())))
}
