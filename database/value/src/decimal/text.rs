//! Decimals as text.

use std::fmt;
use std::str::FromStr;

use dashu_int::UBig;

use super::{Decimal, Magnitude, adjusted_exponent, digit_count};

/// Below this exponent of the highest digit, scientific notation is used.
const PLAIN_ADJUSTED_MIN: i32 = -6;

/// How many significant digits of a text are read; further ones only decide whether the value is
/// exactly in the middle of two decimals.
const TEXT_DIGITS_MAX: usize = 40;

/// A text that is not a decimal number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Failed to parse string to decimal")]
pub struct ParseDecimalError;

/// Prints as MongoDB does: plainly unless the exponent is positive or there are more than five zeros
/// after the point, else as `1.5E+7`.
impl fmt::Display for Decimal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (coefficient, exponent) = match self.magnitude {
            Magnitude::Nan => return formatter.write_str("NaN"),
            Magnitude::Infinity if self.negative => return formatter.write_str("-Infinity"),
            Magnitude::Infinity => return formatter.write_str("Infinity"),
            Magnitude::Finite {
                coefficient,
                exponent,
            } => (coefficient, exponent),
        };
        if self.negative {
            formatter.write_str("-")?;
        }
        let digits = coefficient.to_string();
        let adjusted = adjusted_exponent(coefficient, exponent);
        if exponent > 0 || adjusted < PLAIN_ADJUSTED_MIN {
            let (first, rest) = digits.split_at(1);
            let point = if rest.is_empty() { "" } else { "." };
            return write!(formatter, "{first}{point}{rest}E{adjusted:+}");
        }
        if exponent == 0 {
            return formatter.write_str(&digits);
        }
        let whole = digit_count(coefficient) + exponent;
        match usize::try_from(whole) {
            Ok(whole) if whole > 0 => {
                write!(formatter, "{}.{}", &digits[..whole], &digits[whole..])
            }
            _ => {
                formatter.write_str("0.")?;
                for _ in whole..0 {
                    formatter.write_str("0")?;
                }
                formatter.write_str(&digits)
            }
        }
    }
}

/// Reads digits with an optional sign, point and exponent, or `inf`, `infinity`, `nan` in any case.
/// More than 34 digits are rounded half to even; values beyond the range become infinite or zero.
impl FromStr for Decimal {
    type Err = ParseDecimalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (negative, unsigned) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        if unsigned.eq_ignore_ascii_case("inf") || unsigned.eq_ignore_ascii_case("infinity") {
            return Ok(Self {
                negative,
                magnitude: Magnitude::Infinity,
            });
        }
        if unsigned.eq_ignore_ascii_case("nan") {
            return Ok(Self::NAN);
        }
        let (mantissa, exponent) = match unsigned.find(['e', 'E']) {
            Some(place) => (&unsigned[..place], parse_exponent(&unsigned[place + 1..])?),
            None => (unsigned, 0),
        };
        let scanned = scan_digits(mantissa)?;
        let coefficient =
            UBig::from_str_radix(&scanned.digits, 10).map_err(|_| ParseDecimalError)?;
        let exponent = exponent.saturating_add(scanned.exponent);
        Ok(Self::round(
            negative,
            coefficient,
            exponent,
            scanned.inexact,
        ))
    }
}

struct Scanned {
    /// The significant digits without leading zeros; "0" for zero.
    digits: String,
    /// The power of ten of the last of them.
    exponent: i64,
    /// Whether digits other than zero were left out.
    inexact: bool,
}

fn scan_digits(mantissa: &str) -> Result<Scanned, ParseDecimalError> {
    let mut scanned = Scanned {
        digits: String::new(),
        exponent: 0,
        inexact: false,
    };
    let (mut point, mut any) = (false, false);
    for byte in mantissa.bytes() {
        match byte {
            b'.' if !point => point = true,
            b'0'..=b'9' => {
                any = true;
                if scanned.digits == "0" {
                    scanned.digits.clear();
                }
                if scanned.digits.len() < TEXT_DIGITS_MAX {
                    scanned.digits.push(char::from(byte));
                    scanned.exponent -= i64::from(point);
                } else {
                    scanned.inexact |= byte != b'0';
                    scanned.exponent += i64::from(!point);
                }
            }
            _ => return Err(ParseDecimalError),
        }
    }
    if any {
        Ok(scanned)
    } else {
        Err(ParseDecimalError)
    }
}

/// An exponent, saturating: beyond a billion all are alike.
fn parse_exponent(text: &str) -> Result<i64, ParseDecimalError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(ParseDecimalError);
    }
    let magnitude = digits.parse::<i64>().unwrap_or(i64::MAX).min(1_000_000_000);
    Ok(if text.starts_with('-') {
        -magnitude
    } else {
        magnitude
    })
}
