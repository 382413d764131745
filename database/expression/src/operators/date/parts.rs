//! `$year` and its relatives, `$dateToParts`, `$dateFromParts`.

use bson::{Bson, DateTime, doc};
use millrace_value::{Error, Number, Result, type_alias};

use super::{overflow, required_moment_ms, shown, time_zone, type_name};
use crate::calendar::{Civil, DAY_MS, days_from_iso_week};
use crate::frame::Frame;
use crate::operators::operand::int64;
use crate::operators::parser::{Parser, named_call};
use crate::operators::{Operands, Operator, Parameter, Signature, present};
use crate::{Expression, Node, Scope, Value, owned};

macro_rules! part {
    ($name:literal, $part:expr) => {{
        static EVALUATED: Operator = Operator::named($name, &PART, |operands, frame| {
            part_of(operands, frame, |civil| {
                Number::from_i64($part(civil)).to_bson()
            })
        });
        Operator::custom($name, |parser, operand, scope| {
            parse_part(parser, &EVALUATED, operand, scope)
        })
    }};
}

pub(super) const OPERATORS: &[Operator] = &[
    part!("$year", |civil: Civil| civil.year),
    part!("$month", |civil: Civil| civil.month),
    part!("$dayOfMonth", |civil: Civil| civil.day),
    part!("$dayOfWeek", Civil::day_of_week),
    part!("$dayOfYear", Civil::day_of_year),
    part!("$hour", |civil: Civil| civil.hour),
    part!("$minute", |civil: Civil| civil.minute),
    part!("$second", |civil: Civil| civil.second),
    part!("$millisecond", |civil: Civil| civil.millisecond),
    part!("$week", Civil::week),
    part!("$isoWeek", |civil: Civil| civil.iso_week().week),
    part!("$isoDayOfWeek", |civil: Civil| civil.iso_week().day),
    Operator::custom("$isoWeekYear", |parser, operand, scope| {
        parse_part(parser, &ISO_WEEK_YEAR, operand, scope)
    }),
    Operator::named("$dateToParts", &TO_PARTS, to_parts),
    Operator::custom("$dateFromParts", parse_from_parts),
];

/// The only part that is a 64-bit integer.
static ISO_WEEK_YEAR: Operator = Operator::named("$isoWeekYear", &PART, |operands, frame| {
    part_of(operands, frame, |civil| Bson::Int64(civil.iso_week().year))
});

static PART: Signature = Signature {
    not_object: (40539, "missing 'date' argument to {op}"),
    unknown: (40535, "unrecognized option to {op}: \"{name}\""),
    missing: "missing '{name}' argument to {op}",
    parameters: &[
        Parameter::required("date", 40539),
        Parameter::optional("timezone"),
    ],
};

/// An expression for the date, alone or in an array, or an object with a date and a time zone.
fn parse_part(
    parser: &mut Parser,
    operator: &'static Operator,
    operand: &Bson,
    scope: &Scope,
) -> Result<Node> {
    let date = match operand {
        Bson::Document(fields)
            if !fields
                .keys()
                .next()
                .is_some_and(|name| name.starts_with('$')) =>
        {
            let operands = parser.named(operator.name, &PART, operand, scope)?;
            return Ok(named_call(operator, operands, scope));
        }
        Bson::Array(items) => match items.as_slice() {
            [only] => only,
            several => {
                return Err(Error::location(
                    40536,
                    format!(
                        "{} accepts exactly one argument if given an array, but was given {}",
                        operator.name,
                        several.len()
                    ),
                ));
            }
        },
        single => single,
    };
    let operands = vec![Some(parser.operand(date, scope)?), None];
    Ok(named_call(operator, operands, scope))
}

fn part_of<'a>(
    operands: Operands<'a>,
    frame: Frame<'a>,
    part: fn(Civil) -> Bson,
) -> Result<Value<'a>> {
    let date = operands.value(0, frame)?;
    let (Some(date), Some(zone)) = (present(date.as_deref()), time_zone(operands, 1, frame)?)
    else {
        return Ok(owned(Bson::Null));
    };
    let local = zone
        .to_local_ms(required_moment_ms(date)?)
        .ok_or_else(|| overflow("a date part"))?;
    Ok(owned(part(Civil::from_local_ms(local))))
}

static TO_PARTS: Signature = Signature {
    not_object: (40524, "{op} only supports an object as its argument"),
    unknown: (40520, "Unrecognized argument to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("date", 40522),
        Parameter::optional("timezone"),
        Parameter::optional("iso8601"),
    ],
};

fn to_parts<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let date = operands.value(0, frame)?;
    let zone = time_zone(operands, 1, frame)?;
    let iso = match operands.value(2, frame)?.as_deref() {
        None if operands.get(2).is_none() => Some(false),
        None | Some(Bson::Null | Bson::Undefined) => None,
        Some(Bson::Boolean(iso)) => Some(*iso),
        other => {
            return Err(Error::location(
                40521,
                format!(
                    "iso8601 must evaluate to a bool, found {}",
                    type_name(other)
                ),
            ));
        }
    };
    let (Some(date), Some(zone), Some(iso)) = (present(date.as_deref()), zone, iso) else {
        return Ok(owned(Bson::Null));
    };
    let local = zone
        .to_local_ms(required_moment_ms(date)?)
        .ok_or_else(|| overflow("$dateToParts"))?;
    let civil = Civil::from_local_ms(local);
    let int = |number: i64| Number::from_i64(number).to_bson();
    let mut parts = if iso {
        let week = civil.iso_week();
        doc! {
            "isoWeekYear": int(week.year),
            "isoWeek": int(week.week),
            "isoDayOfWeek": int(week.day),
        }
    } else {
        doc! { "year": int(civil.year), "month": int(civil.month), "day": int(civil.day) }
    };
    parts.extend(doc! {
        "hour": int(civil.hour),
        "minute": int(civil.minute),
        "second": int(civil.second),
        "millisecond": int(civil.millisecond),
    });
    Ok(owned(Bson::Document(parts)))
}

/// Places in the signature of `$dateFromParts`.
const ISO_WEEK_YEAR_PLACE: usize = 7;
const TIME_ZONE_PLACE: usize = 10;

static FROM_PARTS: Operator = Operator::named("$dateFromParts", &FROM_PARTS_SIGNATURE, from_parts);

static FROM_PARTS_SIGNATURE: Signature = Signature {
    not_object: (40519, "{op} only supports an object as its argument"),
    unknown: (40518, "Unrecognized argument to {op}: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::optional("year"),
        Parameter::optional("month"),
        Parameter::optional("day"),
        Parameter::optional("hour"),
        Parameter::optional("minute"),
        Parameter::optional("second"),
        Parameter::optional("millisecond"),
        Parameter::optional("isoWeekYear"),
        Parameter::optional("isoWeek"),
        Parameter::optional("isoDayOfWeek"),
        Parameter::optional("timezone"),
    ],
};

fn parse_from_parts(parser: &mut Parser, operand: &Bson, scope: &Scope) -> Result<Node> {
    let operands = parser.named(FROM_PARTS.name, &FROM_PARTS_SIGNATURE, operand, scope)?;
    let given = |places: &[usize]| places.iter().any(|&place| operands[place].is_some());
    if !given(&[0, ISO_WEEK_YEAR_PLACE]) {
        return Err(Error::location(
            40516,
            "$dateFromParts requires either 'year' or 'isoWeekYear' to be present",
        ));
    }
    if given(&[0]) && given(&[7, 8, 9]) {
        return Err(Error::location(
            40489,
            "$dateFromParts does not allow mixing natural dates with ISO dates",
        ));
    }
    if given(&[ISO_WEEK_YEAR_PLACE]) && given(&[1, 2]) {
        return Err(Error::location(
            40525,
            "$dateFromParts does not allow mixing ISO dates with natural dates",
        ));
    }
    Ok(named_call(&FROM_PARTS, operands, scope))
}

/// A part that may be any 16-bit number, carrying over into the next larger one. `None` if it is null.
fn carried(
    operands: Operands<'_>,
    place: usize,
    default: i64,
    frame: Frame<'_>,
) -> Result<Option<i64>> {
    let name = FROM_PARTS_SIGNATURE.parameters[place].name;
    let Some(number) = integer(operands.get(place), name, default, frame)? else {
        return Ok(None);
    };
    // Seconds and milliseconds may be as large as a date is.
    let wide = matches!(name, "second" | "millisecond");
    if !wide && !(-32_768..=32_767).contains(&number) {
        return Err(Error::location(
            31034,
            format!("'{name}' must evaluate to a value in the range [-32768, 32767]"),
        ));
    }
    Ok(Some(number))
}

fn year(operands: Operands<'_>, place: usize, code: i32, frame: Frame<'_>) -> Result<Option<i64>> {
    let name = FROM_PARTS_SIGNATURE.parameters[place].name;
    let Some(number) = integer(operands.get(place), name, 1970, frame)? else {
        return Ok(None);
    };
    if !(1..=9999).contains(&number) {
        return Err(Error::location(
            code,
            format!("'{name}' must evaluate to an integer in the range 1 to 9999, found {number}"),
        ));
    }
    Ok(Some(number))
}

fn integer(
    operand: Option<&Expression>,
    name: &str,
    default: i64,
    frame: Frame<'_>,
) -> Result<Option<i64>> {
    let Some(operand) = operand else {
        return Ok(Some(default));
    };
    let value = operand.eval(frame)?;
    let Some(value) = present(value.as_deref()) else {
        return Ok(None);
    };
    int64(value).map(Some).ok_or_else(|| {
        Error::location(
            40515,
            format!(
                "'{name}' must evaluate to an integer, found {} with value {}",
                type_alias(value),
                shown(Some(value))
            ),
        )
    })
}

fn from_parts<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let zone = time_zone(operands, TIME_ZONE_PLACE, frame)?;
    let part = |place: usize, default: i64| carried(operands, place, default, frame);
    let start_of_day = if operands.get(ISO_WEEK_YEAR_PLACE).is_some() {
        let year = year(operands, ISO_WEEK_YEAR_PLACE, 31095, frame)?;
        let (Some(year), Some(week), Some(day)) = (year, part(8, 1)?, part(9, 1)?) else {
            return Ok(owned(Bson::Null));
        };
        Some(days_from_iso_week(year, week, day) * DAY_MS)
    } else {
        let year = year(operands, 0, 40523, frame)?;
        let (Some(year), Some(month), Some(day)) = (year, part(1, 1)?, part(2, 1)?) else {
            return Ok(owned(Bson::Null));
        };
        Civil {
            year,
            month,
            day,
            ..Civil::EPOCH
        }
        .to_local_ms()
    };
    let (Some(hour), Some(minute), Some(second), Some(millisecond), Some(zone)) =
        (part(3, 0)?, part(4, 0)?, part(5, 0)?, part(6, 0)?, zone)
    else {
        return Ok(owned(Bson::Null));
    };
    let in_day = Civil {
        hour,
        minute,
        second,
        millisecond,
        ..Civil::EPOCH
    }
    .to_local_ms();
    start_of_day
        .zip(in_day)
        .and_then(|(day, rest)| day.checked_add(rest))
        .and_then(|local| zone.to_utc_ms(local))
        .map(|utc_ms| owned(Bson::DateTime(DateTime::from_millis(utc_ms))))
        .ok_or_else(|| overflow("$dateFromParts"))
}
