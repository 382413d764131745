//! Bytes to values.

use bson::oid::ObjectId;
use bson::raw::{CString, RawArrayBuf, RawBson, RawDocumentBuf, RawJavaScriptCodeWithScope};
use bson::spec::BinarySubtype;
use bson::{Binary, DateTime, Regex, Timestamp};

use super::reader::{Reader, corrupt};
use super::{DEPTH_MAX, TypeBitsReader, number, tag};
use crate::{Number, Result, canonical_rank, db_pointer};

/// Takes one value off the front of `bytes`.
///
/// # Errors
/// `InternalError` if the bytes are not an encoded value: the key is damaged. `bytes` is as before then.
pub fn decode(
    bytes: &mut &[u8],
    type_bits: &mut TypeBitsReader<'_>,
    descending: bool,
) -> Result<RawBson> {
    let mut reader = Reader::new(bytes, descending);
    let value = decode_value(&mut reader, type_bits, DEPTH_MAX)?;
    *bytes = reader.rest();
    Ok(value)
}

/// Steps over one value at the front of `bytes`. It looks no closer than that takes: names and texts are
/// not checked.
///
/// # Errors
/// As [`decode`].
pub fn skip(bytes: &mut &[u8], descending: bool) -> Result<()> {
    let mut reader = Reader::new(bytes, descending);
    skip_value(&mut reader, DEPTH_MAX)?;
    *bytes = reader.rest();
    Ok(())
}

fn decode_value(
    reader: &mut Reader<'_>,
    type_bits: &mut TypeBitsReader<'_>,
    depth: usize,
) -> Result<RawBson> {
    Ok(match reader.byte()? {
        tag::MIN_KEY => RawBson::MinKey,
        tag::UNDEFINED => RawBson::Undefined,
        tag::NULL => RawBson::Null,
        first @ tag::NAN..=tag::POSITIVE_LARGE => match number::decode(reader, type_bits, first)? {
            Number::Int32(value) => RawBson::Int32(value),
            Number::Int64(value) => RawBson::Int64(value),
            Number::Double(value) => RawBson::Double(value),
            Number::Decimal(value) => RawBson::Decimal128(value.to_bson()),
        },
        tag::STRING => {
            let text = utf8(reader.text()?)?;
            if type_bits.next() {
                RawBson::Symbol(text)
            } else {
                RawBson::String(text)
            }
        }
        tag::DOCUMENT => RawBson::Document(decode_fields(reader, type_bits, depth)?),
        tag::ARRAY => RawBson::Array(decode_array(reader, type_bits, depth)?),
        tag::BINARY => decode_binary(reader)?,
        tag::OBJECT_ID => RawBson::ObjectId(ObjectId::from_bytes(reader.array()?)),
        tag::FALSE => RawBson::Boolean(false),
        tag::TRUE => RawBson::Boolean(true),
        tag::DATE => {
            let ordered = i64::from_be_bytes(reader.array()?);
            RawBson::DateTime(DateTime::from_millis(ordered ^ i64::MIN))
        }
        tag::TIMESTAMP => RawBson::Timestamp(Timestamp {
            time: u32::from_be_bytes(reader.array()?),
            increment: u32::from_be_bytes(reader.array()?),
        }),
        tag::REGEX => RawBson::RegularExpression(Regex {
            pattern: c_string(reader)?,
            options: c_string(reader)?,
        }),
        tag::DB_POINTER => {
            let length = reader.length()?;
            let namespace = utf8(reader.bytes(length)?.into_owned())?;
            db_pointer(&namespace, reader.array()?).ok_or_else(corrupt)?
        }
        tag::CODE => RawBson::JavaScriptCode(utf8(reader.text()?)?),
        tag::CODE_WITH_SCOPE => RawBson::JavaScriptCodeWithScope(RawJavaScriptCodeWithScope {
            code: utf8(reader.text()?)?,
            scope: decode_fields(reader, type_bits, depth)?,
        }),
        tag::MAX_KEY => RawBson::MaxKey,
        _ => return Err(corrupt()),
    })
}

fn decode_fields(
    reader: &mut Reader<'_>,
    type_bits: &mut TypeBitsReader<'_>,
    depth: usize,
) -> Result<RawDocumentBuf> {
    let depth = depth.checked_sub(1).ok_or_else(corrupt)?;
    let mut document = RawDocumentBuf::new();
    loop {
        let rank = reader.byte()?;
        if rank == tag::END {
            return Ok(document);
        }
        let name = c_string(reader)?;
        let value = decode_value(reader, type_bits, depth)?;
        if canonical_rank(value.element_type()) + 1 != rank {
            return Err(corrupt());
        }
        document.append(name, value);
    }
}

fn decode_array(
    reader: &mut Reader<'_>,
    type_bits: &mut TypeBitsReader<'_>,
    depth: usize,
) -> Result<RawArrayBuf> {
    let depth = depth.checked_sub(1).ok_or_else(corrupt)?;
    let mut array = RawArrayBuf::new();
    while reader.peek()? != tag::END {
        array.push(decode_value(reader, type_bits, depth)?);
    }
    reader.byte()?;
    Ok(array)
}

fn decode_binary(reader: &mut Reader<'_>) -> Result<RawBson> {
    let (subtype, length) = binary_header(reader)?;
    Ok(RawBson::Binary(Binary {
        subtype,
        bytes: reader.bytes(length)?.into_owned(),
    }))
}

/// The subtype and how many bytes follow it.
fn binary_header(reader: &mut Reader<'_>) -> Result<(BinarySubtype, usize)> {
    let length = reader.length()?;
    let subtype = BinarySubtype::from(reader.byte()?);
    // The deprecated subtype 2 repeats the length on the wire, not here.
    let repeated = if subtype == BinarySubtype::BinaryOld {
        4
    } else {
        0
    };
    Ok((subtype, length.checked_sub(repeated).ok_or_else(corrupt)?))
}

fn skip_value(reader: &mut Reader<'_>, depth: usize) -> Result<()> {
    match reader.byte()? {
        tag::MIN_KEY | tag::UNDEFINED | tag::NULL | tag::FALSE | tag::TRUE | tag::MAX_KEY => {}
        first @ tag::NAN..=tag::POSITIVE_LARGE => number::skip(reader, first)?,
        tag::STRING | tag::CODE => reader.skip_text()?,
        tag::DOCUMENT => skip_fields(reader, depth)?,
        tag::ARRAY => {
            let depth = depth.checked_sub(1).ok_or_else(corrupt)?;
            while reader.peek()? != tag::END {
                skip_value(reader, depth)?;
            }
            reader.byte()?;
        }
        tag::BINARY => {
            let (_, length) = binary_header(reader)?;
            reader.skip(length)?;
        }
        tag::OBJECT_ID => {
            reader.skip(12)?;
        }
        tag::DATE | tag::TIMESTAMP => {
            reader.skip(8)?;
        }
        tag::REGEX => {
            reader.skip_until_nul()?;
            reader.skip_until_nul()?;
        }
        tag::DB_POINTER => {
            let length = reader.length()?;
            reader.skip(length)?;
            reader.skip(12)?;
        }
        tag::CODE_WITH_SCOPE => {
            reader.skip_text()?;
            skip_fields(reader, depth)?;
        }
        _ => return Err(corrupt()),
    }
    Ok(())
}

fn skip_fields(reader: &mut Reader<'_>, depth: usize) -> Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(corrupt)?;
    while reader.byte()? != tag::END {
        reader.skip_until_nul()?;
        skip_value(reader, depth)?;
    }
    Ok(())
}

fn utf8(bytes: Vec<u8>) -> Result<String> {
    String::from_utf8(bytes).map_err(|_| corrupt())
}

fn c_string(reader: &mut Reader<'_>) -> Result<CString> {
    let text = utf8(reader.until_nul()?.into_owned())?;
    CString::try_from(text).map_err(|_| corrupt())
}
