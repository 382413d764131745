//! The rules of epoll, one by one.

use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::fake::{Fake, Fixture, Plain, SETS, enter, leave};
use crate::errno::Errno;
use crate::multiplex::poll_target::Target;
use crate::readiness::{EDGE, ERR, EXCLUSIVE, HUP, IN, ONCE, OUT, RDHUP};

const ADD: i32 = libc::EPOLL_CTL_ADD;
const MOD: i32 = libc::EPOLL_CTL_MOD;
const DEL: i32 = libc::EPOLL_CTL_DEL;
/// A time after which a test has failed.
const BRIEF: Option<Duration> = Some(Duration::from_millis(1));

/// Everything is armed: a wait that ended without an event.
fn sleep_once(fixture: &Fixture) {
    assert_eq!(fixture.try_wait(8, BRIEF), Ok(vec![]));
}

#[test]
fn a_level_is_reported_until_it_is_gone() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN, 7);
    assert_eq!(fixture.look(8), []);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN, 7)]);
    assert_eq!(fixture.look(8), [(IN, 7)]);
    assert!(fake.take());
    assert_eq!(fixture.look(8), []);
}

#[test]
fn an_edge_is_reported_once() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | OUT | EDGE, 7);
    assert_eq!(fixture.look(8), [(OUT, 7)]);
    assert_eq!(fixture.look(8), []);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN | OUT, 7)]);
    assert_eq!(fixture.look(8), []);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN | OUT, 7)]);
    fake.stall();
    assert_eq!(fixture.look(8), []);
    fake.make_room();
    assert_eq!(fixture.look(8), [(IN | OUT, 7)]);
    assert_eq!(fixture.look(8), []);
}

#[test]
fn an_edge_of_room_reaches_an_armed_member() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | OUT | EDGE, 7);
    assert_eq!(fixture.look(8), [(OUT, 7)]);
    sleep_once(&fixture);
    fake.stall();
    sleep_once(&fixture);
    fake.make_room();
    assert_eq!(fixture.look(8), [(OUT, 7)]);
}

#[test]
fn a_change_makes_an_edge_anew() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | EDGE, 7);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN, 7)]);
    fixture.modify(fake.fd(), IN | EDGE, 8);
    assert_eq!(fixture.look(8), [(IN, 8)]);
    assert_eq!(fixture.look(8), []);
}

#[test]
fn one_shot_is_silent_until_changed() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | ONCE, 7);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN, 7)]);
    fake.abort();
    assert_eq!(fixture.look(8), []);
    sleep_once(&fixture);
    fixture.modify(fake.fd(), IN | ONCE, 9);
    assert_eq!(fixture.look(8), [(IN | ERR | HUP, 9)]);
    assert_eq!(fixture.look(8), []);
}

#[test]
fn errors_and_hang_ups_are_always_reported() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), 0, 7);
    fake.arrive();
    assert_eq!(fixture.look(8), []);
    fake.abort();
    assert_eq!(fixture.look(8), [(ERR | HUP, 7)]);
}

#[test]
fn the_end_is_an_edge() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | RDHUP | EDGE, 7);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN, 7)]);
    fake.finish();
    assert_eq!(fixture.look(8), [(IN | RDHUP, 7)]);
    assert_eq!(fixture.look(8), []);
}

#[test]
fn an_arrival_is_an_edge_for_room_even_if_it_was_taken() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | OUT | EDGE, 7);
    assert_eq!(fixture.look(8), [(OUT, 7)]);
    fake.arrive();
    assert!(fake.take());
    assert_eq!(fixture.look(8), [(OUT, 7)]);
    assert_eq!(fixture.look(8), []);
}

#[test]
fn armed_members_are_found_by_their_wakeups() {
    let (fixture, fake, other) = (Fixture::new(), Fake::new(), Fake::new());
    fixture.add(fake.fd(), IN, 7);
    fixture.add(other.fd(), IN, 8);
    sleep_once(&fixture);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN, 7)]);
    assert!(fake.take());
    sleep_once(&fixture);
    other.arrive();
    assert_eq!(fixture.wait(8), [(IN, 8)]);
}

#[test]
fn a_hang_up_of_a_peer_is_noticed() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN | RDHUP, 7);
    sleep_once(&fixture);
    fake.die();
    assert_eq!(fixture.wait(8), [(IN | RDHUP | HUP, 7)]);
}

#[test]
fn errors_are_the_kernels() {
    let (fixture, fake, plain) = (Fixture::new(), Fake::new(), Plain::new());
    for fd in [fake.fd(), plain.fd()] {
        assert_eq!(fixture.control(MOD, fd, IN, 0), Err(Errno(libc::ENOENT)));
        assert_eq!(fixture.control(DEL, fd, 0, 0), Err(Errno(libc::ENOENT)));
        let refused = fixture.control(ADD, fd, IN | ONCE | EXCLUSIVE, 0);
        assert_eq!(refused, Err(Errno(libc::EINVAL)));
        fixture.add(fd, IN | EXCLUSIVE, 0);
        assert_eq!(fixture.control(ADD, fd, IN, 0), Err(Errno(libc::EEXIST)));
        assert_eq!(fixture.control(MOD, fd, IN, 0), Err(Errno(libc::EINVAL)));
        assert_eq!(
            fixture.control(MOD, fd, IN | EXCLUSIVE, 0),
            Err(Errno(libc::EINVAL))
        );
        fixture.delete(fd);
        assert_eq!(fixture.control(DEL, fd, 0, 0), Err(Errno(libc::ENOENT)));
    }
    assert_eq!(
        fixture.control(ADD, 1 << 19, IN, 0),
        Err(Errno(libc::EBADF))
    );
    assert_eq!(
        fixture.control(ADD, fixture.fd(), IN, 0),
        Err(Errno(libc::EINVAL))
    );
    let file = std::fs::File::open("/proc/self/maps").expect("there is one");
    assert_eq!(
        fixture.control(ADD, file.as_raw_fd(), IN, 0),
        Err(Errno(libc::EPERM))
    );
}

#[test]
fn the_kernels_members_are_reported_among_ours() {
    let (fixture, fake, plain) = (Fixture::new(), Fake::new(), Plain::new());
    fixture.add(fake.fd(), IN, 7);
    fixture.add(plain.fd(), IN, 8);
    plain.arrive();
    assert_eq!(fixture.look(8), [(IN, 8)]);
    // User-level members are always ready: the kernel's members are reported even so.
    fake.arrive();
    for room in [1, 8] {
        let seen = (0..32)
            .filter(|_| fixture.look(room).contains(&(IN, 8)))
            .count();
        assert!(seen > 0, "not seen with room for {room}");
    }
    let ours = (0..32)
        .filter(|_| fixture.look(1).contains(&(IN, 7)))
        .count();
    assert!(ours >= 16, "ours were reported {ours} times of 32");
    plain.take();
    assert!(fake.take());
    assert_eq!(fixture.look(8), []);
}

#[test]
fn more_ready_ones_than_room_take_turns() {
    const COUNT: u64 = 10;
    let fixture = Fixture::new();
    for data in 0..COUNT {
        let fake = Fake::new();
        fixture.add(fake.fd(), IN, data);
        fake.arrive();
    }
    let mut counts = [0; 10];
    for _ in 0..COUNT {
        for (_, data) in fixture.look(3) {
            counts[usize::try_from(data).expect("small")] += 1;
        }
    }
    assert_eq!(counts, [3; 10]);
}

#[test]
fn one_source_under_two_numbers() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    let copy = rustix::io::dup(rustix::fd::AsFd::as_fd(&fixture.outer)).expect("a number is left");
    enter(copy.as_raw_fd(), Target::Source(fake));
    fixture.add(fake.fd(), IN, 7);
    fixture.add(copy.as_raw_fd(), IN | OUT, 8);
    assert_eq!(fixture.look(8), [(OUT, 8)]);
    fake.arrive();
    let mut both = fixture.look(8);
    both.sort_by_key(|(_, data)| *data);
    assert_eq!(both, [(IN, 7), (IN | OUT, 8)]);
    // With room for one they take turns.
    let mut turns: Vec<_> = (0..4)
        .flat_map(|_| fixture.look(1))
        .map(|(_, data)| data)
        .collect();
    turns.sort_unstable();
    assert_eq!(turns, [7, 7, 8, 8]);
    fixture.delete(copy.as_raw_fd());
    leave(copy.as_raw_fd());
    assert_eq!(fixture.look(8), [(IN, 7)]);
}

#[test]
fn a_closed_source_leaves_its_sets() {
    let (fixture, other, fake) = (Fixture::new(), Fixture::new(), Fake::new());
    for fixture in [&fixture, &other] {
        fixture.add(fake.fd(), IN, 7);
    }
    fake.arrive();
    assert_eq!(fake.holds.load(Ordering::SeqCst), 2);
    SETS.forget(fake);
    assert_eq!((fixture.look(8), other.look(8)), (vec![], vec![]));
    assert_eq!(fake.holds.load(Ordering::SeqCst), 0);
    assert_eq!(fake.watchers.load(Ordering::SeqCst), 0);
    assert_eq!(
        fixture.control(DEL, fake.fd(), 0, 0),
        Err(Errno(libc::ENOENT))
    );
}

#[test]
fn a_closed_set_lets_its_members_go() {
    let fake = Fake::new();
    let fixture = Fixture::new();
    fixture.add(fake.fd(), IN, 7);
    drop(fixture);
    assert_eq!(fake.holds.load(Ordering::SeqCst), 0);
    assert_eq!(fake.watchers.load(Ordering::SeqCst), 0);
}

#[test]
fn the_cost_does_not_grow_with_armed_members() {
    let fixture = Fixture::new();
    let idle: Vec<_> = (0..300).map(|_| Fake::new()).collect();
    for fake in &idle {
        fixture.add(fake.fd(), IN, 1);
    }
    let active = Fake::new();
    fixture.add(active.fd(), IN, 2);
    sleep_once(&fixture);
    let looks = || {
        idle.iter()
            .map(|fake| fake.looks.load(Ordering::Relaxed))
            .sum::<u64>()
    };
    let before = looks();
    for _ in 0..1000 {
        active.arrive();
        assert_eq!(fixture.wait(8), [(IN, 2)]);
        assert!(active.take());
    }
    // Notes of other tests, if there are many, make all of them hot at times.
    assert!(
        looks() - before < 1000 * 300 / 4,
        "{} looks",
        looks() - before
    );
}

#[test]
fn many_idle_hot_members_are_armed_without_a_sleep() {
    let fixture = Fixture::new();
    let idle: Vec<_> = (0..200).map(|_| Fake::new()).collect();
    for (data, fake) in (0..).zip(&idle) {
        fixture.add(fake.fd(), IN, data);
    }
    for _ in 0..100 {
        assert_eq!(fixture.look(8), []);
    }
    let armed = idle
        .iter()
        .filter(|fake| fake.arms.load(Ordering::Relaxed) > 0)
        .count();
    assert!(armed > 0);
    idle.iter().for_each(|fake| fake.arrive());
    let mut seen = HashSet::new();
    while seen.len() < idle.len() {
        seen.extend(fixture.look(64));
    }
}

#[test]
fn a_shared_source_is_polled_without_wakeups() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fake.is_shared.store(true, Ordering::SeqCst);
    fixture.add(fake.fd(), IN, 7);
    sleep_once(&fixture);
    fake.arrive();
    // Another process reads the wake-up.
    crate::readiness::Source::drain(fake);
    assert_eq!(fixture.wait(8), [(IN, 7)]);
}

#[test]
fn a_deleted_member_is_silent_and_can_come_back() {
    let (fixture, fake) = (Fixture::new(), Fake::new());
    fixture.add(fake.fd(), IN, 7);
    sleep_once(&fixture);
    for data in 8..12 {
        fixture.delete(fake.fd());
        assert_eq!(
            fixture.control(DEL, fake.fd(), 0, 0),
            Err(Errno(libc::ENOENT))
        );
        assert_eq!(
            fixture.control(MOD, fake.fd(), IN, 0),
            Err(Errno(libc::ENOENT))
        );
        fake.arrive();
        sleep_once(&fixture);
        fixture.add(fake.fd(), IN, data);
        assert_eq!(fixture.look(8), [(IN, data)]);
        assert!(fake.take());
        sleep_once(&fixture);
    }
    fixture.delete(fake.fd());
    SETS.forget(fake);
    assert_eq!(fake.holds.load(Ordering::SeqCst), 0);
}
