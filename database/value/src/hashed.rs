//! The hash that hashed indexes keep.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bson::{Bson, doc};
use md5::{Digest, Md5};

use crate::{Collation, Error, ErrorCode, NESTING_MAX, Number, Result};

/// The hash of `value` that a hashed index keeps instead of it: the first eight bytes of an MD5, as MongoDB
/// computes it. Numbers of equal integer part have equal hashes, whatever their types.
///
/// # Errors
/// `InvalidBSON` for a value that cannot be written as BSON, `Overflow` for one nested too deep.
pub fn hashed_value(value: &Bson, collation: Collation) -> Result<i64> {
    let document = RawDocumentBuf::try_from(&doc! {"": value.clone()})?;
    match document.iter().next() {
        Some(element) => hashed_raw(element?.1, collation),
        None => hashed_raw(RawBsonRef::Null, collation),
    }
}

/// The hash of a borrowed value; see [`hashed_value`].
pub fn hashed_raw(value: RawBsonRef<'_>, collation: Collation) -> Result<i64> {
    let mut digest = Md5::new();
    // The seed, which only MongoDB's tests set.
    digest.update(0_i32.to_le_bytes());
    update(&mut digest, value, None, NESTING_MAX, collation)?;
    let hash: [u8; 16] = digest.finalize().into();
    let (first, _) = hash.split_first_chunk::<8>().ok_or_else(|| {
        Error::new(
            ErrorCode::InternalError,
            "a digest is shorter than eight bytes",
        )
    })?;
    Ok(i64::from_le_bytes(*first))
}

fn update(
    digest: &mut Md5,
    value: RawBsonRef<'_>,
    name: Option<&str>,
    depth: usize,
    collation: Collation,
) -> Result<()> {
    digest.update(canonical_number(value.element_type()).to_le_bytes());
    if let Some(name) = name {
        digest.update(name.as_bytes());
        digest.update([0]);
    }
    match value {
        RawBsonRef::Document(document) => update_fields(digest, document, depth, collation),
        RawBsonRef::Array(array) => {
            let elements = RawDocument::from_bytes(array.as_bytes())?;
            update_fields(digest, elements, depth, collation)
        }
        RawBsonRef::JavaScriptCodeWithScope(value) => {
            digest.update(value.code.as_bytes());
            digest.update([0]);
            // The scope of code is never compared by a collation.
            update_fields(digest, value.scope, depth, Collation::SIMPLE)
        }
        RawBsonRef::String(text) | RawBsonRef::Symbol(text) => {
            update_text(digest, &collation.sort_key(text));
            Ok(())
        }
        value => {
            match Number::from_raw(value) {
                Some(number) => digest.update(whole(number).to_le_bytes()),
                None => digest.update(payload(value)),
            }
            Ok(())
        }
    }
}

/// A text as BSON writes it: its length with the NUL, the bytes, NUL.
fn update_text(digest: &mut Md5, text: &[u8]) {
    // BSON keeps lengths in 32 bits, so that none is cut.
    let length = i32::try_from(text.len() + 1).unwrap_or(i32::MAX);
    digest.update(length.to_le_bytes());
    digest.update(text);
    digest.update([0]);
}

fn update_fields(
    digest: &mut Md5,
    document: &RawDocument,
    depth: usize,
    collation: Collation,
) -> Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(|| {
        Error::new(
            ErrorCode::Overflow,
            "a value is nested too deep to be an index key",
        )
    })?;
    for element in document.iter_elements() {
        let element = element?;
        update(
            digest,
            element.value()?,
            Some(element.key().as_str()),
            depth,
            collation,
        )?;
    }
    // The end counts as an element of its own.
    digest.update(0_i32.to_le_bytes());
    Ok(())
}

/// The number cut to 64 bits; 0 for NaN. 2^63, which a conversion would make the largest integer, wraps
/// to the smallest: MongoDB keeps doing what its first platform did.
fn whole(number: Number) -> i64 {
    match number {
        Number::Int32(value) => i64::from(value),
        Number::Int64(value) => value,
        Number::Double(9_223_372_036_854_775_808.0) => i64::MIN,
        #[expect(clippy::cast_possible_truncation, reason = "cutting is what is wanted")]
        Number::Double(value) => value as i64,
        Number::Decimal(value) => {
            let cut = Number::Decimal(value)
                .trunc(0)
                .and_then(Number::as_i64_exact);
            match cut {
                Some(cut) => cut,
                None if value.is_nan() => 0,
                None if value.is_negative() => i64::MIN,
                None => i64::MAX,
            }
        }
    }
}

/// The value's bytes as BSON writes them.
fn payload(value: RawBsonRef<'_>) -> Vec<u8> {
    let mut document = RawDocumentBuf::new();
    document.append(bson::cstr!(""), value);
    // Before it: length (4), type (1), empty name (1); after it: NUL.
    let mut bytes = document.into_bytes();
    bytes.pop();
    bytes.split_off(6.min(bytes.len()))
}

/// MongoDB's number for the class of a type; part of the hash.
const fn canonical_number(element_type: ElementType) -> i32 {
    match element_type {
        ElementType::MinKey => -1,
        ElementType::Undefined => 0,
        ElementType::Null => 5,
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => {
            10
        }
        ElementType::String | ElementType::Symbol => 15,
        ElementType::EmbeddedDocument => 20,
        ElementType::Array => 25,
        ElementType::Binary => 30,
        ElementType::ObjectId => 35,
        ElementType::Boolean => 40,
        ElementType::DateTime => 45,
        ElementType::Timestamp => 47,
        ElementType::RegularExpression => 50,
        ElementType::DbPointer => 55,
        ElementType::JavaScriptCode => 60,
        ElementType::JavaScriptCodeWithScope => 65,
        ElementType::MaxKey => 127,
    }
}

#[cfg(test)]
mod tests {
    use bson::bson;

    use super::*;

    fn binary(subtype: u8, bytes: &[u8]) -> Bson {
        Bson::Binary(bson::Binary {
            subtype: subtype.into(),
            bytes: bytes.to_vec(),
        })
    }

    /// Hashes that MongoDB gives, so that data can move between the two.
    #[test]
    fn hashes_are_those_of_mongodb() {
        for (value, hash) in [
            (bson!(0), 4_854_801_880_128_277_513),
            (bson!(f64::NAN), 4_854_801_880_128_277_513),
            (bson!(1), 5_902_408_780_260_971_510),
            (bson!(-1.789), 1_140_205_862_565_771_219),
            (bson!(42_i64), -944_302_157_085_130_861),
            (bson!(i32::MIN), 6_165_898_260_261_354_870),
            (bson!(i64::MAX), 921_523_596_458_303_250),
            (bson!(f64::MAX), 921_523_596_458_303_250),
            (bson!(f64::MIN), 4_532_067_210_535_695_462),
            (Bson::MinKey, 7_961_148_599_568_647_290),
            (Bson::MaxKey, 5_504_842_513_779_440_750),
            (Bson::Undefined, 40_158_834_000_849_533),
            (Bson::Null, 2_338_878_944_348_059_895),
            (bson!("abc"), 8_478_485_326_885_698_097),
            (Bson::Symbol("abc".into()), 8_478_485_326_885_698_097),
            (bson!({"a": "abc", "b": 123_i64}), 4_771_603_801_758_380_216),
            (bson!({}), 7_980_500_913_326_740_417),
            (bson!(["bar", "baz", "qux"]), -2_938_911_267_422_831_539),
            (bson!([]), 8_849_948_234_993_459_283),
            (binary(0, &[0, 1, 2, 3, 4, 6]), 7_252_465_090_394_235_301),
            (binary(0x80, &[0, 1, 2, 3, 4, 6]), 5_736_670_452_907_618_262),
            (bson!(true), 6_405_873_908_747_105_701),
            (bson!(false), 6_289_544_573_401_934_092),
            (
                Bson::DateTime(bson::DateTime::from_millis(0)),
                -1_178_696_894_582_842_035,
            ),
            (
                Bson::JavaScriptCode("func f() { return 1; }".into()),
                6_861_638_109_178_014_270,
            ),
        ] {
            assert_eq!(
                hashed_value(&value, Collation::SIMPLE).unwrap(),
                hash,
                "{value}"
            );
        }
    }

    #[test]
    fn numbers_hash_by_integer_part() {
        let seven = hashed_value(&bson!(7), Collation::SIMPLE).unwrap();
        for value in [
            bson!(7_i64),
            bson!(7.9),
            Bson::Decimal128("7.00".parse().unwrap()),
            Bson::Decimal128("7.9".parse().unwrap()),
        ] {
            assert_eq!(
                hashed_value(&value, Collation::SIMPLE).unwrap(),
                seven,
                "{value}"
            );
        }
        assert_ne!(hashed_value(&bson!(8), Collation::SIMPLE).unwrap(), seven);
        assert_ne!(hashed_value(&bson!("7"), Collation::SIMPLE).unwrap(), seven);
        assert_eq!(
            hashed_value(&bson!(f64::NAN), Collation::SIMPLE).unwrap(),
            hashed_value(&bson!(0), Collation::SIMPLE).unwrap()
        );
        let huge = Bson::Decimal128("1E+100".parse().unwrap());
        assert_eq!(
            hashed_value(&huge, Collation::SIMPLE).unwrap(),
            hashed_value(&bson!(i64::MAX), Collation::SIMPLE).unwrap()
        );
    }
}
