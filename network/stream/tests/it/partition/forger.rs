//! A peer that knows the protocol and stores arbitrary values.

use std::ops::Range;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::Side;
use millrace_stream::partition::PartitionSettings;
use millrace_window::{Incoming, LINE, Mapped, Outgoing, WORD, Window};

use super::fixture::{GEOMETRY, Host, MS, bytes, connect, opening, settings};

pub(crate) const RING: usize = 4096;
const GREETING: usize = 0;
pub(crate) const INCARNATION: usize = 128;
const ACKNOWLEDGED: usize = 256;
pub(crate) const RETURNED: usize = 512;

pub(crate) const DATA: u8 = 2;
pub(crate) const CREDIT: u8 = 3;
pub(crate) const FINISH: u8 = 4;
pub(crate) const RESET: u8 = 5;
pub(crate) const CLOSE: u8 = 6;
pub(crate) const URGENT: u8 = 7;

const OURS: u64 = 1;
const FORGED: u64 = 77;

/// A window and one more mapping of it.
pub(crate) fn windows() -> [Window<Mapped>; 3] {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (first, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let attach = || Window::attach(&file).expect("the same memory");
    [first, attach(), attach()]
}

/// The peer's area, to be stored to freely.
pub(crate) struct Forger {
    area: Outgoing<Mapped>,
    theirs: Incoming<Mapped>,
    salt: u32,
    pub(crate) position: u64,
}

/// The salt from one incarnation to another, taken from an honest frame.
fn salt(settings: PartitionSettings) -> u32 {
    let [first, second, third] = windows();
    let mut hosts = [
        Host::new(&first, Side::Connecting, settings),
        Host::new(
            &second,
            Side::Accepting,
            PartitionSettings {
                incarnation: FORGED,
                ..settings
            },
        ),
    ];
    let mut random = millrace_random::Random::new(1);
    let sources = [Vec::new(), bytes(&mut random, 8)];
    connect(&mut hosts, [&opening(0, 64), &opening(0, 64)], sources);
    hosts[1].send_all(0);
    for turn in 1..5 {
        hosts[0].poll(turn * MS);
        hosts[1].poll(turn * MS);
    }
    let area = third
        .incoming(GEOMETRY.range(Side::Accepting, 0))
        .expect("an area");
    let word = area.poll(RING).expect("a line").word();
    assert_ne!(word, 0, "something was sent");
    u32::try_from(word & 0xffff_ffff).expect("masked")
}

impl Forger {
    /// An honest side whose handshake with a forged peer is complete.
    pub(crate) fn handshake() -> (Host<Mapped>, Self) {
        let settings = settings(OURS);
        let [first, second, _] = windows();
        let mut host = Host::new(&first, Side::Connecting, settings);
        let area = second
            .outgoing(GEOMETRY.range(Side::Accepting, 0))
            .expect("an area");
        let theirs = second
            .incoming(GEOMETRY.range(Side::Connecting, 0))
            .expect("an area");
        let mut forger = Self {
            area,
            theirs,
            salt: salt(settings),
            position: 0,
        };
        forger.store_word(GREETING, forger.load_word(GREETING));
        forger.store_word(ACKNOWLEDGED, OURS);
        forger.store_word(INCARNATION, FORGED);
        for turn in 1..4 {
            host.poll(turn * MS);
        }
        (host, forger)
    }

    pub(crate) fn store_word(&mut self, offset: usize, word: u64) {
        self.area.slot(offset, LINE).expect("a line").publish(word);
    }

    pub(crate) fn load_word(&self, offset: usize) -> u64 {
        self.theirs.poll(offset).expect("a line").word()
    }

    /// The valid word of a slot at this position.
    pub(crate) fn word(&self, kind: u8, flags: u8, length: usize) -> u64 {
        let tag = (self.position ^ u64::from(self.salt)) & 0xffff_ffff;
        tag | (length as u64) << 32 | u64::from(kind) << 48 | u64::from(flags) << 56
    }

    /// Sends a frame as an honest peer would.
    pub(crate) fn send(&mut self, kind: u8, connection: u32, credit: u32, payload: &[u8]) {
        let word = self.word(kind, 0, 8 + payload.len());
        self.store(word, connection, credit, payload);
    }

    /// Sends a frame with a given word.
    pub(crate) fn store(&mut self, word: u64, connection: u32, credit: u32, payload: &[u8]) {
        let mut frame = [connection.to_le_bytes(), credit.to_le_bytes()].concat();
        frame.extend_from_slice(payload);
        let lines = (WORD + frame.len()).div_ceil(LINE);
        let index = usize::try_from(self.position % 64).expect("small");
        assert!(index + lines <= 64, "the forger's frames do not wrap");
        let next = (index + lines) % 64;
        self.store_word(RING + next * LINE, 0);
        let slot = self.area.slot(RING + index * LINE, lines * LINE);
        let mut slot = slot.expect("within the ring");
        slot.store(WORD, &frame).expect("within the slot");
        slot.publish(word);
        self.position += lines as u64;
    }

    /// Stores arbitrary bytes.
    pub(crate) fn smear(&mut self, line: usize, bytes: &[u8; LINE]) {
        let mut slot = self.area.slot(line * LINE, LINE).expect("a line");
        let (word, rest) = bytes
            .split_first_chunk::<WORD>()
            .expect("a line has a word");
        slot.store(WORD, rest).expect("within the line");
        slot.publish(u64::from_le_bytes(*word));
    }

    pub(crate) fn lines() -> Range<usize> {
        0..GEOMETRY.area() / LINE
    }
}
