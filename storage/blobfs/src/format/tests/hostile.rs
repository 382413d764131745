//! Bytes of unknown origin, the same every time: the short form of the fuzz targets.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use super::small_layout;
use crate::format::exercise;

/// Runs the same cases every time.
fn run<S: Strategy>(strategy: &S, check: impl Fn(S::Value)) {
    let config = Config {
        cases: 1000,
        failure_persistence: None,
        ..Config::default()
    };
    let rng = TestRunner::deterministic().new_rng();
    TestRunner::new_with_rng(config, rng)
        .run(strategy, |value| {
            check(value);
            Ok(())
        })
        .unwrap();
}

fn numbers(tag: u8, numbers: &[u64]) -> Vec<u8> {
    let mut bytes = vec![tag];
    bytes.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
    bytes
}

/// A count, and few extents about the same units.
fn extents() -> impl Strategy<Value = Vec<u8>> {
    let start = small_layout().data().start;
    let extent = (start - 1..start + 30, 0_u64..4).prop_map(|(start, units)| start | units << 32);
    vec(extent, 0..4).prop_map(|extents| {
        let count = u32::try_from(extents.len()).unwrap();
        let mut bytes = count.to_le_bytes().to_vec();
        bytes.extend(extents.iter().flat_map(|extent| extent.to_le_bytes()));
        bytes
    })
}

fn name() -> impl Strategy<Value = Vec<u8>> {
    "[ab.é/]{0,2}|lost\\+found|#[3-8]".prop_map(|name| {
        let mut bytes = vec![u8::try_from(name.len()).unwrap()];
        bytes.extend(name.as_bytes());
        bytes
    })
}

/// Numbers of few inodes, so that they meet.
fn id() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0_u64..9, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn size() -> impl Strategy<Value = u64> {
    prop_oneof![10 => 0_u64..40_000, 4 => (0_u64..9).prop_map(|units| units * 4096), 1 => any::<u64>()]
}

fn noise() -> impl Strategy<Value = Vec<u8>> {
    vec(prop_oneof![0_u8..10, any::<u8>()], 0..50)
}

/// The bytes of a record of a checkpoint.
fn record() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => any::<(u64, u8)>().prop_map(|(next, inodes)| numbers(1, &[next, inodes.into()])),
        12 => (id(), 0_u32..4, size(), extents()).prop_map(|(id, links, size, extents)| {
            let links = links.to_le_bytes();
            let rest = [&size.to_le_bytes()[..], &[5; 8], &extents].concat();
            [&numbers(2, &[id])[..], &links, &rest].concat()
        }),
        6 => (id(), 0_u64..6, extents())
            .prop_map(|(id, before, extents)| [numbers(3, &[id, before]), extents].concat()),
        12 => (id(), id()).prop_map(|(id, parent)| numbers(4, &[id, parent, 6])),
        24 => (id(), id(), name())
            .prop_map(|(parent, id, name)| [numbers(5, &[parent, id]), name].concat()),
        1 => noise(),
    ]
}

/// The bytes of an operation.
fn operation() -> impl Strategy<Value = Vec<u8>> {
    let created = (3_u64..9, 1_u8..3, id(), name());
    prop_oneof![
        12 => created.prop_map(|(id, kind, parent, name)| {
            let rest = numbers(kind, &[parent, 7]);
            [numbers(1, &[id]), rest, name].concat()
        }),
        4 => (id(), id(), name())
            .prop_map(|(id, parent, name)| [numbers(2, &[id, parent]), name].concat()),
        4 => (id(), name()).prop_map(|(parent, name)| [numbers(3, &[parent]), name].concat()),
        6 => (id(), name(), id(), name()).prop_map(|(parent, name, to, other)| {
            let to = to.to_le_bytes();
            [&numbers(4, &[parent])[..], &name, &to, &other].concat()
        }),
        12 => (id(), size(), extents())
            .prop_map(|(id, size, extents)| [numbers(5, &[id, size, 7]), extents].concat()),
        12 => (id(), size(), extents(), noise()).prop_map(|(id, offset, extents, data)| {
            let len = u32::try_from(data.len()).unwrap().to_le_bytes();
            [&numbers(6, &[id, offset % 5000, 7])[..], &extents, &len, &data].concat()
        }),
        4 => (id(), size()).prop_map(|(id, size)| numbers(7, &[id, size, 7])),
        2 => id().prop_map(|id| numbers(8, &[id, 8])),
        1 => noise(),
    ]
}

#[test]
fn superblocks() {
    let fields = (
        vec(any::<u8>(), 12..320),
        vec((12_usize..320, any::<u8>()), 0..6),
    );
    run(&fields, |(noise, changes)| {
        exercise::superblock(&noise);
        let mut bytes = super::superblock::sample().encode().unwrap();
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        exercise::superblock(&bytes);
    });
}

#[test]
fn transactions() {
    run(&vec(operation(), 0..40), |operations| {
        exercise::transaction(&operations.concat());
    });
}

#[test]
fn checkpoints() {
    run(&vec(record(), 0..60), |records| {
        let records = records.concat();
        for lost in [0, 1] {
            exercise::checkpoint(&[&[lost][..], &records].concat());
        }
    });
}
