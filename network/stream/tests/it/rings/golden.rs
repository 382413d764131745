//! The bytes of a ring pair.

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::partition::Class;
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Service, Side};
use millrace_window::{Mapped, WORD, Window};

const GEOMETRY: Geometry = Geometry { ring_lines: 256 };
const RING: usize = 1024;
const AREA: usize = 4096 + 256 * 64;
const TAG: u64 = 0x6c6c_696d;

fn words(window: &Window<Mapped>, offset: usize, count: usize) -> Vec<u64> {
    let area = window.incoming(0..GEOMETRY.size()).expect("all of it");
    let slot = area.poll(offset).expect("a line");
    let mut words = vec![slot.word()];
    for index in 1..count {
        let mut word = [0; WORD];
        slot.load(index * WORD, &mut word).expect("within");
        words.push(u64::from_le_bytes(word));
    }
    words
}

#[test]
fn areas_and_slots() {
    assert_eq!(GEOMETRY.size(), 2 * AREA);
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let [second, seen] = [0, 1].map(|_| Window::attach(&file).expect("the same memory"));
    let mut ours = RingPair::new(&window, GEOMETRY, Side::Connecting).expect("a rings");
    let mut theirs = RingPair::new(&second, GEOMETRY, Side::Accepting).expect("a rings");
    let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
    for bytes in [&b"sixteen bytes .."[..], &[7; 2000], &[8; 57]] {
        let count = ours
            .sender
            .send(&ours.peer_state, &mut sent, bytes)
            .expect("a sound peer");
        assert_eq!(count, bytes.len());
    }
    assert_eq!(sent.position, 1 + 32 + 2);
    assert!(
        ours.sender
            .finish(&ours.peer_state, &mut sent)
            .expect("a sound peer")
    );
    assert_eq!(
        words(&seen, RING, 4),
        [
            TAG | 16 << 32 | 2 << 48,
            u64::from_le_bytes(*b"sixteen "),
            u64::from_le_bytes(*b"bytes .."),
            0
        ]
    );
    assert_eq!(
        words(&seen, RING + 64, 1),
        [(TAG ^ 1) | 2000 << 32 | 2 << 48]
    );
    assert_eq!(
        words(&seen, RING + 33 * 64, 1),
        [(TAG ^ 33) | 57 << 32 | 2 << 48]
    );
    let finish = words(&seen, RING + 35 * 64, 2);
    assert_eq!(finish, [(TAG ^ 35) | 8 << 32 | 3 << 48, 2073]);
    assert_eq!(words(&seen, RING + 36 * 64, 1), [0], "nothing behind");

    let mut into = [0; 4096];
    let taken = theirs
        .receiver
        .receive(&theirs.peer_state, &mut received, &mut into);
    assert_eq!(taken.expect("a sound peer").bytes, 2073);
    assert_eq!(words(&seen, AREA, 1), [35], "what was taken");
    assert!(
        theirs.receiver.arm(&theirs.peer_state, &mut received),
        "the end is there"
    );
    assert_eq!(
        words(&seen, AREA + 128, 1),
        [1],
        "it goes to sleep for data"
    );
    assert!(ours.sender.wake(&ours.peer_state, &mut sent));
    assert!(
        !ours.sender.wake(&ours.peer_state, &mut sent),
        "once a sleep"
    );
    let mut other = SendCursor::default();
    assert!(theirs.sender.arm(&theirs.peer_state, &mut other));
    assert_eq!(
        words(&seen, AREA + 256, 1),
        [1],
        "it goes to sleep for room"
    );
    ours.sender.close();
    assert_eq!(words(&seen, 384, 1), [1]);
    ours.sender.reset(104);
    assert_eq!(words(&seen, 384, 1), [2 | 104 << 8]);
}

#[test]
fn a_service() {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let [second, seen] = [0, 1].map(|_| Window::attach(&file).expect("the same memory"));
    let mut ours = RingPair::new(&window, GEOMETRY, Side::Connecting).expect("a rings");
    let theirs = RingPair::new(&second, GEOMETRY, Side::Accepting).expect("a rings");
    assert_eq!(theirs.peer_state.service(), Service::default());
    for (class, bytes_per_second, word) in [
        (7, None, 8),
        (0, Some(1), 1 | 1 << 8),
        (3, Some((1 << 56) - 1), u64::MAX << 8 | 4),
    ] {
        let service = Service {
            class: Class::new(class),
            bytes_per_second,
        };
        ours.sender.serve(service);
        assert_eq!(words(&seen, 640, 1), [word]);
        assert_eq!(theirs.peer_state.service(), service);
    }
    // No other value is a class.
    let mut area = seen.outgoing(0..4096).expect("an area");
    for word in [9, 255, 0] {
        area.slot(640, 64).expect("a line").publish(word);
        assert_eq!(theirs.peer_state.service(), Service::default(), "{word}");
    }
}

#[test]
fn an_urgent_byte() {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
    let seen = Window::attach(&file).expect("the same memory");
    let mut ours = RingPair::new(&window, GEOMETRY, Side::Connecting).expect("a rings");
    let mut sent = SendCursor::default();
    let count = ours.sender.send(&ours.peer_state, &mut sent, b"abc");
    assert_eq!(count.expect("a sound peer"), 3);
    let urgent = ours.sender.send_urgent(&ours.peer_state, &mut sent, b'!');
    assert!(urgent.expect("a sound peer"));
    assert_eq!(words(&seen, 512, 1), [4], "the fourth byte");
    let slot = words(&seen, RING + 64, 2);
    assert_eq!(slot, [(TAG ^ 1) | 1 << 32 | 4 << 48, u64::from(b'!')]);
}
