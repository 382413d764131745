//! `$convert` and its short forms.

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bson::oid::ObjectId;
use bson::spec::{BinarySubtype, ElementType};
use bson::{Binary, Bson, DateTime, Uuid};
use millrace_value::{
    Decimal, Error, ErrorCode, Number, Result, element_type_alias, is_truthy, type_alias,
};

use super::date::{moment_ms, parse_date};
use super::operand::{coerced_text, int64, shown, text};
use super::{Operands, Operator, Parameter, Signature, null, present};
use crate::frame::Frame;
use crate::{Value, owned};

pub(super) const OPERATORS: &[Operator] = &[
    Operator::named("$convert", &CONVERT, convert_named),
    Operator::unary("$toBool", |x, _| short(x, ElementType::Boolean)),
    Operator::unary("$toDate", |x, _| short(x, ElementType::DateTime)),
    Operator::unary("$toDecimal", |x, _| short(x, ElementType::Decimal128)),
    Operator::unary("$toDouble", |x, _| short(x, ElementType::Double)),
    Operator::unary("$toInt", |x, _| short(x, ElementType::Int32)),
    Operator::unary("$toLong", |x, _| short(x, ElementType::Int64)),
    Operator::unary("$toObjectId", |x, _| short(x, ElementType::ObjectId)),
    Operator::unary("$toString", to_string),
    Operator::unary("$toUUID", to_uuid),
];

static CONVERT: Signature = Signature {
    not_object: (
        9,
        "{op} expects an object of named arguments but found: {type}",
    ),
    unknown: (9, "{op} found an unknown argument: {name}"),
    missing: "Missing '{name}' parameter to {op}",
    parameters: &[
        Parameter::required("input", 9),
        Parameter::required("to", 9),
        Parameter::optional("onError"),
        Parameter::optional("onNull"),
        Parameter::optional("format"),
    ],
};

/// What a value is to become.
#[derive(Clone, Copy, Debug)]
struct Target {
    element_type: ElementType,
    /// For binary data.
    subtype: BinarySubtype,
}

/// How binary data is written as text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Auto,
    Base64,
    Base64Url,
    Hex,
    Utf8,
    Uuid,
}

fn failed(what: &str) -> Error {
    Error::new(
        ErrorCode::ConversionFailure,
        format!("{what} in $convert with no onError value"),
    )
}

fn failed_with(what: &str, detail: &str) -> Error {
    Error::new(
        ErrorCode::ConversionFailure,
        format!("{what} in $convert with no onError value: {detail}"),
    )
}

fn unparsable(kind: &str, text: &str, reason: &str) -> Error {
    let shown: String = text.chars().take(200).collect();
    failed_with(&format!("Failed to parse {kind} '{shown}'"), reason)
}

fn short(operand: Option<&Bson>, element_type: ElementType) -> Result<Option<Bson>> {
    let Some(operand) = present(operand) else {
        return null();
    };
    let target = Target {
        element_type,
        subtype: BinarySubtype::Generic,
    };
    convert(operand, target, None).map(Some)
}

fn to_string(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let Some(operand) = present(operand) else {
        return null();
    };
    let target = Target {
        element_type: ElementType::String,
        subtype: BinarySubtype::Generic,
    };
    convert(operand, target, Some(Format::Auto)).map(Some)
}

fn to_uuid(operand: Option<&Bson>, _: Frame<'_>) -> Result<Option<Bson>> {
    let Some(operand) = present(operand) else {
        return null();
    };
    let target = Target {
        element_type: ElementType::Binary,
        subtype: BinarySubtype::Uuid,
    };
    convert(operand, target, Some(Format::Uuid)).map(Some)
}

fn convert_named<'a>(operands: Operands<'a>, frame: Frame<'a>) -> Result<Value<'a>> {
    let input = operands.value(0, frame)?;
    let target = operands.value(1, frame)?;
    let target = present(target.as_deref()).map(Target::parse).transpose()?;
    let format = operands.value(4, frame)?;
    let Some(input) = present(input.as_deref()) else {
        return match operands.get(3) {
            Some(on_null) => on_null.eval(frame),
            None => Ok(owned(Bson::Null)),
        };
    };
    let Some(target) = target else {
        return Ok(owned(Bson::Null));
    };
    let format = present(format.as_deref()).map(Format::parse).transpose()?;
    match (convert(input, target, format), operands.get(2)) {
        (Ok(converted), _) => Ok(owned(converted)),
        (Err(error), Some(on_error)) if error.code() == ErrorCode::ConversionFailure => {
            on_error.eval(frame)
        }
        (Err(error), _) => Err(error),
    }
}

impl Target {
    /// A type by name or number, or an object with one and a subtype.
    fn parse(target: &Bson) -> Result<Self> {
        let Bson::Document(fields) = target else {
            let element_type = parse_type(target)?;
            return Ok(Self {
                element_type,
                subtype: BinarySubtype::Generic,
            });
        };
        let refused = |message: String| Error::new(ErrorCode::FailedToParse, message);
        if let Some(name) = fields
            .keys()
            .find(|name| !["type", "subtype"].contains(&name.as_str()))
        {
            return Err(refused(format!(
                "$convert found an unknown argument in 'to': {name}"
            )));
        }
        let element_type = fields
            .get("type")
            .ok_or_else(|| refused("Missing 'type' parameter to $convert's 'to'".to_owned()))
            .and_then(parse_type)?;
        let subtype = match fields.get("subtype") {
            None => BinarySubtype::Generic,
            Some(subtype) => int64(subtype)
                .and_then(|number| u8::try_from(number).ok())
                .map(BinarySubtype::from)
                .ok_or_else(|| {
                    refused(format!(
                        "In $convert, numeric value for 'subtype' is not valid: {}",
                        shown(Some(subtype))
                    ))
                })?,
        };
        Ok(Self {
            element_type,
            subtype,
        })
    }
}

fn parse_type(value: &Bson) -> Result<ElementType> {
    let number = match value {
        Bson::String(name) => {
            return (0..=u8::MAX)
                .filter_map(ElementType::from)
                .find(|&element_type| element_type_alias(element_type) == name)
                .ok_or_else(|| {
                    Error::new(ErrorCode::BadValue, format!("Unknown type name: {name}"))
                });
        }
        number => Number::from_bson(number).ok_or_else(|| {
            Error::new(
                ErrorCode::FailedToParse,
                format!(
                    "$convert's 'to' argument must be a string or number, but is {}",
                    type_alias(value)
                ),
            )
        })?,
    };
    let code = number.as_i64_exact().ok_or_else(|| {
        Error::new(
            ErrorCode::FailedToParse,
            "In $convert, numeric 'to' argument is not an integer",
        )
    })?;
    // MinKey is -1 to clients.
    i8::try_from(code)
        .ok()
        .and_then(|code| ElementType::from(code.to_le_bytes()[0]))
        .ok_or_else(|| {
            Error::new(
                ErrorCode::FailedToParse,
                format!(
                    "In $convert, numeric value for 'to' does not correspond to a BSON type: {code}"
                ),
            )
        })
}

impl Format {
    fn parse(format: &Bson) -> Result<Self> {
        let Some(name) = text(Some(format)) else {
            return Err(Error::location(
                4_341_114,
                format!(
                    "$convert requires that 'format' be a string, found: {} with value {}",
                    type_alias(format),
                    shown(Some(format))
                ),
            ));
        };
        Ok(match name {
            "auto" => Self::Auto,
            "base64" => Self::Base64,
            "base64url" => Self::Base64Url,
            "hex" => Self::Hex,
            "utf8" => Self::Utf8,
            "uuid" => Self::Uuid,
            other => {
                return Err(Error::location(
                    4_341_125,
                    format!("Invalid 'format' argument for $convert: {other}"),
                ));
            }
        })
    }
}

fn convert(input: &Bson, target: Target, format: Option<Format>) -> Result<Bson> {
    let converted = match target.element_type {
        ElementType::Boolean => Some(Bson::Boolean(is_truthy(input))),
        ElementType::Int32 => to_integer(input, |n| i32::try_from(n).ok().map(Bson::Int32))?,
        ElementType::Int64 => to_integer(input, |n| Some(Bson::Int64(n)))?,
        ElementType::Double => to_double(input)?,
        ElementType::Decimal128 => to_decimal(input)?,
        ElementType::String => to_text(input, format)?,
        ElementType::ObjectId => to_object_id(input)?,
        ElementType::DateTime => to_date(input)?,
        ElementType::Binary => to_binary(input, target.subtype, format)?,
        _ => None,
    };
    converted.ok_or_else(|| {
        failed(&format!(
            "Unsupported conversion from {} to {}",
            type_alias(input),
            element_type_alias(target.element_type)
        ))
    })
}

/// Numbers are cut to integers; `fit` refuses what the type cannot hold.
fn to_integer(input: &Bson, fit: fn(i64) -> Option<Bson>) -> Result<Option<Bson>> {
    let overflow =
        |value: &Bson| failed_with("Conversion would overflow target type", &shown(Some(value)));
    let integer = match input {
        Bson::Boolean(value) => i64::from(*value),
        Bson::DateTime(date) => match fit(0) {
            Some(Bson::Int64(_)) => date.timestamp_millis(),
            _ => return Ok(None),
        },
        Bson::String(text) => parse_integer(text)?,
        number => {
            let Some(value) = Number::from_bson(number) else {
                return Ok(None);
            };
            if value.is_nan() {
                return Err(failed("Attempt to convert NaN value to integer type"));
            }
            if value.is_infinite() {
                return Err(failed("Attempt to convert infinity value to integer type"));
            }
            value
                .trunc(0)
                .and_then(Number::as_i64_exact)
                .ok_or_else(|| overflow(input))?
        }
    };
    fit(integer).map(Some).ok_or_else(|| overflow(input))
}

fn parse_integer(text: &str) -> Result<i64> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
        let reason = if text.is_empty() {
            "Empty string".to_owned()
        } else if digits.is_empty() || !digits.starts_with(|c: char| c.is_ascii_digit()) {
            "Did not consume any digits".to_owned()
        } else if digits.bytes().all(|byte| byte.is_ascii_digit()) {
            "Overflow".to_owned()
        } else {
            "Did not consume whole string.".to_owned()
        };
        unparsable("number", text, &reason)
    })
}

fn to_double(input: &Bson) -> Result<Option<Bson>> {
    Ok(Some(Bson::Double(match input {
        Bson::Boolean(value) => f64::from(u8::from(*value)),
        Bson::DateTime(date) => Number::Int64(date.timestamp_millis()).as_f64(),
        Bson::String(text) => parse_double(text)?,
        Bson::Decimal128(decimal) => {
            let decimal = Decimal::from_bson(*decimal);
            let double = decimal.to_f64();
            if double.is_infinite() && !decimal.is_infinite() {
                return Err(failed_with(
                    "Conversion would overflow target type",
                    &decimal.to_string(),
                ));
            }
            double
        }
        number => match Number::from_bson(number) {
            Some(number) => number.as_f64(),
            None => return Ok(None),
        },
    })))
}

fn parse_double(text: &str) -> Result<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if unsigned
        .get(..2)
        .is_some_and(|prefix| prefix.eq_ignore_ascii_case("0x"))
    {
        return Err(failed_with("Illegal hexadecimal input", text));
    }
    let reason = match text.parse::<f64>() {
        Ok(value) if value.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
            "Out of range"
        }
        Ok(value) => return Ok(value),
        Err(_) if text.is_empty() => "Empty string",
        Err(_) if !unsigned.starts_with(|c: char| c.is_ascii_digit()) => {
            "Did not consume any digits"
        }
        Err(_) => "Did not consume whole string.",
    };
    Err(unparsable("number", text, reason))
}

fn to_decimal(input: &Bson) -> Result<Option<Bson>> {
    let decimal = match input {
        Bson::Boolean(value) => Decimal::from_i64(i64::from(*value)),
        Bson::DateTime(date) => Decimal::from_i64(date.timestamp_millis()),
        Bson::String(text) => text
            .parse()
            .map_err(|_| unparsable("number", text, "Failed to parse string to decimal"))?,
        number => match Number::from_bson(number) {
            Some(number) => number.as_decimal(),
            None => return Ok(None),
        },
    };
    Ok(Some(Bson::Decimal128(decimal.to_bson())))
}

fn to_text(input: &Bson, format: Option<Format>) -> Result<Option<Bson>> {
    Ok(Some(Bson::String(match input {
        Bson::Boolean(value) => value.to_string(),
        Bson::ObjectId(id) => id.to_hex(),
        Bson::String(text) => text.clone(),
        Bson::Binary(binary) => binary_text(binary, format)?,
        Bson::Int32(_)
        | Bson::Int64(_)
        | Bson::Double(_)
        | Bson::Decimal128(_)
        | Bson::DateTime(_) => coerced_text(Some(input))?,
        _ => return Ok(None),
    })))
}

fn to_object_id(input: &Bson) -> Result<Option<Bson>> {
    match input {
        Bson::ObjectId(_) => Ok(Some(input.clone())),
        Bson::String(text) if text.len() != 24 => Err(unparsable(
            "objectId",
            text,
            &format!(
                "Invalid string length for parsing to OID, expected 24 but found {}",
                text.len()
            ),
        )),
        Bson::String(text) => ObjectId::parse_str(text)
            .map(|id| Some(Bson::ObjectId(id)))
            .map_err(|_| unparsable("objectId", text, "Invalid character found in hex string")),
        _ => Ok(None),
    }
}

fn to_date(input: &Bson) -> Result<Option<Bson>> {
    let milliseconds = match input {
        Bson::String(text) => parse_date(text, None)?,
        Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => {
            match to_integer(input, |number| Some(Bson::Int64(number)))? {
                Some(Bson::Int64(milliseconds)) => milliseconds,
                _ => return Ok(None),
            }
        }
        moment => match moment_ms(moment) {
            Some(milliseconds) => milliseconds,
            None => return Ok(None),
        },
    };
    Ok(Some(Bson::DateTime(DateTime::from_millis(milliseconds))))
}

/// The format that a conversion between binary data and text has to name.
fn required_format(format: Option<Format>, what: &str) -> Result<Format> {
    format.ok_or_else(|| {
        Error::location(
            4_341_115,
            format!("Missing 'format' parameter to $convert, which {what} needs"),
        )
    })
}

fn binary_text(binary: &Binary, format: Option<Format>) -> Result<String> {
    let is_uuid = binary.subtype == BinarySubtype::Uuid && binary.bytes.len() == 16;
    let bytes = binary.bytes.as_slice();
    Ok(
        match required_format(format, "conversion from binData to string")? {
            Format::Auto | Format::Uuid if is_uuid => binary
                .to_uuid()
                .map_err(|_| failed("Invalid UUID"))?
                .to_string(),
            Format::Uuid => {
                return Err(failed_with(
                    "Failed to convert BinData to string in the 'uuid' format",
                    "it is no UUID",
                ));
            }
            Format::Auto | Format::Base64 => STANDARD.encode(bytes),
            Format::Base64Url => URL_SAFE_NO_PAD.encode(bytes),
            Format::Hex => bytes.iter().map(|byte| format!("{byte:02X}")).collect(),
            Format::Utf8 => std::str::from_utf8(bytes)
                .map_err(|_| failed("BinData does not represent a valid UTF-8 string"))?
                .to_owned(),
        },
    )
}

fn to_binary(input: &Bson, subtype: BinarySubtype, format: Option<Format>) -> Result<Option<Bson>> {
    let text = match input {
        Bson::Binary(binary) if binary.subtype == subtype => return Ok(Some(input.clone())),
        Bson::Binary(_) => {
            return Err(failed(
                "Conversions between different binData subtypes are not supported",
            ));
        }
        Bson::String(text) => text,
        _ => return Ok(None),
    };
    let invalid = || unparsable("BinData", text, "Input is not valid for the format");
    let format = required_format(format, "conversion from string to binData")?;
    if (subtype == BinarySubtype::Uuid) != matches!(format, Format::Uuid | Format::Auto) {
        return Err(unparsable(
            "BinData",
            text,
            "the subtype and the format do not go together",
        ));
    }
    let bytes = match format {
        Format::Base64 => STANDARD.decode(text).map_err(|_| invalid())?,
        Format::Base64Url => URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|_| invalid())?,
        Format::Utf8 => text.clone().into_bytes(),
        Format::Hex => hex_bytes(text).ok_or_else(invalid)?,
        Format::Uuid | Format::Auto => Uuid::parse_str(text)
            .map_err(|_| invalid())?
            .bytes()
            .to_vec(),
    };
    Ok(Some(Bson::Binary(Binary { subtype, bytes })))
}

fn hex_bytes(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text
        .chars()
        .map(|c| c.to_digit(16).and_then(|digit| u8::try_from(digit).ok()))
        .collect();
    let digits = digits.filter(|digits| digits.len() % 2 == 0)?;
    Some(
        digits
            .chunks_exact(2)
            .map(|pair| pair[0] << 4 | pair[1])
            .collect(),
    )
}
