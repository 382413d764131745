//! Text. Case and trimming know ASCII and a fixed list of spaces, as MongoDB's do.

use std::cmp::Ordering;

use bson::Bson;
use millrace_value::{Error, Number, Result, type_alias};

use super::operand::{coerced_text, int32, shown, text};
use super::{Operands, Operator, Parameter, Signature, null, present, type_name};
use crate::frame::Frame;
use crate::{Value, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::variadic("$concat", 0, None, concat),
    Operator::variadic("$indexOfBytes", 2, Some(4), index_of_bytes),
    Operator::variadic("$indexOfCP", 2, Some(4), index_of_cp),
    Operator::named("$ltrim", &TRIM, |operands, frame| {
        trim("$ltrim", operands, frame)
    }),
    Operator::named("$rtrim", &TRIM, |operands, frame| {
        trim("$rtrim", operands, frame)
    }),
    Operator::named("$trim", &TRIM, |operands, frame| {
        trim("$trim", operands, frame)
    }),
    Operator::named("$replaceOne", &REPLACE, |operands, frame| {
        replace("$replaceOne", operands, frame, |input, find, by| {
            input.replacen(find, by, 1)
        })
    }),
    Operator::named("$replaceAll", &REPLACE, |operands, frame| {
        replace("$replaceAll", operands, frame, |input, find, by| {
            input.replace(find, by)
        })
    }),
    Operator::binary("$split", split),
    Operator::unary("$strLenBytes", |x, _| {
        length("$strLenBytes", 34473, x, str::len)
    }),
    Operator::unary("$strLenCP", |x, _| {
        length("$strLenCP", 34471, x, |text| text.chars().count())
    }),
    Operator::binary("$strcasecmp", compare_ignoring_case),
    Operator::variadic("$substr", 3, Some(3), |x, _| substr_bytes("$substr", x)),
    Operator::variadic("$substrBytes", 3, Some(3), |x, _| {
        substr_bytes("$substrBytes", x)
    }),
    Operator::variadic("$substrCP", 3, Some(3), substr_cp),
    Operator::unary("$toLower", |x, _| {
        string(coerced_text(x)?.to_ascii_lowercase())
    }),
    Operator::unary("$toUpper", |x, _| {
        string(coerced_text(x)?.to_ascii_uppercase())
    }),
];

static TRIM: Signature = Signature {
    not_object: (
        50696,
        "{op} only supports an object as an argument, found {type}",
    ),
    unknown: (50694, "{op} found an unknown argument: {name}"),
    missing: "{op} requires an '{name}' field",
    parameters: &[
        Parameter::required("input", 50695),
        Parameter::optional("chars"),
    ],
};

static REPLACE: Signature = Signature {
    not_object: (
        51751,
        "{op} requires an object as an argument, found: {type}",
    ),
    unknown: (51750, "{op} found an unknown argument: {name}"),
    missing: "{op} requires '{name}' to be specified",
    parameters: &[
        Parameter::required("input", 51749),
        Parameter::required("find", 51748),
        Parameter::required("replacement", 51747),
    ],
};

#[expect(
    clippy::unnecessary_wraps,
    reason = "it stands where evaluators answer a result"
)]
fn string(text: String) -> Result<Option<Bson>> {
    Ok(Some(Bson::String(text)))
}

/// An index or a length as a result.
pub(super) fn count(number: usize) -> Result<Option<Bson>> {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    Ok(Some(Number::from_i64(number).to_bson()))
}

fn concat(operands: &[Value<'_>], frame: Frame<'_>) -> Result<Option<Bson>> {
    let meter = frame.meter();
    let mut result = String::new();
    for operand in operands {
        let operand = operand.as_deref();
        if present(operand).is_none() {
            return null();
        }
        let Some(text) = text(operand) else {
            return Err(Error::location(
                16702,
                format!("$concat only supports strings, not {}", type_name(operand)),
            ));
        };
        meter.add(text.len())?;
        result.push_str(text);
    }
    string(result)
}

/// The operands of `$indexOfBytes`, `$indexOfCP` and `$indexOfArray` that say where to search. The end
/// is `None` if it was not given.
pub(super) fn search_range(
    operator: &str,
    operands: &[Value<'_>],
) -> Result<(usize, Option<usize>)> {
    let bound = |place: usize, which: &str| {
        operands.get(place).map(|operand| {
            let operand = operand.as_deref();
            let index = operand.and_then(int32).ok_or_else(|| {
                Error::location(
                    40096,
                    format!(
                        "{operator} requires an integral {which} index, found a value of type: {}, \
                         with value: {}",
                        type_name(operand),
                        shown(operand)
                    ),
                )
            })?;
            usize::try_from(index).map_err(|_| {
                Error::location(
                    40097,
                    format!("{operator} requires a nonnegative {which} index, found: {index}"),
                )
            })
        })
    };
    Ok((
        bound(2, "starting").transpose()?.unwrap_or(0),
        bound(3, "ending").transpose()?,
    ))
}

/// The texts to search in and for; `None` if there is nothing to search in.
fn search_texts<'v>(
    operator: &str,
    codes: (i32, i32),
    operands: &'v [Value<'_>],
) -> Result<Option<(&'v str, &'v str)>> {
    let input = operands[0].as_deref();
    if present(input).is_none() {
        return Ok(None);
    }
    let required = |operand: Option<&'v Bson>, which: &str, code: i32| {
        text(operand).ok_or_else(|| {
            Error::location(
                code,
                format!(
                    "{operator} requires a string as the {which} argument, found: {}",
                    type_name(operand)
                ),
            )
        })
    };
    let input = required(input, "first", codes.0)?;
    Ok(Some((
        input,
        required(operands[1].as_deref(), "second", codes.1)?,
    )))
}

fn index_of_bytes(operands: &[Value<'_>], _: Frame<'_>) -> Result<Option<Bson>> {
    let Some((input, token)) = search_texts("$indexOfBytes", (40091, 40092), operands)? else {
        return null();
    };
    let (start, end) = search_range("$indexOfBytes", operands)?;
    let end = end.unwrap_or(input.len()).min(input.len());
    if start > end {
        return Ok(Some(Bson::Int32(-1)));
    }
    if token.is_empty() {
        return count(start);
    }
    // Text is only found between characters, so that the range may shrink to such places.
    let first = (start..=end)
        .find(|&at| input.is_char_boundary(at))
        .unwrap_or(end);
    let last = (first..=end)
        .rev()
        .find(|&at| input.is_char_boundary(at))
        .unwrap_or(first);
    let found = input.get(first..last).and_then(|range| range.find(token));
    found.map_or(Ok(Some(Bson::Int32(-1))), |at| count(first + at))
}

fn index_of_cp(operands: &[Value<'_>], _: Frame<'_>) -> Result<Option<Bson>> {
    let Some((input, token)) = search_texts("$indexOfCP", (40093, 40094), operands)? else {
        return null();
    };
    let (start, end) = search_range("$indexOfCP", operands)?;
    let byte_of = |code_point: usize| {
        input
            .char_indices()
            .map(|(at, _)| at)
            .chain([input.len()])
            .nth(code_point)
    };
    let end = end.and_then(byte_of).unwrap_or(input.len());
    let found = byte_of(start)
        .and_then(|from| input.get(from..end))
        .and_then(|range| range.find(token).map(|at| range[..at].chars().count()));
    found.map_or(Ok(Some(Bson::Int32(-1))), |at| count(start + at))
}

/// What is trimmed if no characters are given.
fn is_space(c: char) -> bool {
    matches!(c, '\0' | ' ' | '\t'..='\r' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}')
}

fn trim<'a>(operator: &str, operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let input = operands.value(0, frame)?;
    let Some(value) = present(input.as_deref()) else {
        return Ok(owned(Bson::Null));
    };
    let Some(input) = text(Some(value)) else {
        return Err(Error::location(
            50699,
            format!(
                "{operator} requires its input to be a string, got {} (of type {}) instead.",
                shown(Some(value)),
                type_alias(value)
            ),
        ));
    };
    let trimmed = if operands.get(1).is_some() {
        let chars = operands.value(1, frame)?;
        let Some(value) = present(chars.as_deref()) else {
            return Ok(owned(Bson::Null));
        };
        let Some(chars) = text(Some(value)) else {
            return Err(Error::location(
                50700,
                format!(
                    " {operator} requires 'chars' to be a string, got {} (of type {}) instead.",
                    shown(Some(value)),
                    type_alias(value)
                ),
            ));
        };
        {
            let mut set: Vec<char> = chars.chars().collect();
            set.sort_unstable();
            trimmed(operator, input, |c| set.binary_search(&c).is_ok())
        }
    } else {
        trimmed(operator, input, is_space)
    };
    Ok(owned(Bson::String(trimmed.to_owned())))
}

fn trimmed<'t>(operator: &str, text: &'t str, remove: impl Fn(char) -> bool) -> &'t str {
    let text = if operator == "$rtrim" {
        text
    } else {
        text.trim_start_matches(&remove)
    };
    if operator == "$ltrim" {
        text
    } else {
        text.trim_end_matches(&remove)
    }
}

fn replace<'a>(
    operator: &str,
    operands: Operands<'a>,
    frame: Frame<'a>,
    replace: fn(&str, &str, &str) -> String,
) -> Result<Value<'a>> {
    let values = [
        operands.value(0, frame)?,
        operands.value(1, frame)?,
        operands.value(2, frame)?,
    ];
    for (value, (name, code)) in
        values
            .iter()
            .zip([("input", 51746), ("find", 51745), ("replacement", 51744)])
    {
        let value = value.as_deref();
        if present(value).is_some() && text(value).is_none() {
            return Err(Error::location(
                code,
                format!(
                    "{operator} requires that '{name}' be a string, found: {}",
                    shown(value)
                ),
            ));
        }
    }
    let [Some(input), Some(find), Some(by)] = values.each_ref().map(|v| text(v.as_deref())) else {
        return Ok(owned(Bson::Null));
    };
    // An empty pattern is found before each character and at the end.
    let found = if find.is_empty() {
        input.len() + 1
    } else {
        input.matches(find).count()
    };
    let meter = frame.meter();
    meter.add(input.len().saturating_add(found.saturating_mul(by.len())))?;
    Ok(owned(Bson::String(replace(input, find, by))))
}

fn split(input: Option<&Bson>, separator: Option<&Bson>, frame: Frame<'_>) -> Result<Option<Bson>> {
    if present(input).is_none() || present(separator).is_none() {
        return null();
    }
    let required = |operand: Option<&'_ Bson>, which: &str, code: i32| {
        text(operand).map(str::to_owned).ok_or_else(|| {
            Error::location(
                code,
                format!(
                    "$split requires an expression that evaluates to a string as a {which} argument, \
                     found: {}",
                    type_name(operand)
                ),
            )
        })
    };
    let (input, separator) = (
        required(input, "first", 40085)?,
        required(separator, "second", 40086)?,
    );
    if separator.is_empty() {
        return Err(Error::location(
            40087,
            "$split requires a non-empty separator",
        ));
    }
    let meter = frame.meter();
    let mut parts = Vec::new();
    for part in input.split(&separator) {
        meter.add(size_of::<Bson>() + part.len())?;
        parts.push(Bson::String(part.to_owned()));
    }
    Ok(Some(Bson::Array(parts)))
}

fn length(
    operator: &str,
    code: i32,
    operand: Option<&Bson>,
    measure: fn(&str) -> usize,
) -> Result<Option<Bson>> {
    let Some(text) = text(operand) else {
        return Err(Error::location(
            code,
            format!(
                "{operator} requires a string argument, found: {}",
                type_name(operand)
            ),
        ));
    };
    count(measure(text))
}

fn compare_ignoring_case(a: Option<&Bson>, b: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let (a, b) = (
        coerced_text(a)?.to_ascii_uppercase(),
        coerced_text(b)?.to_ascii_uppercase(),
    );
    Ok(Some(Bson::Int32(match a.cmp(&b) {
        Ordering::Less => -1,
        Ordering::Equal => 0,
        Ordering::Greater => 1,
    })))
}

/// A number for `$substrBytes`, cut to an integer.
fn byte_number(operator: &str, what: &str, code: i32, value: Option<&Bson>) -> Result<i64> {
    let Some(number) = value.and_then(Number::from_bson) else {
        return Err(Error::location(
            code,
            format!(
                "{operator}:  {what} must be a numeric type (is BSON type {})",
                type_name(value)
            ),
        ));
    };
    let out_of_range = || {
        Error::location(
            31109,
            format!("Can't coerce out of range value {number} to long"),
        )
    };
    number
        .trunc(0)
        .and_then(Number::as_i64_exact)
        .ok_or_else(out_of_range)
}

fn substr_bytes(operator: &str, operands: &[Value<'_>]) -> Result<Option<Bson>> {
    let text = coerced_text(operands[0].as_deref())?;
    let start = byte_number(operator, "starting index", 16034, operands[1].as_deref())?;
    let length = byte_number(operator, "length", 16035, operands[2].as_deref())?;
    let Ok(start) = usize::try_from(start) else {
        return Err(Error::location(
            50752,
            format!("{operator}:  starting index must be non-negative (got: {start})"),
        ));
    };
    if start < text.len() && !text.is_char_boundary(start) {
        return Err(Error::location(
            28656,
            format!("{operator}:  Invalid range, starting index is a UTF-8 continuation byte."),
        ));
    }
    // A negative length means the rest.
    let end = usize::try_from(length).map_or(text.len(), |length| start.saturating_add(length));
    let end = end.min(text.len());
    if !text.is_char_boundary(end) {
        return Err(Error::location(
            28657,
            format!(
                "{operator}:  Invalid range, ending index is in the middle of a UTF-8 character."
            ),
        ));
    }
    string(text.get(start..end).unwrap_or_default().to_owned())
}

fn substr_cp(operands: &[Value<'_>], _: Frame<'_>) -> Result<Option<Bson>> {
    let text = coerced_text(operands[0].as_deref())?;
    let number = |place: usize, what: &str, codes: [i32; 3]| {
        let value = operands[place].as_deref();
        if value.and_then(Number::from_bson).is_none() {
            return Err(Error::location(
                codes[0],
                format!(
                    "$substrCP: {what} must be a numeric type (is BSON type {})",
                    type_name(value)
                ),
            ));
        }
        let number = value.and_then(int32).ok_or_else(|| {
            Error::location(
                codes[1],
                format!(
                    "$substrCP: {what} cannot be represented as a 32-bit integral value: {}",
                    shown(value)
                ),
            )
        })?;
        usize::try_from(number).map_err(|_| {
            Error::location(
                codes[2],
                format!("$substrCP: {what} must be a nonnegative integer."),
            )
        })
    };
    let start = number(1, "starting index", [34450, 34451, 34455])?;
    let length = number(2, "length", [34452, 34453, 34454])?;
    string(text.chars().skip(start).take(length).collect())
}
