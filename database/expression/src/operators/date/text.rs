//! `$dateToString` and `$dateFromString`.

use bson::{Bson, DateTime};
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::format::{DEFAULT_LOCAL, DEFAULT_UTC, Format};
use super::parse::parse_date;
use super::{Operands, overflow, required_moment_ms, shown, text_of, time_zone};
use crate::frame::Frame;
use crate::operators::{Operator, Parameter, Signature, present};
use crate::{Value, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::named("$dateToString", &TO_STRING, to_string),
    Operator::named("$dateFromString", &FROM_STRING, from_string),
];

static TO_STRING: Signature = Signature {
    not_object: (18629, "{op} only supports an object as its argument"),
    unknown: (18534, "Unrecognized argument to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("date", 18628),
        Parameter::optional("format"),
        Parameter::optional("timezone"),
        Parameter::optional("onNull"),
    ],
};

/// The format that the operand at `place` is; `None` if it is null.
fn format(
    operator: &str,
    code: i32,
    operands: Operands<'_>,
    place: usize,
    frame: Frame<'_>,
) -> Result<Option<Format>> {
    let value = operands.value(place, frame)?;
    let Some(value) = present(value.as_deref()) else {
        return Ok(None);
    };
    let Some(text) = text_of(Some(value)) else {
        return Err(Error::location(
            code,
            format!(
                "{operator} requires that 'format' be a string, found: {} with value {}",
                type_alias(value),
                shown(Some(value))
            ),
        ));
    };
    Format::parse(text).map(Some)
}

fn to_string<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let format = format("$dateToString", 18533, operands, 1, frame)?;
    let zone = time_zone(operands, 2, frame)?;
    let date = operands.value(0, frame)?;
    let Some(date) = present(date.as_deref()) else {
        return match operands.get(3) {
            Some(on_null) => on_null.eval(frame),
            None => Ok(owned(Bson::Null)),
        };
    };
    let Some(zone) = zone else {
        return Ok(owned(Bson::Null));
    };
    let utc_ms = required_moment_ms(date)?;
    let format = match format {
        Some(format) => format,
        None if operands.get(1).is_some() => return Ok(owned(Bson::Null)),
        None => Format::parse(if zone.is_utc() {
            DEFAULT_UTC
        } else {
            DEFAULT_LOCAL
        })?,
    };
    let local = zone
        .to_local_ms(utc_ms)
        .ok_or_else(|| overflow("$dateToString"))?;
    Ok(owned(Bson::String(
        format.write(local, zone.offset_ms(utc_ms))?,
    )))
}

static FROM_STRING: Signature = Signature {
    not_object: (
        40540,
        "{op} only supports an object as an argument, found: {type}",
    ),
    unknown: (40541, "Unrecognized argument to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("dateString", 40542),
        Parameter::optional("format"),
        Parameter::optional("timezone"),
        Parameter::optional("onNull"),
        Parameter::optional("onError"),
    ],
};

fn from_string<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let text = operands.value(0, frame)?;
    let format = format("$dateFromString", 40684, operands, 1, frame)?;
    let zone = time_zone(operands, 2, frame)?;
    let Some(text) = present(text.as_deref()) else {
        return match operands.get(3) {
            Some(on_null) => on_null.eval(frame),
            None => Ok(owned(Bson::Null)),
        };
    };
    let Some(zone) = zone else {
        return Ok(owned(Bson::Null));
    };
    if format.is_none() && operands.get(1).is_some() {
        return Ok(owned(Bson::Null));
    }
    let parsed = match text_of(Some(text)) {
        Some(string) => {
            let given_zone = operands.get(2).map(|_| &zone);
            match format {
                Some(format) => format.read(string, given_zone),
                None => parse_date(string, given_zone),
            }
        }
        None => Err(Error::new(
            ErrorCode::ConversionFailure,
            format!(
                "$dateFromString requires that 'dateString' be a string, found: {} with value {}",
                type_alias(text),
                shown(Some(text))
            ),
        )),
    };
    match (parsed, operands.get(4)) {
        (Ok(utc_ms), _) => Ok(owned(Bson::DateTime(DateTime::from_millis(utc_ms)))),
        (Err(error), Some(on_error)) if error.code() == ErrorCode::ConversionFailure => {
            on_error.eval(frame)
        }
        (Err(error), _) => Err(error),
    }
}
