//! Scatter-gather lists.

use millrace_nvme_model::{Options, Rule, SglSupport};

use crate::host::{DATA, Host, LISTS, halves};

const BLOCK: u64 = 0x00;
const SEGMENT: u64 = 0x20;
const LAST: u64 = 0x30;

fn ready(sgl: SglSupport) -> Host {
    Host::ready(Options {
        sgl,
        ..Options::default()
    })
}

/// The descriptor's second half.
fn half(kind: u64, length: u64) -> u64 {
    kind << 56 | length
}

fn put(host: &Host, at: usize, address: u64, kind: u64, length: u64) {
    host.memory.store_u64(at, address);
    host.memory.store_u64(at + 8, half(kind, length));
}

fn transfer(host: &mut Host, opcode: u32, address: u64, kind: u64, length: u64) -> u16 {
    let mut command = host.transfer(opcode, 0, 2, 4096);
    command[0] |= 1 << 14;
    (command[6], command[7]) = halves(address);
    (command[8], command[9]) = halves(half(kind, length));
    host.run(1, command).code()
}

#[test]
fn data_may_lie_anywhere() {
    let mut host = ready(SglSupport::Any);
    host.fill(8192, 1);
    let data = host.address(DATA);
    assert_eq!(transfer(&mut host, 1, data, BLOCK, 8192), 0);
    // 1 byte, 4095 bytes and the rest, in two segments.
    let lists = host.address(LISTS);
    put(&host, LISTS, data, BLOCK, 1);
    put(&host, LISTS + 16, lists + 256, LAST, 32);
    put(&host, LISTS + 256, data + 1, BLOCK, 4095);
    put(&host, LISTS + 272, data + 4096, BLOCK, 4096);
    host.fill(8192, 2);
    assert_eq!(transfer(&mut host, 2, lists, SEGMENT, 32), 0);
    assert!(host.holds(8192, 1));
    assert_eq!(transfer(&mut host, 5, lists, SEGMENT, 32), 0, "compare");
    host.assert_lawful();
}

#[test]
fn wrong_lists_are_refused() {
    let mut host = ready(SglSupport::Dwords);
    let data = host.address(DATA);
    let lists = host.address(LISTS);
    assert_eq!(
        transfer(&mut host, 2, data, BLOCK, 4096),
        0x00f,
        "too short"
    );
    assert_eq!(transfer(&mut host, 2, data, BLOCK, 8196), 0x00f, "too long");
    assert_eq!(transfer(&mut host, 2, data + 1, BLOCK, 8192), 0x00f, "odd");
    assert_eq!(
        transfer(&mut host, 2, data, 0x10, 8192),
        0x011,
        "bit bucket"
    );
    assert_eq!(transfer(&mut host, 2, lists, LAST, 24), 0x00d);
    put(&host, LISTS, lists, LAST, 16);
    assert_eq!(
        transfer(&mut host, 2, lists, LAST, 16),
        0x00d,
        "more after the last"
    );
    put(&host, LISTS, data, BLOCK, 8192);
    assert_eq!(
        transfer(&mut host, 2, lists, SEGMENT, 16),
        0x00d,
        "nothing after a segment that is not named the last"
    );
    assert_eq!(transfer(&mut host, 2, lists, LAST, 16), 0);
    put(&host, LISTS, lists, SEGMENT, 16);
    assert_eq!(transfer(&mut host, 2, lists, SEGMENT, 16), 0x00e, "endless");
    assert_eq!(host.broken_rules(), [Rule::SglDescriptor; 8]);
    let mut host = ready(SglSupport::None);
    assert_eq!(transfer(&mut host, 2, data, BLOCK, 8192), 0x002);
    assert_eq!(host.broken_rules(), [Rule::NotOffered]);
}
