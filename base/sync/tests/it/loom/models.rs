//! The models: small programs whose interleavings are run.
//!
//! Three things loom does not run. It knows no load buffering. It remembers only the last access to each word
//! when it looks for other orders worth trying, and so leaves some out. And it runs threads in the order in
//! which they were spawned first; the thread that is to see what the others have done is therefore spawned
//! last.
//!
//! All models but one run without a bound on preemptions: [`Model::preemptions_max`] says which has one.

use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::model::Builder;
use loom::sync::Arc;
use loom::thread;
use millrace_sync::End::{Consumer as Taker, Producer as Putter};
use millrace_sync::ring::{self, Consumer, Multi, Producer, Side, Single};
use millrace_sync::{Event, Platform, Shared, Site, Word};

use super::platform::{Loom, LoomCells, LoomOnEventFd, LoomWord};

/// What loom says of two threads in one cell.
const AT_ONCE: &str = "Causality violation: Concurrent";
/// What loom says if all threads wait.
const DEADLOCK: &str = "deadlock; threads = ";
/// What models say of items that are lost, doubled or made up.
const NOT_THE_SAME: &str = "what is taken is what was put in";

/// A small program.
pub(crate) struct Model {
    pub(crate) name: &'static str,
    pub(crate) run: fn(),
    /// How often at most a thread is interrupted that could go on; no bound if there is none.
    pub(crate) preemptions_max: Option<usize>,
    /// The sites whose weakening makes it fail, each alone, and what is said then.
    pub(crate) fails_without: &'static [(Site, &'static str)],
}

pub(crate) const MODELS: &[Model] = &[
    Model {
        name: "one producer, one consumer",
        run: one_to_one,
        preemptions_max: None,
        fails_without: &[
            (Site::TailRead(Putter), AT_ONCE),
            (Site::TailRead(Taker), AT_ONCE),
            (Site::TailPublished(Putter), AT_ONCE),
            (Site::TailPublished(Taker), AT_ONCE),
        ],
    },
    Model {
        name: "two producers",
        run: two_producers,
        preemptions_max: None,
        fails_without: &[
            (Site::TailPublished(Putter), AT_ONCE),
            (Site::TurnAwaited(Putter), AT_ONCE),
        ],
    },
    Model {
        name: "two consumers",
        run: two_consumers,
        preemptions_max: None,
        fails_without: &[
            (Site::TailPublished(Taker), AT_ONCE),
            (Site::TurnAwaited(Taker), AT_ONCE),
        ],
    },
    Model {
        name: "a producer that comes late",
        run: late_producer,
        preemptions_max: None,
        fails_without: &[
            (Site::HeadRead(Putter), AT_ONCE),
            (Site::HeadClaimed(Putter), AT_ONCE),
            (Site::TailRead(Putter), AT_ONCE),
        ],
    },
    Model {
        name: "a consumer that comes late",
        run: late_consumer,
        preemptions_max: None,
        fails_without: &[
            (Site::HeadRead(Taker), AT_ONCE),
            (Site::HeadClaimed(Taker), AT_ONCE),
            (Site::TailRead(Taker), AT_ONCE),
        ],
    },
    Model {
        name: "many at once",
        run: many_at_once,
        preemptions_max: None,
        fails_without: &[],
    },
    Model {
        name: "two owners",
        run: two_owners,
        preemptions_max: None,
        fails_without: &[(Site::ShareReleased, AT_ONCE), (Site::LastShare, AT_ONCE)],
    },
    Model {
        name: "what nobody takes",
        run: what_nobody_takes,
        preemptions_max: None,
        fails_without: &[(Site::ShareReleased, AT_ONCE), (Site::LastShare, AT_ONCE)],
    },
    Model {
        name: "a sleeper",
        run: sleeper::<Loom>,
        preemptions_max: None,
        fails_without: &[
            (Site::SleepAnnounced, DEADLOCK),
            (Site::WakeChecked, DEADLOCK),
        ],
    },
    Model {
        name: "a sleeper on an eventfd",
        run: sleeper::<LoomOnEventFd>,
        preemptions_max: None,
        fails_without: &[
            (Site::SleepAnnounced, DEADLOCK),
            (Site::WakeChecked, DEADLOCK),
        ],
    },
    Model {
        name: "a sleeper that is woken twice, on an eventfd",
        run: sleeper_woken_twice,
        preemptions_max: None,
        fails_without: &[
            (Site::SleepAnnounced, DEADLOCK),
            (Site::WakeChecked, DEADLOCK),
        ],
    },
    Model {
        name: "two sleepers",
        run: two_sleepers,
        // Without a bound it takes minutes.
        preemptions_max: Some(3),
        fails_without: &[
            (Site::SleepAnnounced, DEADLOCK),
            (Site::WakeChecked, DEADLOCK),
        ],
    },
    Model {
        name: "what was done before the waking",
        run: guarded_by_a_flag,
        preemptions_max: None,
        fails_without: &[(Site::ConditionMet, AT_ONCE)],
    },
];

/// Runs a model in all interleavings that loom knows, within the model's bound.
pub(crate) fn explore(model: &Model) {
    let mut builder = Builder::new();
    builder.preemption_bound = model.preemptions_max;
    builder.check(model.run);
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
    assert_eq!(got, expected, "{NOT_THE_SAME}");
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
    let other = thread::spawn(move || push_all(&mut second, &[2]));
    let taker = thread::spawn(move || {
        let got: Vec<u64> = (0..2).filter_map(|_| consumer.try_pop()).collect();
        (got, consumer)
    });
    let mut pushed = push_all(&mut producer, &[1]);
    pushed.extend(other.join().expect("no panic"));
    let (mut got, mut consumer) = taker.join().expect("no panic");
    got.extend(rest(&mut consumer));
    assert_same(got, pushed);
}

fn two_consumers() {
    let (mut producer, mut consumer) = ring::<Single, Multi>(2);
    assert_eq!(push_all(&mut producer, &[1, 2]), [1, 2]);
    let mut second = consumer.clone();
    let other = thread::spawn(move || second.try_pop());
    let pusher = thread::spawn(move || push_all(&mut producer, &[3, 4]));
    let mut got: Vec<u64> = consumer.try_pop().into_iter().collect();
    got.extend(other.join().expect("no panic"));
    let mut expected = vec![1, 2];
    expected.extend(pusher.join().expect("no panic"));
    got.extend(rest(&mut consumer));
    assert_same(got, expected);
}

/// With one slot: the second item is pushed into the room that the first has left. A producer that then reads the
/// new head must not read an older consumers' tail.
fn late_producer() {
    let (mut producer, mut consumer) = ring::<Multi, Single>(1);
    let mut late = producer.clone();
    let late = thread::spawn(move || push_all(&mut late, &[9]));
    let other = thread::spawn(move || consumer.try_pop().into_iter().collect::<Vec<_>>());
    let mut pushed = push_all(&mut producer, &[1, 2]);
    pushed.extend(late.join().expect("no panic"));
    let got = other.join().expect("no panic");
    assert!(
        got.iter().all(|item| pushed.contains(item)),
        "{NOT_THE_SAME}"
    );
}

/// With one slot: a consumer that reads the head moved by the other consumer must not read an older tail of the
/// producers.
fn late_consumer() {
    let (mut producer, mut consumer) = ring::<Single, Multi>(1);
    let mut late = consumer.clone();
    let late = thread::spawn(move || late.try_pop());
    let other = thread::spawn(move || consumer.try_pop());
    let pushed = push_all(&mut producer, &[1, 2]);
    let mut got: Vec<u64> = late.join().expect("no panic").into_iter().collect();
    got.extend(other.join().expect("no panic"));
    assert!(
        got.iter().all(|item| pushed.contains(item)),
        "{NOT_THE_SAME}"
    );
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

/// The last handle empties the ring, and reads both tails relaxed: the count of the shares has ordered all. The
/// cells notice an item that is left.
fn what_nobody_takes() {
    let (mut producer, mut consumer) = ring::<Single, Single>(2);
    let other = thread::spawn(move || {
        push_all(&mut producer, &[1, 2, 3]);
    });
    consumer.try_pop();
    drop(consumer);
    other.join().expect("no panic");
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

/// An event, and a flag that is all relaxed: the event alone makes sure that it is seen. A waking that is lost
/// is a deadlock.
struct Flagged<P: Platform<Word = LoomWord>> {
    event: Event<P>,
    flag: LoomWord,
}

impl<P: Platform<Word = LoomWord>> Flagged<P> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            event: Event::try_new().expect("loom has parkers"),
            flag: LoomWord::new(0),
        })
    }

    fn raise(&self, flag: u64) {
        self.flag.store(flag, Ordering::Relaxed);
        self.event.notify();
    }

    fn wait(&self, polls: u32, flag: u64) {
        let is_raised = || (self.flag.load(Ordering::Relaxed) == flag).then_some(());
        self.event.wait(polls, is_raised);
    }
}

fn sleeper<P: Platform<Word = LoomWord>>() {
    let shared = Flagged::<P>::new();
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || other.raise(1));
    shared.wait(1, 1);
    thread.join().expect("no panic");
}

/// The first waking may come so late that it is the second announcement's ticket which takes it.
fn sleeper_woken_twice() {
    let shared = Flagged::<LoomOnEventFd>::new();
    let other = Arc::clone(&shared);
    let thread = thread::spawn(move || {
        other.raise(1);
        other.raise(2);
    });
    shared.wait(0, 2);
    thread.join().expect("no panic");
}

fn two_sleepers() {
    let shared = Flagged::<Loom>::new();
    let (second, other) = (Arc::clone(&shared), Arc::clone(&shared));
    let sleeper = thread::spawn(move || second.wait(0, 1));
    let thread = thread::spawn(move || other.raise(1));
    shared.wait(0, 1);
    sleeper.join().expect("no panic");
    thread.join().expect("no panic");
}
