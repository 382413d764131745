//! `cargo bench -p millrace-memory`: nanoseconds for a buffer of 4 KiB, taken and dropped, beside a vector of
//! as many bytes.
//!
//! The sides take turns within each round; a ratio is the median of the rounds' ratios, with the lowest and
//! the highest. Figures with more threads than cores also measure the scheduler.

#[path = "../tests/it/recorder.rs"]
mod recorder;

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use millrace_memory::{Arena, ArenaOptions};
use recorder::Recorder;

const ROUNDS: usize = 7;
const ITEMS: u32 = 2_000_000;
const LEN: usize = 4096;
/// How many a thread holds at a time in the measurement of many.
const HELD: u32 = 32;

/// One measurement: nanoseconds an item, on so many threads.
type Contestant<'a> = (&'static str, &'a dyn Fn(usize) -> f64);

/// Runs the work on so many threads, each for all items; returns nanoseconds an item and thread.
fn on_threads<W: FnMut() + Send>(threads: usize, mut worker: impl FnMut() -> W) -> f64 {
    let start = Barrier::new(threads);
    let slowest = thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|_| {
                let (mut work, start) = (worker(), &start);
                scope.spawn(move || {
                    start.wait();
                    let began = Instant::now();
                    work();
                    began.elapsed().as_secs_f64()
                })
            })
            .collect();
        let seconds = running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"));
        seconds.fold(0.0, f64::max)
    });
    slowest * 1e9 / f64::from(ITEMS)
}

/// Takes one and drops it.
fn single<T>(mut take: impl FnMut() -> T) {
    for _ in 0..ITEMS {
        drop(black_box(take()));
    }
}

/// Holds many and drops the oldest first.
fn many<T>(mut take: impl FnMut() -> T) {
    let mut held = Vec::with_capacity(HELD as usize);
    for _ in 0..ITEMS / HELD {
        held.extend((0..HELD).map(|_| black_box(take())));
        held.clear();
    }
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
fn compare(operation: &str, threads: usize, sides: &[Contestant<'_>]) {
    let mut figures = vec![Vec::new(); sides.len()];
    for _ in 0..ROUNDS {
        for ((_, run), figures) in sides.iter().zip(&mut figures) {
            figures.push(run(threads));
        }
    }
    let peer = &figures[figures.len() - 1];
    for ((name, _), own) in sides.iter().zip(&figures) {
        let ratios = own.iter().zip(peer).map(|(own, peer)| own / peer);
        println!(
            "| memory/{operation}/{name}/{threads} | {} | {} |",
            spread(own.clone()),
            spread(ratios.collect())
        );
    }
}

fn main() {
    let domain = Recorder::new();
    let arena = Arena::new(domain.clone(), &ArenaOptions::default()).expect("there is memory");
    let buffer = |arena: &Arena| arena.try_buffer(LEN).expect("enough are free");
    let vector = || Vec::<u8>::with_capacity(LEN);
    println!("| what, threads | ns an item, median (low-high) | ratio to malloc |");
    println!("|---|---|---|");
    for threads in [1, 2] {
        let from_arena = |threads| {
            on_threads(threads, || {
                let arena = arena.clone();
                move || single(|| buffer(&arena))
            })
        };
        let from_heap = |threads| on_threads(threads, || || single(vector));
        let sides: [Contestant<'_>; 2] = [("arena", &from_arena), ("malloc", &from_heap)];
        compare("take-drop-1", threads, &sides);
        let from_arena = |threads| {
            on_threads(threads, || {
                let arena = arena.clone();
                move || many(|| buffer(&arena))
            })
        };
        let from_heap = |threads| on_threads(threads, || || many(vector));
        let sides: [Contestant<'_>; 2] = [("arena", &from_arena), ("malloc", &from_heap)];
        compare("take-drop-32", threads, &sides);
    }
    drop(arena);
    assert_eq!(domain.mapped_count(), 0, "every buffer came back");
}
