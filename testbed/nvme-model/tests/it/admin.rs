//! Features, log pages, events, abort and format.

use std::os::fd::AsFd;

use millrace_nvme_model::{Event, Fault, FaultRule, Faults, Options, Rule, Target, When};
use rustix::event::{EventfdFlags, eventfd};

use crate::host::{DATA, Host, command, set_blocks, set_prp};

fn set_feature(host: &mut Host, feature: u32, value: u32) -> (u16, u32) {
    let mut set = command(0x09, 0);
    (set[10], set[11]) = (feature, value);
    let completion = host.admin(set);
    (completion.code(), completion.result)
}

fn get_feature(host: &mut Host, feature: u32) -> (u16, u32) {
    let mut get = command(0x0a, 0);
    get[10] = feature;
    let completion = host.admin(get);
    (completion.code(), completion.result)
}

fn log_page(host: &mut Host, page: u32, length: u32, offset: u32) -> u16 {
    let mut get = command(0x02, u32::MAX);
    set_prp(&mut get, host.address(DATA), 0);
    get[10] = (length / 4 - 1) << 16 | page;
    get[12] = offset;
    host.admin(get).code()
}

#[test]
fn grants_no_more_queues_than_there_are() {
    let mut host = Host::new(Options {
        queues: 4,
        ..Options::default()
    });
    host.enable();
    assert_eq!(set_feature(&mut host, 7, 63 << 16 | 1), (0, 3 << 16 | 1));
    assert_eq!(get_feature(&mut host, 7), (0, 3 << 16 | 1));
    host.create_queues(2);
    host.assert_lawful();
    assert_eq!(set_feature(&mut host, 7, 0).0, 0x00c, "queues exist");
    assert_eq!(host.broken_rules(), [Rule::Sequence]);
}

#[test]
fn the_cache_can_be_switched_off() {
    let mut host = Host::ready(Options::default());
    assert_eq!(get_feature(&mut host, 6), (0, 1));
    let write = host.transfer(1, 0, 1, 4096);
    host.run(1, write);
    assert_eq!(host.controller.unflushed(1).unwrap(), 1);
    assert_eq!(set_feature(&mut host, 6, 0), (0, 0));
    assert_eq!(host.controller.unflushed(1).unwrap(), 0);
    host.run(1, write);
    assert_eq!(host.controller.unflushed(1).unwrap(), 0);
    host.assert_lawful();
}

#[test]
fn log_pages_tell_what_happened() {
    let mut host = Host::ready(Options::default());
    let write = host.transfer(1, 0, 2, 4096);
    host.run(1, write);
    let read = host.transfer(2, 1 << 40, 1, 4096);
    host.run(1, read);
    assert_eq!(host.broken_rules(), [Rule::LbaOutOfRange]);
    assert_eq!(log_page(&mut host, 1, 64, 0), 0);
    assert_eq!(host.memory.load_u64(DATA), 1, "the first error");
    assert_eq!(host.memory.load_u32(DATA + 8) & 0xffff, 1, "on queue 1");
    assert_eq!(host.memory.load_u32(DATA + 12) >> 1 & 0x7ff, 0x080);
    assert_eq!(host.memory.load_u64(DATA + 16), 1 << 40);
    assert_eq!(log_page(&mut host, 2, 512, 0), 0);
    assert_eq!(host.memory.load_u64(DATA + 80), 1, "host writes");
    assert_eq!(host.memory.load_u64(DATA + 176), 1, "errors");
    let temperature = u16::from_le_bytes([host.byte(1), host.byte(2)]);
    assert_eq!(temperature, 308);
    assert_eq!(log_page(&mut host, 2, 16, 80), 0, "a part");
    assert_eq!(host.memory.load_u64(DATA), 1);
    assert_eq!(log_page(&mut host, 3, 512, 0), 0);
    assert_eq!(&[host.byte(8), host.byte(9), host.byte(10)], b"1.0");
    assert_eq!(log_page(&mut host, 5, 4096, 0), 0);
    assert_eq!(host.memory.load_u32(DATA + 6 * 4) & 1, 1, "Identify");
    assert_eq!(host.memory.load_u32(DATA + 0x10 * 4), 0, "firmware commit");
    assert_eq!(host.memory.load_u32(DATA + 1024 + 4), 3, "Write");
    host.assert_lawful();
    assert_eq!(log_page(&mut host, 0x70, 512, 0), 0x109);
    assert_eq!(host.broken_rules(), [Rule::NotOffered]);
}

#[test]
fn events_wait_for_requests_and_for_their_log_page() {
    let mut host = Host::ready(Options::default());
    assert_eq!(set_feature(&mut host, 0x0b, 1 << 8 | 2).0, 0);
    let first = host.submit(0, command(0x0c, 0));
    let second = host.submit(0, command(0x0c, 0));
    host.controller.raise_event(Event::NamespaceChanged(1));
    let completion = host.next(0);
    assert_eq!((completion.id, completion.result), (first, 0x0004_0002));
    // The same type is silent until its page is read.
    host.controller.raise_event(Event::NamespaceChanged(1));
    host.controller.step();
    assert!(host.poll(0).is_none());
    let mut get = command(0x02, u32::MAX);
    set_prp(&mut get, host.address(DATA), 0);
    get[10] = 1023 << 16 | 4;
    let id = host.submit(0, get);
    assert_eq!(host.next(0).id, id);
    assert_eq!(host.memory.load_u32(DATA), 1);
    let completion = host.next(0);
    assert_eq!((completion.id, completion.result), (second, 0x0004_0002));
    // A warning that the host does not want.
    host.submit(0, command(0x0c, 0));
    host.controller.raise_event(Event::Spare);
    host.controller.step();
    assert!(host.poll(0).is_none());
    host.controller.raise_event(Event::Temperature);
    assert_eq!(host.next(0).result, 0x0002_0101);
    host.assert_lawful();
}

#[test]
fn more_event_requests_than_allowed() {
    let mut host = Host::ready(Options::default());
    for _ in 0..4 {
        host.submit(0, command(0x0c, 0));
    }
    assert_eq!(host.admin(command(0x0c, 0)).code(), 0x105);
    assert_eq!(host.broken_rules(), [Rule::Limit]);
}

#[test]
fn a_bad_doorbell_is_an_event() {
    let mut host = Host::ready(Options::default());
    host.submit(0, command(0x0c, 0));
    host.ring(2, 64);
    assert_eq!(host.next(0).result, 0x0001_0100);
}

#[test]
fn aborts_what_waits() {
    let mut host = Host::ready(Options {
        faults: Faults {
            rules: vec![FaultRule {
                target: Target::Io,
                when: When::Always,
                fault: Fault::Delay(1 << 40),
            }],
            ..Faults::default()
        },
        ..Options::default()
    });
    let id = host.submit(1, command(0, 1));
    host.controller.step();
    let mut abort = command(0x08, 0);
    abort[10] = u32::from(id) << 16 | 1;
    assert_eq!(host.admin(abort).result, 0);
    let completion = host.next(1);
    assert_eq!((completion.id, completion.code()), (id, 0x007));
    assert_eq!(host.admin(abort).result, 1, "nothing to abort");
    host.assert_lawful();
}

#[test]
fn formats() {
    let mut host = Host::ready(Options::default());
    host.fill(4096, 1);
    let write = host.transfer(1, 0, 1, 4096);
    host.run(1, write);
    assert_eq!(host.admin(command(0x80, 1)).status, 0);
    host.identify(0, 1);
    assert_eq!(host.memory.load_u64(DATA), 128 << 10, "blocks of 512 bytes");
    assert_eq!(host.byte(26) & 0xf, 0);
    assert_eq!(host.controller.peek(1, 0).unwrap(), [0; 512]);
    let mut format = command(0x80, u32::MAX);
    format[10] = 1;
    assert_eq!(host.admin(format).status, 0);
    assert_eq!(host.controller.peek(1, 0).unwrap().len(), 4096);
    host.assert_lawful();
    format[10] = 2;
    assert_eq!(host.admin(format).code(), 0x10a);
}

#[test]
fn uncorrectable_blocks_cannot_be_read_until_they_are_written() {
    let mut host = Host::ready(Options::default());
    let mut spoil = command(4, 1);
    set_blocks(&mut spoil, 4, 1);
    assert_eq!(host.run(1, spoil).status, 0);
    let read = host.transfer(2, 3, 3, 4096);
    assert_eq!(host.run(1, read).code(), 0x281);
    let write = host.transfer(1, 4, 1, 4096);
    assert_eq!(host.run(1, write).status, 0);
    assert_eq!(host.run(1, read).status, 0);
    host.assert_lawful();
}

#[test]
fn shuts_down() {
    let mut host = Host::ready(Options::default());
    let write = host.transfer(1, 0, 1, 4096);
    host.run(1, write);
    host.set_register(0x14, 4 << 20 | 6 << 16 | 1 << 14 | 1);
    host.wait(|host| host.register(0x1c) >> 2 & 3 == 2);
    assert_eq!(host.controller.unflushed(1).unwrap(), 0);
    host.disable();
    host.enable();
    host.assert_lawful();
}

#[test]
fn vectors_fire() {
    let mut host = Host::ready(Options::default());
    let events: Vec<_> = (0..2)
        .map(|_| eventfd(0, EventfdFlags::NONBLOCK).unwrap())
        .collect();
    let borrowed: Vec<_> = events.iter().map(AsFd::as_fd).collect();
    host.function.set_vectors(&borrowed).unwrap();
    assert_eq!(host.run(1, command(0, 1)).status, 0);
    let mut count = [0; 8];
    assert_eq!(rustix::io::read(&events[1], &mut count).unwrap(), 8);
    assert_eq!(u64::from_ne_bytes(count), 1);
    assert!(
        rustix::io::read(&events[0], &mut count).is_err(),
        "not the admin queue's"
    );
}

#[test]
fn events_of_other_log_pages() {
    let mut host = Host::ready(Options::default());
    for (event, result, page) in [
        (Event::Vendor { page: 0xc5 }, 0x00c5_0007, 0xc5),
        (Event::FirmwareActivation, 0x0003_0102, 0x03),
    ] {
        assert_eq!(set_feature(&mut host, 0x0b, 1 << 9).0, 0);
        host.submit(0, command(0x0c, 0));
        host.controller.raise_event(event);
        assert_eq!(host.next(0).result, result);
        // The same again, until that page is read and no other.
        let waiting = host.submit(0, command(0x0c, 0));
        host.controller.raise_event(event);
        for other in [1, 2, 4] {
            assert_eq!(log_page(&mut host, other, 512, 0), 0);
        }
        let mut get = command(0x02, u32::MAX);
        set_prp(&mut get, host.address(DATA), 0);
        get[10] = 127 << 16 | page;
        let id = host.submit(0, get);
        assert_eq!(host.next(0).id, id);
        let told = host.next(0);
        assert_eq!((told.id, told.result), (waiting, result));
        assert_eq!(log_page(&mut host, page, 512, 0), 0);
    }
    host.assert_lawful();
}

#[test]
fn more_changed_namespaces_than_a_log_page_names() {
    let mut host = Host::ready(Options::default());
    for id in 1..=1025 {
        host.controller.raise_event(Event::NamespaceChanged(id));
    }
    assert_eq!(log_page(&mut host, 4, 4096, 0), 0);
    assert_eq!(host.memory.load_u64(DATA), u64::from(u32::MAX));
    assert_eq!(log_page(&mut host, 4, 4096, 0), 0);
    assert_eq!(host.memory.load_u64(DATA), 0, "it was read");
    host.assert_lawful();
}
