//! The cost of copies: messages that are made and read, sent and received with copies and without.
//!
//! `cargo bench --package millrace-stream --bench copies`. Each value is the lowest of many short rounds, as other load
//! on the machine only adds time. First on one thread, where the bytes stay in its cache, then on two that spin, which
//! needs two cores of their own.

use std::ops::ControlFlow;
use std::time::Instant;
use std::{hint, slice, thread};

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;

const ROUNDS: usize = 200;
/// Bytes of a round.
const ROUND: usize = 1 << 20;
/// The largest message in bytes.
const PART: usize = 65_536;
const SIZES: [usize; 3] = [4096, 65_536, 1 << 20];

/// Whether a side copies: it makes a message in a buffer and sends it, or receives it into a buffer and reads it.
/// Otherwise the buffer is the ring.
#[derive(Clone, Copy)]
struct Copies {
    sender: bool,
    receiver: bool,
}

const WAYS: [(&str, Copies); 4] = [
    ("copied", Copies::of(true, true)),
    ("reserved", Copies::of(false, true)),
    ("borrowed", Copies::of(true, false)),
    ("in-place", Copies::of(false, false)),
];

impl Copies {
    const fn of(sender: bool, receiver: bool) -> Self {
        Self { sender, receiver }
    }
}

/// Stores the words of a part of a message.
///
/// # Safety
/// `first` must point to `size` bytes, aligned to 8, which this thread accesses exclusively.
unsafe fn make(first: *mut u8, size: usize, seed: u64) {
    for (index, word) in (seed..).zip(0..size / 8) {
        // SAFETY: `word` is below `size / 8`, so the pointer stays within the `size` bytes that the caller guarantees.
        let place = unsafe { first.cast::<u64>().add(word) };
        // SAFETY: `place` is within the caller's exclusive bytes and aligned to 8, as `first` is.
        unsafe { place.write(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)) };
    }
}

/// Sums the words of a part of a message.
///
/// # Safety
/// `first` must point to `size` initialized bytes, aligned to 8, which no thread changes during the call.
unsafe fn sum(first: *const u8, size: usize) -> u64 {
    let mut sum = 0_u64;
    for word in 0..size / 8 {
        // SAFETY: `word` is below `size / 8`, so the pointer stays within the `size` bytes that the caller guarantees.
        let place = unsafe { first.cast::<u64>().add(word) };
        // SAFETY: `place` is within the caller's initialized bytes and aligned to 8, as `first` is.
        sum = sum.wrapping_add(unsafe { place.read() });
    }
    sum
}

/// The side that makes messages. All parts have a multiple of 8 bytes.
struct Maker {
    rings: RingPair,
    cursor: SendCursor,
    buffer: Vec<u64>,
    copies: bool,
}

/// The side that reads messages.
struct Reader {
    rings: RingPair,
    cursor: ReceiveCursor,
    buffer: Vec<u64>,
    copies: bool,
}

fn sides(copies: Copies) -> (Maker, Reader) {
    let geometry = Geometry::DEFAULT;
    let options = RegionOptions {
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    let (window, file) = Window::create(geometry.size(), &options).expect("memory");
    let other = Window::attach(&file).expect("memory");
    let maker = Maker {
        rings: RingPair::new(&window, geometry, Side::Connecting).expect("a rings"),
        cursor: SendCursor::default(),
        buffer: vec![0; ROUND / 8],
        copies: copies.sender,
    };
    let reader = Reader {
        rings: RingPair::new(&other, geometry, Side::Accepting).expect("a rings"),
        cursor: ReceiveCursor::default(),
        buffer: vec![0; PART / 8],
        copies: copies.receiver,
    };
    (maker, reader)
}

impl Maker {
    /// Makes a message, unless it is made in the ring.
    fn begin(&mut self, size: usize, seed: u64) {
        if self.copies {
            // SAFETY: the buffer is borrowed exclusively, is aligned to 8, and has at least `size` bytes.
            unsafe { make(self.buffer.as_mut_ptr().cast(), size, seed) };
        }
    }

    /// Sends a part of the message from byte `done` on, and returns the count of sent bytes.
    fn go_on(&mut self, size: usize, seed: u64, done: usize) -> usize {
        let wanted = (size - done).min(PART);
        let (peer_state, sender) = (&self.rings.peer_state, &mut self.rings.sender);
        let sent = if self.copies {
            let first = self.buffer.as_ptr().cast::<u8>();
            // SAFETY: `first` points to the buffer's initialized words, of which `size` bytes are within.
            let bytes = unsafe { slice::from_raw_parts(first, size) };
            let bytes = &bytes[done..done + wanted];
            sender
                .send(peer_state, &mut self.cursor, bytes)
                .expect("sound")
        } else {
            let reserved = sender.reserve(peer_state, &mut self.cursor, wanted);
            let reserved = reserved.expect("sound");
            let mut next = seed + done as u64 / 8;
            for place in sender.places(reserved) {
                // SAFETY: the region is reserved and was not committed, so this thread alone stores to it.
                unsafe { make(place.cast().as_ptr(), place.len(), next) };
                next += place.len() as u64 / 8;
            }
            sender
                .commit(&mut self.cursor, reserved, reserved.length())
                .expect("it is not void");
            reserved.length()
        };
        if sent > 0 {
            hint::black_box(sender.wake(peer_state, &mut self.cursor));
        }
        sent
    }
}

impl Reader {
    /// Reads the available bytes, and returns their count.
    fn read(&mut self) -> usize {
        let (peer_state, receiver) = (&self.rings.peer_state, &mut self.rings.receiver);
        let (count, total) = if self.copies {
            let first = self.buffer.as_mut_ptr().cast::<u8>();
            // SAFETY: `first` points to the buffer's initialized words; any bytes are valid words.
            let into = unsafe { slice::from_raw_parts_mut(first, PART) };
            let received = receiver.receive(peer_state, &mut self.cursor, into);
            let count = received.expect("sound").bytes;
            // SAFETY: `count` bytes of the buffer were received, and the buffer is borrowed exclusively.
            (count, unsafe { sum(first, count) })
        } else {
            let mut total = 0_u64;
            let shown = receiver.borrow(peer_state, &self.cursor, PART, |piece| {
                // SAFETY: the peer of this benchmark changes no byte before it was consumed.
                total = total.wrapping_add(unsafe { sum(piece.address()?, piece.length()) });
                Ok(ControlFlow::Continue(()))
            });
            let count = shown.expect("sound").bytes;
            let taken = receiver.consume(peer_state, &mut self.cursor, count);
            assert_eq!(taken.expect("sound").bytes, count);
            (count, total)
        };
        hint::black_box(total);
        if count > 0 {
            hint::black_box(receiver.wake(peer_state, &mut self.cursor));
        }
        count
    }
}

/// Nanoseconds per message, with both sides on this thread.
fn in_one_thread(copies: Copies, size: usize) -> f64 {
    let (mut maker, mut reader) = sides(copies);
    lowest(size, |messages| {
        for seed in 0..messages {
            maker.begin(size, seed);
            let mut done = 0;
            while done < size {
                done += maker.go_on(size, seed, done);
                reader.read();
            }
        }
        while reader.read() > 0 {}
    })
}

/// Nanoseconds per message, with each side on its own thread.
fn in_two_threads(copies: Copies, size: usize) -> f64 {
    let (mut maker, reader) = sides(copies);
    let mut reader = Some(reader);
    lowest(size, |messages| {
        let mut own = reader.take().expect("it comes back");
        let mut rest = size * usize::try_from(messages).expect("few");
        let own = thread::scope(|scope| {
            let reading = scope.spawn(move || {
                while rest > 0 {
                    match own.read() {
                        0 => hint::spin_loop(),
                        count => rest -= count,
                    }
                }
                own
            });
            for seed in 0..messages {
                maker.begin(size, seed);
                let mut done = 0;
                while done < size {
                    match maker.go_on(size, seed, done) {
                        0 => hint::spin_loop(),
                        count => done += count,
                    }
                }
            }
            reading.join().expect("the reader ends")
        });
        reader = Some(own);
    })
}

/// The lowest time per message of many rounds.
fn lowest(size: usize, mut round: impl FnMut(u64)) -> f64 {
    let messages = (ROUND / size) as u64;
    (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            round(messages);
            start.elapsed().as_secs_f64() * 1e9 / messages as f64
        })
        .fold(f64::MAX, f64::min)
}

fn main() {
    type Measure = fn(Copies, usize) -> f64;
    let measures: [(&str, Measure); 2] = [
        ("one-thread", in_one_thread),
        ("two-threads", in_two_threads),
    ];
    for (threads, measure) in measures {
        for size in SIZES {
            let mut copied = None;
            for (name, copies) in WAYS {
                let time = measure(copies, size);
                let ratio = time / *copied.get_or_insert(time);
                let rate = size as f64 / time;
                println!(
                    "copies/{threads}/{name}/{size}: {time:.0} ns, {rate:.2} GB/s, {ratio:.2} of copied"
                );
            }
        }
    }
}
