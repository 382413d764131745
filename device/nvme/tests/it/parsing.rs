//! Identify data and log pages of any content and length: a short run of the fuzz target `nvme_identify`.

use crate::exercise_parsing::parse_all;
use millrace_nvme::spec::identify::{ControllerData, IDENTIFY_SIZE};
use millrace_nvme::spec::log::{ERROR_SIZE, HEALTH_SIZE};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// A runner that draws the same cases every time.
fn runner(cases: u32) -> TestRunner {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// Lengths at which something begins to be readable.
fn length() -> impl Strategy<Value = usize> {
    prop_oneof![
        Just(IDENTIFY_SIZE),
        Just(HEALTH_SIZE),
        (0_usize..70).prop_map(|entries| entries * ERROR_SIZE),
        0_usize..2 * IDENTIFY_SIZE,
        prop::sample::select(vec![
            0,
            1,
            HEALTH_SIZE - 1,
            IDENTIFY_SIZE - 1,
            IDENTIFY_SIZE + 1
        ]),
    ]
}

/// Bytes of one kind with some that differ, since few structures are random throughout.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let differing = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..80);
    let base = prop_oneof![Just(0_u8), Just(u8::MAX), any::<u8>()];
    (length(), base, differing).prop_map(|(length, base, differing)| {
        let mut bytes = vec![base; length];
        if length > 0 {
            for (place, byte) in differing {
                *place.get_mut(&mut bytes) = byte;
            }
        }
        bytes
    })
}

#[test]
fn any_bytes() {
    let random = length().prop_flat_map(|length| prop::collection::vec(any::<u8>(), length));
    runner(500)
        .run(&random, |bytes| {
            parse_all(&bytes);
            Ok(())
        })
        .expect("no bytes make a parser misbehave");
}

#[test]
fn nearly_uniform_bytes() {
    runner(4_000)
        .run(&bytes(), |bytes| {
            parse_all(&bytes);
            Ok(())
        })
        .expect("no bytes make a parser misbehave");
}

#[test]
fn namespaces_of_any_format() {
    // The fields that name one another: how many formats there are, which it is, and what each is like.
    let fields = (any::<u8>(), any::<u8>(), any::<u8>(), any::<[u8; 32]>());
    runner(4_000)
        .run(&fields, |(count, format, features, formats)| {
            let mut bytes = vec![0; IDENTIFY_SIZE];
            bytes[24] = features;
            bytes[25] = count;
            bytes[26] = format;
            for (place, byte) in bytes[128..384].iter_mut().zip(formats.iter().cycle()) {
                *place = *byte;
            }
            parse_all(&bytes);
            Ok(())
        })
        .expect("no format makes a parser misbehave");
}

#[test]
fn lists_of_namespaces_in_any_order() {
    let id = prop_oneof![0_u32..10, any::<u32>(), Just(u32::MAX)];
    let ids = (prop::collection::vec(id, 0..=1024), any::<bool>());
    runner(1_000)
        .run(&ids, |(mut ids, sorted)| {
            if sorted {
                ids.sort_unstable();
                ids.dedup();
            }
            let mut bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
            bytes.resize(IDENTIFY_SIZE, 0);
            parse_all(&bytes);
            Ok(())
        })
        .expect("no list makes a parser misbehave");
}

#[test]
fn every_transfer_limit_on_every_page() {
    for shift in 0..=u8::MAX {
        let mut bytes = vec![0; IDENTIFY_SIZE];
        bytes[77] = shift;
        parse_all(&bytes);
        let data = ControllerData::parse(&bytes).expect("nothing contradicts it");
        for page_shift in 12..=27 {
            let limit = data.transfer_max(page_shift);
            let log = u32::from(shift) + page_shift;
            let expected = (shift > 0 && log < 63).then(|| 1_u64 << log);
            assert_eq!(limit, expected, "{shift}, pages of {page_shift}");
        }
    }
}
