//! Sleep and wake-up in every interleaving on cached coherent memory: no side sleeps while its data or room is there.
//! Without the fence on both sides a model fails.

use std::ops::ControlFlow;

use loom::thread;
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::{LINE, Site, WORD, Window};
use millrace_window_faults::loom::{Words, explore};

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };
const AREA: usize = GEOMETRY.size() / 2;

/// The offsets that the models use of an area: its four words, two lines of the ring with a word of payload, the line
/// that the second model ends at, and the last one, again with a word of payload.
const USED: [usize; 10] = [
    0,
    128,
    256,
    384,
    1024,
    1024 + WORD,
    1024 + LINE,
    1024 + 60 * LINE,
    1024 + 63 * LINE,
    1024 + 63 * LINE + WORD,
];

fn ring_pairs() -> [RingPair<Words>; 2] {
    let areas = [0, AREA].into_iter();
    let offsets = areas.flat_map(|area| USED.map(|offset| area + offset));
    let words = Words::new(2 * AREA, offsets);
    [Side::Connecting, Side::Accepting].map(|side| {
        RingPair::new(&Window::new(words.clone()), GEOMETRY, side).expect("the words are enough")
    })
}

/// One thread sends and wakes; the other receives, or sleeps.
fn sleeping_for_data() {
    let [mut ours, mut theirs] = ring_pairs();
    let sender = thread::spawn(move || {
        let mut cursor = SendCursor::default();
        let sent = ours.sender.send(&ours.peer_state, &mut cursor, &[7]);
        assert_eq!(sent.expect("sound"), 1);
        ours.sender.wake(&ours.peer_state, &mut cursor)
    });
    let mut cursor = ReceiveCursor::default();
    let mut byte = [0];
    let taken = theirs
        .receiver
        .receive(&theirs.peer_state, &mut cursor, &mut byte);
    let has_received = taken.expect("sound").bytes == 1;
    let sleeps = !has_received && !theirs.receiver.arm(&theirs.peer_state, &mut cursor);
    let is_woken = sender.join().expect("no panic");
    assert!(!sleeps || is_woken, "it sleeps on beside a byte");
}

/// One thread returns lines and wakes; the other sleeps for room.
fn sleeping_for_room() {
    let [mut ours, mut theirs] = ring_pairs();
    let reader = thread::spawn(move || {
        // It has received 60 lines and returned none.
        let mut cursor = ReceiveCursor {
            position: 60,
            ..ReceiveCursor::default()
        };
        let taken = theirs
            .receiver
            .receive(&theirs.peer_state, &mut cursor, &mut [0]);
        assert_eq!(taken.expect("sound").bytes, 0);
        theirs.receiver.wake(&theirs.peer_state, &mut cursor)
    });
    let mut cursor = SendCursor {
        position: 60,
        ..SendCursor::default()
    };
    let sleeps = !ours.sender.arm(&ours.peer_state, &mut cursor);
    let is_woken = reader.join().expect("no panic");
    assert!(!sleeps || is_woken, "it sleeps on beside room");
}

#[test]
fn a_sleeper_for_data_is_woken() {
    explore(sleeping_for_data, None);
}

#[test]
fn a_sleeper_for_data_needs_the_fence() {
    explore(sleeping_for_data, Some(Site::Settled));
}

#[test]
fn a_sleeper_for_room_is_woken() {
    explore(sleeping_for_room, None);
}

#[test]
fn a_sleeper_for_room_needs_the_fence() {
    explore(sleeping_for_room, Some(Site::Settled));
}

#[test]
fn a_byte_needs_its_word_last() {
    fn a_byte_passes() {
        let [mut ours, mut theirs] = ring_pairs();
        let sender = thread::spawn(move || {
            let mut cursor = SendCursor::default();
            let sent = ours.sender.send(&ours.peer_state, &mut cursor, &[7]);
            assert_eq!(sent.expect("sound"), 1);
        });
        let mut cursor = ReceiveCursor::default();
        let mut byte = [0];
        let taken = theirs
            .receiver
            .receive(&theirs.peer_state, &mut cursor, &mut byte);
        assert!(taken.expect("sound").bytes == 0 || byte == [7], "torn");
        sender.join().expect("no panic");
    }
    explore(a_byte_passes, None);
    explore(a_byte_passes, Some(Site::BeforeWord));
}

/// Two slots are published as one, at the ring's end and its start; the other thread borrows and consumes them, or
/// sleeps.
fn borrowing() {
    let [mut ours, mut theirs] = ring_pairs();
    // It has received all but the last line of the first lap, and has returned them.
    let mut cursor = ReceiveCursor {
        position: 63,
        ..ReceiveCursor::default()
    };
    let nothing = theirs
        .receiver
        .consume(&theirs.peer_state, &mut cursor, 1)
        .expect("sound");
    assert_eq!(nothing.bytes, 0);
    let sender = thread::spawn(move || {
        let mut cursor = SendCursor {
            position: 63,
            returned: 63,
            stride: 15,
            ..SendCursor::default()
        };
        let (sender, peer_state) = (&mut ours.sender, &ours.peer_state);
        // More than fits behind a pad: the first region is the rest of the ring.
        let reserved = sender
            .reserve(peer_state, &mut cursor, 1000)
            .expect("sound");
        assert!(reserved.length() > 57);
        sender.fill(reserved, 0, &[7; 8]).expect("within");
        sender.fill(reserved, 56, &[8]).expect("within");
        sender.commit(&mut cursor, reserved, 57).expect("sound");
        sender.wake(peer_state, &mut cursor)
    });
    let mut firsts = Vec::new();
    let shown = theirs
        .receiver
        .borrow(&theirs.peer_state, &cursor, 100, |piece| {
            let mut first = [0];
            piece.copy(0, &mut first)?;
            firsts.push(first[0]);
            Ok(ControlFlow::Continue(()))
        });
    let bytes = shown.expect("sound").bytes;
    assert!(
        firsts.is_empty() && bytes == 0 || firsts == [7, 8] && bytes == 57,
        "torn: {firsts:?}"
    );
    let taken = theirs
        .receiver
        .consume(&theirs.peer_state, &mut cursor, bytes)
        .expect("sound");
    assert_eq!(taken.bytes, bytes);
    let sleeps = bytes == 0 && !theirs.receiver.arm(&theirs.peer_state, &mut cursor);
    let is_woken = sender.join().expect("no panic");
    assert!(!sleeps || is_woken, "it sleeps on beside bytes");
}

#[test]
fn what_is_committed_is_borrowed_whole() {
    explore(borrowing, None);
}

#[test]
fn what_is_committed_needs_its_word_last() {
    explore(borrowing, Some(Site::BeforeWord));
}

#[test]
fn what_is_committed_needs_the_fence_for_sleepers() {
    explore(borrowing, Some(Site::Settled));
}
