use std::cmp::Ordering;

use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, doc};
use proptest::prelude::*;

use super::*;
use crate::testing::arbitrary::{any_bson, any_number, db_pointer};
use crate::{Collation, Decimal};

fn encoded(value: &Bson, descending: bool) -> (Vec<u8>, TypeBits) {
    let (mut key, mut type_bits) = (Vec::new(), TypeBits::new());
    Collation::SIMPLE
        .encode_key_bson(&mut key, &mut type_bits, value, descending)
        .unwrap();
    (key, type_bits)
}

fn decoded(key: &[u8], type_bits: &[u8], descending: bool) -> crate::Result<Bson> {
    let mut rest = key;
    let value = decode(&mut rest, &mut TypeBitsReader::new(type_bits), descending)?;
    assert!(rest.is_empty());
    Ok(value.try_into().expect("decoded values are valid"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The value as bytes; NaNs, whose payload keys do not keep, all alike.
fn exact(value: &Bson) -> Vec<u8> {
    fn canonical(value: &Bson) -> Bson {
        match value {
            Bson::Double(value) if value.is_nan() => Bson::Double(f64::NAN),
            Bson::Decimal128(value) => Bson::Decimal128(Decimal::from_bson(*value).to_bson()),
            Bson::Array(values) => Bson::Array(values.iter().map(canonical).collect()),
            Bson::Document(document) => Bson::Document(fields(document)),
            Bson::JavaScriptCodeWithScope(value) => {
                Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                    code: value.code.clone(),
                    scope: fields(&value.scope),
                })
            }
            value => value.clone(),
        }
    }
    fn fields(document: &bson::Document) -> bson::Document {
        document
            .iter()
            .map(|(name, value)| (name.clone(), canonical(value)))
            .collect()
    }
    RawDocumentBuf::try_from(&doc! {"v": canonical(value)})
        .unwrap()
        .into_bytes()
}

/// Values whose encodings are kept in `golden.txt`, in ascending order: up to the numbers.
fn golden_numbers() -> Vec<(&'static str, Bson)> {
    use bson::bson;
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    vec![
        ("MinKey", Bson::MinKey),
        ("undefined", Bson::Undefined),
        ("null", Bson::Null),
        ("double NaN", bson!(f64::NAN)),
        ("double -Infinity", bson!(f64::NEG_INFINITY)),
        ("decimal -1E+400", decimal("-1E+400")),
        ("long -2^63", bson!(i64::MIN)),
        ("long -2^63+1", bson!(i64::MIN + 1)),
        ("int -64", bson!(-64)),
        ("double -1.5", bson!(-1.5)),
        ("int -1", bson!(-1)),
        ("decimal -0.1", decimal("-0.1")),
        ("double -5e-324", bson!(-5e-324)),
        ("decimal -1E-400", decimal("-1E-400")),
        ("int 0", bson!(0)),
        ("double 5e-324", bson!(5e-324)),
        ("decimal 0.1", decimal("0.1")),
        ("double 0.1", bson!(0.1)),
        ("decimal 0.500", decimal("0.500")),
        ("long 1", bson!(1_i64)),
        ("decimal 1.10", decimal("1.10")),
        ("double 3.25", bson!(3.25)),
        ("int 127", bson!(127)),
        ("int 128", bson!(128)),
        ("decimal 1.00E+4", decimal("1.00E+4")),
        ("int 2147483647", bson!(i32::MAX)),
        ("long 2^53+1", bson!((1_i64 << 53) + 1)),
        ("long 2^63-1", bson!(i64::MAX)),
        ("double 2^63", bson!(9_223_372_036_854_775_808.0)),
        (
            "decimal 9223372036854775808.1",
            decimal("9223372036854775808.1"),
        ),
        ("decimal 1E+23", decimal("1E+23")),
        ("decimal 1E+400", decimal("1E+400")),
        ("decimal Infinity", decimal("Infinity")),
    ]
}

/// The rest of them.
fn golden_other_types() -> Vec<(&'static str, Bson)> {
    use bson::bson;
    let binary = |subtype: u8, bytes: &[u8]| {
        Bson::Binary(bson::Binary {
            subtype: subtype.into(),
            bytes: bytes.to_vec(),
        })
    };
    vec![
        ("string empty", bson!("")),
        ("string a", bson!("a")),
        ("symbol a NUL", Bson::Symbol("a\0".into())),
        ("string ab", bson!("ab")),
        ("object empty", bson!({})),
        ("object a:1 b:x", bson!({"a": 1, "b": "x"})),
        ("array empty", bson!([])),
        ("array 1.0 [x]", bson!([1.0, ["x"]])),
        ("binary 0 empty", binary(0, &[])),
        ("binary 4", binary(4, &[1, 2])),
        ("binary 2", binary(2, &[0])),
        (
            "ObjectId",
            Bson::ObjectId("0123456789abcdef01234567".parse().unwrap()),
        ),
        ("false", bson!(false)),
        ("true", bson!(true)),
        ("date -1", Bson::DateTime(bson::DateTime::from_millis(-1))),
        (
            "date 1700000000000",
            Bson::DateTime(bson::DateTime::from_millis(1_700_000_000_000)),
        ),
        (
            "timestamp 1 2",
            Bson::Timestamp(bson::Timestamp {
                time: 1,
                increment: 2,
            }),
        ),
        (
            "regex /a/i",
            Bson::RegularExpression(bson::Regex {
                pattern: "a".try_into().unwrap(),
                options: "i".try_into().unwrap(),
            }),
        ),
        ("DBPointer", db_pointer("ns", [7; 12])),
        ("code", Bson::JavaScriptCode("f".into())),
        (
            "code with scope",
            Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
                code: "f".into(),
                scope: doc! {"x": 1},
            }),
        ),
        ("MaxKey", Bson::MaxKey),
    ]
}

fn golden_values() -> Vec<(&'static str, Bson)> {
    golden_numbers()
        .into_iter()
        .chain(golden_other_types())
        .collect()
}

/// The encodings are stored data: if this fails, old folders cannot be read any more.
#[test]
fn golden() {
    let mut text = String::new();
    let mut before: Option<Vec<u8>> = None;
    for (name, value) in golden_values() {
        let (key, type_bits) = encoded(&value, false);
        text += &format!("{name}: {}", hex(&key));
        if !type_bits.as_bytes().is_empty() {
            text += &format!(" / {}", hex(type_bits.as_bytes()));
        }
        text.push('\n');
        assert!(
            before.is_none_or(|before| before < key),
            "{name} is out of order"
        );
        before = Some(key);
    }
    assert_eq!(
        text,
        include_str!("golden.txt"),
        "the format of keys has changed"
    );
}

#[test]
fn every_truncation_is_an_error() {
    for (name, value) in golden_values() {
        for descending in [false, true] {
            let (key, type_bits) = encoded(&value, descending);
            for length in 0..key.len() {
                let mut reader = TypeBitsReader::new(type_bits.as_bytes());
                assert!(
                    decode(&mut &key[..length], &mut reader, descending).is_err(),
                    "{name}"
                );
                assert!(skip(&mut &key[..length], descending).is_err(), "{name}");
            }
        }
    }
}

#[test]
fn wrong_type_bits_are_errors() {
    // A fraction as int, a large number as int, an integer as decimal with too many zeros.
    for (value, bits) in [
        (Bson::Double(1.5), &[0b00][..]),
        (Bson::Int64(1 << 40), &[0b00]),
        (Bson::Double(f64::NAN), &[0b00]),
        (Bson::Double(0.1), &[0b11]),
        (Bson::Int32(7), &[0xFF, 0xFF]),
        (Bson::Int32(0), &[0xFF, 0xFF, 0xFF]),
    ] {
        let (key, _) = encoded(&value, false);
        assert!(decoded(&key, bits, false).is_err(), "{value}");
    }
}

#[test]
fn depth_is_bounded() {
    let nested = |levels: usize| (0..levels).fold(Bson::Null, |value, _| Bson::Array(vec![value]));
    let mut key = vec![1];
    let deepest = nested(DEPTH_MAX);
    Collation::SIMPLE
        .encode_key_bson(&mut key, &mut TypeBits::new(), &deepest, false)
        .unwrap();
    assert_eq!(decoded(&key[1..], &[], false).unwrap(), deepest);
    let mut key = vec![1];
    let error = Collation::SIMPLE.encode_key_bson(
        &mut key,
        &mut TypeBits::new(),
        &nested(DEPTH_MAX + 1),
        false,
    );
    assert_eq!(error.unwrap_err().code(), crate::ErrorCode::Overflow);
    assert_eq!(key, [1]);
    assert_ne!(
        Collation::SIMPLE.equality_key(&nested(300)),
        Collation::SIMPLE.equality_key(&nested(301))
    );
    let hostile = vec![tag::ARRAY; 1_000_000];
    assert!(skip(&mut hostile.as_slice(), false).is_err());
    assert!(
        decode(
            &mut hostile.as_slice(),
            &mut TypeBitsReader::new(&[]),
            false
        )
        .is_err()
    );
}

#[test]
fn invalid_bson_is_refused_and_leaves_nothing() {
    let mut bytes = RawDocumentBuf::try_from(&doc! {"a": 1, "b": 2})
        .unwrap()
        .into_bytes();
    let place = bytes.iter().rposition(|byte| *byte == 0x10).unwrap();
    bytes[place] = 0x77;
    let broken = RawDocumentBuf::from_bytes(bytes).unwrap();
    let mut key = vec![1];
    let value = bson::RawBsonRef::Document(&broken);
    let error = Collation::SIMPLE
        .encode_key(&mut key, &mut TypeBits::new(), value, false)
        .unwrap_err();
    assert_eq!(error.code(), crate::ErrorCode::InvalidBSON);
    assert_eq!(key, [1]);
}

#[test]
fn common_values_are_short() {
    for (value, length) in [
        (Bson::Int32(1), 2),
        (Bson::Int64(100_000), 4),
        (Bson::Int32(i32::MAX), 5),
        (Bson::Double(3.5), 10),
        (Bson::String("abc".into()), 6),
        (Bson::ObjectId(bson::oid::ObjectId::from_bytes([1; 12])), 13),
    ] {
        assert_eq!(encoded(&value, false).0.len(), length, "{value}");
    }
}

fn check_pair(a: &Bson, b: &Bson) -> Result<(), TestCaseError> {
    let order = Collation::SIMPLE.compare_bson(a, b);
    prop_assert_eq!(encoded(a, false).0.cmp(&encoded(b, false).0), order);
    prop_assert_eq!(encoded(a, true).0.cmp(&encoded(b, true).0), order.reverse());
    prop_assert_eq!(
        Collation::SIMPLE.equality_key(a) == Collation::SIMPLE.equality_key(b),
        order == Ordering::Equal
    );
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn numbers_sort_by_value(a in any_number(), b in any_number()) {
        check_pair(&a, &b)?;
    }

    #[test]
    fn numbers_round_trip(value in any_number(), descending: bool) {
        let (key, type_bits) = encoded(&value, descending);
        let back = decoded(&key, type_bits.as_bytes(), descending).unwrap();
        prop_assert_eq!(exact(&back), exact(&value));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn values_sort(a in any_bson(), b in any_bson()) {
        check_pair(&a, &b)?;
    }

    #[test]
    fn compound_keys_round_trip(
        fields in prop::collection::vec((any_bson(), any::<bool>()), 1..4),
        follows in prop::collection::vec(any::<u8>(), 0..3),
    ) {
        let (mut key, mut type_bits) = (Vec::new(), TypeBits::new());
        for (value, descending) in &fields {
            let raw: RawBson = value.clone().try_into().unwrap();
            let before = key.len();
            Collation::SIMPLE.encode_key(&mut key, &mut type_bits, raw.as_raw_bson_ref(), *descending).unwrap();
            prop_assert_eq!(&key[before..], encoded(value, *descending).0);
        }
        let mut stored = key.clone();
        stored.extend(&follows);
        let (mut rest, mut skipped) = (stored.as_slice(), stored.as_slice());
        let mut reader = TypeBitsReader::new(type_bits.as_bytes());
        for (value, descending) in &fields {
            let back: Bson =
                decode(&mut rest, &mut reader, *descending).unwrap().try_into().unwrap();
            prop_assert_eq!(exact(&back), exact(value));
            skip(&mut skipped, *descending).unwrap();
            prop_assert_eq!(rest, skipped);
        }
        prop_assert_eq!(rest, follows);
    }
}
