//! Dates: their parts, arithmetic on calendars, text.

mod arithmetic;
mod difference;
mod format;
mod parse;
mod parts;
mod text;
mod truncate;
mod unit;

use bson::Bson;
use millrace_value::{Error, ErrorCode, Result, type_alias};

use super::operand::{shown, text as text_of};
use super::{Operands, Operator, present, type_name};
use crate::frame::Frame;
use crate::time_zone::TimeZone;

pub(super) use parse::parse_date;

/// The rows of all files of this family.
pub(super) const FAMILIES: &[&[Operator]] = &[
    arithmetic::OPERATORS,
    difference::OPERATORS,
    parts::OPERATORS,
    text::OPERATORS,
    truncate::OPERATORS,
];

/// Milliseconds of values that are moments: dates, timestamps, ObjectIds.
pub(super) fn moment_ms(value: &Bson) -> Option<i64> {
    match value {
        Bson::DateTime(date) => Some(date.timestamp_millis()),
        Bson::Timestamp(timestamp) => Some(i64::from(timestamp.time) * 1000),
        Bson::ObjectId(id) => Some(id.timestamp().timestamp_millis()),
        _ => None,
    }
}

/// The moment that an operand is.
///
/// # Errors
/// 16006 for other types.
fn required_moment_ms(value: &Bson) -> Result<i64> {
    moment_ms(value).ok_or_else(|| {
        Error::location(
            16006,
            format!("can't convert from BSON type {} to Date", type_alias(value)),
        )
    })
}

/// The time zone that the operand at `place` names: UTC if it is not given, `None` if it is null.
fn time_zone(operands: Operands<'_>, place: usize, frame: Frame<'_>) -> Result<Option<TimeZone>> {
    if operands.get(place).is_none() {
        return Ok(Some(TimeZone::Utc));
    }
    let value = operands.value(place, frame)?;
    let Some(value) = present(value.as_deref()) else {
        return Ok(None);
    };
    let Some(name) = text_of(Some(value)) else {
        return Err(Error::location(
            40517,
            format!(
                "timezone must evaluate to a string, found {}",
                type_alias(value)
            ),
        ));
    };
    TimeZone::parse(name).map(Some)
}

/// A date too far from 1970 for 64 bits of milliseconds.
fn overflow(operator: &str) -> Error {
    Error::new(
        ErrorCode::Overflow,
        format!("{operator} overflowed: the date is out of range"),
    )
}
