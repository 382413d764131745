//! What a power cut leaves, against a list of what was written.

use std::collections::BTreeMap;

use millrace_nvme_model::{Controller, NamespaceOptions, Options};
use proptest::prelude::*;

use crate::host::{Host, command, set_blocks};

const BLOCKS: u64 = 32;
const BLOCK: usize = 512;

/// What is done to the namespace.
#[derive(Clone, Debug)]
enum Step {
    Write { first: u64, blocks: u32, fua: bool },
    Zero { first: u64, blocks: u32 },
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let range = (0..BLOCKS - 8, 1..=8_u32);
    let step = prop_oneof![
        8 => (range.clone(), prop::bool::weighted(0.15))
            .prop_map(|((first, blocks), fua)| Step::Write { first, blocks, fua }),
        1 => range.prop_map(|(first, blocks)| Step::Zero { first, blocks }),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 0..40)
}

/// A write, with the values its blocks got.
#[derive(Debug)]
struct Write {
    first: u64,
    values: Vec<u64>,
    durable: bool,
}

fn options(seed: u64, atomic: u32) -> Options {
    Options {
        seed,
        namespaces: vec![NamespaceOptions {
            block_size: 512,
            blocks: BLOCKS,
            ..NamespaceOptions::default()
        }],
        atomic_write_power_fail: atomic,
        ..Options::default()
    }
}

/// The value of a block: its first word, which all words of the block must agree with.
fn value(controller: &Controller, block: u64) -> u64 {
    let bytes = controller.peek(1, block).expect("it is in range");
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    for at in (0..BLOCK).step_by(8) {
        assert_eq!(word(at), word(0), "block {block} is torn");
    }
    word(0)
}

/// Carries the steps out; returns the writes in their order.
fn carry_out(host: &mut Host, steps: &[Step]) -> Vec<Write> {
    let mut writes: Vec<Write> = Vec::new();
    let mut next = 1;
    for step in steps {
        match *step {
            Step::Write { first, blocks, fua } => {
                let values: Vec<u64> = (0..u64::from(blocks)).map(|block| next + block).collect();
                next += u64::from(blocks);
                for (number, value) in values.iter().enumerate() {
                    for at in (0..BLOCK).step_by(8) {
                        let at = crate::host::DATA + number * BLOCK + at;
                        host.memory.store_u64(at, *value);
                    }
                }
                let mut write = host.transfer(1, first, blocks, BLOCK);
                write[12] |= u32::from(fua) << 30;
                assert_eq!(host.run(1, write).status, 0);
                writes.push(Write {
                    first,
                    values,
                    durable: fua,
                });
            }
            Step::Zero { first, blocks } => {
                let mut zero = command(8, 1);
                set_blocks(&mut zero, first, blocks);
                assert_eq!(host.run(1, zero).status, 0);
                writes.push(Write {
                    first,
                    values: (0..blocks).map(|_| 0).collect(),
                    durable: false,
                });
            }
            Step::Flush => {
                assert_eq!(host.run(1, command(0, 1)).status, 0);
                for write in &mut writes {
                    write.durable = true;
                }
            }
        }
    }
    writes
}

/// For each block the values that it may have after a power cut: that of its last durable write, and those
/// of the writes after it.
fn allowed(writes: &[Write]) -> BTreeMap<u64, Vec<u64>> {
    let mut allowed: BTreeMap<u64, Vec<u64>> = (0..BLOCKS).map(|block| (block, vec![0])).collect();
    for write in writes {
        for (block, value) in (write.first..).zip(&write.values) {
            let values = allowed.get_mut(&block).expect("it is in range");
            if write.durable {
                values.clear();
            }
            values.push(*value);
        }
    }
    allowed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn a_power_cut_leaves_what_it_may(seed: u64, atomic in 1..=8_u32, steps in steps()) {
        let mut host = Host::ready(options(seed, atomic));
        let writes = carry_out(&mut host, &steps);
        host.assert_lawful();
        let before: Vec<u64> = (0..BLOCKS).map(|block| value(&host.controller, block)).collect();
        host.controller.power_cut();
        let after: Vec<u64> = (0..BLOCKS).map(|block| value(&host.controller, block)).collect();
        for (block, values) in allowed(&writes) {
            let at = usize::try_from(block).unwrap();
            prop_assert!(values.contains(&after[at]), "block {block}: {after:?}, {values:?}");
            prop_assert_eq!(before[at], *values.last().unwrap());
        }
        // A write within the atomic unit that survives in one block survives in all that no later one took.
        for (number, write) in writes.iter().enumerate() {
            if write.values.len() > usize::try_from(atomic).unwrap() || write.values[0] == 0 {
                continue;
            }
            let survives: Vec<bool> = (write.first..)
                .zip(&write.values)
                .filter(|(block, _)| {
                    !writes[number + 1..].iter().any(|later| {
                        (later.first..later.first + later.values.len() as u64).contains(block)
                    })
                })
                .map(|(block, value)| after[usize::try_from(block).unwrap()] == *value)
                .collect();
            prop_assert!(survives.iter().all(|one| *one == survives[0]), "{write:?} is torn");
        }
        // The controller is as after power-on, and works.
        prop_assert_eq!(host.register(0x14), 0);
        prop_assert_eq!(host.register(0x1c), 0);
        host.function.set_bus_master(true).unwrap();
        host.enable();
        host.create_queues(1);
        let read = host.transfer(2, 0, 8, BLOCK);
        prop_assert_eq!(host.run(1, read).status, 0);
        let word = |block| host.memory.load_u64(crate::host::DATA + block * BLOCK);
        let found: Vec<u64> = (0..8).map(word).collect();
        prop_assert_eq!(&found[..], &after[..8]);
    }
}

#[test]
fn some_seed_loses_and_some_seed_tears() {
    let (mut lost, mut kept, mut torn) = (0, 0, 0);
    for seed in 0..64 {
        let mut host = Host::ready(options(seed, 1));
        let steps = [Step::Write {
            first: 0,
            blocks: 8,
            fua: false,
        }];
        carry_out(&mut host, &steps);
        host.controller.power_cut();
        let survivors = (0..8)
            .filter(|block| value(&host.controller, *block) != 0)
            .count();
        match survivors {
            0 => lost += 1,
            8 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(lost > 5 && kept > 5 && torn > 5, "{lost} {kept} {torn}");
}

#[test]
fn a_small_cache_writes_back_by_itself() {
    let mut host = Host::ready(Options {
        cache_bytes: 4 * BLOCK,
        ..options(0, 1)
    });
    for first in 0..20 {
        let write = host.transfer(1, first, 1, BLOCK);
        assert_eq!(host.run(1, write).status, 0);
    }
    assert_eq!(host.controller.unflushed(1).unwrap(), 4);
    let mut zero = command(8, 1);
    set_blocks(&mut zero, 0, 32);
    assert_eq!(host.run(1, zero).status, 0);
    assert_eq!(
        host.controller.unflushed(1).unwrap(),
        0,
        "more than the cache holds"
    );
}

#[test]
fn a_reset_keeps_the_cache() {
    let mut host = Host::ready(options(0, 1));
    let write = host.transfer(1, 0, 1, BLOCK);
    host.run(1, write);
    host.disable();
    assert_eq!(host.controller.unflushed(1).unwrap(), 1);
    host.function.reset().unwrap();
    assert_eq!(host.controller.unflushed(1).unwrap(), 1);
}
