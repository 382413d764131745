//! Random values for property tests: all types, nested, with many that are equal or nearly so.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp};
use proptest::prelude::*;
use proptest::strategy::Union;

use crate::Decimal;

/// Numbers of all types that crowd around the places where types and encodings change.
pub fn any_number() -> impl Strategy<Value = Bson> {
    let near = Union::new(
        [0_i64, 1 << 7, 1 << 31, 1 << 53, 1 << 54, 1 << 62, i64::MAX].map(|centre| {
            (any::<bool>(), -3_i64..=3, 0_u8..4).prop_map(move |(negative, offset, kind)| {
                let value = centre.saturating_add(offset);
                as_kind(
                    if negative {
                        value.wrapping_neg()
                    } else {
                        value
                    },
                    kind,
                )
            })
        }),
    );
    let fraction = (-2000_i32..2000, 0_u8..2).prop_map(|(value, kind)| match kind {
        0 => Bson::Double(f64::from(value) / 16.0),
        _ => decimal_bson(value < 0, u128::from(value.unsigned_abs()) * 625, -4),
    });
    let double = prop_oneof![
        any::<f64>(),
        any::<u64>().prop_map(f64::from_bits),
        (0_u64..5).prop_map(f64::from_bits),
        prop::sample::select(vec![
            f64::MAX,
            f64::MIN_POSITIVE,
            1e22,
            1e23,
            0.1,
            -0.0,
            1e300
        ]),
    ];
    let decimal = (
        any::<bool>(),
        0_u128..=9_999_999_999_999_999_999_999_999_999_999_999,
        -6176..=6111_i32,
    )
        .prop_map(|(negative, coefficient, exponent)| {
            decimal_bson(negative, coefficient, exponent)
        });
    let close = (any::<bool>(), 0_u128..200, 0_u32..30, -40..20_i32).prop_map(
        |(negative, digits, zeros, exponent)| {
            decimal_bson(negative, digits * 10_u128.pow(zeros), exponent)
        },
    );
    let of_double =
        any::<f64>().prop_map(|value| Bson::Decimal128(Decimal::from_f64(value).to_bson()));
    prop_oneof![
        4 => near,
        2 => fraction,
        2 => double.prop_map(Bson::Double),
        1 => any::<i32>().prop_map(Bson::Int32),
        1 => any::<i64>().prop_map(Bson::Int64),
        1 => decimal,
        2 => close,
        1 => of_double,
        1 => prop::sample::select(vec!["NaN", "Infinity", "-Infinity", "1E+400", "-1E-400", "0E-6176"])
            .prop_map(|text| Bson::Decimal128(text.parse().expect("a decimal"))),
    ]
}

fn decimal_bson(negative: bool, coefficient: u128, exponent: i32) -> Bson {
    let value = Decimal::from_parts(negative, coefficient, exponent).expect("parts within range");
    Bson::Decimal128(value.to_bson())
}

/// `value` as one of the four types; as the next wider one where it does not fit.
fn as_kind(value: i64, kind: u8) -> Bson {
    match (kind, i32::try_from(value)) {
        (0, Ok(small)) => Bson::Int32(small),
        (0 | 1, _) => Bson::Int64(value),
        (2, _) => Bson::Double(value as f64),
        _ => Bson::Decimal128(Decimal::from_i64(value).to_bson()),
    }
}

/// A `DbPointer` with these parts.
pub fn db_pointer(namespace: &str, id: [u8; 12]) -> Bson {
    let value = crate::order::db_pointer(namespace, id).expect("parts that fit");
    value.try_into().expect("valid BSON")
}

fn short_text() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(
            prop::sample::select(vec!['\0', '\u{1}', 'a', 'b', 'é', '\u{FFFF}']),
            0..5
        )
        .prop_map(String::from_iter),
        "[a-c]{0,3}",
    ]
}

/// Text without NUL, for names and patterns.
fn name() -> impl Strategy<Value = String> {
    "[ab\u{1}é]{0,2}"
}

fn any_scalar() -> impl Strategy<Value = Bson> {
    let binary = (
        prop::sample::select(vec![
            BinarySubtype::Generic,
            BinarySubtype::BinaryOld,
            BinarySubtype::Uuid,
            BinarySubtype::UserDefined(0x80),
        ]),
        prop::collection::vec(any::<u8>(), 0..6),
    )
        .prop_map(|(subtype, bytes)| Bson::Binary(Binary { subtype, bytes }));
    let regex =
        (name(), prop::sample::select(vec!["", "i", "im", "s"])).prop_map(|(pattern, options)| {
            Bson::RegularExpression(Regex {
                pattern: pattern.try_into().expect("no NUL"),
                options: options.try_into().expect("no NUL"),
            })
        });
    prop_oneof![
        6 => any_number(),
        3 => short_text().prop_map(Bson::String),
        1 => short_text().prop_map(Bson::Symbol),
        1 => short_text().prop_map(Bson::JavaScriptCode),
        1 => binary,
        1 => regex,
        1 => any::<bool>().prop_map(Bson::Boolean),
        1 => any::<i64>().prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        1 => (-2_i64..2).prop_map(|ms| Bson::DateTime(DateTime::from_millis(ms))),
        1 => any::<[u8; 12]>().prop_map(|bytes| Bson::ObjectId(ObjectId::from_bytes(bytes))),
        1 => (any::<u32>(), any::<u32>())
            .prop_map(|(time, increment)| Bson::Timestamp(Timestamp { time, increment })),
        1 => (name(), any::<[u8; 12]>()).prop_map(|(ns, id)| db_pointer(&ns, id)),
        1 => prop::sample::select(vec![Bson::Null, Bson::Undefined, Bson::MinKey, Bson::MaxKey]),
    ]
}

/// Any value, nested up to four levels.
pub fn any_bson() -> impl Strategy<Value = Bson> {
    any_scalar().prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Bson::Array),
            document_of(inner.clone()).prop_map(Bson::Document),
            (short_text(), document_of(inner)).prop_map(|(code, scope)| {
                Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code, scope })
            }),
        ]
    })
}

/// Any document, nested up to five levels.
pub fn any_document() -> impl Strategy<Value = Document> {
    document_of(any_bson())
}

fn document_of(value: impl Strategy<Value = Bson>) -> impl Strategy<Value = Document> {
    prop::collection::vec((name(), value), 0..4).prop_map(Document::from_iter)
}
