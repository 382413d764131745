//! Streams without copies.

use std::io::{self, ErrorKind, Write};
use std::ops::ControlFlow;

use millrace_random::Random;

use super::super::stream::Stream;
use super::{connection, half};
use crate::control::Mode;

/// The next bytes, as visited in place.
fn borrow(stream: &mut Stream, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let count = stream.borrow(size, |piece| {
        let start = bytes.len();
        bytes.resize(start + piece.length(), 0);
        piece.copy(0, &mut bytes[start..])?;
        Ok(ControlFlow::Continue(()))
    })?;
    assert_eq!(count, bytes.len());
    Ok(bytes)
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.expect_err("it cannot go well").kind()
}

/// Bytes arrive unchanged, however the writes are split.
#[test]
fn what_is_written_is_borrowed() {
    for seed in 0..200 {
        let mut random = Random::new(seed);
        let (mut ours, mut theirs) = connection(Mode::Direct);
        let (mut sent, mut got) = (Vec::new(), Vec::new());
        for _ in 0..40 {
            let length = 1 + random.index(600);
            let mut reservation = match ours.reserve(length) {
                Ok(reservation) => reservation,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock, "seed {seed}");
                    let next = borrow(&mut theirs, usize::MAX).expect("bytes");
                    assert_eq!(theirs.consume(next.len()).expect("bytes"), next.len());
                    got.extend(next);
                    continue;
                }
            };
            assert!(reservation.length() <= length);
            let mut written = Vec::new();
            loop {
                let mut part = vec![0; 1 + random.index(30)];
                random.fill(&mut part);
                let count = reservation.write(&part).expect("it is within");
                written.extend_from_slice(&part[..count]);
                if count < part.len() || random.chance(1, 20) {
                    break;
                }
            }
            assert_eq!(reservation.written(), written.len());
            if random.chance(1, 8) {
                drop(reservation);
                continue;
            }
            if random.chance(1, 4) {
                written.truncate(random.index(written.len() + 1));
                let count = reservation.commit_first(written.len());
                assert_eq!(count.expect("the peer is there"), written.len());
            } else {
                let count = reservation.commit().expect("the peer is there");
                assert_eq!(count, written.len());
            }
            sent.extend(written);
        }
        assert!(ours.finish());
        loop {
            let next = borrow(&mut theirs, 1 + random.index(300)).expect("bytes or the end");
            if next.is_empty() {
                break;
            }
            let interest = 1 + random.index(next.len());
            let taken = theirs.consume(interest).expect("bytes");
            assert!(0 < taken && taken <= interest, "seed {seed}");
            got.extend_from_slice(&next[..taken]);
        }
        assert!(got == sent, "seed {seed}");
        assert_eq!(theirs.consume(1).expect("the end"), 0);
    }
}

#[test]
fn a_full_reservation_writes_no_more() {
    let (mut ours, mut theirs) = connection(Mode::Direct);
    let mut reservation = ours.reserve(10).expect("there is room");
    assert_eq!(reservation.write(b"0123456789abc").expect("within"), 10);
    assert_eq!(kind(reservation.write_all(b"x")), ErrorKind::WriteZero);
    assert_eq!(reservation.commit().expect("the peer is there"), 10);
    let reservation = ours.reserve(10).expect("there is room");
    let refused = reservation.commit_first(11);
    assert_eq!(kind(refused), ErrorKind::InvalidInput);
    assert_eq!(borrow(&mut theirs, 100).expect("bytes"), b"0123456789");
    assert_eq!(kind(borrow(&mut ours, 1)), ErrorKind::WouldBlock);
}

#[test]
fn places_are_of_the_lengths_that_they_say() {
    let (mut ours, _theirs) = connection(Mode::Direct);
    let mut reservation = ours.reserve(500).expect("there is room");
    let length: usize = reservation.places().map(|place| place.len()).sum();
    assert_eq!(length, reservation.length());
}

#[test]
fn a_peer_that_is_gone_gets_nothing() {
    let (mut ours, theirs) = connection(Mode::Direct);
    let mut reservation = ours.reserve(10).expect("there is room");
    reservation.write_all(b"some").expect("there is room");
    drop(theirs);
    assert_eq!(kind(reservation.commit()), ErrorKind::BrokenPipe);
    assert_eq!(kind(ours.reserve(1)), ErrorKind::BrokenPipe);
    let (mut ours, wakeup, _memory) = half(Mode::Forwarded);
    drop(wakeup);
    ours.drain_wakeups();
    assert_eq!(kind(borrow(&mut ours, 1)), ErrorKind::ConnectionReset);
}
