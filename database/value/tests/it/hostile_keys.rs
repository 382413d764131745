//! A short deterministic run of the fuzz target `key`.

use bson::bson;
use millrace_value::Collation;
use millrace_value::key::TypeBits;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

use crate::exercise::{check, check_input};

/// A runner that draws the same cases every time.
fn runner() -> TestRunner {
    let config = ProptestConfig {
        cases: 20_000,
        failure_persistence: None,
        ..Default::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

#[test]
fn any_bytes() {
    // Tags of numbers, texts and containers are more frequent than they would be by chance.
    let byte = prop_oneof![any::<u8>(), 0x20_u8..0x60, Just(0_u8), Just(1_u8)];
    let input = (
        prop::collection::vec(byte, 0..60),
        prop::collection::vec(any::<u8>(), 0..4),
        any::<bool>(),
    );
    runner()
        .run(&input, |(bytes, bits, descending)| {
            let mask = if descending { 0xFF } else { 0 };
            let stored: Vec<u8> = bytes.iter().map(|byte| byte ^ mask).collect();
            check(&stored, &bits, descending);
            check_input(&bytes);
            Ok(())
        })
        .expect("no input makes a key misbehave");
}

#[test]
fn damaged_keys() {
    let decimal = |text: &str| bson::Bson::Decimal128(text.parse().expect("a decimal"));
    let values = bson!([
        {"a": 1, "b": [1.5, "x\0y", null]},
        ["é", [], {}, true],
        -12345678901_i64,
        0.1,
        (decimal("-0.10")),
        (decimal("1E+400")),
        (bson::Binary { subtype: bson::spec::BinarySubtype::BinaryOld, bytes: vec![1, 2, 3] }),
        (bson::Regex { pattern: bson::cstr!("a").into(), options: bson::cstr!("i").into() }),
    ]);
    let bson::Bson::Array(values) = values else {
        unreachable!("an array was written above")
    };
    let input = (
        prop::sample::select(values),
        any::<bool>(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        any::<prop::sample::Index>(),
    );
    runner()
        .run(&input, |(value, descending, changes, cut)| {
            let (mut bytes, mut bits) = (Vec::new(), TypeBits::new());
            Collation::SIMPLE
                .encode_key_bson(&mut bytes, &mut bits, &value, descending)
                .expect("a valid value");
            for (place, byte) in changes {
                *place.get_mut(&mut bytes) = byte;
            }
            check(&bytes, bits.as_bytes(), descending);
            bytes.truncate(cut.index(bytes.len() + 1));
            check(&bytes, bits.as_bytes(), descending);
            Ok(())
        })
        .expect("no damage makes a key misbehave");
}
