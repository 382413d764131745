//! A host that breaks rules: each is answered as the specification says, and recorded.

use millrace_nvme_model::{
    Commands, Fault, FaultRule, Faults, NamespaceOptions, Options, Rule, Target, When,
};

use crate::host::{DATA, ENTRIES, Host, LISTS, MEMORY, command, set_blocks, set_prp};

const INVALID_FIELD: u16 = 0x002;
const PRP_OFFSET: u16 = 0x013;

#[test]
fn tail_beyond_the_queue() {
    let mut host = Host::ready(Options::default());
    host.ring(2, ENTRIES);
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::DoorbellValue]);
    assert_eq!(host.run(1, command(0, 1)).status, 0, "the queue works on");
}

#[test]
fn tail_past_the_head() {
    let mut host = Host::ready(Options {
        burst: 1,
        ..Options::default()
    });
    for entry in 0..ENTRIES {
        host.write_entry(1, entry, u16::try_from(entry).unwrap(), command(0, 1));
    }
    host.ring(2, 40);
    host.controller.step();
    assert_eq!(host.broken_rules(), []);
    // One was fetched, so that 24 may follow; these are 54.
    host.ring(2, 30);
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::SubmissionOverrun]);
    assert!(host.poll(1).is_some());
}

#[test]
fn doorbells_that_say_nothing_new() {
    let mut host = Host::ready(Options::default());
    assert_eq!(host.run(1, command(0, 1)).status, 0);
    for (doorbell, value) in [(0, 2), (1, 2), (2, 1), (3, 1), (4, 0)] {
        host.ring(doorbell, value);
        host.controller.step();
        let expected = match doorbell {
            4 => Rule::DoorbellWithoutQueue,
            _ => Rule::DoorbellValue,
        };
        assert_eq!(host.broken_rules(), [expected], "doorbell {doorbell}");
    }
    assert_eq!(host.run(1, command(0, 1)).status, 0, "the queue works on");
    host.assert_lawful();
}

#[test]
fn only_lies_about_the_head_excuse_a_tail_past_it() {
    for (fault, is_excused) in [
        (Fault::HeadBeyond, true),
        (Fault::Garbage, true),
        (Fault::Overwrite, true),
        (Fault::Delay(1), false),
        (Fault::WrongId, false),
        (Fault::CompleteTwice, false),
    ] {
        let host = Host::ready(Options {
            burst: 1,
            ..Options::default()
        });
        host.controller.set_faults(Faults {
            rules: vec![FaultRule {
                target: Target::Io,
                when: When::Nth(1),
                fault,
            }],
            ..Faults::default()
        });
        for entry in 0..ENTRIES {
            host.write_entry(1, entry, u16::try_from(entry).unwrap(), command(0, 1));
        }
        host.ring(2, 40);
        host.controller.step();
        host.ring(2, 30);
        host.controller.step();
        let broken = host.broken_rules();
        assert_eq!(broken.is_empty(), is_excused, "{fault:?}: {broken:?}");
    }
}

#[test]
fn more_aborts_than_the_controller_takes() {
    let options = Options {
        aborts_max: 2,
        ..Options::default()
    };
    let mut host = Host::ready(options.clone());
    let mut abort = command(0x08, 0);
    abort[10] = 9 << 16 | 1;
    // One after the other.
    for _ in 0..5 {
        assert_eq!(host.admin(abort).status, 0);
    }
    host.assert_lawful();
    // At once: the first is refused, those that are left are no more than there may be.
    for _ in 0..3 {
        host.submit(0, abort);
    }
    let codes: Vec<u16> = (0..3).map(|_| host.next(0).code()).collect();
    assert_eq!(codes, [0x103, 0, 0]);
    assert_eq!(host.broken_rules(), [Rule::Limit]);

    // Those that take their time, or never end, count as well.
    for fault in [Fault::Delay(100), Fault::Lose] {
        let mut host = Host::ready(Options {
            faults: Faults {
                rules: vec![FaultRule {
                    target: Target::AdminOpcode(0x08),
                    when: When::Always,
                    fault,
                }],
                ..Faults::default()
            },
            ..options.clone()
        });
        for _ in 0..2 {
            host.submit(0, abort);
            host.controller.step();
        }
        host.assert_lawful();
        assert_eq!(host.admin(abort).code(), 0x103, "{fault:?}");
        assert_eq!(host.broken_rules(), [Rule::Limit]);
    }
}

#[test]
fn doorbell_without_queue() {
    let host = Host::ready(Options::default());
    host.ring(4, 1);
    host.ring(1000, 1);
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::DoorbellWithoutQueue; 2]);
}

#[test]
fn head_past_what_was_posted() {
    let mut host = Host::ready(Options::default());
    assert_eq!(host.run(1, command(0, 1)).status, 0);
    host.ring(3, 9);
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::CompletionHead]);
}

#[test]
fn identifier_in_flight() {
    let mut host = Host::ready(Options::default());
    // Event requests stay in flight.
    host.submit_as(0, 7, command(0x0c, 0));
    host.submit_as(0, 7, command(0x0c, 0));
    let completion = host.next(0);
    assert_eq!((completion.id, completion.code()), (7, 0x003));
    assert_eq!(host.broken_rules(), [Rule::CommandIdInUse]);
}

#[test]
fn entries_with_wrong_offsets() {
    let mut host = Host::ready(Options::default());
    let first = host.address(DATA);
    let mut read = host.transfer(2, 0, 2, 4096);
    set_prp(&mut read, first + 2, first + 4096);
    assert_eq!(host.run(1, read).code(), PRP_OFFSET);
    assert_eq!(host.broken_rules(), [Rule::PrpOffset]);

    set_prp(&mut read, first, first + 4096 + 512);
    assert_eq!(host.run(1, read).code(), PRP_OFFSET);
    assert_eq!(host.broken_rules(), [Rule::PrpOffset]);

    let mut read = host.transfer(2, 0, 4, 4096);
    host.memory.store_u64(LISTS + 8, first + 4);
    assert_eq!(host.run(1, read).code(), PRP_OFFSET);
    assert_eq!(host.broken_rules(), [Rule::PrpOffset]);

    set_prp(&mut read, first, host.address(LISTS) + 4);
    assert_eq!(host.run(1, read).code(), PRP_OFFSET);
    assert_eq!(host.broken_rules(), [Rule::PrpList]);
}

#[test]
fn lists_go_on_in_other_pages() {
    let mut host = Host::ready(Options {
        transfer_max: 0,
        ..Options::default()
    });
    let blocks = 20_u32;
    host.fill(20 * 4096, 3);
    let mut write = host.transfer(1, 0, blocks, 4096);
    // The list begins eight entries before a page's end; the eighth points to the rest.
    let list = LISTS + 4096 - 64;
    let first = host.address(DATA);
    for entry in 0..7 {
        host.memory
            .store_u64(list + entry * 8, first + (entry as u64 + 1) * 4096);
    }
    let rest = LISTS + 0x8000;
    host.memory.store_u64(list + 56, host.address(rest));
    for entry in 7..19 {
        host.memory
            .store_u64(rest + (entry - 7) * 8, first + (entry as u64 + 1) * 4096);
    }
    set_prp(&mut write, first, host.address(list));
    assert_eq!(host.run(1, write).status, 0);
    host.assert_lawful();
    host.fill(20 * 4096, 4);
    let read = host.transfer(2, 0, blocks, 4096);
    assert_eq!(host.run(1, read).status, 0);
    assert!(host.holds(20 * 4096, 3));

    host.memory.store_u64(list + 56, host.address(rest) + 8);
    assert_eq!(host.run(1, write).code(), PRP_OFFSET);
    assert_eq!(host.broken_rules(), [Rule::PrpList]);
}

#[test]
fn a_list_that_just_fits_has_no_pointer() {
    let mut host = Host::ready(Options {
        transfer_max: 0,
        ..Options::default()
    });
    let mut write = host.transfer(1, 0, 9, 4096);
    let list = LISTS + 4096 - 64;
    let first = host.address(DATA);
    for entry in 0..8 {
        host.memory
            .store_u64(list + entry * 8, first + (entry as u64 + 1) * 4096);
    }
    set_prp(&mut write, first, host.address(list));
    assert_eq!(host.run(1, write).status, 0);
    host.assert_lawful();
}

#[test]
fn transfers_that_are_too_long() {
    let mut host = Host::ready(Options {
        transfer_max: 2,
        ..Options::default()
    });
    let read = host.transfer(2, 0, 4, 4096);
    assert_eq!(host.run(1, read).status, 0);
    let read = host.transfer(2, 0, 5, 4096);
    assert_eq!(host.run(1, read).code(), INVALID_FIELD);
    assert_eq!(host.broken_rules(), [Rule::TransferTooLong]);
}

#[test]
fn blocks_beyond_the_end() {
    let mut host = Host::ready(Options::default());
    let end = 16 << 10;
    for first in [end - 1, end, u64::MAX] {
        let read = host.transfer(2, first, 2, 4096);
        let completion = host.run(1, read);
        assert_eq!(completion.code(), 0x080);
        assert_ne!(completion.status & 1 << 14, 0, "do not retry");
        assert_eq!(host.broken_rules(), [Rule::LbaOutOfRange]);
    }
}

#[test]
fn namespaces_and_commands_that_are_not_there() {
    let mut host = Host::ready(Options {
        commands: Commands {
            compare: false,
            ..Commands::default()
        },
        ..Options::default()
    });
    let mut read = host.transfer(2, 0, 1, 4096);
    read[1] = 2;
    assert_eq!(host.run(1, read).code(), 0x00b);
    assert_eq!(host.broken_rules(), [Rule::NoNamespace]);
    let compare = host.transfer(5, 0, 1, 4096);
    assert_eq!(host.run(1, compare).code(), 0x001);
    assert_eq!(host.broken_rules(), [Rule::NotOffered]);
    // Firmware commit.
    assert_eq!(host.admin(command(0x10, 0)).code(), 0x001);
    assert_eq!(host.broken_rules(), [Rule::NotOffered]);
}

#[test]
fn reserved_fields() {
    let mut host = Host::ready(Options::default());
    let mut read = host.transfer(2, 0, 1, 4096);
    read[2] = 1;
    assert_eq!(host.run(1, read).status, 0);
    let mut read = host.transfer(2, 0, 1, 4096);
    read[14] = 1;
    assert_eq!(host.run(1, read).status, 0);
    let mut read = host.transfer(2, 0, 1, 4096);
    read[8] = 4096;
    assert_eq!(host.run(1, read).status, 0);
    assert_eq!(host.broken_rules(), [Rule::ReservedField; 3]);
}

#[test]
fn memory_that_is_not_mapped() {
    let mut host = Host::ready(Options::default());
    let mut read = host.transfer(2, 0, 1, 4096);
    set_prp(&mut read, 0x1000, 0);
    assert_eq!(host.run(1, read).code(), 0x004);
    let faults = host.controller.dma_faults();
    assert_eq!(faults.len(), 1);
    assert!(faults[0].write && faults[0].address == 0x1000 && faults[0].length == 4096);
    host.controller.clear_records();
    // The second page lies behind the mapping's end.
    let mut write = host.transfer(1, 0, 2, 4096);
    set_prp(
        &mut write,
        host.address(MEMORY - 4096),
        host.address(MEMORY),
    );
    assert_eq!(host.run(1, write).code(), 0x004);
    assert!(!host.controller.dma_faults()[0].write);
}

#[test]
fn enabling_with_bad_queues() {
    for (attributes, page, rule) in [
        (0, 0, Rule::QueueSize),
        (63 << 16, 0, Rule::QueueSize),
        (63 << 16 | 63, 0, Rule::QueueAlignment),
        (63 << 16 | 63, 9, Rule::Configuration),
    ] {
        let mut host = Host::new(Options::default());
        host.set_register(0x24, attributes);
        host.set_register(0x28, 0x1_0800);
        host.set_register(0x14, 4 << 20 | 6 << 16 | page << 7 | 1);
        // The low bits of a base address are not kept, so that the controller may start nevertheless.
        host.wait(|host| host.register(0x1c) != 0);
        let broken = host.broken_rules();
        assert!(broken.contains(&rule), "{broken:?} has {rule:?}");
        host.set_register(0x14, 0);
        host.wait(|host| host.register(0x1c) == 0);
        host.enable();
    }
}

#[test]
fn base_addresses_follow_the_page_size() {
    let host = Host::new(Options::default());
    host.set_register(0x24, 63 << 16 | 63);
    host.set_register(0x28, 0x1_1000);
    host.set_register(0x30, 0x2_0000);
    // Pages of 64 KiB.
    host.set_register(0x14, 4 << 20 | 6 << 16 | 4 << 7 | 1);
    host.wait(|host| host.register(0x1c) & 2 != 0);
    assert_eq!(host.broken_rules(), [Rule::QueueAlignment]);
}

#[test]
fn changes_while_enabled() {
    let host = Host::ready(Options::default());
    host.set_register(0x24, 7);
    host.set_register(0x14, 4 << 20 | 6 << 16 | 1 << 7 | 1);
    host.set_register(0x00, 1);
    host.controller.step();
    assert_eq!(
        host.broken_rules(),
        [
            Rule::ChangedWhileEnabled,
            Rule::ChangedWhileEnabled,
            Rule::RegisterAccess
        ]
    );
}

#[test]
fn enabling_too_early() {
    let host = Host::ready(Options::default());
    host.set_register(0x14, 4 << 20 | 6 << 16);
    host.set_register(0x14, 4 << 20 | 6 << 16 | 1);
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::EnabledTooEarly]);
}

#[test]
fn queues_that_cannot_be() {
    let mut host = Host::ready(Options {
        queue_entries_max: 128,
        ..Options::default()
    });
    let base = host.address(DATA);
    let mut create = |id: u32, entries: u32, base: u64, flags: u32| {
        let mut create = command(0x05, 0);
        set_prp(&mut create, base, 0);
        create[10] = (entries - 1) << 16 | id;
        create[11] = flags;
        host.admin(create).code()
    };
    assert_eq!(create(0, 64, base, 1), 0x101);
    assert_eq!(create(17, 64, base, 1), 0x101);
    assert_eq!(create(1, 64, base, 1), 0x101, "it exists");
    assert_eq!(create(2, 1, base, 1), 0x102);
    assert_eq!(create(2, 129, base, 1), 0x102);
    assert_eq!(create(2, 64, base, 0), 0x002, "not contiguous");
    assert_eq!(create(2, 64, base + 512, 1), 0x013);
    assert_eq!(create(2, 64, base, 17 << 16 | 3), 0x108, "vector");
    assert_eq!(create(2, 128, base, 16 << 16 | 3), 0);
    assert_eq!(host.broken_rules().len(), 8);

    let mut orphan = command(0x01, 0);
    set_prp(&mut orphan, base, 0);
    (orphan[10], orphan[11]) = (63 << 16 | 2, 9 << 16 | 1);
    assert_eq!(host.admin(orphan).code(), 0x100);
    assert_eq!(host.broken_rules(), [Rule::QueueId]);
}

#[test]
fn queues_are_deleted_in_order() {
    let mut host = Host::ready(Options::default());
    let mut delete = command(0x04, 0);
    delete[10] = 1;
    assert_eq!(
        host.admin(delete).code(),
        0x10c,
        "a submission queue uses it"
    );
    assert_eq!(host.broken_rules(), [Rule::Sequence]);
    let mut first = command(0x00, 0);
    first[10] = 1;
    assert_eq!(host.admin(first).status, 0);
    assert_eq!(host.admin(delete).status, 0);
    assert_eq!(host.admin(delete).code(), 0x101);
    assert_eq!(host.broken_rules(), [Rule::QueueId]);
}

#[test]
fn ringing_without_memory_access() {
    let mut host = Host::ready(Options::default());
    host.function.set_bus_master(false).unwrap();
    host.submit(1, command(0, 1));
    host.controller.step();
    assert_eq!(host.broken_rules(), [Rule::NotBusMaster]);
    assert!(host.poll(1).is_none());
}

#[test]
fn crossing_the_boundary_is_counted_and_allowed() {
    let mut host = Host::ready(Options {
        namespaces: vec![NamespaceOptions {
            optimal_boundary: 8,
            ..NamespaceOptions::default()
        }],
        ..Options::default()
    });
    for first in [0, 8, 4] {
        let read = host.transfer(2, first, 8, 4096);
        assert_eq!(host.run(1, read).status, 0);
    }
    assert_eq!(host.controller.counters().boundary_crossings, 1);
    let mut zero = command(8, 1);
    set_blocks(&mut zero, 3, 100);
    assert_eq!(host.run(1, zero).status, 0);
    assert_eq!(host.controller.counters().boundary_crossings, 1);
    host.assert_lawful();
}
