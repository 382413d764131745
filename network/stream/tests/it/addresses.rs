//! Regions and pieces by their addresses, as a program in another language uses them; also for miri.

use std::ops::ControlFlow;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::thread;

use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::{APART, Attributes, Mapped, Window};

const GEOMETRY: Geometry = Geometry { ring_lines: 64 };
const ROUNDS: u8 = 40;

fn ring_pairs() -> [RingPair; 2] {
    let size = GEOMETRY.size();
    // Enough for a start at a multiple of 128.
    let words: Vec<_> = (0..size / 8 + 16).map(|_| AtomicU64::new(0)).collect();
    let words = Arc::new(words);
    let apart = words.as_ptr().align_offset(APART);
    let first = NonNull::from(&words[apart..]).cast::<u8>();
    [Side::Connecting, Side::Accepting].map(|side| {
        // SAFETY: the window holds a reference to the words, so they outlive it. All accesses are atomic words, except
        // those to the regions and pieces below, which one thread at a time accesses.
        let mapped = unsafe { Mapped::new(first, size, Attributes::SHARED_MEMORY, words.clone()) };
        let window = Window::new(mapped.expect("aligned and not empty"));
        RingPair::new(&window, GEOMETRY, side).expect("the window is large enough")
    })
}

/// Sends `ROUNDS` parts; all bytes of a part are its number.
fn send(mut rings: RingPair) -> usize {
    let (mut cursor, mut total, mut round) = (SendCursor::default(), 0, 0);
    while round < ROUNDS {
        let (peer_state, sender) = (&rings.peer_state, &mut rings.sender);
        let reserved = sender.reserve(peer_state, &mut cursor, 301).expect("sound");
        if reserved.length() == 0 {
            thread::yield_now();
            continue;
        }
        for place in sender.places(reserved) {
            // SAFETY: the region is reserved: this thread alone accesses it until it is committed.
            unsafe { place.cast::<u8>().as_ptr().write_bytes(round, place.len()) };
        }
        // One byte is left uncommitted.
        let length = reserved.length() - 1;
        sender
            .commit(&mut cursor, reserved, length)
            .expect("it is not void");
        total += length;
        round += 1;
    }
    while !rings
        .sender
        .finish(&rings.peer_state, &mut cursor)
        .expect("sound")
    {
        thread::yield_now();
    }
    total
}

#[test]
fn places_and_pieces() {
    let [ours, mut theirs] = ring_pairs();
    let sending = thread::spawn(move || send(ours));
    let (mut cursor, mut got) = (ReceiveCursor::default(), Vec::new());
    loop {
        let (peer_state, receiver) = (&theirs.peer_state, &mut theirs.receiver);
        let shown = receiver.borrow(peer_state, &cursor, 100, |piece| {
            let first = piece.address()?;
            for offset in 0..piece.length() {
                let place = first.wrapping_add(offset);
                // SAFETY: the piece was published, has `length` bytes, and is not returned before this closure returns.
                got.push(unsafe { place.read_volatile() });
            }
            Ok(ControlFlow::Continue(()))
        });
        let shown = shown.expect("sound");
        if shown.end.is_some() {
            break;
        }
        let taken = receiver.consume(peer_state, &mut cursor, shown.bytes);
        assert_eq!(taken.expect("sound").bytes, shown.bytes);
        if shown.bytes == 0 {
            thread::yield_now();
        }
    }
    assert_eq!(got.len(), sending.join().expect("no panic"));
    assert!(got.is_sorted(), "in order");
    assert_eq!(got.last(), Some(&(ROUNDS - 1)));
}
