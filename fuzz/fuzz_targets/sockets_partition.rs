//! Frames of a peer that knows the protocol and stores what it likes: `cargo +nightly fuzz run sockets_partition`.

#![no_main]

use std::cell::OnceCell;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::Side;
use millrace_stream::partition::{
    Class, Endpoints, Fetched, OpenParams, OpenReply, Partition, PartitionGeometry,
    PartitionSettings, Reset, State,
};
use millrace_window::{LINE, Mapped, Outgoing, WORD, Window};

const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 1,
    ring_lines: 64,
};
const ROOM: u64 = 1024;
const RING: usize = 4096;
const LINES: u64 = 64;

/// What came of each of two connections, and how much of it was taken away.
#[derive(Default)]
struct Ends {
    kept: [u64; 2],
    closed: [bool; 2],
}

impl Endpoints for Ends {
    fn fetch(&mut self, _: u32, into: &mut [u8]) -> Fetched {
        Fetched {
            bytes: into.len().min(100),
            has_more: true,
            is_urgent: into.len() % 2 == 1,
        }
    }

    fn deliver(&mut self, key: u32, bytes: &[u8]) {
        let kept = &mut self.kept[key as usize];
        *kept += bytes.len() as u64;
        assert!(*kept <= ROOM, "more than was granted");
    }

    fn finished(&mut self, key: u32) {
        assert!(!self.closed[key as usize]);
    }

    fn reset(&mut self, key: u32, _: Reset) {
        assert!(!self.closed[key as usize]);
    }

    fn closed(&mut self, key: u32) {
        assert!(!std::mem::replace(&mut self.closed[key as usize], true));
    }
}

fn windows() -> (Window, Window) {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (first, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let second = Window::attach(&file).expect("the same memory");
    (first, second)
}

fn partition(window: &Window, side: Side, incarnation: u64) -> Partition {
    let settings = PartitionSettings {
        incarnation,
        connections_max: 4,
        mtu: 1024,
        ..PartitionSettings::default()
    };
    Partition::new(window, GEOMETRY, 0, side, settings).expect("a partition")
}

fn open(partition: &mut Partition, key: u32) -> OpenReply {
    let params = OpenParams {
        key,
        class: Class::DEFAULT,
        rate: None,
        room: ROOM,
    };
    let opened = partition.open(&params).expect("a free number");
    let peer = OpenReply {
        credit: 1,
        ..opened
    };
    assert!(partition.establish(opened.id, peer));
    opened
}

/// The salt of what incarnation 2 sends to incarnation 1, as an honest one has it.
fn salt() -> u64 {
    let (first, second) = windows();
    let mut sides = [
        partition(&first, Side::Connecting, 1),
        partition(&second, Side::Accepting, 2),
    ];
    let opened = sides.each_mut().map(|side| open(side, 0));
    sides[1].ready(opened[1].id);
    for turn in 1..5 {
        for side in &mut sides {
            side.poll(turn, &mut Ends::default());
        }
    }
    drop(sides);
    let area = first
        .incoming(GEOMETRY.range(Side::Accepting, 0))
        .expect("an area");
    area.poll(RING).expect("a line").word() & 0xffff_ffff
}

fn say(area: &mut Outgoing<Mapped>, offset: usize, word: u64) {
    area.slot(offset, LINE).expect("a line").publish(word);
}

thread_local! {
    static SALT: OnceCell<u64> = const { OnceCell::new() };
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let salt = SALT.with(|cell| *cell.get_or_init(salt));
    let (first, second) = windows();
    let mut ours = partition(&first, Side::Connecting, 1);
    let mut area = second
        .outgoing(GEOMETRY.range(Side::Accepting, 0))
        .expect("an area");
    let greeting = {
        let theirs = second
            .incoming(GEOMETRY.range(Side::Connecting, 0))
            .expect("an area");
        theirs.poll(0).expect("a line").word()
    };
    for (offset, word) in [(0, greeting), (256, 1), (128, 2)] {
        say(&mut area, offset, word);
    }
    let (mut ends, mut now_ns) = (Ends::default(), 0);
    let ids = [0, 1].map(|key| open(&mut ours, key).id);
    ours.ready(ids[0]);
    let mut position = 0_u64;
    // A record: which word of the area, or a frame; kind, flags, length; and the first line of it.
    for record in bytes.chunks_exact(4 + LINE - WORD) {
        let (head, payload) = record.split_at(4);
        let [target, kind, flags, length] = [head[0], head[1], head[2], head[3]];
        now_ns += 1;
        ours.poll(now_ns, &mut ends);
        if target < 6 {
            let word = u64::from(kind) << (flags % 57) | u64::from(length);
            say(&mut area, usize::from(target) * 128, word);
        } else {
            let tag = (position ^ salt) & 0xffff_ffff;
            let length = u64::from(length) | u64::from(target % 8) << 10;
            let word = tag | length << 32 | u64::from(kind) << 48 | u64::from(flags) << 56;
            let index = position % LINES;
            let place = |index: u64| RING + usize::try_from(index % LINES).expect("small") * LINE;
            let lines = if kind == 1 {
                LINES - index
            } else {
                (length + 8).div_ceil(64).min(LINES - index)
            };
            say(&mut area, place(index + lines), 0);
            let mut slot = area.slot(place(index), LINE).expect("a line");
            slot.store(WORD, payload).expect("within the line");
            slot.publish(word);
            position += lines;
        }
        ours.poll(now_ns, &mut ends);
        for (id, kept) in ids.into_iter().zip(&mut ends.kept) {
            ours.consumed(id, std::mem::take(kept));
        }
        let _ = ours.arm();
        if matches!(ours.state(), State::Lost(_)) {
            assert_eq!(ends.closed, [true; 2]);
            return;
        }
    }
});
