//! Doorbells in memory.

use millrace_nvme_model::{Options, Rule};

use crate::host::{Host, command, set_prp};

/// Pages of the shadow doorbells and the event indices.
const SHADOW: usize = 0x9_0000;
const INDEX: usize = 0x9_1000;

/// Submits a flush to queue 1 by the shadow doorbell; rings only if the event index asks for it.
fn submit(host: &mut Host, tail: &mut u32) -> bool {
    let id = u16::try_from(*tail).expect("few entries");
    host.write_entry(1, *tail, id, command(0, 1));
    let before = *tail;
    *tail = (*tail + 1) % crate::host::ENTRIES;
    host.memory.store_u32(SHADOW + 8, *tail);
    let index = host.memory.load_u32(INDEX + 8);
    let must_ring =
        tail.wrapping_sub(index).wrapping_sub(1) & 0xffff < tail.wrapping_sub(before) & 0xffff;
    if must_ring {
        host.ring(2, *tail);
    }
    must_ring
}

#[test]
fn shadow_doorbells_are_polled_until_the_queue_sleeps() {
    let mut host = Host::ready(Options::default());
    let mut configure = command(0x7c, 0);
    set_prp(&mut configure, host.address(SHADOW), host.address(INDEX));
    assert_eq!(host.admin(configure).status, 0);
    let mut tail = 0;
    let mut rings = 0;
    let mut completions = 0;
    for round in 0..500 {
        for _ in 0..round % 4 {
            rings += u32::from(submit(&mut host, &mut tail));
        }
        // Sometimes the queue finds nothing and goes to sleep.
        for _ in 0..round % 3 {
            host.controller.step();
        }
        while host.poll(1).is_some() {
            completions += 1;
        }
        host.memory
            .store_u32(SHADOW + 12, completions % crate::host::ENTRIES);
    }
    for _ in 0..3 {
        host.controller.step();
    }
    while host.poll(1).is_some() {
        completions += 1;
    }
    assert_eq!(completions, 500 / 4 * 6, "none was missed");
    assert!(rings > 0 && rings < completions, "{rings} rings");
    host.assert_lawful();
}

#[test]
fn heads_in_memory_are_looked_at_though_there_is_room() {
    for (head, rule) in [
        (9, Rule::CompletionHead),
        (crate::host::ENTRIES, Rule::DoorbellValue),
    ] {
        let mut host = Host::ready(Options::default());
        let mut configure = command(0x7c, 0);
        set_prp(&mut configure, host.address(SHADOW), host.address(INDEX));
        assert_eq!(host.admin(configure).status, 0);
        let mut tail = 0;
        submit(&mut host, &mut tail);
        host.wait(|host| host.controller.counters().completions == 4);
        host.memory.store_u32(SHADOW + 12, 1);
        for _ in 0..20 {
            host.controller.step();
        }
        host.assert_lawful();
        host.memory.store_u32(SHADOW + 12, head);
        for _ in 0..16 {
            host.controller.step();
        }
        assert_eq!(host.broken_rules(), [rule]);
        // The same by the register.
        host.ring(3, head);
        host.controller.step();
        assert_eq!(host.broken_rules(), [rule]);
    }
}
