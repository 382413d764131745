//! Arithmetic on numbers, and of dates with numbers of milliseconds.

use bson::{Bson, DateTime};
use millrace_value::{Error, ErrorCode, Number, Result, type_alias};

use super::operand::{number, shown};
use super::{Operator, null, present, type_name};
use crate::Value;
use crate::frame::Frame;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::unary("$abs", abs),
    Operator::variadic("$add", 0, None, add),
    Operator::unary("$ceil", |x, _| numeric("$ceil", x, |n| Ok(n.ceil()))),
    Operator::binary("$divide", divide),
    Operator::unary("$exp", |x, _| numeric("$exp", x, |n| Ok(n.exp()))),
    Operator::unary("$floor", |x, _| numeric("$floor", x, |n| Ok(n.floor()))),
    Operator::unary("$ln", ln),
    Operator::binary("$log", log),
    Operator::unary("$log10", log10),
    Operator::binary("$mod", remainder),
    Operator::variadic("$multiply", 0, None, multiply),
    Operator::binary("$pow", pow),
    Operator::variadic("$round", 1, Some(2), |x, _| {
        to_place("$round", x, Number::round)
    }),
    Operator::unary("$sqrt", sqrt),
    Operator::binary("$subtract", subtract),
    Operator::variadic("$trunc", 1, Some(2), |x, _| {
        to_place("$trunc", x, Number::trunc)
    }),
    Operator::variadic("$bitAnd", 0, None, |x, _| {
        bitwise("$bitAnd", x, -1, |a, b| a & b)
    }),
    Operator::variadic("$bitOr", 0, None, |x, _| {
        bitwise("$bitOr", x, 0, |a, b| a | b)
    }),
    Operator::variadic("$bitXor", 0, None, |x, _| {
        bitwise("$bitXor", x, 0, |a, b| a ^ b)
    }),
    Operator::unary("$bitNot", bit_not),
];

/// Applies a function of one number; null gives null.
pub(super) fn numeric(
    operator: &str,
    operand: Option<&Bson>,
    function: impl FnOnce(Number) -> Result<Number>,
) -> Result<Option<Bson>> {
    let Some(operand) = present(operand) else {
        return null();
    };
    let Some(number) = Number::from_bson(operand) else {
        return Err(Error::location(
            28765,
            format!(
                "{operator} only supports numeric types, not {}",
                type_alias(operand)
            ),
        ));
    };
    Ok(Some(function(number)?.to_bson()))
}

fn mismatch(message: String) -> Error {
    Error::new(ErrorCode::TypeMismatch, message)
}

fn abs(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    numeric("$abs", operand, |n| {
        n.abs()
            .ok_or_else(|| Error::location(28680, "can't take $abs of long long min"))
    })
}

fn sqrt(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    numeric("$sqrt", operand, |n| {
        n.sqrt().ok_or_else(|| {
            Error::location(28714, "$sqrt's argument must be greater than or equal to 0")
        })
    })
}

fn ln(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    numeric("$ln", operand, |n| {
        n.ln().ok_or_else(|| {
            Error::location(
                28766,
                format!("$ln's argument must be a positive number, but is {n}"),
            )
        })
    })
}

fn log10(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    numeric("$log10", operand, |n| {
        n.log10().ok_or_else(|| {
            Error::location(
                28761,
                format!("$log10's argument must be a positive number, but is {n}"),
            )
        })
    })
}

fn log(argument: Option<&Bson>, base: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let (Some(argument), Some(base)) = (present(argument), present(base)) else {
        return null();
    };
    let numeric = |what: &str, code: i32, value: &Bson| {
        Number::from_bson(value).ok_or_else(|| {
            Error::location(
                code,
                format!("$log's {what} must be numeric, not {}", type_alias(value)),
            )
        })
    };
    let (x, base) = (
        numeric("argument", 28756, argument)?,
        numeric("base", 28757, base)?,
    );
    let logarithm = x.ln().ok_or_else(|| {
        Error::location(
            28758,
            format!("$log's argument must be a positive number, but is {x}"),
        )
    })?;
    // A base of 1 has the logarithm 0, which no quotient may have below it.
    base.ln()
        .and_then(|base| {
            if x.is_nan() {
                Some(x)
            } else {
                logarithm.divide(base)
            }
        })
        .map(|result| Some(result.to_bson()))
        .ok_or_else(|| {
            Error::location(
                28759,
                format!("$log's base must be a positive number not equal to 1, but is {base}"),
            )
        })
}

fn pow(base: Option<&Bson>, exponent: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let (Some(base), Some(exponent)) = (present(base), present(exponent)) else {
        return null();
    };
    let numeric = |what: &str, code: i32, value: &Bson| {
        Number::from_bson(value).ok_or_else(|| {
            Error::location(
                code,
                format!("$pow's {what} must be numeric, not {}", type_alias(value)),
            )
        })
    };
    let (base, exponent) = (
        numeric("base", 28762, base)?,
        numeric("exponent", 28763, exponent)?,
    );
    let power = base.pow(exponent).ok_or_else(|| {
        Error::location(
            28764,
            "$pow cannot take a base of 0 and a negative exponent",
        )
    })?;
    Ok(Some(power.to_bson()))
}

/// The sum. One of the operands may be a date; the rest are then milliseconds.
fn add(operands: &[Value<'_>], _: Frame<'_>) -> Result<Option<Bson>> {
    let (mut sum, mut date) = (Number::Int32(0), None);
    for operand in operands {
        let Some(operand) = present(operand.as_deref()) else {
            return null();
        };
        match (operand, Number::from_bson(operand)) {
            (_, Some(number)) => sum = sum.add(number),
            (Bson::DateTime(_), _) if date.is_some() => {
                return Err(Error::location(
                    16612,
                    "only one date allowed in an $add expression",
                ));
            }
            (Bson::DateTime(value), _) => date = Some(*value),
            (other, _) => {
                return Err(mismatch(format!(
                    "$add only supports numeric or date types, not {}",
                    type_alias(other)
                )));
            }
        }
    }
    match date {
        Some(date) => shift_date(date, sum).map(Some),
        None => Ok(Some(sum.to_bson())),
    }
}

/// A date some milliseconds later; fractions are rounded.
fn shift_date(date: DateTime, milliseconds: Number) -> Result<Bson> {
    milliseconds
        .round(0)
        .and_then(Number::as_i64_exact)
        .and_then(|milliseconds| date.timestamp_millis().checked_add(milliseconds))
        .map(|millis| Bson::DateTime(DateTime::from_millis(millis)))
        .ok_or_else(|| Error::new(ErrorCode::Overflow, "date overflow in $add"))
}

fn subtract(a: Option<&Bson>, b: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let (Some(a), Some(b)) = (present(a), present(b)) else {
        return null();
    };
    if let (Some(a), Some(b)) = (Number::from_bson(a), Number::from_bson(b)) {
        return Ok(Some(a.subtract(b).to_bson()));
    }
    let overflow = || Error::new(ErrorCode::Overflow, "date overflow in $subtract");
    match (a, b) {
        (Bson::DateTime(a), Bson::DateTime(b)) => a
            .timestamp_millis()
            .checked_sub(b.timestamp_millis())
            .map(|difference| Some(Bson::Int64(difference)))
            .ok_or_else(overflow),
        (Bson::DateTime(date), b) => match Number::from_bson(b) {
            Some(number) => number
                .round(0)
                .and_then(Number::as_i64_exact)
                .and_then(|milliseconds| date.timestamp_millis().checked_sub(milliseconds))
                .map(|millis| Some(Bson::DateTime(DateTime::from_millis(millis))))
                .ok_or_else(overflow),
            None => Err(mismatch(format!(
                "can't $subtract {} from date",
                type_alias(b)
            ))),
        },
        (a, b) => Err(mismatch(format!(
            "can't $subtract {} from {}",
            type_alias(b),
            type_alias(a)
        ))),
    }
}

fn multiply(operands: &[Value<'_>], _: Frame<'_>) -> Result<Option<Bson>> {
    let mut product = Number::Int32(1);
    for operand in operands {
        let Some(operand) = present(operand.as_deref()) else {
            return null();
        };
        let Some(number) = Number::from_bson(operand) else {
            return Err(mismatch(format!(
                "$multiply only supports numeric types, not {}",
                type_alias(operand)
            )));
        };
        product = product.multiply(number);
    }
    Ok(Some(product.to_bson()))
}

fn divide(a: Option<&Bson>, b: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a
            .divide(b)
            .map(|quotient| Some(quotient.to_bson()))
            .ok_or_else(|| Error::new(ErrorCode::BadValue, "can't $divide by zero")),
        _ if present(a).is_none() || present(b).is_none() => null(),
        _ => Err(mismatch(format!(
            "$divide only supports numeric types, not {} and {}",
            type_name(a),
            type_name(b)
        ))),
    }
}

fn remainder(a: Option<&Bson>, b: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    match (number(a), number(b)) {
        (Some(a), Some(b)) => a
            .remainder(b)
            .map(|remainder| Some(remainder.to_bson()))
            .ok_or_else(|| Error::location(16610, "can't $mod by zero")),
        _ if present(a).is_none() || present(b).is_none() => null(),
        _ => Err(Error::location(
            16611,
            format!(
                "$mod only supports numeric types, not {} and {}",
                type_name(a),
                type_name(b)
            ),
        )),
    }
}

/// `$round` and `$trunc`.
fn to_place(
    operator: &str,
    operands: &[Value<'_>],
    function: fn(Number, i32) -> Option<Number>,
) -> Result<Option<Bson>> {
    let Some(operand) = present(operands[0].as_deref()) else {
        return null();
    };
    let Some(number) = Number::from_bson(operand) else {
        return Err(Error::location(
            51081,
            format!(
                "{operator} only supports numeric types, not {}",
                type_alias(operand)
            ),
        ));
    };
    let place = match operands.get(1) {
        None => 0,
        Some(place) => match present(place.as_deref()) {
            None => return null(),
            Some(place) => precision(operator, place)?,
        },
    };
    function(number, place).map(|rounded| Some(rounded.to_bson())).ok_or_else(|| {
        Error::location(
            51080,
            format!(
                "invalid conversion from Decimal128 result in {operator} resulting from arguments: \
                 [{}, {place}]",
                shown(Some(operand))
            ),
        )
    })
}

/// How many decimal places to keep. The type, the range of 64 bits and integrality are refused one after
/// the other, each with a code of its own.
fn precision(operator: &str, place: &Bson) -> Result<i32> {
    let Some(place_number) = Number::from_bson(place) else {
        return Err(Error::location(
            16004,
            format!("can't convert from BSON type {} to long", type_alias(place)),
        ));
    };
    let double = place_number.as_f64();
    if !(-9.3e18..=9.3e18).contains(&double) {
        return Err(Error::location(
            31109,
            format!("Can't coerce out of range value {place_number} to long"),
        ));
    }
    let place = place_number
        .as_i64_exact()
        .and_then(|place| i32::try_from(place).ok())
        .ok_or_else(|| {
            Error::location(
                51082,
                format!("precision argument to  {operator} must be a integral value"),
            )
        })?;
    if !(-20..=100).contains(&place) {
        return Err(Error::location(
            51083,
            format!(
                "cannot apply {operator} with precision value {place} value must be in [-20, 100]"
            ),
        ));
    }
    Ok(place)
}

fn bitwise(
    operator: &str,
    operands: &[Value<'_>],
    neutral: i64,
    combine: fn(i64, i64) -> i64,
) -> Result<Option<Bson>> {
    let (mut result, mut wide) = (neutral, false);
    for operand in operands {
        match present(operand.as_deref()) {
            None => return null(),
            Some(Bson::Int32(bits)) => result = combine(result, i64::from(*bits)),
            Some(Bson::Int64(bits)) => {
                result = combine(result, *bits);
                wide = true;
            }
            other => {
                return Err(mismatch(format!(
                    "{operator} only supports int and long operands, not {}.",
                    type_name(other)
                )));
            }
        }
    }
    // Sign extension commutes with all three, so that 32-bit operands have a 32-bit result.
    Ok(Some(if wide {
        Bson::Int64(result)
    } else {
        Number::from_i64(result).to_bson()
    }))
}

fn bit_not(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    match present(operand) {
        None => null(),
        Some(Bson::Int32(bits)) => Ok(Some(Bson::Int32(!bits))),
        Some(Bson::Int64(bits)) => Ok(Some(Bson::Int64(!bits))),
        other => Err(Error::location(
            28765,
            format!(
                "$bitNot only supports int and long, not {}.",
                type_name(other)
            ),
        )),
    }
}
