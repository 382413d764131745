//! Two threads, each on a core of its own, joined by a lane, beside the least that two threads can share.
//!
//! `cargo bench --package millrace-stream`; with `-- in-place` only what copies cost. Each line is the median of five
//! rounds; the sides of a ratio alternate.

use std::hint;
use std::ops::ControlFlow;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::{Geometry, Lane, ReceiveCursor, SendCursor, Side};
use millrace_window::Window;

const ROUNDS: usize = 5;

/// One end with its cursors.
struct End {
    lane: Lane,
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
            lane: Lane::new(window, geometry, side).expect("a lane"),
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
        })
    }

    fn send(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let lane = &mut self.lane;
            let count = lane
                .sender
                .send(&lane.sight, &mut self.sent, bytes)
                .expect("sound");
            if count == 0 {
                hint::spin_loop();
                continue;
            }
            hint::black_box(lane.sender.wake(&lane.sight, &mut self.sent));
            bytes = &bytes[count..];
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> usize {
        loop {
            let lane = &mut self.lane;
            let taken = lane
                .receiver
                .receive(&lane.sight, &mut self.received, into)
                .expect("sound");
            hint::black_box(lane.receiver.wake(&lane.sight, &mut self.received));
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

/// Nanoseconds a round trip of so many bytes.
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

/// How a message is sent and received.
#[derive(Clone, Copy)]
enum Way {
    /// Made in a buffer and sent; received into a buffer and read.
    Copied,
    /// Made where the peer reads it; read where the peer has made it.
    InPlace,
}

/// Makes the words of a part of a message.
///
/// # Safety
/// There are `size` bytes at `first`, at a multiple of 8, which only this thread accesses.
unsafe fn make(first: *mut u8, size: usize, seed: u64) {
    for (index, word) in (seed..).zip(0..size / 8) {
        // SAFETY: it is within, as the caller keeps.
        let place = unsafe { first.cast::<u64>().add(word) };
        // SAFETY: as above, and aligned.
        unsafe { place.write(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)) };
    }
}

/// Adds the words of a part of a message up.
///
/// # Safety
/// There are `size` bytes at `first`, at a multiple of 8, which nobody changes meanwhile.
unsafe fn sum(first: *const u8, size: usize) -> u64 {
    let mut sum = 0_u64;
    for word in 0..size / 8 {
        // SAFETY: it is within, as the caller keeps.
        let place = unsafe { first.cast::<u64>().add(word) };
        // SAFETY: as above, and aligned.
        sum = sum.wrapping_add(unsafe { place.read() });
    }
    sum
}

impl End {
    /// Sends a message that is made now, a part at a time.
    fn produce(&mut self, way: Way, buffer: &mut [u64], size: usize, seed: u64) {
        if let Way::Copied = way {
            // SAFETY: the buffer is this thread's.
            unsafe { make(buffer.as_mut_ptr().cast(), size, seed) };
            // SAFETY: any bytes of the buffer's words are bytes.
            let bytes = unsafe { slice::from_raw_parts(buffer.as_ptr().cast(), size) };
            return self.send(bytes);
        }
        let (mut done, lane) = (0, &mut self.lane);
        while done < size {
            let wanted = (size - done).min(65_536);
            let reserved = lane.sender.reserve(&lane.sight, &mut self.sent, wanted);
            let reserved = reserved.expect("sound");
            if reserved.length() == 0 {
                hint::spin_loop();
                continue;
            }
            let mut next = seed + done as u64 / 8;
            for place in lane.sender.places(reserved) {
                // SAFETY: the place is reserved, and nothing was committed since.
                unsafe { make(place.cast().as_ptr(), place.len(), next) };
                next += place.len() as u64 / 8;
            }
            let committed = lane
                .sender
                .commit(&mut self.sent, reserved, reserved.length());
            committed.expect("it is not void");
            hint::black_box(lane.sender.wake(&lane.sight, &mut self.sent));
            done += reserved.length();
        }
    }

    /// Receives up to `size` bytes and adds them up. All slots have a multiple of 8.
    fn add_up(&mut self, way: Way, buffer: &mut [u64], size: usize) -> (usize, u64) {
        if let Way::Copied = way {
            let first = buffer.as_mut_ptr().cast::<u8>();
            // SAFETY: any bytes are bytes of the buffer's words.
            let bytes = unsafe { slice::from_raw_parts_mut(first, size.min(buffer.len() * 8)) };
            let count = self.receive(bytes);
            // SAFETY: so many were received.
            return (count, unsafe { sum(first, count) });
        }
        let lane = &mut self.lane;
        loop {
            let mut total = 0_u64;
            let shown = lane
                .receiver
                .borrow(&lane.sight, &self.received, size, |piece| {
                    // SAFETY: the peer, which is ours, changes nothing before it was consumed.
                    total = total.wrapping_add(unsafe { sum(piece.address()?, piece.length()) });
                    Ok(ControlFlow::Continue(()))
                });
            let count = shown.expect("sound").bytes;
            if count == 0 {
                hint::spin_loop();
                continue;
            }
            let taken = lane
                .receiver
                .consume(&lane.sight, &mut self.received, count);
            assert_eq!(taken.expect("sound").bytes, count);
            hint::black_box(lane.receiver.wake(&lane.sight, &mut self.received));
            return (count, total);
        }
    }
}

/// Nanoseconds a message of so many bytes, one way, that is made and added up.
fn made_and_read(ways: [Way; 2], size: usize, count: u64) -> f64 {
    let [mut ours, mut theirs] = End::pair();
    let total = size * usize::try_from(count).expect("few");
    thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let (mut buffer, mut rest, mut sum) = (vec![0; 65_536 / 8], total, 0_u64);
            while rest != 0 {
                let (part, added) = theirs.add_up(ways[1], &mut buffer, rest.min(65_536));
                rest -= part;
                sum = sum.wrapping_add(added);
            }
            sum
        });
        let mut buffer = vec![0; size / 8];
        let start = Instant::now();
        for message in 0..count {
            ours.produce(ways[0], &mut buffer, size, message);
        }
        hint::black_box(reader.join().expect("the reader ends"));
        start.elapsed().as_secs_f64() * 1e9 / count as f64
    })
}

/// Prints messages that are made and read: copied in and out, out alone, in alone, not at all.
fn in_place() {
    use Way::{Copied, InPlace};
    let all = [
        ("copied", [Copied, Copied]),
        ("reserved", [InPlace, Copied]),
        ("borrowed", [Copied, InPlace]),
        ("in-place", [InPlace, InPlace]),
    ];
    for (size, count) in [(4096, 200_000), (65_536, 20_000), (1 << 20, 1500)] {
        let mut rounds = vec![Vec::new(); all.len()];
        for _ in 0..ROUNDS {
            for (times, (_, ways)) in rounds.iter_mut().zip(all) {
                times.push(made_and_read(ways, size, count));
            }
        }
        let mut copied = None;
        for (times, (name, _)) in rounds.into_iter().zip(all) {
            let time = median(times);
            let ratio = time / *copied.get_or_insert(time);
            let bytes = size as f64 / time;
            println!("lane/{name}/{size}: {time:.0} ns, {bytes:.2} GB/s, {ratio:.2} of copied");
        }
    }
}

/// Nanoseconds a round trip of eight bytes in two lines.
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

/// Nanoseconds a message of so many bytes, one way.
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
    if !std::env::args().any(|argument| argument == "in-place") {
        trips_and_ways();
    }
    in_place();
}

/// Prints round trips, and messages one way.
fn trips_and_ways() {
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
            "lane/round-trip/{size}: {time:.0} ns, {:.2} of the least",
            time / least
        );
    }
    for (size, rounds) in sizes.into_iter().zip(ways) {
        let time = median(rounds);
        let rate = 1e3 / time;
        let bytes = f64::from(u32::try_from(size).expect("small")) / time;
        println!("lane/one-way/{size}: {time:.0} ns, {rate:.2} million/s, {bytes:.2} GB/s");
    }
}
