//! The bytes of every structure.

use std::net::SocketAddr;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::Side;
use millrace_stream::partition::{
    ConnectionName, EndName, PARTITION_VERSION, PartitionGeometry, PartitionSettings,
};
use millrace_window::{Mapped, WORD, Window};

use super::fixture::{Host, MS, connect, opening, settings};

const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 1,
    ring_lines: 64,
};

/// The words at an offset.
fn words(window: &Window<Mapped>, side: Side, offset: usize, count: usize) -> Vec<u64> {
    let area = window.incoming(GEOMETRY.range(side, 0)).expect("an area");
    let slot = area.poll(offset).expect("a line");
    let mut words = vec![slot.word()];
    for index in 1..count {
        let mut word = [0; WORD];
        slot.load(index * WORD, &mut word).expect("within the area");
        words.push(u64::from_le_bytes(word));
    }
    words
}

fn run(has_checks: bool) -> (Window<Mapped>, [Host<Mapped>; 2]) {
    run_with(has_checks, &[])
}

/// The same run with some of the sixteen bytes urgent.
fn run_with(has_checks: bool, urgent: &[usize]) -> (Window<Mapped>, [Host<Mapped>; 2]) {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (first, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let second = Window::attach(&file).expect("the same memory");
    let of = |incarnation| PartitionSettings {
        has_checks,
        ..settings(incarnation)
    };
    let mut hosts = [
        Host::of(&first, GEOMETRY, Side::Connecting, of(0x11)),
        Host::of(&second, GEOMETRY, Side::Accepting, of(0x22)),
    ];
    connect(
        &mut hosts,
        [&opening(0, 128), &opening(0, 1 << 20)],
        [b"sixteen bytes ..".to_vec(), Vec::new()],
    );
    let end = hosts[0].ends.ends.get_mut(&0).expect("it is open");
    end.urgent.extend(urgent);
    hosts.iter_mut().for_each(|host| host.send_all(0));
    for turn in 1..12 {
        hosts.iter_mut().for_each(|host| {
            host.poll(turn * MS);
        });
    }
    assert!(hosts.iter().all(|host| host.ends.are_closed()));
    (Window::attach(&file).expect("the same memory"), hosts)
}

/// The salt from incarnation 0x11 to 0x22.
const TAG: u64 = 0x4e3e_3566;

#[test]
fn an_area() {
    assert_eq!(PARTITION_VERSION, 2);
    assert_eq!(GEOMETRY.area(), 4096 + 64 * 64);
    assert_eq!(GEOMETRY.range(Side::Accepting, 0), 8192..16384);
    let (window, hosts) = run(false);
    let word = |offset| words(&window, Side::Connecting, offset, 1)[0];
    assert_eq!(
        word(0),
        0x0000_0602_5450_524d,
        "MRPT, version 2, 2^6 lines, partition 0"
    );
    assert_eq!((word(128), word(256)), (0x11, 0x22), "both incarnations");
    assert_eq!(word(384), 11, "one beat a poll");
    assert_eq!(
        (word(512), word(640)),
        (0, 0),
        "two lines are not given back yet; it never slept"
    );
    assert_eq!(hosts[0].partition.totals().frames_sent, 3);
}

#[test]
fn frames() {
    let (window, _) = run(false);
    let line = |index: usize| words(&window, Side::Connecting, 4096 + index * 64, 4);
    let [data, finish, close] = [0_usize, 1, 2].map(line);
    let tag = data[0] & 0xffff_ffff;
    assert_eq!(tag, TAG, "the salt of 0x11 to 0x22");
    assert_eq!(data[0], TAG | 24 << 32 | 2 << 48, "8 and 16 bytes, DATA");
    assert_eq!(data[1], 2 << 32, "connection 0.0, 128 bytes of credit");
    assert_eq!(
        data[2..],
        [
            u64::from_le_bytes(*b"sixteen "),
            u64::from_le_bytes(*b"bytes ..")
        ]
    );
    assert_eq!(finish[0], (TAG ^ 1) | 16 << 32 | 4 << 48, "FINISH");
    assert_eq!(finish[1..3], [2 << 32, 16], "its total");
    assert_eq!(close[0], (TAG ^ 2) | 8 << 32 | 6 << 48, "CLOSE");
    assert_eq!(
        words(&window, Side::Connecting, 4096 + 3 * 64, 1),
        [0],
        "nothing behind"
    );
}

#[test]
fn urgent_frames() {
    let (window, hosts) = run_with(false, &[7]);
    let line = |index: usize| words(&window, Side::Connecting, 4096 + index * 64, 4);
    let [data, urgent, finish] = [0_usize, 1, 2].map(line);
    assert_eq!(data[0], TAG | 15 << 32 | 2 << 48, "8 and 7 bytes, DATA");
    assert_eq!(data[2], u64::from_le_bytes(*b"sixteen\0"));
    assert_eq!(
        urgent[0],
        (TAG ^ 1) | 17 << 32 | 7 << 48,
        "8 and 9 bytes, URGENT"
    );
    assert_eq!(urgent[1], 2 << 32, "connection 0.0, 128 bytes of credit");
    assert_eq!(urgent[2], u64::from_le_bytes(*b" bytes ."));
    assert_eq!(urgent[3], u64::from(b'.'));
    assert_eq!(finish[0], (TAG ^ 2) | 16 << 32 | 4 << 48, "FINISH");
    assert_eq!(finish[1..3], [2 << 32, 16], "its total");
    let received = &hosts[1].ends.ends[&0].urgent_received;
    assert_eq!(received.iter().collect::<Vec<_>>(), [&7]);
}

#[test]
fn checked_frames() {
    let (window, _) = run(true);
    let greeting = words(&window, Side::Connecting, 0, 1)[0];
    assert_eq!(greeting, 0x0000_8602_5450_524d);
    let data = words(&window, Side::Connecting, 4096, 5);
    let word = TAG | 32 << 32 | 2 << 48 | 1 << 56;
    assert_eq!(data[0], word, "16 and 16 bytes, DATA, checked");
    let mut bytes = [word, 2 << 32].map(u64::to_le_bytes).concat();
    bytes.extend_from_slice(b"sixteen bytes ..");
    assert_eq!(data[1..3], [2 << 32, u64::from(crc32c(&bytes))]);
}

/// CRC32C by the polynomial, bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = !0_u32;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ ((crc & 1) * 0x82f6_3b78);
        }
    }
    !crc
}

#[test]
fn names() {
    let address = |text: &str| -> SocketAddr { text.parse().expect("an address") };
    let name = ConnectionName {
        connecting: EndName::new(0x0102, address("127.0.0.1:258")),
        accepting: EndName::new(u128::MAX, address("[::1]:80")),
    };
    let bytes = name.encode();
    let mut expected = vec![2, 1];
    expected.resize(16, 0);
    expected.extend([2, 0, 2, 1, 0, 0, 0, 0, 127, 0, 0, 1]);
    expected.resize(40, 0);
    expected.extend([0xff; 16]);
    expected.extend([10, 0, 80, 0]);
    expected.resize(79, 0);
    expected.push(1);
    assert_eq!(bytes.to_vec(), expected);
    assert_eq!(ConnectionName::decode(&bytes), Some(name));
    assert_eq!(name.partition(1), 0);
    assert!((0..1000).all(|parts| name.partition(1 + parts) <= parts));
    for index in 0..ConnectionName::SIZE {
        for byte in 0..=255 {
            let mut other = bytes;
            other[index] = byte;
            if let Some(decoded) = ConnectionName::decode(&other) {
                assert_eq!(decoded.encode(), other);
            }
        }
    }
}
