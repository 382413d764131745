//! Places and pieces by their addresses, as a program that is not Rust uses them; for miri, too.

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::{APART, Attributes, Mapped, Window};

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };
const ROUNDS: u8 = 40;

fn lanes() -> [Lane; 2] {
    let size = GEOMETRY.size();
    // So many that some begin at a multiple of 128.
    let words: Vec<_> = (0..size / 8 + 16).map(|_| AtomicU64::new(0)).collect();
    let words = Arc::new(words);
    let apart = words.as_ptr().align_offset(APART);
    let first = NonNull::from(&words[apart..]).cast::<u8>();
    [Side::Connecting, Side::Accepting].map(|side| {
        // SAFETY: the words live as long as a share of them, of which the window keeps one. They are accessed as
        // atomic words, but for the places and pieces below, which one thread has at a time.
        let mapped = unsafe { Mapped::new(first, size, Attributes::SHARED_MEMORY, words.clone()) };
        let window = Window::new(mapped.expect("aligned and not empty"));
        Lane::new(&window, GEOMETRY, side).expect("the window is large enough")
    })
}

/// Sends `ROUNDS` parts, of which each has its number in all bytes.
fn send(mut lane: Lane) -> usize {
    let (mut cursor, mut total, mut round) = (SendCursor::default(), 0, 0);
    while round < ROUNDS {
        let (sight, sender) = (&lane.sight, &mut lane.sender);
        let reserved = sender.reserve(sight, &mut cursor, 301).expect("sound");
        if reserved.length() == 0 {
            thread::yield_now();
            continue;
        }
        for place in sender.places(reserved) {
            // SAFETY: the place is reserved: this thread alone accesses it until it is committed.
            unsafe { place.cast::<u8>().as_ptr().write_bytes(round, place.len()) };
        }
        // A byte is left, that nobody gets.
        let length = reserved.length() - 1;
        sender
            .commit(&mut cursor, reserved, length)
            .expect("it is not void");
        total += length;
        round += 1;
    }
    while !lane.sender.finish(&lane.sight, &mut cursor).expect("sound") {
        thread::yield_now();
    }
    total
}

#[test]
fn places_and_pieces() {
    let [ours, mut theirs] = lanes();
    let sending = thread::spawn(move || send(ours));
    let (mut cursor, mut got) = (ReceiveCursor::default(), Vec::new());
    loop {
        let (sight, receiver) = (&theirs.sight, &mut theirs.receiver);
        let shown = receiver.borrow(sight, &cursor, 100, |piece| {
            let first = piece.address()?;
            for offset in 0..piece.length() {
                let place = first.wrapping_add(offset);
                // SAFETY: the piece was published, and is not given back before this returns; it has so many bytes.
                got.push(unsafe { place.read_volatile() });
            }
            Ok(ControlFlow::Continue(()))
        });
        let shown = shown.expect("sound");
        if shown.end.is_some() {
            break;
        }
        let taken = receiver.consume(sight, &mut cursor, shown.bytes);
        assert_eq!(taken.expect("sound").bytes, shown.bytes);
        if shown.bytes == 0 {
            thread::yield_now();
        }
    }
    assert_eq!(got.len(), sending.join().expect("no panic"));
    assert!(got.is_sorted(), "in order");
    assert_eq!(got.last(), Some(&(ROUNDS - 1)));
}
