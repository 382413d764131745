//! Going to sleep and being woken, in every interleaving, on cached coherent memory: no side sleeps on while there
//! is what it waits for. Without the fence on both sides a model fails.

use std::ops::ControlFlow;

use loom::thread;
use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::{LINE, Site, WORD, Window};
use millrace_window_faults::loom::{Words, explore};

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };
const AREA: usize = GEOMETRY.size() / 2;

/// What the models use of an area: its four words, two lines of the ring with a word of payload, the line that the
/// second model ends at, and the last one, again with a word of payload.
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

fn lanes() -> [Lane<Words>; 2] {
    let areas = [0, AREA].into_iter();
    let offsets = areas.flat_map(|area| USED.map(|offset| area + offset));
    let words = Words::new(2 * AREA, offsets);
    [Side::Connecting, Side::Accepting].map(|side| {
        Lane::new(&Window::new(words.clone()), GEOMETRY, side).expect("the words are enough")
    })
}

/// One sends and wakes; the other receives, or goes to sleep.
fn sleeping_for_data() {
    let [mut ours, mut theirs] = lanes();
    let sender = thread::spawn(move || {
        let mut cursor = SendCursor::default();
        let sent = ours.sender.send(&ours.sight, &mut cursor, &[7]);
        assert_eq!(sent.expect("sound"), 1);
        ours.sender.wake(&ours.sight, &mut cursor)
    });
    let mut cursor = ReceiveCursor::default();
    let mut byte = [0];
    let taken = theirs
        .receiver
        .receive(&theirs.sight, &mut cursor, &mut byte);
    let has_received = taken.expect("sound").bytes == 1;
    let sleeps = !has_received && !theirs.receiver.arm(&theirs.sight, &mut cursor);
    let is_woken = sender.join().expect("no panic");
    assert!(!sleeps || is_woken, "it sleeps on beside a byte");
}

/// One gives room back and wakes; the other goes to sleep for room.
fn sleeping_for_room() {
    let [mut ours, mut theirs] = lanes();
    let reader = thread::spawn(move || {
        // It has taken 60 lines and given none back.
        let mut cursor = ReceiveCursor {
            position: 60,
            ..ReceiveCursor::default()
        };
        let taken = theirs
            .receiver
            .receive(&theirs.sight, &mut cursor, &mut [0]);
        assert_eq!(taken.expect("sound").bytes, 0);
        theirs.receiver.wake(&theirs.sight, &mut cursor)
    });
    let mut cursor = SendCursor {
        position: 60,
        ..SendCursor::default()
    };
    let sleeps = !ours.sender.arm(&ours.sight, &mut cursor);
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
        let [mut ours, mut theirs] = lanes();
        let sender = thread::spawn(move || {
            let mut cursor = SendCursor::default();
            let sent = ours.sender.send(&ours.sight, &mut cursor, &[7]);
            assert_eq!(sent.expect("sound"), 1);
        });
        let mut cursor = ReceiveCursor::default();
        let mut byte = [0];
        let taken = theirs
            .receiver
            .receive(&theirs.sight, &mut cursor, &mut byte);
        assert!(taken.expect("sound").bytes == 0 || byte == [7], "torn");
        sender.join().expect("no panic");
    }
    explore(a_byte_passes, None);
    explore(a_byte_passes, Some(Site::BeforeWord));
}

/// Two slots are published as one, at the ring's end and its start; the other borrows and consumes them, or sleeps.
fn borrowing() {
    let [mut ours, mut theirs] = lanes();
    // It has taken all but the last line of the first lap, and says so.
    let mut cursor = ReceiveCursor {
        position: 63,
        ..ReceiveCursor::default()
    };
    let nothing = theirs
        .receiver
        .consume(&theirs.sight, &mut cursor, 1)
        .expect("sound");
    assert_eq!(nothing.bytes, 0);
    let sender = thread::spawn(move || {
        let mut cursor = SendCursor {
            position: 63,
            returned: 63,
            stride: 15,
            ..SendCursor::default()
        };
        let (sender, sight) = (&mut ours.sender, &ours.sight);
        // More than fits behind a pad: the first place is what is left of the ring.
        let reserved = sender.reserve(sight, &mut cursor, 1000).expect("sound");
        assert!(reserved.length() > 57);
        sender.fill(reserved, 0, &[7; 8]).expect("within");
        sender.fill(reserved, 56, &[8]).expect("within");
        sender.commit(&mut cursor, reserved, 57).expect("sound");
        sender.wake(sight, &mut cursor)
    });
    let mut firsts = Vec::new();
    let shown = theirs
        .receiver
        .borrow(&theirs.sight, &cursor, 100, |piece| {
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
        .consume(&theirs.sight, &mut cursor, bytes)
        .expect("sound");
    assert_eq!(taken.bytes, bytes);
    let sleeps = bytes == 0 && !theirs.receiver.arm(&theirs.sight, &mut cursor);
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
