//! Waiting under real threads, and what must not be asked of an event.

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use millrace_sync::{CondvarParker, Event, Native, Parker, Platform, Site};

/// `Native` as it is on systems other than Linux.
#[derive(Debug)]
struct OnCondvar;

// SAFETY: it uses the words and fences of `Native`, which satisfy the contract of `Platform`.
unsafe impl Platform for OnCondvar {
    type Word = AtomicU64;
    type Parker = CondvarParker;

    fn fence(site: Site) {
        Native::fence(site);
    }

    fn relax(round: u32) {
        Native::relax(round);
    }
}

/// What a condition says in a wait that it ends by a panic.
fn panics_in_wait<P: Platform>(event: &Event<P>) {
    let wait = || event.wait(0, || -> Option<()> { panic!("of the condition") });
    let said = panic::catch_unwind(AssertUnwindSafe(wait)).expect_err("the condition panics");
    assert_eq!(said.downcast_ref(), Some(&"of the condition"));
}

#[test]
fn who_is_woken_sees_what_was_done_before() {
    a_woken_thread_sees_earlier_writes_on::<Native>();
    a_woken_thread_sees_earlier_writes_on::<OnCondvar>();
}

fn a_woken_thread_sees_earlier_writes_on<P: Platform<Parker: Default>>() {
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 20_000 };
    let (there, back) = (Event::<P>::new(), Event::<P>::new());
    let (ball, value) = (AtomicU64::new(0), AtomicU64::new(0));
    let reached =
        |round| move |ball: &AtomicU64| (ball.load(Ordering::Relaxed) == round).then_some(());
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..ROUNDS {
                there.wait(1, || reached(2 * round + 1)(&ball));
                assert_eq!(value.load(Ordering::Relaxed), round);
                ball.store(2 * round + 2, Ordering::Release);
                back.notify();
            }
        });
        for round in 0..ROUNDS {
            value.store(round, Ordering::Relaxed);
            ball.store(2 * round + 1, Ordering::Release);
            there.notify();
            back.wait(1, || reached(2 * round + 2)(&ball));
        }
    });
}

#[test]
fn all_who_sleep_are_woken() {
    all_sleepers_are_woken_by_one_notification_on::<Native>();
    all_sleepers_are_woken_by_one_notification_on::<OnCondvar>();
}

fn all_sleepers_are_woken_by_one_notification_on<P: Platform<Parker: Default>>() {
    const SLEEPERS: u64 = 3;
    let event = Event::<P>::new();
    let (begun, over) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..SLEEPERS {
            scope.spawn(|| {
                event.wait(0, || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    (over.load(Ordering::Relaxed) == 1).then_some(())
                });
            });
        }
        while begun.load(Ordering::Relaxed) < SLEEPERS {
            thread::yield_now();
        }
        over.store(1, Ordering::Relaxed);
        event.notify();
    });
}

/// A notifier that sees a sleeper changes what the parker gives as ticket.
#[test]
fn a_condition_that_panics_leaves_no_sleeper() {
    a_condition_that_panics_is_not_counted_as_sleeper_on::<Native>();
    a_condition_that_panics_is_not_counted_as_sleeper_on::<OnCondvar>();
}

fn a_condition_that_panics_is_not_counted_as_sleeper_on<P: Platform<Parker: Default>>() {
    let event = Event::<P>::new();
    panics_in_wait(&event);
    let before = event.parker().ticket();
    event.notify();
    assert_eq!(
        event.parker().ticket(),
        before,
        "somebody is counted as sleeper"
    );
    drop(event.announce());
    event.notify();
    assert_eq!(
        event.parker().ticket(),
        before,
        "somebody is counted as sleeper"
    );
    let announced = event.announce();
    event.notify();
    assert_ne!(event.parker().ticket(), announced.ticket());
}

/// miri has no poll.
#[cfg(all(target_os = "linux", not(miri)))]
mod descriptors {
    use std::os::fd::AsFd;

    use millrace_sync::NativeEventFd;
    use millrace_sync::ring::{self, Single};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    fn on_descriptor() -> Event<NativeEventFd> {
        Event::try_new().expect("a descriptor is left")
    }

    fn is_readable(event: &Event<NativeEventFd>) -> bool {
        let mut watched = [PollFd::from_borrowed_fd(
            event.parker().as_fd(),
            PollFlags::IN,
        )];
        let at_once = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut watched, Some(&at_once)).expect("it can be polled") == 1
    }

    #[test]
    fn a_thread_sleeps_on_a_descriptor() {
        let event = on_descriptor();
        let (mut producer, mut consumer) = ring::bounded::<u64, Single, Single>(1);
        event.notify();
        assert!(!is_readable(&event), "nobody had said that it would sleep");
        let announced = event.announce();
        event.notify();
        assert!(is_readable(&event));
        drop(announced);
        let announced = event.announce();
        assert!(!is_readable(&event), "a waking of before does not count");
        drop(announced);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(producer.try_push(7), Ok(()));
                event.notify();
            });
            assert_eq!(event.wait(0, || consumer.try_pop()), 7);
        });
    }

    /// The second one's ticket would empty the eventfd that the first one is woken by.
    #[test]
    fn a_second_sleeper_on_a_descriptor_is_refused_and_takes_no_waking() {
        let event = on_descriptor();
        let first = event.announce();
        event.notify();
        let second = panic::catch_unwind(AssertUnwindSafe(|| drop(event.announce())));
        assert!(second.is_err(), "two wait on one eventfd");
        assert!(is_readable(&event), "the first one's waking is there");
        drop(first);
        drop(event.announce());
    }

    #[test]
    fn a_condition_that_panics_lets_another_wait_on_the_descriptor() {
        let event = on_descriptor();
        panics_in_wait(&event);
        event.notify();
        assert!(!is_readable(&event), "somebody is counted as sleeper");
        assert_eq!(event.wait(0, || Some(7)), 7);
    }
}
