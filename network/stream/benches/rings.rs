//! Two threads on a core each, connected by a ring pair, compared with the least that two threads can share.
//!
//! `cargo bench --package millrace-stream`. Each line is the median of five rounds; the two sides of a ratio alternate.

use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;

const ROUNDS: usize = 5;

/// One end with its cursors.
struct End {
    rings: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
}

impl End {
    fn pair() -> [Self; 2] {
        let geometry = Geometry::DEFAULT;
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(geometry.size(), &options).expect("memory");
        let other = Window::attach(&file).expect("memory");
        [(&window, Side::Connecting), (&other, Side::Accepting)].map(|(window, side)| Self {
            rings: RingPair::new(window, geometry, side).expect("a rings"),
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
        })
    }

    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let rings = &mut self.rings;
            let count = rings
                .sender
                .send(&rings.peer_state, &mut self.sent, bytes)
                .expect("sound");
            if count == 0 {
                hint::spin_loop();
                continue;
            }
            hint::black_box(rings.sender.wake(&rings.peer_state, &mut self.sent));
            bytes = &bytes[count..];
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> usize {
        loop {
            let rings = &mut self.rings;
            let taken = rings
                .receiver
                .receive(&rings.peer_state, &mut self.received, into)
                .expect("sound");
            hint::black_box(rings.receiver.wake(&rings.peer_state, &mut self.received));
            if taken.bytes != 0 {
                return taken.bytes;
            }
            hint::spin_loop();
        }
    }

    fn receive_all(&mut self, into: &mut [u8]) {
        let mut filled = 0;
        while filled < into.len() {
            filled += self.receive(&mut into[filled..]);
        }
    }
}

/// Nanoseconds per round trip of `size` bytes.
fn round_trip(size: usize, count: u32) -> f64 {
    let [mut ours, mut theirs] = End::pair();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = vec![0; size];
            for _ in 0..count {
                theirs.receive_all(&mut bytes);
                theirs.send(&bytes);
            }
        });
        let mut bytes = vec![1; size];
        let start = Instant::now();
        for _ in 0..count {
            ours.send(&bytes);
            ours.receive_all(&mut bytes);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    })
}

/// Nanoseconds per round trip of eight bytes in two lines.
fn least_round_trip(count: u32) -> f64 {
    #[repr(align(128))]
    #[derive(Default)]
    struct Line(AtomicU64);
    let lines: [Line; 2] = Default::default();
    let wait = |line: usize, value| {
        while lines[line].0.load(Ordering::Acquire) != value {
            hint::spin_loop();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            for value in 1..=u64::from(count) {
                wait(0, value);
                lines[1].0.store(value, Ordering::Release);
            }
        });
        let start = Instant::now();
        for value in 1..=u64::from(count) {
            lines[0].0.store(value, Ordering::Release);
            wait(1, value);
        }
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    })
}

/// Nanoseconds per message of `size` bytes, one way.
fn one_way(size: usize, count: u32) -> f64 {
    let [mut ours, mut theirs] = End::pair();
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut bytes = vec![0; 65_536];
            let mut rest = size * count as usize;
            while rest != 0 {
                rest -= theirs.receive(&mut bytes);
            }
        });
        let bytes = vec![1; size];
        let start = Instant::now();
        for _ in 0..count {
            ours.send(&bytes);
        }
        reader.join().expect("the reader ends");
        start.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    })
}

fn median(mut rounds: Vec<f64>) -> f64 {
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn main() {
    let mut least = Vec::new();
    let mut trips = vec![Vec::new(); 3];
    let mut ways = vec![Vec::new(); 3];
    let sizes = [64, 1024, 8192];
    for _ in 0..ROUNDS {
        least.push(least_round_trip(500_000));
        for (index, size) in sizes.into_iter().enumerate() {
            trips[index].push(round_trip(size, 200_000));
            ways[index].push(one_way(size, 500_000));
        }
    }
    let least = median(least);
    println!("least/round-trip/8: {least:.0} ns");
    for (size, rounds) in sizes.into_iter().zip(trips) {
        let time = median(rounds);
        println!(
            "rings/round-trip/{size}: {time:.0} ns, {:.2} of the least",
            time / least
        );
    }
    for (size, rounds) in sizes.into_iter().zip(ways) {
        let time = median(rounds);
        let rate = 1e3 / time;
        let bytes = f64::from(u32::try_from(size).expect("small")) / time;
        println!("rings/one-way/{size}: {time:.0} ns, {rate:.2} million/s, {bytes:.2} GB/s");
    }
}
