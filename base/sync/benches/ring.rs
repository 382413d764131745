//! `cargo bench -p millrace-sync`: nanoseconds an item through a ring, beside crossbeam's `ArrayQueue`; a share
//! made and dropped, beside `Arc`; a notification and a waking, beside `Condvar`.
//!
//! The sides take turns within each round; a ratio is the median of the rounds' ratios, with the lowest and
//! the highest. Figures with more threads than cores also measure the scheduler. Without `--bench`, as
//! `cargo test --benches` runs it, the figures are of so little that they only show that it works.

use std::env;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use millrace_sync::ring::{self, Ends, Multi, Side, Single};
use millrace_sync::{Event, Native, NativeEventFd, Platform, Shared};

const ROUNDS: usize = 7;
const ITEMS: u64 = 2_000_000;
/// Wakings: each is a few system calls, and leaves the processor to another thread.
const WAKINGS: u64 = 100_000;
/// So much less is measured without `--bench`.
const SHORTER: u64 = 1_000;
const CAPACITY: usize = 1024;
const BATCH: usize = 32;

/// One measurement: nanoseconds an item.
type Contestant = (&'static str, fn(u64) -> f64);

fn timed(items: u64, run: impl FnOnce()) -> f64 {
    let began = Instant::now();
    run();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let items = items as f64;
    began.elapsed().as_secs_f64() * 1e9 / items
}

/// One thread puts an item in and takes it out.
fn alone<P: Side, C: Side>(items: u64) -> f64 {
    let (mut producer, mut consumer) = ring::bounded::<u64, P, C>(CAPACITY);
    timed(items, || {
        for item in 0..items {
            black_box(producer.try_push(item).is_ok());
            black_box(consumer.try_pop());
        }
    })
}

fn alone_many(items: u64) -> f64 {
    let (mut producer, mut consumer) = ring::bounded::<u64, Multi, Multi>(CAPACITY);
    let (batch, mut out) = ([7; BATCH], Vec::with_capacity(BATCH));
    timed(items, || {
        for _ in 0..items / BATCH as u64 {
            black_box(producer.try_push_many(&batch));
            out.clear();
            black_box(consumer.try_pop_many(&mut out, BATCH));
        }
    })
}

fn alone_crossbeam(items: u64) -> f64 {
    let queue = ArrayQueue::new(CAPACITY);
    timed(items, || {
        for item in 0..items {
            black_box(queue.push(item).is_ok());
            black_box(queue.pop());
        }
    })
}

/// An empty ring is asked for an item.
fn empty<C: Side>(items: u64) -> f64 {
    let (_producer, mut consumer) = ring::bounded::<u64, Multi, C>(CAPACITY);
    timed(items, || {
        for _ in 0..items {
            black_box(consumer.try_pop());
        }
    })
}

fn empty_crossbeam(items: u64) -> f64 {
    let queue = ArrayQueue::<u64>::new(CAPACITY);
    timed(items, || {
        for _ in 0..items {
            black_box(queue.pop());
        }
    })
}

/// Two threads, one at each end: `push` says whether there was room.
fn across(
    items: u64,
    mut push: impl FnMut(u64) -> bool + Send,
    mut pop: impl FnMut() -> Option<u64>,
) -> f64 {
    let start = Barrier::new(2);
    thread::scope(|scope| {
        scope.spawn(|| {
            start.wait();
            for item in 0..items {
                let mut round = 0;
                while !push(item) {
                    Native::relax(round);
                    round += 1;
                }
            }
        });
        start.wait();
        timed(items, || {
            let (mut left, mut round) = (items, 0);
            while left > 0 {
                match pop() {
                    Some(item) => {
                        black_box(item);
                        (left, round) = (left - 1, 0);
                    }
                    None => {
                        Native::relax(round);
                        round += 1;
                    }
                }
            }
        })
    })
}

fn across_ring<P: Side, C: Side>(items: u64) -> f64 {
    let (mut producer, mut consumer): Ends<u64, P, C> = ring::bounded(CAPACITY);
    across(
        items,
        |item| producer.try_push(item).is_ok(),
        || consumer.try_pop(),
    )
}

fn across_crossbeam(items: u64) -> f64 {
    let queue = ArrayQueue::new(CAPACITY);
    across(items, |item| queue.push(item).is_ok(), || queue.pop())
}

/// Several threads at one queue; each puts in, or takes out, its share of the items.
fn crowd<Push, Pop>(items: u64, pushers: Vec<Push>, poppers: Vec<Pop>) -> f64
where
    Push: FnMut(u64) -> bool + Send,
    Pop: FnMut() -> Option<u64> + Send,
{
    let threads = pushers.len() + poppers.len();
    let (start, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    // So many that both ends can share them evenly.
    let round = (pushers.len() * poppers.len()) as u64;
    let items = (items / round).max(1) * round;
    let until = |share: u64, mut moved: Box<dyn FnMut(u64) -> bool + Send + '_>| {
        start.wait();
        for item in 0..share {
            let mut round = 0;
            while !moved(item) {
                Native::relax(round);
                round += 1;
            }
        }
        end.wait();
    };
    thread::scope(|scope| {
        let until = &until;
        let shares = [items / pushers.len() as u64, items / poppers.len() as u64];
        for push in pushers {
            scope.spawn(move || until(shares[0], Box::new(push)));
        }
        for mut pop in poppers {
            let pop = move |_| pop().map(black_box).is_some();
            scope.spawn(move || until(shares[1], Box::new(pop)));
        }
        start.wait();
        timed(items, || {
            end.wait();
        })
    })
}

fn pusher<P: Side>(
    mut producer: ring::Producer<ring::HeapCells<u64, Native>, P>,
) -> impl FnMut(u64) -> bool {
    move |item| producer.try_push(item).is_ok()
}

fn popper<C: Side>(
    mut consumer: ring::Consumer<ring::HeapCells<u64, Native>, C>,
) -> impl FnMut() -> Option<u64> {
    move || consumer.try_pop()
}

/// Many threads at each end.
fn crowd_ring<const PAIRS: usize>(items: u64) -> f64 {
    let (producer, consumer): Ends<u64, Multi, Multi> = ring::bounded(CAPACITY);
    let pushers = (0..PAIRS).map(|_| pusher(producer.clone())).collect();
    let poppers = (0..PAIRS).map(|_| popper(consumer.clone())).collect();
    crowd(items, pushers, poppers)
}

/// Many threads put in, one takes out: the inbox of a queue that is shared.
fn inbox_ring<const PUSHERS: usize, C: Side>(items: u64) -> f64 {
    let (producer, consumer): Ends<u64, Multi, C> = ring::bounded(CAPACITY);
    let pushers = (0..PUSHERS).map(|_| pusher(producer.clone())).collect();
    crowd(items, pushers, vec![popper(consumer)])
}

fn crowd_crossbeam<const PUSHERS: usize, const POPPERS: usize>(items: u64) -> f64 {
    let queue = ArrayQueue::new(CAPACITY);
    let queue = &queue;
    let pushers = (0..PUSHERS).map(|_| |item| queue.push(item).is_ok());
    let poppers = (0..POPPERS).map(|_| || queue.pop());
    crowd(items, pushers.collect(), poppers.collect())
}

fn shares(items: u64) -> f64 {
    let share: Shared<u64> = Shared::new(7);
    timed(items, || {
        for _ in 0..items {
            drop(black_box(share.clone()));
        }
    })
}

fn shares_arc(items: u64) -> f64 {
    let share = Arc::new(7_u64);
    timed(items, || {
        for _ in 0..items {
            drop(black_box(Arc::clone(&share)));
        }
    })
}

/// Nobody sleeps.
fn notify<P: Platform>(items: u64) -> f64 {
    let event = Event::<P>::try_new().expect("a descriptor is left");
    timed(items, || {
        for _ in 0..items {
            black_box(&event).notify();
        }
    })
}

fn notify_condvar(items: u64) -> f64 {
    let event = Condvar::new();
    timed(items, || {
        for _ in 0..items {
            black_box(&event).notify_all();
        }
    })
}

/// Two threads that wake each other in turn: `say` moves the turn on, `hear` sleeps until it has come so far.
fn ping_pong(
    wakings: u64,
    say: impl Fn(usize, u64) + Send + Sync,
    hear: impl Fn(usize, u64) + Send + Sync,
) -> f64 {
    let rounds = wakings / 2;
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0..rounds {
                hear(0, 2 * round + 1);
                say(1, 2 * round + 2);
            }
        });
        timed(2 * rounds, || {
            for round in 0..rounds {
                say(0, 2 * round + 1);
                hear(1, 2 * round + 2);
            }
        })
    })
}

/// From a notification until the other thread, which sleeps, is awake and has seen why.
fn wake<P: Platform>(wakings: u64) -> f64 {
    let events = [(); 2].map(|()| Event::<P>::try_new().expect("a descriptor is left"));
    let turn = AtomicU64::new(0);
    ping_pong(
        wakings,
        |side, next| {
            turn.store(next, Ordering::Release);
            events[side].notify();
        },
        |side, next| {
            events[side].wait(0, || (turn.load(Ordering::Relaxed) == next).then_some(()));
        },
    )
}

fn wake_condvar(wakings: u64) -> f64 {
    let (turn, events) = (Mutex::new(0), [Condvar::new(), Condvar::new()]);
    ping_pong(
        wakings,
        |side, next| {
            *turn.lock().expect("no holder panics") = next;
            events[side].notify_all();
        },
        |side, next| {
            let turn = turn.lock().expect("no holder panics");
            let turn = events[side].wait_while(turn, |turn| *turn != next);
            drop(turn.expect("no holder panics"));
        },
    )
}

fn spread(mut values: Vec<f64>) -> String {
    values.sort_unstable_by(f64::total_cmp);
    format!(
        "{:.2} ({:.2}-{:.2})",
        values[values.len() / 2],
        values[0],
        values[values.len() - 1]
    )
}

/// Prints the figures of each side, and the ratio of each to the last.
fn compare(operation: &str, items: u64, sides: &[Contestant]) {
    let is_measured = env::args().any(|argument| argument == "--bench");
    let (rounds, items) = if is_measured {
        (ROUNDS, items)
    } else {
        (1, items / SHORTER)
    };
    let mut figures = vec![Vec::new(); sides.len()];
    for _ in 0..rounds {
        for ((_, run), figures) in sides.iter().zip(&mut figures) {
            figures.push(run(items));
        }
    }
    let (peer, peer_figures) = (sides[sides.len() - 1].0, &figures[sides.len() - 1]);
    for ((name, _), own) in sides.iter().zip(&figures) {
        let ratios = own.iter().zip(peer_figures).map(|(own, peer)| own / peer);
        println!(
            "| sync/{operation}/{name} | {} | {peer} | {} |",
            spread(own.clone()),
            spread(ratios.collect())
        );
    }
}

fn main() {
    println!("| what | ns each, median (low-high) | peer | ratio to the peer |");
    println!("|---|---|---|---|");
    let alone: &[Contestant] = &[
        ("single_to_single", alone::<Single, Single>),
        ("multi_to_multi", alone::<Multi, Multi>),
        ("multi_to_multi_32_at_once", alone_many),
        ("crossbeam", alone_crossbeam),
    ];
    let empty: &[Contestant] = &[
        ("single", empty::<Single>),
        ("multi", empty::<Multi>),
        ("crossbeam", empty_crossbeam),
    ];
    let across: &[Contestant] = &[
        ("single_to_single", across_ring::<Single, Single>),
        ("multi_to_single", across_ring::<Multi, Single>),
        ("multi_to_multi", across_ring::<Multi, Multi>),
        ("crossbeam", across_crossbeam),
    ];
    let inbox_of_2: &[Contestant] = &[
        ("multi_to_single", inbox_ring::<2, Single>),
        ("multi_to_multi", inbox_ring::<2, Multi>),
        ("crossbeam", crowd_crossbeam::<2, 1>),
    ];
    let inbox_of_4: &[Contestant] = &[
        ("multi_to_single", inbox_ring::<4, Single>),
        ("multi_to_multi", inbox_ring::<4, Multi>),
        ("crossbeam", crowd_crossbeam::<4, 1>),
    ];
    let crowd_of_2: &[Contestant] = &[
        ("multi_to_multi", crowd_ring::<2>),
        ("crossbeam", crowd_crossbeam::<2, 2>),
    ];
    let crowd_of_4: &[Contestant] = &[
        ("multi_to_multi", crowd_ring::<4>),
        ("crossbeam", crowd_crossbeam::<4, 4>),
    ];
    // One thread; two; several that put in and one that takes out; several at each end.
    compare("push_and_pop", ITEMS, alone);
    compare("pop_of_empty", ITEMS, empty);
    compare("across_two_threads", ITEMS, across);
    compare("inbox_of_2", ITEMS, inbox_of_2);
    compare("inbox_of_4", ITEMS, inbox_of_4);
    compare("2_at_each_end", ITEMS, crowd_of_2);
    compare("4_at_each_end", ITEMS, crowd_of_4);
    compare(
        "clone_and_drop",
        ITEMS,
        &[("shared", shares), ("arc", shares_arc)],
    );
    compare(
        "notify_nobody",
        ITEMS,
        &[("event", notify::<Native>), ("condvar", notify_condvar)],
    );
    compare(
        "wake",
        WAKINGS,
        &[
            ("futex", wake::<Native>),
            ("eventfd", wake::<NativeEventFd>),
            ("condvar", wake_condvar),
        ],
    );
}
