//! `cargo bench --package millrace-window`: nanoseconds a slot in shared memory of one host, beside an atomic word
//! alone and a plain copy.
//!
//! The sides take turns within each round; a ratio is the median of the rounds' ratios, with the lowest and the
//! highest. All memory lies in the caches. A window checks offsets and copies word by word, as the peer may store
//! meanwhile; a plain copy does neither. The latency one way is half of a round trip between two threads, which
//! need a core each.

use std::hint::{self, black_box};
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use millrace_memory::{Pages, RegionOptions};
use millrace_window::{Incoming, LINE, Outgoing, WORD, Window};

const ROUNDS: usize = 9;
/// How many slots of a line are used in turn.
const SLOTS: usize = 64;
/// What is copied in all by each measurement of a copy.
const VOLUME: usize = 64 << 20;
const WORDS: u64 = 5_000_000;
const TRIPS: u64 = 300_000;
const SIZES: [usize; 3] = [64, 1024, 8192];

/// A line with nothing else on it nor on the next, which is fetched with it.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

/// One measurement of both sides: nanoseconds through a window, and without.
type Measurement = (String, Box<dyn Fn() -> [f64; 2]>);

fn timed(count: u64, run: impl FnOnce()) -> f64 {
    let began = Instant::now();
    run();
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let count = count as f64;
    began.elapsed().as_secs_f64() * 1e9 / count
}

/// The two ends of `size` bytes: where one side stores, and where the other loads the same bytes.
fn ends(
    size: usize,
) -> (
    Outgoing<impl millrace_window::Medium>,
    Incoming<impl millrace_window::Medium>,
) {
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (ours, file) = Window::create(size, &options).expect("memory is there");
    let theirs = Window::attach(file).expect("made for it");
    let size = ours.size();
    let outgoing = ours.outgoing(0..size).expect("free");
    (outgoing, theirs.incoming(0..size).expect("free"))
}

/// Where the slot of a turn begins.
fn place(turn: u64) -> usize {
    usize::try_from(turn).expect("a turn") % SLOTS * LINE
}

fn lines() -> Vec<Line> {
    (0..SLOTS).map(|_| Line::default()).collect()
}

fn publish() -> [f64; 2] {
    let (mut outgoing, _incoming) = ends(SLOTS * LINE);
    let lines = lines();
    [
        timed(WORDS, || {
            for turn in 0..WORDS {
                let slot = outgoing.slot(black_box(place(turn)), LINE).expect("within");
                slot.publish(turn);
            }
        }),
        timed(WORDS, || {
            for turn in 0..WORDS {
                let line = &lines[black_box(place(turn)) / LINE];
                line.0.store(turn, Ordering::Release);
            }
        }),
    ]
}

fn poll() -> [f64; 2] {
    let (_outgoing, incoming) = ends(SLOTS * LINE);
    let lines = lines();
    [
        timed(WORDS, || {
            for turn in 0..WORDS {
                let slot = incoming.poll(black_box(place(turn))).expect("within");
                black_box(slot.word());
            }
        }),
        timed(WORDS, || {
            for turn in 0..WORDS {
                let line = &lines[black_box(place(turn)) / LINE];
                black_box(line.0.load(Ordering::Acquire));
            }
        }),
    ]
}

/// How often so many bytes are copied.
fn copies(size: usize) -> u64 {
    (VOLUME / size) as u64
}

fn store(size: usize) -> [f64; 2] {
    let slot_size = (WORD + size).next_multiple_of(LINE);
    let (mut outgoing, _incoming) = ends(slot_size);
    let (source, mut target, word) = (vec![7_u8; size], vec![0_u8; size], AtomicU64::new(0));
    [
        timed(copies(size), || {
            for turn in 0..copies(size) {
                let mut slot = outgoing.slot(0, slot_size).expect("within");
                slot.store(WORD, black_box(&source)).expect("it fits");
                slot.publish(turn);
            }
        }),
        timed(copies(size), || {
            for turn in 0..copies(size) {
                black_box(&mut target).copy_from_slice(black_box(&source));
                word.store(turn, Ordering::Release);
            }
        }),
    ]
}

fn load(size: usize) -> [f64; 2] {
    let slot_size = (WORD + size).next_multiple_of(LINE);
    let (_outgoing, incoming) = ends(slot_size);
    let (source, mut target, word) = (vec![7_u8; size], vec![0_u8; size], AtomicU64::new(0));
    [
        timed(copies(size), || {
            for _ in 0..copies(size) {
                let slot = incoming.poll(0).expect("within");
                black_box(slot.word());
                slot.load(WORD, black_box(&mut target)).expect("it fits");
            }
        }),
        timed(copies(size), || {
            for _ in 0..copies(size) {
                black_box(word.load(Ordering::Acquire));
                black_box(&mut target).copy_from_slice(black_box(&source));
            }
        }),
    ]
}

/// Half of a round trip between two threads, each of which says and hears a number.
fn one_way<S: FnMut(u64) + Send, H: FnMut(u64) + Send>(ours: (S, H), theirs: (S, H)) -> f64 {
    let ((mut say, mut hear), (mut answer, mut listen)) = (ours, theirs);
    thread::scope(|scope| {
        scope.spawn(move || {
            for turn in 1..=TRIPS {
                listen(turn);
                answer(turn);
            }
        });
        timed(2 * TRIPS, || {
            for turn in 1..=TRIPS {
                say(turn);
                hear(turn);
            }
        })
    })
}

fn latency() -> [f64; 2] {
    let through = || {
        let (mut outgoing, incoming) = ends(LINE);
        let say = move |turn| outgoing.slot(0, LINE).expect("within").publish(turn);
        let hear = move |turn| {
            while incoming.poll(0).expect("within").word() != turn {
                hint::spin_loop();
            }
        };
        (say, hear)
    };
    let ((say, listen), (answer, hear)) = (through(), through());
    let window = one_way((say, hear), (answer, listen));

    let lines: [Line; 2] = Default::default();
    let say = |line: usize| {
        let line = &lines[line].0;
        move |turn| line.store(turn, Ordering::Release)
    };
    let hear = |line: usize| {
        let line = &lines[line].0;
        move |turn| {
            while line.load(Ordering::Acquire) != turn {
                hint::spin_loop();
            }
        }
    };
    [window, one_way((say(0), hear(1)), (say(1), hear(0)))]
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

fn main() {
    let mut measurements: Vec<Measurement> = vec![
        ("window/publish/64 | atomic store".into(), Box::new(publish)),
        ("window/poll/64 | atomic load".into(), Box::new(poll)),
    ];
    for size in SIZES {
        let name = format!("window/store/{size} | copy, atomic store");
        measurements.push((name, Box::new(move || store(size))));
        let name = format!("window/load/{size} | atomic load, copy");
        measurements.push((name, Box::new(move || load(size))));
    }
    let name = "window/one-way/64 | atomic store, atomic load".into();
    measurements.push((name, Box::new(latency)));

    println!("| what | beside | ns, median (low-high) | ns beside | ratio |");
    println!("|---|---|---|---|---|");
    for (name, run) in measurements {
        let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| run()).collect();
        println!(
            "| {name} | {} | {} | {} |",
            spread(rounds.iter().map(|[window, _]| *window).collect()),
            spread(rounds.iter().map(|[_, bare]| *bare).collect()),
            spread(rounds.iter().map(|[window, bare]| window / bare).collect())
        );
    }
}
