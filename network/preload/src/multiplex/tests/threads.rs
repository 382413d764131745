//! Several threads: none sleeps while an event for it is there. A failure is a test that does not end.

use std::sync::atomic::{AtomicU64, Ordering};

use super::fake::{Fake, Fixture, Plain};
use crate::readiness::{EDGE, IN, ONCE};

const SOURCES: u64 = 8;
const ARRIVALS: u64 = 3000;
const END: u64 = 99;

/// Threads wait in one set while others send; each report is read, until all bytes have arrived.
fn all_is_taken(flags: u32, waiters: usize, room: usize) {
    let fixture = Fixture::new();
    let fakes: Vec<_> = (0..SOURCES).map(|_| Fake::new()).collect();
    for (data, fake) in (0..).zip(&fakes) {
        fixture.add(fake.fd(), IN | flags, data);
    }
    let end = Plain::new();
    fixture.add(end.fd(), IN, END);
    let taken = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..waiters {
            scope.spawn(|| wait_and_take(&fixture, &fakes, &taken, &end, flags, room));
        }
        for half in fakes.chunks(4) {
            scope.spawn(move || {
                for number in 0..ARRIVALS {
                    half.iter().for_each(|fake| fake.arrive());
                    if number % 7 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
    });
    assert_eq!(taken.load(Ordering::SeqCst), SOURCES * ARRIVALS);
}

fn wait_and_take(
    fixture: &Fixture,
    fakes: &[&'static Fake],
    taken: &AtomicU64,
    end: &Plain,
    flags: u32,
    room: usize,
) {
    loop {
        for (_, data) in fixture.wait(room) {
            if data == END {
                return;
            }
            let fake = fakes[usize::try_from(data).expect("small")];
            while fake.take() {
                if taken.fetch_add(1, Ordering::SeqCst) + 1 == SOURCES * ARRIVALS {
                    end.arrive();
                }
            }
            if flags & ONCE != 0 {
                fixture.modify(fake.fd(), IN | flags, data);
            }
        }
    }
}

#[test]
fn one_waiter_by_level() {
    all_is_taken(0, 1, 64);
}

#[test]
fn one_waiter_by_edge() {
    all_is_taken(EDGE, 1, 2);
}

#[test]
fn waiters_by_level() {
    all_is_taken(0, 3, 1);
}

#[test]
fn waiters_by_edge() {
    all_is_taken(EDGE, 3, 1);
}

#[test]
fn waiters_by_one_shot() {
    all_is_taken(ONCE, 3, 2);
    all_is_taken(ONCE | EDGE, 2, 8);
}

#[test]
fn members_that_come_while_others_sleep() {
    let fixture = Fixture::new();
    let first = Fake::new();
    fixture.add(first.fd(), IN, 0);
    for data in 1..200 {
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| fixture.wait(8));
            let fake = Fake::new();
            fixture.add(fake.fd(), IN | EDGE, data);
            fake.arrive();
            assert_eq!(sleeper.join().expect("no panic"), [(IN, data)]);
        });
    }
}
