//! Controllers as the options describe them.

use millrace_nvme_model::{Controller, Deallocated, ErrorKind, NamespaceOptions, Options, Rule};

use crate::host::{DATA, Host, command, pattern, set_blocks, set_prp};

fn namespace(block_size: u32, blocks: u64) -> NamespaceOptions {
    NamespaceOptions {
        block_size,
        blocks,
        ..NamespaceOptions::default()
    }
}

fn of(namespaces: Vec<NamespaceOptions>) -> Options {
    Options {
        namespaces,
        ..Options::default()
    }
}

#[test]
fn namespaces_are_no_larger_than_can_be_kept() {
    for namespaces in [
        vec![namespace(1 << 20, 1 << 44)],
        vec![namespace(512, u64::MAX)],
        vec![namespace(4096, (1 << 41) + 1)],
        vec![namespace(4096, 1 << 40), namespace(512, (1 << 43) + 1)],
    ] {
        let error = Controller::new(of(namespaces)).expect_err("it is too large");
        assert_eq!(error.kind(), ErrorKind::Options);
        assert!(error.to_string().contains("more than"), "{error}");
    }
    let last = (1 << 41) - 1;
    let mut host = Host::ready(of(vec![namespace(4096, 1 << 41)]));
    host.fill(4096, 1);
    let write = host.transfer(1, last, 1, 4096);
    assert_eq!(host.run(1, write).status, 0);
    host.fill(4096, 2);
    let read = host.transfer(2, last, 1, 4096);
    assert_eq!(host.run(1, read).status, 0);
    assert!(host.holds(4096, 1));
    host.assert_lawful();
}

#[test]
fn atomic_units_of_a_namespace_are_said_if_they_can_be() {
    let of_units = |whole, kept, has| {
        of(vec![NamespaceOptions {
            atomic_write: whole,
            atomic_write_power_fail: kept,
            has_atomic_units: has,
            ..NamespaceOptions::default()
        }])
    };
    // The controller says 16 and 1. NSFEAT bit 1, and both fields, which are less by one.
    for (whole, kept, has, said) in [
        (0, 0, false, (0, 0, 0)),
        (0, 0, true, (1, 0, 0)),
        (32, 0, false, (1, 31, 0)),
        (0, 4, false, (1, 0, 3)),
        (32, 1, false, (1, 31, 0)),
    ] {
        let mut host = Host::ready(of_units(whole, kept, has));
        host.identify(0, 1);
        let field = |at| u16::from_le_bytes([host.byte(at), host.byte(at + 1)]);
        let found = (host.byte(24) >> 1 & 1, field(34), field(36));
        assert_eq!(found, said, "{whole} and {kept}");
    }
    let error = Controller::new(of_units(1, 0, false)).expect_err("zero would mean 16");
    assert_eq!(error.kind(), ErrorKind::Options);
}

#[test]
fn deallocated_blocks_read_as_is_said() {
    for (deallocated, said, blank, after) in [
        (Deallocated::Unreported, 0, 0, pattern(1, 0)),
        (Deallocated::Zeros, 9, 0, 0),
        (Deallocated::Ones, 2, u64::MAX, u64::MAX),
    ] {
        let mut host = Host::ready(of(vec![NamespaceOptions {
            deallocated,
            ..NamespaceOptions::default()
        }]));
        host.identify(0, 1);
        assert_eq!(host.byte(33), said, "DLFEAT of {deallocated:?}");
        // More than a piece of what the model allocates at once, of which blocks 1 to 299 are deallocated.
        for first in [0, 1, 299, 300] {
            host.fill(4096, 1);
            let write = host.transfer(1, first, 1, 4096);
            assert_eq!(host.run(1, write).status, 0);
        }
        host.memory.store_u64(DATA, 299 << 32);
        host.memory.store_u64(DATA + 8, 1);
        let mut deallocate = command(9, 1);
        set_prp(&mut deallocate, host.address(DATA), 0);
        deallocate[11] = 4;
        assert_eq!(host.run(1, deallocate).status, 0);
        // Zeros are zeros, whatever deallocated blocks are.
        let mut zero = command(8, 1);
        set_blocks(&mut zero, 400, 300);
        assert_eq!(host.run(1, zero).status, 0);
        for (block, expected) in [
            (0, pattern(1, 0)),
            (1, after),
            (299, after),
            (300, pattern(1, 0)),
            (399, blank),
            (400, 0),
            (699, 0),
            (700, blank),
            (16_000, blank),
        ] {
            let read = host.transfer(2, block, 1, 4096);
            host.fill(4096, 5);
            assert_eq!(host.run(1, read).status, 0);
            let found = host.memory.load_u64(DATA);
            assert_eq!(found, expected, "block {block}, {deallocated:?}");
        }
        host.assert_lawful();
    }
}

#[test]
fn many_namespaces_take_many_lists() {
    let mut host = Host::ready(of(vec![namespace(512, 8); 2500]));
    host.identify(1, 0);
    assert_eq!(host.memory.load_u32(DATA + 516), 2500, "NN");
    let mut found: Vec<u32> = Vec::new();
    loop {
        let above = found.last().copied().unwrap_or(0);
        host.identify(2, above);
        let ids: Vec<u32> = (0..1024)
            .map(|place| host.memory.load_u32(DATA + place * 4))
            .take_while(|id| *id != 0)
            .collect();
        if ids.is_empty() {
            break;
        }
        found.extend(ids);
    }
    assert_eq!(found, (1..=2500).collect::<Vec<_>>());
    let mut read = host.transfer(2, 0, 1, 512);
    read[1] = 2500;
    assert_eq!(host.run(1, read).status, 0);
    host.assert_lawful();
    let too_many = Controller::new(of(vec![namespace(512, 8); (1 << 16) + 1]));
    assert!(too_many.is_err());
}

#[test]
fn the_error_log_ends_where_it_is_said_to() {
    let mut host = Host::ready(Options {
        error_entries: 3,
        ..Options::default()
    });
    host.identify(1, 0);
    assert_eq!(host.byte(262), 2, "ELPE");
    for _ in 0..5 {
        let read = host.transfer(2, 1 << 40, 1, 4096);
        assert_ne!(host.run(1, read).status, 0);
    }
    assert_eq!(host.broken_rules(), [Rule::LbaOutOfRange; 5]);
    let mut get = command(0x02, u32::MAX);
    set_prp(&mut get, host.address(DATA), 0);
    get[10] = 1023 << 16 | 1;
    assert_eq!(host.admin(get).status, 0);
    let counts: Vec<u64> = (0..64)
        .map(|entry| host.memory.load_u64(DATA + entry * 64))
        .collect();
    assert_eq!(counts[..3], [5, 4, 3]);
    let garbage = counts[3..].iter().filter(|count| **count != 0).count();
    assert_eq!(garbage, 61, "what lies behind the end is anything");
    host.assert_lawful();
}
