//! What the halves check, and that they are the memory they say.

use millrace_random::Random;
use millrace_window::{APART, Attributes, Direction, ErrorKind, LINE, WORD, Window};
use proptest::prelude::*;

use crate::fixture::{CACHEABILITIES, Heap, heap};

const SIZE: usize = 1024;

#[test]
fn halves_lie_apart_and_within() {
    let window = heap(SIZE, Attributes::SHARED_MEMORY).window();
    let kind = |range: std::ops::Range<usize>| {
        let outgoing = window.outgoing(range.clone()).map(drop);
        let incoming = window.incoming(range).map(drop);
        let kinds = [outgoing, incoming].map(|taken| taken.map_err(|error| error.kind()));
        assert_eq!(kinds[0], kinds[1]);
        kinds[0]
    };
    assert_eq!(kind(0..SIZE), Ok(()));
    let reversed = std::ops::Range {
        start: 2 * APART,
        end: APART,
    };
    for range in [
        0..0,
        0..LINE,
        LINE..SIZE,
        0..SIZE + APART,
        SIZE..SIZE + APART,
        0..usize::MAX,
        usize::MAX - APART + 1..usize::MAX,
        reversed,
    ] {
        assert_eq!(kind(range), Err(ErrorKind::OutOfRange));
    }
    let half = window.outgoing(APART..3 * APART).expect("free");
    for range in [0..SIZE, APART..2 * APART, 2 * APART..SIZE, 0..2 * APART] {
        assert_eq!(kind(range), Err(ErrorKind::InUse));
    }
    assert_eq!(kind(0..APART), Ok(()));
    assert_eq!(kind(3 * APART..SIZE), Ok(()));
    drop(half);
    assert_eq!(kind(0..SIZE), Ok(()));
}

#[test]
fn a_window_for_one_direction_has_no_other_half() {
    for (direction, stores, loads) in [
        (Direction::Both, true, true),
        (Direction::Stores, true, false),
        (Direction::Loads, false, true),
    ] {
        let attributes = Attributes {
            direction,
            ..Attributes::SHARED_MEMORY
        };
        let window = heap(SIZE, attributes).window();
        assert_eq!(window.outgoing(0..APART).is_ok(), stores);
        assert_eq!(window.incoming(APART..2 * APART).is_ok(), loads);
        if let Err(error) = window.incoming(0..APART) {
            assert_eq!(error.kind(), ErrorKind::Direction);
        }
    }
}

#[test]
fn what_does_not_lie_within_is_an_error() {
    let memory = heap(SIZE, Attributes::SHARED_MEMORY);
    let mut outgoing = memory.window().outgoing(0..2 * APART).expect("free");
    for (offset, size) in [
        (0, 0),
        (0, 1),
        (1, LINE),
        (WORD, LINE),
        (2 * APART, LINE),
        (APART, 2 * APART),
        (usize::MAX - LINE + 1, LINE),
        (LINE, usize::MAX - LINE + 1),
    ] {
        let error = outgoing.slot(offset, size).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{offset} {size}");
    }
    let mut slot = outgoing.slot(LINE, 2 * LINE).expect("within");
    for (offset, len) in [
        (0, 1),
        (7, 1),
        (12, 1),
        (2 * LINE, 1),
        (WORD, 2 * LINE - WORD + 1),
        (usize::MAX - WORD + 1, 1),
        (usize::MAX - WORD + 1, WORD),
    ] {
        let error = slot
            .store(offset, &[1; 3 * LINE][..len])
            .expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{offset} {len}");
    }
    slot.store(2 * LINE, &[]).expect("nothing lies within");
    slot.store(WORD, &[1; 2 * LINE - WORD]).expect("within");
    drop(outgoing);
    assert_eq!(memory.bytes()[2 * APART..], [0; SIZE - 2 * APART]);

    let incoming = memory.window().incoming(0..2 * APART).expect("free");
    for offset in [1, WORD, 2 * APART, usize::MAX - LINE + 1, usize::MAX] {
        let error = incoming.poll(offset).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{offset}");
    }
    let slot = incoming.poll(LINE).expect("within");
    let rest = 2 * APART - LINE;
    for (offset, len) in [
        (0, 1),
        (4, 1),
        (rest, 1),
        (WORD, rest - WORD + 1),
        (usize::MAX - WORD + 1, WORD),
    ] {
        let mut bytes = vec![7; len];
        let error = slot.load(offset, &mut bytes).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::OutOfRange, "{offset} {len}");
        assert_eq!(bytes, vec![7; len], "nothing was copied");
    }
    slot.load(WORD, &mut vec![0; rest - WORD]).expect("within");
}

#[test]
fn without_a_doorbell_there_is_nothing_to_ring() {
    let window = heap(SIZE, Attributes::SHARED_MEMORY).window();
    assert!(!window.has_doorbell());
    let error = window.ring().expect_err("there is none");
    assert_eq!(error.kind(), ErrorKind::Unsupported);
}

/// Something done to a slot.
#[derive(Clone, Debug)]
struct Filling {
    line: usize,
    lines: usize,
    offset: usize,
    bytes: Vec<u8>,
    word: Option<u64>,
}

fn filling() -> impl Strategy<Value = Filling> {
    let bytes = proptest::collection::vec(any::<u8>(), 0..200);
    (
        0_usize..9,
        0_usize..5,
        0_usize..240,
        bytes,
        any::<Option<u64>>(),
    )
        .prop_map(|(line, lines, offset, bytes, word)| Filling {
            line,
            lines,
            // Most lie at words.
            offset: if offset % 5 == 0 {
                offset
            } else {
                offset / WORD * WORD
            },
            bytes,
            word,
        })
}

/// What the halves must do, on plain bytes. Returns whether the payload was taken.
fn expect(model: &mut [u8], filling: &Filling) -> (bool, bool) {
    let (start, size) = (filling.line * LINE, filling.lines * LINE);
    if size == 0 || start + size > model.len() {
        return (false, false);
    }
    let end = filling.offset + filling.bytes.len();
    let is_stored = filling.offset >= WORD && filling.offset % WORD == 0 && end <= size;
    if is_stored {
        let padded = start + end.next_multiple_of(WORD);
        model[start + filling.offset..padded].fill(0);
        model[start + filling.offset..start + end].copy_from_slice(&filling.bytes);
    }
    if let Some(word) = filling.word {
        model[start..start + WORD].copy_from_slice(&word.to_le_bytes());
    }
    (true, is_stored)
}

fn compare(memory: &Heap, fillings: &[Filling]) {
    const HALF: usize = 512;
    let window = memory.window();
    let mut outgoing = window.outgoing(APART..APART + HALF).expect("free");
    let peer = memory.window();
    let incoming = peer.incoming(APART..APART + HALF).expect("free");
    let mut model = vec![0; HALF];
    for filling in fillings {
        let expected = expect(&mut model, filling);
        let slot = outgoing.slot(filling.line * LINE, filling.lines * LINE);
        assert_eq!(slot.is_ok(), expected.0);
        let Ok(mut slot) = slot else { continue };
        let stored = slot.store(filling.offset, &filling.bytes);
        assert_eq!(stored.is_ok(), expected.1);
        if let Some(word) = filling.word {
            slot.publish(word);
        }
        for line in (0..HALF).step_by(LINE) {
            let slot = incoming.poll(line).expect("within");
            let mut bytes = vec![0; HALF - line - WORD];
            slot.load(WORD, &mut bytes).expect("within");
            let word = slot.word().to_le_bytes();
            assert_eq!([&word[..], &bytes].concat(), model[line..]);
        }
    }
    let bytes = memory.bytes();
    assert_eq!(bytes[..APART], [0; APART], "before the half");
    assert_eq!(bytes[APART..APART + HALF], model);
    assert!(
        bytes[APART + HALF..].iter().all(|byte| *byte == 0),
        "behind the half"
    );
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 4 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn halves_are_bytes(fillings in proptest::collection::vec(filling(), 1..12)) {
        for attributes in CACHEABILITIES {
            compare(&heap(SIZE, attributes), &fillings);
        }
    }
}

/// The attributes are promises, so memory that needs less may be used as if it needed more.
#[test]
fn threads_meet_over_all_kinds_of_memory() {
    let messages: u64 = if cfg!(miri) { 40 } else { 20_000 };
    for attributes in CACHEABILITIES {
        let memory = heap(SIZE, attributes);
        let sound = "within";
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let window: Window = memory.window();
                let mut outgoing = window.outgoing(0..512).expect(sound);
                let given_back = window.incoming(512..1024).expect(sound);
                for message in 1..=messages {
                    while given_back.poll(0).expect(sound).word() + 4 < message {
                        std::thread::yield_now();
                    }
                    let place = usize::try_from(message % 4).expect("a few") * APART;
                    let mut slot = outgoing.slot(place, APART).expect(sound);
                    let payload: Vec<u8> = (0..15).flat_map(|_| message.to_le_bytes()).collect();
                    slot.store(WORD, &payload).expect(sound);
                    slot.publish(message);
                }
            });
            let window: Window = memory.window();
            let incoming = window.incoming(0..512).expect(sound);
            let mut giving_back = window.outgoing(512..1024).expect(sound);
            for message in 1..=messages {
                let place = usize::try_from(message % 4).expect("a few") * APART;
                let slot = loop {
                    let slot = incoming.poll(place).expect(sound);
                    if slot.word() == message {
                        break slot;
                    }
                    std::thread::yield_now();
                };
                let mut payload = [0; APART - WORD];
                slot.load(WORD, &mut payload).expect(sound);
                assert!(
                    payload
                        .chunks(WORD)
                        .all(|word| word == message.to_le_bytes())
                );
                giving_back.slot(0, LINE).expect(sound).publish(message);
            }
        });
    }
}

/// A peer that stores anything anywhere, at any time, and a reader that believes what it polls.
#[test]
fn no_content_makes_a_reader_panic() {
    use std::sync::atomic::{AtomicBool, Ordering};

    let polls = if cfg!(miri) { 20 } else { 50_000 };
    for attributes in CACHEABILITIES {
        let memory = heap(SIZE, attributes);
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let window = memory.window();
                let mut outgoing = window.outgoing(0..SIZE).expect("free");
                let mut random = Random::new(1);
                while !is_done.load(Ordering::Relaxed) {
                    let line = random.index(16);
                    let mut slot = outgoing.slot(line * LINE, LINE).expect("within");
                    let bytes = random.number().to_le_bytes().repeat(7);
                    slot.store(WORD, &bytes).expect("within");
                    slot.publish(random.number() >> random.below(64));
                }
            });
            let window = memory.window();
            let incoming = window.incoming(0..SIZE).expect("free");
            let mut refused = 0;
            for poll in 0..polls {
                let slot = incoming.poll(poll % 16 * LINE).expect("within");
                let believed = |bits: u64| usize::try_from(bits).expect("64 bits");
                let (offset, length) = (believed(slot.word()), believed(slot.word() % 2048));
                let mut bytes = vec![0; length];
                refused += usize::from(slot.load(offset, &mut bytes).is_err());
                refused += usize::from(incoming.poll(offset).is_err());
            }
            is_done.store(true, Ordering::Relaxed);
            assert!(refused > 0, "some of it made no sense");
        });
    }
}
