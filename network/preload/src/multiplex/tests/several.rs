//! Listeners, sets within sets, sets in several places, descriptors that become something else, forks.

use std::os::fd::AsRawFd;
use std::time::Duration;

use libc::epoll_event;

use super::fake::{Fake, Fixture, Plain, SETS, enter, leave};
use crate::errno::Errno;
use crate::multiplex::events::Events;
use crate::multiplex::interest::Interest;
use crate::multiplex::kernel_watched::{KernelWatched, NewMember, Word};
use crate::multiplex::poll_target::Target;
use crate::readiness::{EDGE, EXCLUSIVE, HUP, IN, ONCE, OUT};

const BRIEF: Option<Duration> = Some(Duration::from_millis(1));

/// A listener: a kernel descriptor, a channel, and its entry in the table.
struct Listening {
    own: Plain,
    channel: Plain,
    entry: &'static Fake,
}

impl Listening {
    fn new() -> Self {
        let (own, channel, entry) = (Plain::new(), Plain::new(), Fake::new());
        entry.attach_channel(channel.fd());
        enter(own.fd(), Target::Listener(entry));
        Self {
            own,
            channel,
            entry,
        }
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        leave(self.own.fd());
    }
}

#[test]
fn a_listener_with_two_queues_is_reported_once() {
    let (fixture, listening) = (Fixture::new(), Listening::new());
    fixture.add(listening.own.fd(), IN, 7);
    assert_eq!(fixture.look(8), []);
    listening.channel.arrive();
    assert_eq!(fixture.wait(8), [(IN, 7)]);
    listening.own.arrive();
    assert_eq!(fixture.wait(8), [(IN, 7)]);
    listening.channel.take();
    assert_eq!(fixture.look(8), [(IN, 7)]);
    listening.own.take();
    assert_eq!(fixture.look(8), []);
    assert_eq!(
        fixture.control(libc::EPOLL_CTL_ADD, listening.own.fd(), IN, 0),
        Err(Errno(libc::EEXIST))
    );
    fixture.delete(listening.own.fd());
    listening.channel.arrive();
    assert_eq!(fixture.look(8), []);
}

#[test]
fn one_shot_holds_over_both_ways_of_a_listener() {
    for by_channel in [true, false] {
        let (fixture, listening) = (Fixture::new(), Listening::new());
        fixture.add(listening.own.fd(), IN | ONCE, 7);
        let (first, second) = if by_channel {
            (&listening.channel, &listening.own)
        } else {
            (&listening.own, &listening.channel)
        };
        first.arrive();
        assert_eq!(fixture.wait(8), [(IN, 7)]);
        second.arrive();
        assert_eq!(fixture.try_wait(8, BRIEF), Ok(vec![]));
        fixture.modify(listening.own.fd(), IN | ONCE, 8);
        assert_eq!(fixture.wait(8), [(IN, 8)]);
        assert_eq!(fixture.try_wait(8, BRIEF), Ok(vec![]));
    }
}

#[test]
fn a_listener_in_sets_that_exclude_each_other() {
    let (fixture, listening) = (Fixture::new(), Listening::new());
    fixture.add(listening.own.fd(), IN | EXCLUSIVE, 7);
    listening.channel.arrive();
    assert_eq!(fixture.wait(8), [(IN, 7)]);
    let refused = fixture.control(libc::EPOLL_CTL_MOD, listening.own.fd(), IN, 0);
    assert_eq!(refused, Err(Errno(libc::EINVAL)));
}

#[test]
fn a_listener_gets_another_channel() {
    let (fixture, listening, other) = (Fixture::new(), Listening::new(), Plain::new());
    fixture.add(listening.own.fd(), IN, 7);
    listening.entry.attach_channel(other.fd());
    SETS.change_channel(listening.entry);
    listening.channel.arrive();
    assert_eq!(fixture.look(8), []);
    other.arrive();
    assert_eq!(fixture.look(8), [(IN, 7)]);
}

/// Two threads have collected one event from the kernel before either took the set's lock; and the kernel reports an
/// end whether asked or not.
#[test]
fn the_end_of_a_channel_is_reported_once_if_asked_for() {
    let (fixture, listening) = (Fixture::new(), Listening::new());
    let (outer, own) = (fixture.fd(), listening.own.fd());
    let mut room = [epoll_event { events: 0, u64: 0 }; 4];
    // SAFETY: the array has as many slots as the room says, and outlives it.
    let mut out = unsafe { Events::new(room.as_mut_ptr(), room.len()) };
    let mut kernel_watched = KernelWatched::new();
    let (new_member, channel) = (NewMember::Listener(listening.entry), Word::Channel(0));
    let added = kernel_watched.add(outer, &new_member, Interest::new(own, OUT, 7));
    assert_eq!(added, Ok(()));
    kernel_watched.report(outer, channel, IN | HUP, 1, &mut out);
    assert_eq!((out.count(), kernel_watched.is_disconnected()), (0, false));
    let changed = kernel_watched.modify(outer, own, listening.entry, IN, 7);
    assert_eq!(changed, Ok(()));
    kernel_watched.report(outer, channel, IN | HUP, 2, &mut out);
    assert_eq!((out.count(), kernel_watched.is_disconnected()), (1, true));
    kernel_watched.report(outer, channel, IN | HUP, 3, &mut out);
    assert_eq!(out.count(), 1);
    kernel_watched.clear();
}

/// A set that the table knows, so that others can hold it.
fn known() -> Fixture {
    let fixture = Fixture::new();
    enter(fixture.fd(), Target::Set(Fake::new(), fixture.set));
    fixture
}

#[test]
fn a_set_within_a_set() {
    let (outer, inner, fake, plain) = (Fixture::new(), known(), Fake::new(), Plain::new());
    inner.add(fake.fd(), IN, 1);
    inner.add(plain.fd(), IN, 2);
    outer.add(inner.fd(), IN, 7);
    assert_eq!(outer.look(8), []);
    fake.arrive();
    assert_eq!(outer.look(8), [(IN, 7)]);
    assert_eq!(outer.look(8), [(IN, 7)]);
    assert_eq!(inner.look(8), [(IN, 1)]);
    assert!(fake.take());
    assert_eq!(outer.try_wait(8, BRIEF), Ok(vec![]));
    fake.arrive();
    assert_eq!(outer.wait(8), [(IN, 7)]);
    assert!(fake.take());
    plain.arrive();
    assert_eq!(outer.wait(8), [(IN, 7)]);
    assert_eq!(inner.wait(8), [(IN, 2)]);
    plain.take();
    assert_eq!(outer.try_wait(8, BRIEF), Ok(vec![]));
    leave(inner.fd());
}

#[test]
fn a_member_that_comes_to_a_set_within_a_sleeping_set() {
    let (outer, inner, fake) = (Fixture::new(), known(), Fake::new());
    outer.add(inner.fd(), IN, 7);
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| outer.wait(8));
        inner.add(fake.fd(), IN, 1);
        fake.arrive();
        assert_eq!(sleeper.join().expect("no panic"), [(IN, 7)]);
    });
    leave(inner.fd());
}

#[test]
fn an_edge_of_a_set_within_is_reported_once() {
    let (outer, inner, fake) = (Fixture::new(), known(), Fake::new());
    inner.add(fake.fd(), IN, 1);
    outer.add(inner.fd(), IN | EDGE, 7);
    fake.arrive();
    assert_eq!(outer.look(8), [(IN, 7)]);
    assert_eq!(outer.look(8), []);
    leave(inner.fd());
}

#[test]
fn wakeups_that_one_set_reads_reach_the_other() {
    let (one, other, fake) = (Fixture::new(), Fixture::new(), Fake::new());
    for fixture in [&one, &other] {
        fixture.add(fake.fd(), IN, 7);
        assert_eq!(fixture.try_wait(8, BRIEF), Ok(vec![]));
    }
    fake.arrive();
    assert_eq!(one.wait(8), [(IN, 7)]);
    assert_eq!(other.wait(8), [(IN, 7)]);
}

#[test]
fn an_interest_moves_with_its_number() {
    let (fixture, other) = (Fixture::new(), Fixture::new());
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let fd = listener.as_raw_fd();
    fixture.add(fd, OUT, 7);
    let fake = Fake::new();
    SETS.moved(fd, || {
        enter(fd, Target::Source(fake));
        Target::Source(fake)
    });
    assert_eq!(fixture.look(8), [(OUT, 7)]);
    fixture.modify(fd, IN, 8);
    fake.arrive();
    assert_eq!(fixture.look(8), [(IN, 8)]);
    assert_eq!(other.look(8), []);
    fixture.delete(fd);
    leave(fd);
}

#[test]
fn what_is_remembered_of_another_descriptor_does_not_move() {
    let fixture = Fixture::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let fd = listener.as_raw_fd();
    fixture.add(fd, IN, 7);
    // Removed from the kernel's set, as by a close that the set was not notified of.
    super::super::kernel::epoll_delete(fixture.fd(), fd).expect("it was there");
    let fake = Fake::new();
    fake.arrive();
    SETS.moved(fd, || Target::Source(fake));
    assert_eq!(fixture.look(8), []);
}

#[test]
fn a_child_has_sets_of_its_own() {
    let (fixture, fake, plain) = (Fixture::new(), Fake::new(), Plain::new());
    fixture.add(fake.fd(), IN, 7);
    fixture.add(plain.fd(), IN, 8);
    assert_eq!(fixture.try_wait(8, BRIEF), Ok(vec![]));
    SETS.before_fork();
    // SAFETY: the child polls sets whose locks this thread holds, and exits without unwinding.
    let child = unsafe { libc::fork() };
    if child == 0 {
        SETS.after_fork_in_child();
        fake.arrive();
        let ours = fixture.try_wait(8, None) == Ok(vec![(IN, 7)]);
        SETS.forget(fake);
        plain.arrive();
        let kernels = fixture.try_wait(8, None) == Ok(vec![(IN, 8)]);
        plain.take();
        // SAFETY: ends the child.
        unsafe { libc::_exit(if ours && kernels { 0 } else { 1 }) };
    }
    SETS.after_fork_in_parent();
    let mut status = 0;
    // SAFETY: room for the status of a child of this process.
    let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((waited, status), (child, 0));
    // The parent still has the members that the child forgot.
    crate::readiness::Source::drain(fake);
    fake.arrive();
    assert_eq!(fixture.wait(8), [(IN, 7)]);
}
