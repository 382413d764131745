//! `$dateAdd` and `$dateSubtract`.

use bson::{Bson, DateTime};
use millrace_value::{Error, Result};

use super::unit::Unit;
use super::{moment_ms, shown, text_of, time_zone, type_name};
use crate::calendar::{Civil, DAY_MS, days_in_month};
use crate::frame::Frame;
use crate::operators::operand::int64;
use crate::operators::{Operands, Operator, Parameter, Signature, present};
use crate::time_zone::TimeZone;
use crate::{Value, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::named("$dateAdd", &SIGNATURE, |operands, frame| {
        shift("$dateAdd", operands, frame, Some)
    }),
    Operator::named("$dateSubtract", &SIGNATURE, |operands, frame| {
        shift("$dateSubtract", operands, frame, i64::checked_neg)
    }),
];

static SIGNATURE: Signature = Signature {
    not_object: (
        5_166_400,
        "{op} expects an object as its argument.found type: {type}",
    ),
    unknown: (
        5_166_401,
        "Unrecognized argument to {op}: {name}. Expected arguments are startDate, unit, amount, and \
         optionally timezone.",
    ),
    missing: "{op} requires startDate, unit, and amount to be present",
    parameters: &[
        Parameter::required("startDate", 5_166_402),
        Parameter::required("unit", 5_166_402),
        Parameter::required("amount", 5_166_402),
        Parameter::optional("timezone"),
    ],
};

fn shift<'a>(
    operator: &str,
    operands: Operands<'a>,
    frame: Frame<'a>,
    signed: fn(i64) -> Option<i64>,
) -> Result<Value<'a>> {
    let values = [
        operands.value(0, frame)?,
        operands.value(1, frame)?,
        operands.value(2, frame)?,
    ];
    let zone = time_zone(operands, 3, frame)?;
    let [Some(start), Some(unit), Some(amount)] =
        values.each_ref().map(|value| present(value.as_deref()))
    else {
        return Ok(owned(Bson::Null));
    };
    let Some(zone) = zone else {
        return Ok(owned(Bson::Null));
    };
    let start_ms = moment_ms(start).ok_or_else(|| {
        Error::location(
            5_166_403,
            format!("{operator} requires startDate to be convertible to a date"),
        )
    })?;
    let unit = text_of(Some(unit)).ok_or_else(|| {
        Error::location(
            5_166_404,
            format!(
                "{operator} requires unit to be a string, found {}",
                type_name(Some(unit))
            ),
        )
    })?;
    let unit = Unit::parse(unit)?;
    let amount_number = int64(amount).ok_or_else(|| {
        Error::location(
            5_166_405,
            format!("{operator} expects integer amount of time units"),
        )
    })?;
    signed(amount_number)
        .and_then(|amount| add(start_ms, unit, amount, &zone))
        .map(|utc_ms| owned(Bson::DateTime(DateTime::from_millis(utc_ms))))
        .ok_or_else(|| {
            Error::location(
                5_166_406,
                format!(
                    "invalid {operator} 'amount' parameter value: {} {}",
                    shown(Some(amount)),
                    "is out of range"
                ),
            )
        })
}

/// The moment that is `amount` units later. Days and longer units keep the local time of day, months
/// and longer ones the day of the month unless the month is too short.
fn add(utc_ms: i64, unit: Unit, amount: i64, zone: &TimeZone) -> Option<i64> {
    match unit {
        Unit::Milliseconds(length) => utc_ms.checked_add(amount.checked_mul(length)?),
        Unit::Days(days) => {
            let local = zone.to_local_ms(utc_ms)?;
            let shift = amount.checked_mul(days)?.checked_mul(DAY_MS)?;
            zone.to_utc_ms(local.checked_add(shift)?)
        }
        Unit::Months(months) => {
            let civil = Civil::from_local_ms(zone.to_local_ms(utc_ms)?);
            let month = (civil.month - 1).checked_add(amount.checked_mul(months)?)?;
            let year = civil.year.checked_add(month.div_euclid(12))?;
            let month = month.rem_euclid(12) + 1;
            let day = civil.day.min(days_in_month(year, month));
            zone.to_utc_ms(
                Civil {
                    year,
                    month,
                    day,
                    ..civil
                }
                .to_local_ms()?,
            )
        }
    }
}
