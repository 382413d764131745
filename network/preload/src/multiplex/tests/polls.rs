//! Poll and select, with both kinds of members.

use std::ptr;
use std::time::Duration;

use libc::pollfd;

use super::fake::{Fake, Fixture, Plain, enter, leave};
use crate::errno::{Errno, Outcome};
use crate::multiplex::poll::poll;
use crate::multiplex::poll_target::Target;
use crate::multiplex::select::{Asked, Bits, select};
use crate::readiness::IN;

const READ: i16 = libc::POLLIN;
const WRITE: i16 = libc::POLLOUT;
const NOW: Option<Duration> = Some(Duration::ZERO);

fn ask(members: &[(i32, i16)], timeout: Option<Duration>) -> Outcome<Vec<i16>> {
    let mut members: Vec<_> = members
        .iter()
        .map(|(fd, events)| pollfd {
            fd: *fd,
            events: *events,
            revents: 99,
        })
        .collect();
    // SAFETY: no mask.
    let count = unsafe { poll::<Fake>(&mut members, timeout, ptr::null()) }?;
    assert_eq!(
        count,
        members.iter().filter(|member| member.revents != 0).count()
    );
    Ok(members.iter().map(|member| member.revents).collect())
}

#[test]
fn both_kinds_are_in_one_answer() {
    let (fake, plain) = (Fake::new(), Plain::new());
    let members = [
        (fake.fd(), READ | WRITE),
        (plain.fd(), READ),
        (-1, READ),
        (1 << 19, READ),
    ];
    assert_eq!(ask(&members, NOW), Ok(vec![WRITE, 0, 0, libc::POLLNVAL]));
    plain.arrive();
    fake.arrive();
    assert_eq!(
        ask(&members, None),
        Ok(vec![READ | WRITE, READ, 0, libc::POLLNVAL])
    );
}

#[test]
fn time_runs_out() {
    let (fake, plain) = (Fake::new(), Plain::new());
    let brief = Some(Duration::from_millis(1));
    assert_eq!(
        ask(&[(fake.fd(), READ), (plain.fd(), READ)], brief),
        Ok(vec![0, 0])
    );
}

#[test]
fn the_same_number_twice() {
    let fake = Fake::new();
    fake.arrive();
    assert_eq!(
        ask(&[(fake.fd(), READ), (fake.fd(), WRITE)], None),
        Ok(vec![READ, WRITE])
    );
}

#[test]
fn a_sleeper_is_woken_by_either_kind() {
    let (fake, plain) = (Fake::new(), Plain::new());
    let members = [(fake.fd(), READ), (plain.fd(), READ)];
    for _ in 0..200 {
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| ask(&members, None));
            fake.arrive();
            assert_eq!(sleeper.join().expect("no panic"), Ok(vec![READ, 0]));
            assert!(fake.take());
            let sleeper = scope.spawn(|| ask(&members, None));
            plain.arrive();
            assert_eq!(sleeper.join().expect("no panic"), Ok(vec![0, READ]));
            plain.take();
        });
    }
}

#[test]
fn two_sleepers_for_one_source_both_wake() {
    let fake = Fake::new();
    for _ in 0..200 {
        std::thread::scope(|scope| {
            let one = scope.spawn(|| ask(&[(fake.fd(), READ)], None));
            let other = scope.spawn(|| ask(&[(fake.fd(), READ)], None));
            fake.arrive();
            assert_eq!(one.join().expect("no panic"), Ok(vec![READ]));
            assert_eq!(other.join().expect("no panic"), Ok(vec![READ]));
        });
        assert!(fake.take());
    }
}

#[test]
fn a_hung_up_peer_does_not_keep_the_others_from_sleeping() {
    let (fake, plain) = (Fake::new(), Plain::new());
    fake.die();
    assert_eq!(
        ask(&[(fake.fd(), READ), (plain.fd(), READ)], None),
        Ok(vec![READ | libc::POLLHUP, 0])
    );
}

#[test]
fn many_members() {
    let fakes: Vec<_> = (0..100).map(|_| Fake::new()).collect();
    let members: Vec<_> = fakes.iter().map(|fake| (fake.fd(), READ)).collect();
    fakes[99].arrive();
    let answer = ask(&members, None).expect("nothing fails");
    assert_eq!(answer.iter().filter(|revents| **revents != 0).count(), 1);
    assert_eq!(answer[99], READ);
}

#[test]
fn a_set_and_a_listener_in_a_poll() {
    let (fixture, fake, own, channel) = (Fixture::new(), Fake::new(), Plain::new(), Plain::new());
    enter(fixture.fd(), Target::Set(Fake::new(), fixture.set));
    let listener = Fake::new();
    listener.attach_channel(channel.fd());
    enter(own.fd(), Target::Listener(listener));
    fixture.add(fake.fd(), IN, 1);
    let members = [(fixture.fd(), READ), (own.fd(), READ)];
    let brief = Some(Duration::from_millis(1));
    assert_eq!(ask(&members, brief), Ok(vec![0, 0]));
    fake.arrive();
    assert_eq!(ask(&members, None), Ok(vec![READ, 0]));
    assert!(fake.take());
    assert_eq!(ask(&members, brief), Ok(vec![0, 0]));
    channel.arrive();
    assert_eq!(ask(&members, None), Ok(vec![0, READ]));
    leave(fixture.fd());
    leave(own.fd());
}

type Words = [usize; 1024];

fn bit(words: &mut Words, fd: i32) {
    let fd = usize::try_from(fd).expect("not negative");
    words[fd / 64] |= 1 << (fd % 64);
}

fn asked(read: &mut Words, write: &mut Words, count: usize) -> Asked {
    // SAFETY: an array of 65536 bits, which the callers keep.
    let read = unsafe { Bits::new(read.as_mut_ptr().cast()) };
    // SAFETY: the array has a bit for each number below the count.
    let write = unsafe { Bits::new(write.as_mut_ptr().cast()) };
    // SAFETY: none.
    let except = unsafe { Bits::new(ptr::null_mut()) };
    Asked {
        count,
        read,
        write,
        except,
    }
}

#[test]
fn select_leaves_what_is_ready() {
    let (fake, plain) = (Fake::new(), Plain::new());
    let mut read = [0; 1024];
    let mut write = [0; 1024];
    bit(&mut read, fake.fd());
    bit(&mut read, plain.fd());
    bit(&mut write, fake.fd());
    plain.arrive();
    let mut sets = asked(&mut read, &mut write, 65_536);
    // SAFETY: no mask.
    let found = unsafe { select::<Fake>(&mut sets, None, ptr::null()) };
    assert_eq!(found, Ok(2));
    let (mut want_read, mut want_write) = ([0; 1024], [0; 1024]);
    bit(&mut want_read, plain.fd());
    bit(&mut want_write, fake.fd());
    assert_eq!((read, write), (want_read, want_write));
}

#[test]
fn select_clears_all_when_time_is_over() {
    let fake = Fake::new();
    let (mut read, mut write) = ([0; 1024], [0; 1024]);
    bit(&mut read, fake.fd());
    let mut sets = asked(&mut read, &mut write, 65_536);
    let brief = Some(Duration::from_millis(1));
    // SAFETY: no mask.
    let found = unsafe { select::<Fake>(&mut sets, brief, ptr::null()) };
    assert_eq!(found, Ok(0));
    assert_eq!(read, [0; 1024]);
}

#[test]
fn select_refuses_a_number_that_is_not_open() {
    let fake = Fake::new();
    let (mut read, mut write) = ([0; 1024], [0; 1024]);
    bit(&mut read, fake.fd());
    bit(&mut write, 65_000);
    let mut sets = asked(&mut read, &mut write, 65_536);
    // SAFETY: no mask.
    let refused = unsafe { select::<Fake>(&mut sets, NOW, ptr::null()) };
    assert_eq!(refused, Err(Errno(libc::EBADF)));
}
