//! `$dateDiff`: how many boundaries of a unit lie between two moments.

use bson::Bson;
use millrace_value::{Error, Result, type_alias};

use super::unit::{Unit, parse_weekday};
use super::{Operands, moment_ms, overflow, text_of, time_zone};
use crate::calendar::{Civil, DAY_MS};
use crate::frame::Frame;
use crate::operators::{Operator, Parameter, Signature, present};
use crate::time_zone::TimeZone;
use crate::{Value, owned};

pub(super) const OPERATORS: &[Operator] = &[Operator::named("$dateDiff", &SIGNATURE, difference)];

static SIGNATURE: Signature = Signature {
    not_object: (5_166_301, "{op} only supports an object as its argument"),
    unknown: (5_166_302, "Unrecognized argument to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("startDate", 5_166_303),
        Parameter::required("endDate", 5_166_304),
        Parameter::required("unit", 5_166_305),
        Parameter::optional("timezone"),
        Parameter::optional("startOfWeek"),
    ],
};

/// Reads the unit of `$dateDiff` and `$dateTrunc`, and for weeks the day they start with. `None` if one
/// of them is null.
pub(super) fn unit_and_week<'a>(
    operator: &str,
    operands: Operands<'a>,
    unit_place: usize,
    week_place: usize,
    frame: Frame<'a>,
) -> Result<Option<(Unit, i64)>> {
    let unit = operands.value(unit_place, frame)?;
    let start = operands.value(week_place, frame)?;
    let Some(unit) = present(unit.as_deref()) else {
        return Ok(None);
    };
    let parameter = |name: &str, codes: (i32, i32), value: &Bson| match text_of(Some(value)) {
        Some(text) => Ok(text.to_owned()),
        None => Err(Error::location(
            codes.0,
            format!(
                "{operator} requires '{name}' to be a string, but got {}",
                type_alias(value)
            ),
        )),
    };
    let invalid = |name: &str, code: i32, error: &Error| {
        Error::location(
            code,
            format!(
                "{operator} parameter '{name}' value parsing failed :: caused by :: {}",
                error.message()
            ),
        )
    };
    let unit = Unit::parse(&parameter("unit", (5_439_013, 5_439_014), unit)?)
        .map_err(|error| invalid("unit", 5_439_014, &error))?;
    if unit != Unit::WEEK || operands.get(week_place).is_none() {
        return Ok(Some((unit, 0)));
    }
    let Some(start) = present(start.as_deref()) else {
        return Ok(None);
    };
    let weekday = parse_weekday(&parameter("startOfWeek", (5_439_015, 5_439_016), start)?)
        .map_err(|error| invalid("startOfWeek", 5_439_016, &error))?;
    Ok(Some((unit, weekday)))
}

fn difference<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let (start, end) = (operands.value(0, frame)?, operands.value(1, frame)?);
    let zone = time_zone(operands, 3, frame)?;
    let unit = unit_and_week("$dateDiff", operands, 2, 4, frame)?;
    let (Some(start), Some(end), Some(zone), Some((unit, weekday))) = (
        present(start.as_deref()),
        present(end.as_deref()),
        zone,
        unit,
    ) else {
        return Ok(owned(Bson::Null));
    };
    let moment = |name: &str, value: &Bson| {
        moment_ms(value).ok_or_else(|| {
            Error::location(
                5_166_307,
                format!(
                    "$dateDiff requires '{name}' to be a date, but got {}",
                    type_alias(value)
                ),
            )
        })
    };
    let (start, end) = (moment("startDate", start)?, moment("endDate", end)?);
    let number = |utc_ms| number_of(utc_ms, unit, weekday, &zone);
    number(end)
        .zip(number(start))
        .and_then(|(end, start)| end.checked_sub(start))
        .map(|difference| owned(Bson::Int64(difference)))
        .ok_or_else(|| overflow("$dateDiff"))
}

/// The number of the unit that a moment is in, counted from some fixed one.
fn number_of(utc_ms: i64, unit: Unit, weekday: i64, zone: &TimeZone) -> Option<i64> {
    match unit {
        Unit::Months(months) => {
            let civil = Civil::from_local_ms(zone.to_local_ms(utc_ms)?);
            Some((civil.year * 12 + civil.month - 1).div_euclid(months))
        }
        Unit::Days(days) => {
            let day = zone.to_local_ms(utc_ms)?.div_euclid(DAY_MS);
            // Day 0 is a Thursday; the shift makes weeks begin with `weekday`.
            let shift = if days == 1 { 0 } else { 4 - weekday };
            Some((day + shift).div_euclid(days))
        }
        // Elapsed time counts, whatever clocks do; only zones whose offset is not a multiple of the
        // unit have its boundaries elsewhere.
        Unit::Milliseconds(length) => {
            let shift = zone.offset_ms(utc_ms).rem_euclid(length);
            Some(utc_ms.checked_add(shift)?.div_euclid(length))
        }
    }
}
