//! Trigonometry. Decimals are computed as doubles and keep their type.

use bson::Bson;
use millrace_value::{Decimal, Error, Number, Result, type_alias};

use super::arithmetic::numeric;
use super::{Operator, null, present};
use crate::frame::Frame;

pub(super) const OPERATORS: &[Operator] = &[
    Operator::unary("$acos", |x, _| bounded("$acos", x, UNIT, f64::acos)),
    Operator::unary("$acosh", |x, _| bounded("$acosh", x, FROM_ONE, f64::acosh)),
    Operator::unary("$asin", |x, _| bounded("$asin", x, UNIT, f64::asin)),
    Operator::unary("$asinh", |x, _| bounded("$asinh", x, ALL, f64::asinh)),
    Operator::unary("$atan", |x, _| bounded("$atan", x, ALL, f64::atan)),
    Operator::binary("$atan2", atan2),
    Operator::unary("$atanh", |x, _| bounded("$atanh", x, UNIT, f64::atanh)),
    Operator::unary("$cos", |x, _| bounded("$cos", x, FINITE, f64::cos)),
    Operator::unary("$cosh", |x, _| bounded("$cosh", x, ALL, f64::cosh)),
    Operator::unary("$degreesToRadians", |x, _| {
        bounded("$degreesToRadians", x, ALL, f64::to_radians)
    }),
    Operator::unary("$radiansToDegrees", |x, _| {
        bounded("$radiansToDegrees", x, ALL, f64::to_degrees)
    }),
    Operator::unary("$sin", |x, _| bounded("$sin", x, FINITE, f64::sin)),
    Operator::unary("$sinh", |x, _| bounded("$sinh", x, ALL, f64::sinh)),
    Operator::unary("$tan", |x, _| bounded("$tan", x, FINITE, f64::tan)),
    Operator::unary("$tanh", |x, _| bounded("$tanh", x, ALL, f64::tanh)),
];

/// Where a function is defined, and how MongoDB writes it.
#[derive(Clone, Copy)]
struct Domain {
    contains: fn(f64) -> bool,
    text: &'static str,
}

const ALL: Domain = Domain {
    contains: |_| true,
    text: "[-inf,inf]",
};
const FINITE: Domain = Domain {
    contains: f64::is_finite,
    text: "(-inf,inf)",
};
const FROM_ONE: Domain = Domain {
    contains: |x| x >= 1.0,
    text: "[1,inf]",
};
const UNIT: Domain = Domain {
    contains: |x| (-1.0..=1.0).contains(&x),
    text: "[-1,1]",
};

fn bounded(
    operator: &str,
    operand: Option<&Bson>,
    domain: Domain,
    function: fn(f64) -> f64,
) -> Result<Option<Bson>> {
    numeric(operator, operand, |number| {
        let x = number.as_f64();
        if !x.is_nan() && !(domain.contains)(x) {
            return Err(Error::location(
                50989,
                format!(
                    "cannot apply {operator} to {number}, value must be in {}",
                    domain.text
                ),
            ));
        }
        Ok(like(number, function(x)))
    })
}

/// A result in the type that goes with the operand's.
fn like(operand: Number, result: f64) -> Number {
    match operand {
        Number::Decimal(_) => Number::Decimal(Decimal::from_f64(result)),
        _ => Number::Double(result),
    }
}

fn atan2(y: Option<&Bson>, x: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let (Some(y), Some(x)) = (present(y), present(x)) else {
        return null();
    };
    let (Some(y_number), Some(x_number)) = (Number::from_bson(y), Number::from_bson(x)) else {
        return Err(Error::location(
            51044,
            format!(
                "$atan2 only supports numeric types, not {} and {}",
                type_alias(y),
                type_alias(x)
            ),
        ));
    };
    let angle = y_number.as_f64().atan2(x_number.as_f64());
    let decimal = [y_number, x_number]
        .into_iter()
        .find(|n| matches!(n, Number::Decimal(_)));
    Ok(Some(like(decimal.unwrap_or(y_number), angle).to_bson()))
}
