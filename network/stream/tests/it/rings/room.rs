//! The reported room is exact: a send succeeds if there is room, and there is none when it sends nothing.

use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;

#[test]
fn room_is_where_a_send_finds_it() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let geometry = Geometry {
            ring_lines: [64, 256, 1024][random.index(3)],
        };
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(geometry.size(), &options).expect("memory");
        let second = Window::attach(&file).expect("the same memory");
        let mut ours = RingPair::new(&window, geometry, Side::Connecting).expect("a rings");
        let mut theirs = RingPair::new(&second, geometry, Side::Accepting).expect("a rings");
        let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
        let (mut into, bytes) = ([0; 4096], [7; 9000]);
        let largest = [8, 60, 300, 9000][random.index(4)];
        for step in 0..4000 {
            // The reader keeps up for a while, then stalls until nothing more is sent.
            if step / 200 % 3 != 2 {
                let taken = theirs
                    .receiver
                    .receive(&theirs.peer_state, &mut received, &mut into);
                taken.expect("a sound peer");
            }
            let said = ours.peer_state.has_room(&sent);
            let length = 1 + random.index(largest);
            let count = ours
                .sender
                .send(&ours.peer_state, &mut sent, &bytes[..length])
                .expect("a sound peer");
            assert!(
                count > 0 || !said,
                "seed {seed}: no room where some was said to be"
            );
            assert!(
                count > 0 || !ours.peer_state.has_room(&sent),
                "seed {seed}: room that a send does not find"
            );
        }
    }
}

#[test]
fn a_pad_alone_is_nothing_to_receive() {
    let geometry = Geometry { ring_lines: 64 };
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, file) = Window::create(geometry.size(), &options).expect("memory");
    let second = Window::attach(&file).expect("the same memory");
    let theirs = RingPair::new(&second, geometry, Side::Accepting).expect("a rings");
    let received = ReceiveCursor::default();
    let area = window.outgoing(0..geometry.size() / 2);
    let mut area = area.expect("nobody has it");
    let mut store = |line: usize, word: u64| {
        let slot = area.slot(1024 + line * 64, 64);
        slot.expect("within").publish(word);
    };
    let tag = 0x6c6c_696d;
    // A pad at the fourth line, and later the slot behind it, at the first.
    store(3, (tag ^ 3) | 1 << 48);
    assert!(!theirs.peer_state.is_readable(received.position + 3));
    store(0, (tag ^ 64) | 5 << 32 | 2 << 48);
    assert!(theirs.peer_state.is_readable(received.position + 3));
}
