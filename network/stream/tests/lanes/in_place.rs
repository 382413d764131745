//! Reservations: what they hold, when they are void, and that what they send is what a send makes.

use std::ops::ControlFlow;

use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{ErrorKind, Geometry, Lane, ReceiveCursor, Reserved, SendCursor, Side};
#[cfg(debug_assertions)]
use millrace_stream::{Step, mutation};
use millrace_window::{Attributes, Mapped, WORD, Window};
use millrace_window_faults::{Pair, Side as Place};

use crate::bed::KINDS;

/// One side, the other, and the memory as a third one sees it.
struct Bed {
    ours: Lane,
    theirs: Lane,
    sent: SendCursor,
    received: ReceiveCursor,
    seen: Window<Mapped>,
    geometry: Geometry,
}

impl Bed {
    fn new(geometry: Geometry) -> Self {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(geometry.size(), &options).expect("memory");
        let second = Window::attach(&file).expect("the same memory");
        Self {
            ours: Lane::new(&window, geometry, Side::Connecting).expect("a lane"),
            theirs: Lane::new(&second, geometry, Side::Accepting).expect("a lane"),
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
            seen: Window::attach(&file).expect("the same memory"),
            geometry,
        }
    }

    fn reserve(&mut self, length: usize) -> Reserved {
        let reserved = self
            .ours
            .sender
            .reserve(&self.ours.sight, &mut self.sent, length);
        reserved.expect("a sound peer")
    }

    fn fill(&mut self, reserved: Reserved, bytes: &[u8]) {
        let filled = self.ours.sender.fill(reserved, 0, bytes);
        filled.expect("it is within");
    }

    fn commit(&mut self, reserved: Reserved, length: usize) {
        let committed = self.ours.sender.commit(&mut self.sent, reserved, length);
        committed.expect("it is not void");
    }

    fn send(&mut self, bytes: &[u8]) {
        let sent = self
            .ours
            .sender
            .send(&self.ours.sight, &mut self.sent, bytes);
        assert_eq!(sent.expect("a sound peer"), bytes.len());
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let lane = &mut self.theirs;
        let taken = lane
            .receiver
            .receive(&lane.sight, &mut self.received, &mut bytes);
        bytes.truncate(taken.expect("a sound peer").bytes);
        bytes
    }

    /// All that is in the first area.
    fn area(&self) -> Vec<u8> {
        let size = self.geometry.size() / 2;
        let area = self.seen.incoming(0..size).expect("nobody has it");
        let slot = area.poll(0).expect("a line");
        let mut bytes = vec![0; size - WORD];
        slot.load(WORD, &mut bytes).expect("within");
        bytes
    }
}

fn content(seed: u64, size: usize) -> Vec<u8> {
    let mut bytes = vec![0; size];
    Random::new(seed).fill(&mut bytes);
    bytes
}

#[test]
fn the_memory_is_as_after_a_send() {
    for size in [1, 8, 56, 57, 120, 8184, 8192, 8193, 60_000, 100_001] {
        let bytes = content(size as u64, size);
        let [mut by_send, mut in_place] = [(); 2].map(|()| Bed::new(Geometry::DEFAULT));
        by_send.send(&bytes);
        let reserved = in_place.reserve(size);
        assert_eq!(reserved.length(), size);
        in_place.fill(reserved, &bytes);
        assert!(in_place.receive().is_empty(), "nothing is there yet");
        in_place.commit(reserved, size);
        assert_eq!(in_place.sent, by_send.sent, "{size} bytes");
        assert!(in_place.area() == by_send.area(), "{size} bytes");
        assert!(in_place.receive() == bytes, "{size} bytes");
    }
}

#[test]
fn a_part_is_sent_and_the_rest_was_never_there() {
    let mut bed = Bed::new(Geometry::DEFAULT);
    let bytes = content(1, 30_000);
    for length in [0, 1, 56, 57, 8191, 8192, 8193, 16_384, 20_000, 30_000] {
        let reserved = bed.reserve(bytes.len());
        bed.fill(reserved, &bytes);
        bed.commit(reserved, length);
        assert!(bed.receive() == bytes[..length], "{length} bytes");
        bed.send(b"more");
        assert_eq!(bed.receive(), b"more", "behind {length} bytes");
    }
}

#[test]
fn a_reservation_is_void_after_a_send() {
    let mut bed = Bed::new(Geometry { ring_lines: 256 });
    let reserved = bed.reserve(100);
    let kind = |outcome: millrace_stream::Result<()>| outcome.map_err(|error| error.kind());
    let sender = &mut bed.ours.sender;
    let commit = sender.commit(&mut bed.sent, reserved, 101);
    assert_eq!(kind(commit), Err(ErrorKind::Geometry));
    for (offset, size) in [(0, 101), (4, 8), (104, 0), (usize::MAX - 7, 8)] {
        let filled = sender.fill(reserved, offset, &vec![0; size]);
        assert_eq!(kind(filled), Err(ErrorKind::Geometry), "{offset}, {size}");
    }
    bed.send(b"a");
    let commit = bed.ours.sender.commit(&mut bed.sent, reserved, 100);
    assert_eq!(kind(commit), Err(ErrorKind::Ended));
    let reserved = bed.reserve(100);
    let lane = &mut bed.ours;
    let finished = lane.sender.finish(&lane.sight, &mut bed.sent);
    assert!(finished.expect("a sound peer"));
    let commit = lane.sender.commit(&mut bed.sent, reserved, 1);
    assert_eq!(kind(commit), Err(ErrorKind::Ended));
    let again = lane.sender.reserve(&lane.sight, &mut bed.sent, 1);
    assert_eq!(
        again.map_err(|error| error.kind()),
        Err(ErrorKind::Ended),
        "after the end"
    );
}

#[test]
fn places_are_where_the_bytes_go() {
    let mut bed = Bed::new(Geometry::DEFAULT);
    let base = bed.reserve(1);
    let first = |bed: &mut Bed, reserved| {
        let mut places = bed.ours.sender.places(reserved);
        places.next().expect("there is room").cast::<u8>().addr()
    };
    let base = first(&mut bed, base).get();
    let reserved = bed.reserve(20_000);
    let places: Vec<_> = bed.ours.sender.places(reserved).collect();
    let found: Vec<_> = places
        .iter()
        .map(|place| (place.cast::<u8>().addr().get() - base, place.len()))
        .collect();
    // A slot of 8,192 bytes takes 129 lines.
    let expected = [(0, 8192), (129 * 64, 8192), (2 * 129 * 64, 3616)];
    assert_eq!(found, expected);
}

#[test]
fn borrowed_bytes_stay_where_they_are() {
    let mut bed = Bed::new(Geometry { ring_lines: 1024 });
    bed.send(b"first");
    bed.send(&[7; 100]);
    let look = |bed: &Bed, size| {
        let mut found = Vec::new();
        let lane = &bed.theirs;
        let shown = lane
            .receiver
            .borrow(&lane.sight, &bed.received, size, |piece| {
                let address = piece.address()?.addr();
                found.push((address, piece.length()));
                Ok(ControlFlow::Continue(()))
            });
        (shown.expect("a sound peer").bytes, found)
    };
    let (count, all) = look(&bed, usize::MAX);
    assert_eq!((count, all.len()), (105, 2));
    assert_eq!(all[1].0 - all[0].0, 64);
    assert_eq!(look(&bed, 3), (3, vec![(all[0].0, 3)]));
    let lane = &mut bed.theirs;
    let taken = lane.receiver.consume(&lane.sight, &mut bed.received, 3);
    assert_eq!(taken.expect("a sound peer").bytes, 3);
    bed.send(b"more");
    let (count, rest) = look(&bed, usize::MAX);
    assert_eq!((count, rest.len()), (106, 3));
    assert_eq!(rest[..2], [(all[0].0 + 3, 2), all[1]]);
}

/// Room is found where it is said to be, by reservations as by sends.
#[test]
fn room_is_where_a_reservation_finds_it() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let ring_lines = [64, 256, 1024][random.index(3)];
        let mut bed = Bed::new(Geometry { ring_lines });
        let largest = [8, 60, 300, 9000][random.index(4)];
        let mut expected = Vec::new();
        for step in 0..2000 {
            // The reader keeps up for a while, then it stalls until nothing more is taken.
            if step / 200 % 3 != 2 {
                let got = bed.receive();
                assert!(got == expected, "seed {seed}, step {step}");
                expected.clear();
            }
            let said = bed.ours.sight.has_room(&bed.sent);
            let length = 1 + random.index(largest);
            let reserved = bed.reserve(length);
            let room = reserved.length();
            assert!(
                room > 0 || !said,
                "seed {seed}: no room where some was said to be"
            );
            let bytes = content(step, room);
            bed.fill(reserved, &bytes);
            let length = random.index(room + 1);
            bed.commit(reserved, length);
            expected.extend_from_slice(&bytes[..length]);
        }
    }
}

/// Commits of more than a slot, of which a reader that looks all the time sees nothing or all.
fn commit_whole(attributes: Attributes, seed: u64) -> Result<(), String> {
    let geometry = Geometry { ring_lines: 2048 };
    let pair = Pair::new(geometry.size(), attributes, seed);
    let lane =
        |place, side| Lane::new(&Window::new(pair.medium(place)), geometry, side).expect("it fits");
    let (mut ours, mut theirs) = (
        lane(Place::A, Side::Connecting),
        lane(Place::B, Side::Accepting),
    );
    let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
    let text = |error: millrace_stream::Error| error.to_string();
    for round in 0..8_u64 {
        let length = 8193 + usize::try_from(seed * 97 + round * 611).expect("small") % 9000;
        let sender = &mut ours.sender;
        let reserved = sender
            .reserve(&ours.sight, &mut sent, length)
            .map_err(text)?;
        let length = reserved.length();
        // A word of each slot will do.
        let word = round.to_le_bytes();
        for offset in (0..length - WORD).step_by(8192) {
            sender.fill(reserved, offset, &word).map_err(text)?;
        }
        sender.commit(&mut sent, reserved, length).map_err(text)?;
        let mut looks = 0;
        loop {
            let mut is_right = true;
            let shown = theirs
                .receiver
                .borrow(&theirs.sight, &received, usize::MAX, |piece| {
                    let mut first = [0; WORD];
                    if piece.length() >= WORD {
                        piece.copy(0, &mut first)?;
                        is_right &= first == word;
                    }
                    Ok(ControlFlow::Continue(()))
                });
            match shown.map_err(text)?.bytes {
                0 if looks > 1000 => return Err("nothing came".to_owned()),
                0 => {}
                count if count == length && is_right => break,
                count => return Err(format!("{count} of {length}, right: {is_right}")),
            }
            looks += 1;
            if looks > 20 {
                pair.pass_time();
            }
        }
        let receiver = &mut theirs.receiver;
        let taken = receiver.consume(&theirs.sight, &mut received, length);
        if taken.map_err(text)?.bytes != length {
            return Err("other bytes".to_owned());
        }
        pair.pass_time();
    }
    Ok(())
}

#[test]
fn a_commit_is_seen_whole() {
    for (name, attributes) in KINDS {
        for seed in 0..3 {
            let run = commit_whole(attributes, seed);
            assert_eq!(run, Ok(()), "{name}, seed {seed}");
        }
    }
}

#[cfg(debug_assertions)]
#[test]
fn a_commit_needs_its_first_word_last() {
    mutation::leave_out(Some(Step::PublishedLast));
    let mut seeds = (0..40).map(|seed| (seed, KINDS[usize::try_from(seed % 4).expect("few")]));
    let found = seeds.find_map(|(seed, (name, attributes))| {
        Some((name, seed, commit_whole(attributes, seed).err()?))
    });
    mutation::leave_out(None);
    let (name, seed, failure) = found.expect("no seed fails without it");
    println!("{name}, seed {seed}: {failure}");
}
