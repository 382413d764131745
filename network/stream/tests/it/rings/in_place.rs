//! Reservations: their size, their validity, and their equivalence to sends.

use std::ops::ControlFlow;

use millrace_memory::{Pages, RegionOptions};
use millrace_random::Random;
use millrace_stream::{ErrorKind, Geometry, ReceiveCursor, Reserved, RingPair, SendCursor, Side};
#[cfg(debug_assertions)]
use millrace_stream::{MutationPoint, mutation};
use millrace_window::{Attributes, Mapped, WORD, Window};
use millrace_window_faults::{Pair, Side as Place};

use super::fixture::KINDS;

/// One side, the other, and a third mapping of the memory.
struct Fixture {
    ours: RingPair,
    theirs: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
    seen: Window<Mapped>,
    geometry: Geometry,
}

impl Fixture {
    fn new(geometry: Geometry) -> Self {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(geometry.size(), &options).expect("memory");
        let second = Window::attach(&file).expect("the same memory");
        Self {
            ours: RingPair::new(&window, geometry, Side::Connecting).expect("a rings"),
            theirs: RingPair::new(&second, geometry, Side::Accepting).expect("a rings"),
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
            .reserve(&self.ours.peer_state, &mut self.sent, length);
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
            .send(&self.ours.peer_state, &mut self.sent, bytes);
        assert_eq!(sent.expect("a sound peer"), bytes.len());
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut bytes = vec![0; 1 << 20];
        let rings = &mut self.theirs;
        let taken = rings
            .receiver
            .receive(&rings.peer_state, &mut self.received, &mut bytes);
        bytes.truncate(taken.expect("a sound peer").bytes);
        bytes
    }

    /// All bytes of the first area.
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
        let [mut by_send, mut in_place] = [(); 2].map(|()| Fixture::new(Geometry::DEFAULT));
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
    let mut fixture = Fixture::new(Geometry::DEFAULT);
    let bytes = content(1, 30_000);
    for length in [0, 1, 56, 57, 8191, 8192, 8193, 16_384, 20_000, 30_000] {
        let reserved = fixture.reserve(bytes.len());
        fixture.fill(reserved, &bytes);
        fixture.commit(reserved, length);
        assert!(fixture.receive() == bytes[..length], "{length} bytes");
        fixture.send(b"more");
        assert_eq!(fixture.receive(), b"more", "behind {length} bytes");
    }
}

#[test]
fn a_reservation_is_void_after_a_send() {
    let mut fixture = Fixture::new(Geometry { ring_lines: 256 });
    let reserved = fixture.reserve(100);
    let kind = |outcome: millrace_stream::Result<()>| outcome.map_err(|error| error.kind());
    let sender = &mut fixture.ours.sender;
    let commit = sender.commit(&mut fixture.sent, reserved, 101);
    assert_eq!(kind(commit), Err(ErrorKind::Geometry));
    for (offset, size) in [(0, 101), (4, 8), (104, 0), (usize::MAX - 7, 8)] {
        let filled = sender.fill(reserved, offset, &vec![0; size]);
        assert_eq!(kind(filled), Err(ErrorKind::Geometry), "{offset}, {size}");
    }
    fixture.send(b"a");
    let commit = fixture.ours.sender.commit(&mut fixture.sent, reserved, 100);
    assert_eq!(kind(commit), Err(ErrorKind::Ended));
    let reserved = fixture.reserve(100);
    let rings = &mut fixture.ours;
    let finished = rings.sender.finish(&rings.peer_state, &mut fixture.sent);
    assert!(finished.expect("a sound peer"));
    let commit = rings.sender.commit(&mut fixture.sent, reserved, 1);
    assert_eq!(kind(commit), Err(ErrorKind::Ended));
    let again = rings
        .sender
        .reserve(&rings.peer_state, &mut fixture.sent, 1);
    assert_eq!(
        again.map_err(|error| error.kind()),
        Err(ErrorKind::Ended),
        "after the end"
    );
}

#[test]
fn places_are_where_the_bytes_go() {
    let mut fixture = Fixture::new(Geometry::DEFAULT);
    let base = fixture.reserve(1);
    let first = |fixture: &mut Fixture, reserved| {
        let mut places = fixture.ours.sender.places(reserved);
        places.next().expect("there is room").cast::<u8>().addr()
    };
    let base = first(&mut fixture, base).get();
    let reserved = fixture.reserve(20_000);
    let places: Vec<_> = fixture.ours.sender.places(reserved).collect();
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
    let mut fixture = Fixture::new(Geometry { ring_lines: 1024 });
    fixture.send(b"first");
    fixture.send(&[7; 100]);
    let look = |fixture: &Fixture, size| {
        let mut found = Vec::new();
        let rings = &fixture.theirs;
        let shown = rings
            .receiver
            .borrow(&rings.peer_state, &fixture.received, size, |piece| {
                let address = piece.address()?.addr();
                found.push((address, piece.length()));
                Ok(ControlFlow::Continue(()))
            });
        (shown.expect("a sound peer").bytes, found)
    };
    let (count, all) = look(&fixture, usize::MAX);
    assert_eq!((count, all.len()), (105, 2));
    assert_eq!(all[1].0 - all[0].0, 64);
    assert_eq!(look(&fixture, 3), (3, vec![(all[0].0, 3)]));
    let rings = &mut fixture.theirs;
    let taken = rings
        .receiver
        .consume(&rings.peer_state, &mut fixture.received, 3);
    assert_eq!(taken.expect("a sound peer").bytes, 3);
    fixture.send(b"more");
    let (count, rest) = look(&fixture, usize::MAX);
    assert_eq!((count, rest.len()), (106, 3));
    assert_eq!(rest[..2], [(all[0].0 + 3, 2), all[1]]);
}

/// Room is found where it is reported, by reservations as by sends.
#[test]
fn room_is_where_a_reservation_finds_it() {
    for seed in 0..60 {
        let mut random = Random::new(seed);
        let ring_lines = [64, 256, 1024][random.index(3)];
        let mut fixture = Fixture::new(Geometry { ring_lines });
        let largest = [8, 60, 300, 9000][random.index(4)];
        let mut expected = Vec::new();
        for step in 0..2000 {
            // The reader keeps up for a while, then stalls until nothing more is sent.
            if step / 200 % 3 != 2 {
                let got = fixture.receive();
                assert!(got == expected, "seed {seed}, step {step}");
                expected.clear();
            }
            let said = fixture.ours.peer_state.has_room(&fixture.sent);
            let length = 1 + random.index(largest);
            let reserved = fixture.reserve(length);
            let room = reserved.length();
            assert!(
                room > 0 || !said,
                "seed {seed}: no room where some was said to be"
            );
            let bytes = content(step, room);
            fixture.fill(reserved, &bytes);
            let length = random.index(room + 1);
            fixture.commit(reserved, length);
            expected.extend_from_slice(&bytes[..length]);
        }
    }
}

/// Commits of more than a slot, of which a polling reader sees nothing or all.
fn commit_whole(attributes: Attributes, seed: u64) -> Result<(), String> {
    let geometry = Geometry { ring_lines: 2048 };
    let pair = Pair::new(geometry.size(), attributes, seed);
    let rings = |place, side| {
        RingPair::new(&Window::new(pair.medium(place)), geometry, side).expect("it fits")
    };
    let (mut ours, mut theirs) = (
        rings(Place::A, Side::Connecting),
        rings(Place::B, Side::Accepting),
    );
    let (mut sent, mut received) = (SendCursor::default(), ReceiveCursor::default());
    let text = |error: millrace_stream::Error| error.to_string();
    for round in 0..8_u64 {
        let length = 8193 + usize::try_from(seed * 97 + round * 611).expect("small") % 9000;
        let sender = &mut ours.sender;
        let reserved = sender
            .reserve(&ours.peer_state, &mut sent, length)
            .map_err(text)?;
        let length = reserved.length();
        // One word of each slot is enough.
        let word = round.to_le_bytes();
        for offset in (0..length - WORD).step_by(8192) {
            sender.fill(reserved, offset, &word).map_err(text)?;
        }
        sender.commit(&mut sent, reserved, length).map_err(text)?;
        let mut looks = 0;
        loop {
            let mut is_right = true;
            let shown =
                theirs
                    .receiver
                    .borrow(&theirs.peer_state, &received, usize::MAX, |piece| {
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
        let taken = receiver.consume(&theirs.peer_state, &mut received, length);
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
#[ignore = "mutation check: `make soak` runs it"]
fn a_commit_needs_its_first_word_last() {
    mutation::disable(Some(MutationPoint::PublishedLast));
    let mut seeds = (0..40).map(|seed| (seed, KINDS[usize::try_from(seed % 4).expect("few")]));
    let found = seeds.find_map(|(seed, (name, attributes))| {
        Some((name, seed, commit_whole(attributes, seed).err()?))
    });
    mutation::disable(None);
    let (name, seed, failure) = found.expect("no seed fails without it");
    println!("{name}, seed {seed}: {failure}");
}
