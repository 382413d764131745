//! `cargo bench -p millrace-sync`: nanoseconds an item through a ring, beside crossbeam's `ArrayQueue`.
//!
//! The sides take turns within each round; a ratio is the median of the rounds' ratios, with the lowest and
//! the highest. Figures with more threads than cores also measure the scheduler.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use millrace_sync::ring::{self, Ends, Multi, Side, Single};
use millrace_sync::{Native, Platform};

const ROUNDS: usize = 7;
const ITEMS: u64 = 2_000_000;
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

/// `pairs` threads at each end of one queue; each puts in, or takes out, its share of the items.
fn crowd<Push, Pop>(pairs: u64, items: u64, ends: impl Fn() -> (Push, Pop)) -> f64
where
    Push: FnMut(u64) -> bool + Send,
    Pop: FnMut() -> Option<u64> + Send,
{
    let threads = usize::try_from(2 * pairs).expect("a handful");
    let (start, end) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    let share = items / pairs;
    let until = |mut moved: Box<dyn FnMut(u64) -> bool + Send + '_>| {
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
        for _ in 0..pairs {
            let (push, mut pop) = ends();
            let until = &until;
            scope.spawn(move || until(Box::new(push)));
            scope.spawn(move || until(Box::new(move |_| pop().map(black_box).is_some())));
        }
        start.wait();
        timed(share * pairs, || {
            end.wait();
        })
    })
}

fn crowd_ring<const PAIRS: u64>(items: u64) -> f64 {
    let (producer, consumer): Ends<u64, Multi, Multi> = ring::bounded(CAPACITY);
    crowd(PAIRS, items, || {
        let (mut producer, mut consumer) = (producer.clone(), consumer.clone());
        (
            move |item| producer.try_push(item).is_ok(),
            move || consumer.try_pop(),
        )
    })
}

fn crowd_crossbeam<const PAIRS: u64>(items: u64) -> f64 {
    let queue = ArrayQueue::new(CAPACITY);
    let queue = &queue;
    crowd(PAIRS, items, || {
        (move |item| queue.push(item).is_ok(), move || queue.pop())
    })
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

/// Prints the figures of each side, and the ratio of the others to the last.
fn compare(what: &str, sides: &[Contestant]) {
    let mut figures = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for ((_, run), figures) in sides.iter().zip(&mut figures) {
            figures.push(run(ITEMS));
        }
    }
    let peer = &figures[figures.len() - 1];
    for ((name, _), own) in sides.iter().zip(&figures) {
        let ratios = own.iter().zip(peer).map(|(own, peer)| own / peer);
        println!(
            "| {what} | {name} | {} | {} |",
            spread(own.clone()),
            spread(ratios.collect())
        );
    }
}

fn main() {
    println!("| what | queue | ns an item, median (low-high) | ratio to crossbeam |");
    println!("|---|---|---|---|");
    compare(
        "in and out, one thread",
        &[
            ("single to single", alone::<Single, Single>),
            ("multi to multi", alone::<Multi, Multi>),
            ("multi to multi, 32 at once", alone_many),
            ("crossbeam", alone_crossbeam),
        ],
    );
    compare(
        "empty",
        &[
            ("single", empty::<Single>),
            ("multi", empty::<Multi>),
            ("crossbeam", empty_crossbeam),
        ],
    );
    compare(
        "across two threads",
        &[
            ("single to single", across_ring::<Single, Single>),
            ("multi to single", across_ring::<Multi, Single>),
            ("multi to multi", across_ring::<Multi, Multi>),
            ("crossbeam", across_crossbeam),
        ],
    );
    compare(
        "two threads at each end",
        &[
            ("multi to multi", crowd_ring::<2>),
            ("crossbeam", crowd_crossbeam::<2>),
        ],
    );
    compare(
        "four threads at each end",
        &[
            ("multi to multi", crowd_ring::<4>),
            ("crossbeam", crowd_crossbeam::<4>),
        ],
    );
}
