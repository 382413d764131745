//! The models: small programs whose every interleaving is run.
//!
//! loom remembers only the last access to each word when it looks for other orders worth trying, and so
//! leaves some out. It runs threads in the order in which they were spawned first; the thread that is to see
//! what the others have done is therefore spawned last.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use millrace_sync::ring::{self, Consumer, Multi, Producer, Side, Single};
use millrace_sync::{Event, Shared, Site, Word};

use crate::platform::{Loom, LoomCells, LoomWord};

/// A model, and the sites whose weakening is to be seen in it.
type Model = (&'static str, &'static [Site], fn());

pub(crate) const MODELS: &[Model] = &[
    (
        "one producer, one consumer",
        &[Site::TailRead, Site::TailPublished],
        one_to_one,
    ),
    (
        "two producers",
        &[Site::TailPublished, Site::TurnAwaited],
        two_producers,
    ),
    ("two consumers", &[Site::TurnAwaited], two_consumers),
    (
        "a producer that comes late",
        &[Site::HeadRead, Site::HeadClaimed],
        late_producer,
    ),
    ("many at once", &[], many_at_once),
    (
        "two owners",
        &[Site::ShareReleased, Site::LastShare],
        two_owners,
    ),
    (
        "a sleeper",
        &[Site::SleepAnnounced, Site::WakeChecked],
        sleeper,
    ),
    (
        "what was done before the waking",
        &[Site::ConditionMet],
        guarded_by_a_flag,
    ),
];

/// Runs a model in all interleavings with up to three preemptions.
pub(crate) fn explore(model: fn()) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

fn ring<P: Side, C: Side>(capacity: usize) -> (Producer<LoomCells, P>, Consumer<LoomCells, C>) {
    ring::on_cells(LoomCells::new(capacity))
}

/// What is left in a ring that nobody else uses any more.
fn rest<C: Side>(consumer: &mut Consumer<LoomCells, C>) -> Vec<u64> {
    std::iter::from_fn(|| consumer.try_pop()).collect()
}

/// Pushes what fits; returns what was pushed.
fn push_all<P: Side>(producer: &mut Producer<LoomCells, P>, items: &[u64]) -> Vec<u64> {
    let pushed = items
        .iter()
        .filter(|item| producer.try_push(**item).is_ok());
    pushed.copied().collect()
}

fn assert_same(mut got: Vec<u64>, mut expected: Vec<u64>) {
    got.sort_unstable();
    expected.sort_unstable();
    assert_eq!(got, expected);
}

fn one_to_one() {
    let (mut producer, mut consumer) = ring::<Single, Single>(1);
    let other = thread::spawn(move || push_all(&mut producer, &[1, 2, 3]));
    let mut got: Vec<u64> = (0..2).filter_map(|_| consumer.try_pop()).collect();
    let pushed = other.join().expect("no panic");
    got.extend(rest(&mut consumer));
    assert_eq!(got, pushed, "in order");
}

fn two_producers() {
    let (mut producer, mut consumer) = ring::<Multi, Single>(2);
    let mut second = producer.clone();
    let first = thread::spawn(move || push_all(&mut producer, &[1]));
    let other = thread::spawn(move || push_all(&mut second, &[2]));
    let taker = thread::spawn(move || {
        let got: Vec<u64> = (0..2).filter_map(|_| consumer.try_pop()).collect();
        (got, consumer)
    });
    let mut pushed = first.join().expect("no panic");
    pushed.extend(other.join().expect("no panic"));
    let (mut got, mut consumer) = taker.join().expect("no panic");
    got.extend(rest(&mut consumer));
    assert_same(got, pushed);
}

fn two_consumers() {
    let (mut producer, mut consumer) = ring::<Single, Multi>(2);
    assert_eq!(push_all(&mut producer, &[1, 2]), [1, 2]);
    let (mut second, mut last) = (consumer.clone(), consumer.clone());
    let first = thread::spawn(move || consumer.try_pop());
    let other = thread::spawn(move || second.try_pop());
    let pusher = thread::spawn(move || push_all(&mut producer, &[3, 4]));
    let mut got: Vec<u64> = first.join().expect("no panic").into_iter().collect();
    got.extend(other.join().expect("no panic"));
    let mut expected = vec![1, 2];
    expected.extend(pusher.join().expect("no panic"));
    got.extend(rest(&mut last));
    assert_same(got, expected);
}

/// With one slot: the second item is pushed into the room that the first has left. Who then reads the head
/// must not meet the consumers' tail of before.
fn late_producer() {
    let (mut producer, mut consumer) = ring::<Multi, Single>(1);
    let mut late = producer.clone();
    let late = thread::spawn(move || push_all(&mut late, &[9]));
    let other = thread::spawn(move || consumer.try_pop().into_iter().collect::<Vec<_>>());
    let mut pushed = push_all(&mut producer, &[1, 2]);
    pushed.extend(late.join().expect("no panic"));
    let got = other.join().expect("no panic");
    assert!(got.iter().all(|item| pushed.contains(item)));
}

fn many_at_once() {
    let (mut producer, mut consumer) = ring::<Multi, Multi>(4);
    let mut second = producer.clone();
    let other = thread::spawn(move || second.try_push_many(&[1, 2]));
    let mut more = consumer.clone();
    let taker = thread::spawn(move || {
        let mut out = Vec::new();
        more.try_pop_many(&mut out, 3);
        out
    });
    let count = producer.try_push_many(&[11, 12, 13]);
    let others = other.join().expect("no panic");
    assert!(count + others >= 4, "four slots were free");
    let mut got = taker.join().expect("no panic");
    got.extend(rest(&mut consumer));
    let mut expected = [11, 12, 13][..count].to_vec();
    expected.extend(&[1, 2][..others]);
    assert_same(got, expected);
}

/// A value that its owners read and that is written when it is freed.
struct Watched(UnsafeCell<u64>);

// SAFETY: loom checks every access, and fails the test on a read beside a write.
unsafe impl Sync for Watched {}

impl Watched {
    fn look(&self) {
        self.0.with(|value| {
            // SAFETY: loom has checked that nobody writes.
            assert_eq!(unsafe { *value }, 7);
        });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.0.with_mut(|value| {
            // SAFETY: loom has checked that nobody else is here.
            unsafe { *value = 0 };
        });
    }
}

fn two_owners() {
    let share = Shared::<_, Loom>::new(Watched(UnsafeCell::new(7)));
    let other = share.clone();
    let thread = thread::spawn(move || other.look());
    share.look();
    drop(share);
    thread.join().expect("no panic");
}

/// The flag is stored with a release and polled relaxed: the value that it guards is read after the wait.
fn guarded_by_a_flag() {
    let scene = || {
        (
            Event::<Loom>::new(),
            LoomWord::new(0),
            Watched(UnsafeCell::new(0)),
        )
    };
    let shared = Arc::new(scene());
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let (event, flag, value) = &*other;
        value.0.with_mut(|value| {
            // SAFETY: loom has checked that nobody else is here.
            unsafe { *value = 7 };
        });
        flag.store(1, Ordering::Release);
        event.notify();
    });
    let (event, flag, value) = &*shared;
    event.wait(1, || (flag.load(Ordering::Relaxed) == 1).then_some(()));
    value.look();
    thread.join().expect("no panic");
}

/// A flag that is all relaxed: the event alone makes sure that it is seen. A waking that is lost is a
/// deadlock, which loom reports.
fn sleeper() {
    let shared = Arc::new((Event::<Loom>::new(), LoomWord::new(0)));
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        let (event, flag) = &*other;
        flag.store(1, Ordering::Relaxed);
        event.notify();
    });
    let (event, flag) = &*shared;
    event.wait(1, || (flag.load(Ordering::Relaxed) == 1).then_some(()));
    thread.join().expect("no panic");
}
