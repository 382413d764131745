//! Numbers of all four types in one order.

use super::reader::{Reader, corrupt};
use super::{TypeBits, TypeBitsReader, tag};
use crate::{Decimal, Number, Result};

/// 2^63: integer parts from here on have no `whole`.
const WHOLE_END: f64 = 9_223_372_036_854_775_808.0;
/// How many bits hold a decimal's count of trailing zeros, at most 33.
const TRAILING_ZEROS_BITS: u32 = 6;
/// How many bits hold a decimal zero's exponent.
const EXPONENT_BITS: u32 = 14;
/// What is added to a decimal's exponents before they are stored.
const EXPONENT_BIAS: i32 = 6176;
/// The digits of the scaled coefficient in a `tail`.
const DIGITS: i32 = 34;
/// The bytes of that coefficient.
const COEFFICIENT_LEN: usize = 15;
/// `d`, the part of a `real` that is always there.
const REAL_LEN: usize = 8;
/// Exponent and coefficient.
const TAIL_LEN: usize = 2 + COEFFICIENT_LEN;

/// A number's type as its two bits.
const INT32: u32 = 0b00;
const INT64: u32 = 0b01;
const DOUBLE: u32 = 0b10;
const DECIMAL: u32 = 0b11;

/// Appends `number`.
pub(super) fn encode(out: &mut Vec<u8>, type_bits: &mut TypeBits, number: Number) {
    match number {
        Number::Int32(value) => {
            type_bits.push_number(INT32, 2);
            encode_int(out, i64::from(value));
        }
        Number::Int64(value) => {
            type_bits.push_number(INT64, 2);
            encode_int(out, value);
        }
        Number::Double(value) => {
            type_bits.push_number(DOUBLE, 2);
            if value == 0.0 {
                type_bits.push(value.is_sign_negative());
            }
            encode_double(out, value);
        }
        Number::Decimal(value) => {
            type_bits.push_number(DECIMAL, 2);
            encode_decimal(out, type_bits, value);
        }
    }
}

fn encode_int(out: &mut Vec<u8>, value: i64) {
    let negative = value < 0;
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        out.push(tag::ZERO);
    } else if magnitude >> 63 == 0 {
        encode_whole(out, negative, magnitude, false);
    } else {
        // Only -2^63.
        encode_large(out, negative, WHOLE_END, None);
    }
}

fn encode_double(out: &mut Vec<u8>, value: f64) {
    let negative = value < 0.0;
    let magnitude = value.abs();
    if value.is_nan() {
        out.push(tag::NAN);
    } else if value == 0.0 {
        out.push(tag::ZERO);
    } else if magnitude >= WHOLE_END {
        encode_large(out, negative, magnitude, None);
    } else if magnitude < 1.0 {
        encode_fraction(out, negative, magnitude, None);
    } else {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the fraction follows as `real`"
        )]
        let whole = magnitude as u64;
        let fraction = magnitude.fract() != 0.0;
        encode_whole(out, negative, whole, fraction);
        if fraction {
            encode_real(out, negative, magnitude, None);
        }
    }
}

fn encode_decimal(out: &mut Vec<u8>, type_bits: &mut TypeBits, value: Decimal) {
    let Some((negative, coefficient, exponent)) = value.to_parts() else {
        return encode_double(out, value.to_f64());
    };
    if coefficient == 0 {
        type_bits.push(negative);
        type_bits.push_number((exponent + EXPONENT_BIAS).unsigned_abs(), EXPONENT_BITS);
        return out.push(tag::ZERO);
    }
    let normal = Normal::new(coefficient, exponent);
    type_bits.push_number(normal.trailing_zeros, TRAILING_ZEROS_BITS);
    let (whole, fraction) = normal.split();
    let magnitude = value.abs();
    let double = magnitude.to_f64_toward_zero();
    let tail = magnitude.compare_f64(double).is_ne().then_some(normal);
    match whole {
        None => encode_large(out, negative, double, tail),
        Some(0) => encode_fraction(out, negative, double, tail),
        Some(whole) => {
            encode_whole(out, negative, whole, fraction);
            if fraction {
                encode_real(out, negative, double, tail);
            }
        }
    }
}

fn encode_whole(out: &mut Vec<u8>, negative: bool, whole: u64, fraction: bool) {
    let bytes = (whole << 1 | u64::from(fraction)).to_be_bytes();
    let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
    let used = &bytes[zeros..];
    // The integer part is not zero, so that there are one to eight bytes.
    let further = u8::try_from(used.len() - 1).unwrap_or(7);
    if negative {
        out.push(tag::NEGATIVE_WHOLE - further);
        out.extend(used.iter().map(|byte| !byte));
    } else {
        out.push(tag::POSITIVE_WHOLE + further);
        out.extend_from_slice(used);
    }
}

fn encode_large(out: &mut Vec<u8>, negative: bool, double: f64, tail: Option<Normal>) {
    out.push(if negative {
        tag::NEGATIVE_LARGE
    } else {
        tag::POSITIVE_LARGE
    });
    encode_real(out, negative, double, tail);
}

fn encode_fraction(out: &mut Vec<u8>, negative: bool, double: f64, tail: Option<Normal>) {
    out.push(if negative {
        tag::NEGATIVE_FRACTION
    } else {
        tag::POSITIVE_FRACTION
    });
    encode_real(out, negative, double, tail);
}

fn encode_real(out: &mut Vec<u8>, negative: bool, double: f64, tail: Option<Normal>) {
    let start = out.len();
    out.extend_from_slice(&(double.to_bits() << 1 | u64::from(tail.is_some())).to_be_bytes());
    if let Some(normal) = tail {
        let (exponent, coefficient) = normal.scaled();
        out.extend_from_slice(&exponent.to_be_bytes());
        out.extend_from_slice(&coefficient.to_be_bytes()[16 - COEFFICIENT_LEN..]);
    }
    if negative {
        out[start..].iter_mut().for_each(|byte| *byte = !*byte);
    }
}

/// A decimal's magnitude with the trailing zeros taken off.
#[derive(Clone, Copy, Debug)]
struct Normal {
    /// Not a multiple of ten.
    coefficient: u128,
    exponent: i32,
    trailing_zeros: u32,
}

impl Normal {
    /// `coefficient` is not zero.
    fn new(coefficient: u128, exponent: i32) -> Self {
        let mut normal = Self {
            coefficient,
            exponent,
            trailing_zeros: 0,
        };
        while normal.coefficient % 10 == 0 {
            normal.coefficient /= 10;
            normal.exponent += 1;
            normal.trailing_zeros += 1;
        }
        normal
    }

    /// The integer part, if it is below 2^63, and whether there is a fraction.
    fn split(self) -> (Option<u64>, bool) {
        let power = 10_u128.checked_pow(self.exponent.unsigned_abs());
        let whole = match (self.exponent >= 0, power) {
            (true, power) => power.and_then(|power| self.coefficient.checked_mul(power)),
            (false, Some(power)) => Some(self.coefficient / power),
            // The power has more digits than any coefficient.
            (false, None) => Some(0),
        };
        let whole = whole.and_then(|whole| u64::try_from(whole).ok());
        (whole.filter(|whole| whole >> 63 == 0), self.exponent < 0)
    }

    /// The biased exponent of the highest digit and the coefficient with 34 digits.
    fn scaled(self) -> (u16, u128) {
        let digits = crate::digit_count(self.coefficient);
        let biased = self.exponent + digits - 1 + EXPONENT_BIAS;
        let scale = 10_u128.pow((DIGITS - digits).unsigned_abs());
        (u16::try_from(biased).unwrap_or(0), self.coefficient * scale)
    }
}

/// A magnitude as it was read.
#[derive(Clone, Copy, Debug)]
enum Magnitude {
    Nan,
    Zero,
    Whole(u64),
    Double(f64),
    /// A decimal that no double equals: coefficient and exponent.
    Decimal(u128, i32),
}

/// Reads the number whose tag, which has been read, is `first`.
pub(super) fn decode(
    reader: &mut Reader<'_>,
    type_bits: &mut TypeBitsReader<'_>,
    first: u8,
) -> Result<Number> {
    let negative = first < tag::ZERO;
    let magnitude = decode_magnitude(reader, first)?;
    match (type_bits.next_number(2), magnitude) {
        (INT32, magnitude) => {
            let value = to_i64(negative, magnitude)?;
            Ok(Number::Int32(i32::try_from(value).map_err(|_| corrupt())?))
        }
        (INT64, magnitude) => Ok(Number::Int64(to_i64(negative, magnitude)?)),
        (DOUBLE, magnitude) => {
            let value = to_f64(type_bits, magnitude)?;
            Ok(Number::Double(if negative { -value } else { value }))
        }
        (_, magnitude) => Ok(Number::Decimal(to_decimal(type_bits, negative, magnitude)?)),
    }
}

/// Steps over the number whose tag, which has been read, is `first`.
pub(super) fn skip(reader: &mut Reader<'_>, first: u8) -> Result<()> {
    decode_magnitude(reader, first).map(|_| ())
}

fn decode_magnitude(reader: &mut Reader<'_>, first: u8) -> Result<Magnitude> {
    let negative = first < tag::ZERO;
    let count = match first {
        tag::NAN => return Ok(Magnitude::Nan),
        tag::ZERO => return Ok(Magnitude::Zero),
        tag::NEGATIVE_LARGE
        | tag::NEGATIVE_FRACTION
        | tag::POSITIVE_FRACTION
        | tag::POSITIVE_LARGE => return decode_real(reader, negative),
        first if negative => tag::NEGATIVE_WHOLE - first + 1,
        first => first - tag::POSITIVE_WHOLE + 1,
    };
    let mut whole = 0_u64;
    for _ in 0..count {
        let byte = reader.byte()?;
        whole = whole << 8 | u64::from(if negative { !byte } else { byte });
    }
    if whole & 1 == 1 {
        decode_real(reader, negative)
    } else {
        Ok(Magnitude::Whole(whole >> 1))
    }
}

fn decode_real(reader: &mut Reader<'_>, negative: bool) -> Result<Magnitude> {
    let mask = if negative { 0xFF } else { 0 };
    let bits = u64::from_be_bytes(reader.array::<REAL_LEN>()?.map(|byte| byte ^ mask));
    if bits & 1 == 0 {
        let double = f64::from_bits(bits >> 1);
        return if double.is_nan() {
            Err(corrupt())
        } else {
            Ok(Magnitude::Double(double))
        };
    }
    let tail = reader.array::<TAIL_LEN>()?.map(|byte| byte ^ mask);
    let biased = u16::from_be_bytes([tail[0], tail[1]]);
    let coefficient = tail[2..]
        .iter()
        .fold(0, |number, byte| number << 8 | u128::from(*byte));
    Ok(Magnitude::Decimal(
        coefficient,
        i32::from(biased) - EXPONENT_BIAS - (DIGITS - 1),
    ))
}

fn to_i64(negative: bool, magnitude: Magnitude) -> Result<i64> {
    let whole = match magnitude {
        Magnitude::Zero => 0,
        Magnitude::Whole(whole) => whole,
        // The one integer without `whole`: -2^63.
        Magnitude::Double(double) if negative && double == WHOLE_END => 1 << 63,
        _ => return Err(corrupt()),
    };
    let value = if negative {
        0_i64.checked_sub_unsigned(whole)
    } else {
        i64::try_from(whole).ok()
    };
    value.ok_or_else(corrupt)
}

fn to_f64(type_bits: &mut TypeBitsReader<'_>, magnitude: Magnitude) -> Result<f64> {
    match magnitude {
        Magnitude::Nan => Ok(f64::NAN),
        Magnitude::Zero => Ok(if type_bits.next() { -0.0 } else { 0.0 }),
        Magnitude::Whole(whole) => Ok(whole as f64),
        Magnitude::Double(double) => Ok(double),
        Magnitude::Decimal(..) => Err(corrupt()),
    }
}

fn to_decimal(
    type_bits: &mut TypeBitsReader<'_>,
    negative: bool,
    magnitude: Magnitude,
) -> Result<Decimal> {
    let (coefficient, exponent) = match magnitude {
        Magnitude::Nan => return Ok(Decimal::NAN),
        Magnitude::Zero => {
            let negative = type_bits.next();
            let biased = i32::try_from(type_bits.next_number(EXPONENT_BITS));
            let exponent = biased.map_err(|_| corrupt())? - EXPONENT_BIAS;
            return Decimal::from_parts(negative, 0, exponent).ok_or_else(corrupt);
        }
        Magnitude::Double(double) if double.is_infinite() => {
            let infinity = Decimal::INFINITY;
            return Ok(if negative {
                infinity.negate()
            } else {
                infinity
            });
        }
        Magnitude::Whole(whole) => (u128::from(whole), 0),
        Magnitude::Double(double) => {
            let decimal = Decimal::from_f64(double);
            let exact = decimal.compare_f64(double).is_eq();
            let (_, coefficient, exponent) =
                decimal.to_parts().filter(|_| exact).ok_or_else(corrupt)?;
            (coefficient, exponent)
        }
        Magnitude::Decimal(coefficient, exponent) => (coefficient, exponent),
    };
    if coefficient == 0 {
        return Err(corrupt());
    }
    let normal = Normal::new(coefficient, exponent);
    let zeros = type_bits.next_number(TRAILING_ZEROS_BITS);
    let exponent = normal.exponent - i32::try_from(zeros).map_err(|_| corrupt())?;
    10_u128
        .checked_pow(zeros)
        .and_then(|power| normal.coefficient.checked_mul(power))
        .and_then(|coefficient| Decimal::from_parts(negative, coefficient, exponent))
        .ok_or_else(corrupt)
}
