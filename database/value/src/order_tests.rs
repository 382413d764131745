use bson::{bson, doc, rawdoc};
use proptest::prelude::*;

use super::*;
use crate::Collation;
use crate::testing::arbitrary::{any_bson, db_pointer};

/// The raw form of `value`, inside a document.
fn raw(value: &Bson) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&doc! { "v": value.clone() }).unwrap()
}

fn compare_raw(a: &Bson, b: &Bson) -> Ordering {
    let (a, b) = (raw(a), raw(b));
    Collation::SIMPLE.compare(a.get("v").unwrap().unwrap(), b.get("v").unwrap().unwrap())
}

fn regex(pattern: &str, options: &str) -> Bson {
    Bson::RegularExpression(bson::Regex {
        pattern: pattern.try_into().unwrap(),
        options: options.try_into().unwrap(),
    })
}

fn binary(subtype: BinarySubtype, bytes: &[u8]) -> Bson {
    Bson::Binary(bson::Binary {
        subtype,
        bytes: bytes.to_vec(),
    })
}

fn code_with_scope(code: &str, scope: Document) -> Bson {
    Bson::JavaScriptCodeWithScope(bson::JavaScriptCodeWithScope {
        code: code.into(),
        scope,
    })
}

/// One list in strictly ascending order, over all types.
fn ascending() -> Vec<Bson> {
    vec![
        Bson::MinKey,
        Bson::Undefined,
        Bson::Null,
        bson!(f64::NAN),
        bson!(-1),
        bson!(0_i64),
        bson!(0.5),
        bson!(""),
        bson!("a"),
        Bson::Symbol("a\0".into()),
        bson!("aa"),
        bson!("b"),
        bson!("é"),
        bson!({}),
        // The value's type comes before the name.
        bson!({"b": 1}),
        bson!({"a": "x"}),
        bson!({"a": "x", "b": 1}),
        bson!({"a": "y"}),
        bson!({"b": "a"}),
        bson!({"a": {}}),
        bson!([]),
        bson!([1]),
        bson!([1, 2]),
        bson!([2]),
        bson!([[]]),
        binary(BinarySubtype::Generic, &[]),
        binary(BinarySubtype::Generic, &[9]),
        binary(BinarySubtype::UserDefined(0x80), &[1]),
        binary(BinarySubtype::Generic, &[1, 2]),
        binary(BinarySubtype::BinaryOld, &[]),
        binary(BinarySubtype::Generic, &[0, 0, 0, 0, 0]),
        Bson::ObjectId(bson::oid::ObjectId::from_bytes([0; 12])),
        Bson::ObjectId(bson::oid::ObjectId::from_bytes([255; 12])),
        bson!(false),
        bson!(true),
        Bson::DateTime(bson::DateTime::from_millis(-1)),
        Bson::DateTime(bson::DateTime::from_millis(1)),
        Bson::Timestamp(bson::Timestamp {
            time: 1,
            increment: 2,
        }),
        Bson::Timestamp(bson::Timestamp {
            time: u32::MAX,
            increment: 0,
        }),
        regex("a", ""),
        regex("a", "i"),
        regex("b", ""),
        db_pointer("z", [9; 12]),
        db_pointer("aa", [0; 12]),
        db_pointer("aa", [1; 12]),
        Bson::JavaScriptCode("a".into()),
        Bson::JavaScriptCode("b".into()),
        code_with_scope("a", doc! {}),
        code_with_scope("a", doc! {"x": 1}),
        code_with_scope("b", doc! {}),
        Bson::MaxKey,
    ]
}

#[test]
fn all_types_in_order() {
    let values = ascending();
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            assert_eq!(
                Collation::SIMPLE.compare_bson(a, b),
                i.cmp(&j),
                "{a:?} and {b:?}"
            );
            assert_eq!(compare_raw(a, b), i.cmp(&j), "raw {a:?} and {b:?}");
        }
    }
}

#[test]
fn equal_although_different() {
    for (a, b) in [
        (bson!("a"), Bson::Symbol("a".into())),
        (bson!({"a": 1, "b": [2.0]}), bson!({"a": 1.0, "b": [2_i64]})),
        (bson!([0.0]), bson!([-0.0])),
    ] {
        assert_eq!(Collation::SIMPLE.compare_bson(&a, &b), Ordering::Equal);
        assert_eq!(compare_raw(&a, &b), Ordering::Equal);
    }
}

#[test]
fn deep_nesting_does_not_exhaust_the_stack() {
    let mut bytes = rawdoc! {}.into_bytes();
    for _ in 0..50_000 {
        let mut outer = i32::try_from(bytes.len() + 7)
            .unwrap()
            .to_le_bytes()
            .to_vec();
        outer.extend([0x03, 0]);
        // Prepending would be quadratic: the inner document is appended and the header grows outside.
        outer.append(&mut bytes);
        outer.push(0);
        bytes = outer;
    }
    let a = RawDocumentBuf::from_bytes(bytes).unwrap();
    let order = Collation::SIMPLE.compare(RawBsonRef::Document(&a), RawBsonRef::Document(&a));
    assert_eq!(order, Ordering::Equal);
}

#[test]
fn invalid_bytes_end_the_document() {
    let valid = rawdoc! {"a": 1, "b": 2};
    let mut bytes = valid.clone().into_bytes();
    let place = bytes.iter().rposition(|byte| *byte == 0x10).unwrap();
    bytes[place] = 0x77;
    let broken = RawDocumentBuf::from_bytes(bytes).unwrap();
    let (valid, broken) = (RawBsonRef::Document(&valid), RawBsonRef::Document(&broken));
    assert_eq!(Collation::SIMPLE.compare(broken, valid), Ordering::Less);
    assert_eq!(Collation::SIMPLE.compare(valid, broken), Ordering::Greater);
}

proptest! {
    #[test]
    fn raw_and_owned_agree(a in any_bson(), b in any_bson()) {
        prop_assert_eq!(Collation::SIMPLE.compare_bson(&a, &b), compare_raw(&a, &b));
        prop_assert_eq!(Collation::SIMPLE.compare_bson(&a, &b), Collation::SIMPLE.compare_bson(&b, &a).reverse());
        prop_assert_eq!(Collation::SIMPLE.compare_bson(&a, &a), Ordering::Equal);
    }

    #[test]
    fn order_is_transitive(mut values in prop::collection::vec(any_bson(), 3)) {
        values.sort_by(|a, b| Collation::SIMPLE.compare_bson(a, b));
        prop_assert!(Collation::SIMPLE.compare_bson(&values[0], &values[1]).is_le());
        prop_assert!(Collation::SIMPLE.compare_bson(&values[1], &values[2]).is_le());
        prop_assert!(Collation::SIMPLE.compare_bson(&values[0], &values[2]).is_le());
    }
}
