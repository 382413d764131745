//! `$dateTrunc`: the start of the bin of time that a moment is in.

use bson::{Bson, DateTime};
use millrace_value::{Error, Result, type_alias};

use super::difference::unit_and_week;
use super::unit::Unit;
use super::{Operands, moment_ms, overflow, shown, time_zone};
use crate::calendar::{Civil, DAY_MS, days_from_civil};
use crate::frame::Frame;
use crate::operators::operand::int64;
use crate::operators::{Operator, Parameter, Signature, present};
use crate::time_zone::TimeZone;
use crate::{Value, owned};

pub(super) const OPERATORS: &[Operator] = &[Operator::named("$dateTrunc", &SIGNATURE, truncate)];

static SIGNATURE: Signature = Signature {
    not_object: (5_439_007, "{op} only supports an object as its argument"),
    unknown: (5_439_008, "Unrecognized argument to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("date", 5_439_009),
        Parameter::required("unit", 5_439_010),
        Parameter::optional("binSize"),
        Parameter::optional("timezone"),
        Parameter::optional("startOfWeek"),
    ],
};

/// Bins are counted from the start of this year.
const REFERENCE_YEAR: i64 = 2000;
/// Its first day, a Saturday, as a day of the week.
const REFERENCE_WEEKDAY: i64 = 6;

fn truncate<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let date = operands.value(0, frame)?;
    let unit = unit_and_week("$dateTrunc", operands, 1, 4, frame)?;
    let bin_size = bin_size(operands, frame)?;
    let zone = time_zone(operands, 3, frame)?;
    let (Some(date), Some((unit, weekday)), Some(bin_size), Some(zone)) =
        (present(date.as_deref()), unit, bin_size, zone)
    else {
        return Ok(owned(Bson::Null));
    };
    let utc_ms = moment_ms(date).ok_or_else(|| {
        Error::location(
            5_439_012,
            format!(
                "$dateTrunc requires 'date' to be a date, but got {}",
                type_alias(date)
            ),
        )
    })?;
    start_of_bin(utc_ms, unit, bin_size, weekday, &zone)
        .map(|start| owned(Bson::DateTime(DateTime::from_millis(start))))
        .ok_or_else(|| overflow("$dateTrunc"))
}

fn bin_size(operands: Operands<'_>, frame: Frame<'_>) -> Result<Option<i64>> {
    if operands.get(2).is_none() {
        return Ok(Some(1));
    }
    let value = operands.value(2, frame)?;
    let Some(value) = present(value.as_deref()) else {
        return Ok(None);
    };
    let size = int64(value).ok_or_else(|| {
        Error::location(
            5_439_017,
            format!(
                "$dateTrunc requires 'binSize' to be a 64-bit integer, but got value '{}' of type {}",
                shown(Some(value)),
                type_alias(value)
            ),
        )
    })?;
    if size <= 0 {
        return Err(Error::location(
            5_439_018,
            format!("$dateTrunc requires 'binSize' to be greater than 0, but got value {size}"),
        ));
    }
    Ok(Some(size))
}

fn start_of_bin(
    utc_ms: i64,
    unit: Unit,
    bin_size: i64,
    weekday: i64,
    zone: &TimeZone,
) -> Option<i64> {
    let reference = days_from_civil(REFERENCE_YEAR, 1, 1);
    match unit {
        Unit::Milliseconds(length) => {
            let length = length.checked_mul(bin_size)?;
            let reference_ms = zone.to_utc_ms(reference * DAY_MS)?;
            let since = utc_ms.checked_sub(reference_ms)?;
            utc_ms.checked_sub(since.rem_euclid(length))
        }
        Unit::Days(days) => {
            // Weeks are counted from the first day of that year that starts one.
            let first = if days == 1 {
                0
            } else {
                (weekday - REFERENCE_WEEKDAY).rem_euclid(7)
            };
            let length = days.checked_mul(bin_size)?;
            let day = zone.to_local_ms(utc_ms)?.div_euclid(DAY_MS);
            let start = day.checked_sub((day - reference - first).rem_euclid(length))?;
            zone.to_utc_ms(start.checked_mul(DAY_MS)?)
        }
        Unit::Months(months) => {
            let length = months.checked_mul(bin_size)?;
            let civil = Civil::from_local_ms(zone.to_local_ms(utc_ms)?);
            let since = (civil.year - REFERENCE_YEAR) * 12 + civil.month - 1;
            let month = since
                .checked_sub(since.rem_euclid(length))?
                .checked_add(1)?;
            let start = Civil {
                year: REFERENCE_YEAR,
                month,
                ..Civil::EPOCH
            };
            zone.to_utc_ms(start.to_local_ms()?)
        }
    }
}
