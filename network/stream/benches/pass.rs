//! `cargo bench -p millrace-stream --bench pass`: nanoseconds per message through a ring pair, on one thread.
//!
//! The lowest of the rounds is printed beside their median: other load on the machine only adds time.

use std::hint::black_box;
use std::time::Instant;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::{Geometry, ReceiveCursor, RingPair, SendCursor, Side};
use millrace_window::Window;

const ROUNDS: usize = 15;

struct Fixture {
    ours: RingPair,
    theirs: RingPair,
    sent: SendCursor,
    received: ReceiveCursor,
}

impl Fixture {
    fn new() -> Self {
        let geometry = Geometry::DEFAULT;
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (window, file) = Window::create(geometry.size(), &options).expect("memory");
        let peer = Window::attach(&file).expect("the same memory");
        Self {
            ours: RingPair::new(&window, geometry, Side::Connecting).expect("a rings"),
            theirs: RingPair::new(&peer, geometry, Side::Accepting).expect("a rings"),
            sent: SendCursor::default(),
            received: ReceiveCursor::default(),
        }
    }

    /// Sends and receives `messages` messages of `bytes`, in batches of `batch`.
    fn run(&mut self, bytes: &[u8], into: &mut [u8], messages: u64, batch: u64) {
        for _ in 0..messages / batch {
            let mut received = 0;
            for _ in 0..batch {
                let mut rest = black_box(bytes);
                while !rest.is_empty() {
                    let sender = &mut self.ours.sender;
                    let sent = sender.send(&self.ours.peer_state, &mut self.sent, rest);
                    rest = &rest[sent.expect("a sound peer")..];
                    if !rest.is_empty() {
                        received += self.receive(into);
                    }
                }
            }
            let sent = bytes.len() * usize::try_from(batch).expect("few");
            while received < sent {
                received += self.receive(into);
            }
        }
    }

    fn receive(&mut self, into: &mut [u8]) -> usize {
        let receiver = &mut self.theirs.receiver;
        let taken = receiver.receive(&self.theirs.peer_state, &mut self.received, into);
        black_box(&mut *into);
        taken.expect("a sound peer").bytes
    }
}

fn main() {
    for (name, size, batch, messages) in [
        ("rings/pass/8", 8, 1, 2_000_000_u64),
        ("rings/pass/64", 64, 1, 2_000_000),
        ("rings/pass/64x16", 64, 16, 2_000_000),
        ("rings/pass/1024", 1024, 1, 500_000),
        ("rings/pass/8192", 8192, 1, 100_000),
    ] {
        let (bytes, mut into) = (vec![7; size], vec![0; size]);
        let mut fixture = Fixture::new();
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let began = Instant::now();
                fixture.run(&bytes, &mut into, messages, batch);
                #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
                let count = (messages / batch * batch) as f64;
                began.elapsed().as_secs_f64() * 1e9 / count
            })
            .collect();
        times.sort_by(f64::total_cmp);
        println!(
            "{name:<20} {:8.1} ns lowest {:8.1} median",
            times[0],
            times[ROUNDS / 2]
        );
    }
}
