//! `cargo bench -p millrace-stream --bench partition`: nanoseconds per slice through a partition, both sides on one
//! thread, from the sender's memory to the receiver's.
//!
//! The lowest of the rounds is printed beside their median: other load on the machine only adds time.

use std::hint::black_box;
use std::time::Instant;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::Side;
use millrace_stream::partition::{
    Class, ConnectionId, Endpoints, Fetched, OpenParams, Partition, PartitionGeometry,
    PartitionSettings, Reset, State,
};
use millrace_window::Window;

const ROUNDS: usize = 11;
const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 1,
    ring_lines: 4096,
};

/// Endpoints that always have pieces of one size, and accept all bytes.
#[derive(Default)]
struct Pieces {
    size: usize,
    source: Vec<u8>,
    taken: Vec<(u32, u64)>,
    slices: u64,
    sum: u64,
}

impl Endpoints for Pieces {
    fn fetch(&mut self, _: u32, into: &mut [u8]) -> Fetched {
        let bytes = self.size.min(into.len());
        into[..bytes].copy_from_slice(&self.source[..bytes]);
        Fetched {
            bytes,
            has_more: true,
            is_urgent: false,
        }
    }

    fn deliver(&mut self, key: u32, bytes: &[u8]) {
        self.slices += 1;
        self.sum += u64::from(black_box(bytes)[0]);
        self.taken.push((key, bytes.len() as u64));
    }

    fn finished(&mut self, _: u32) {}

    fn reset(&mut self, _: u32, reason: Reset) {
        panic!("{reason:?}");
    }

    fn closed(&mut self, _: u32) {}
}

struct Fixture {
    sides: [(Partition, Pieces); 2],
    ids: Vec<ConnectionId>,
    now_ns: u64,
}

impl Fixture {
    fn new(connections: u32, size: usize, has_checks: bool) -> Self {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (first, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
        let second = Window::attach(&file).expect("the same memory");
        let sides = [(&first, Side::Connecting), (&second, Side::Accepting)];
        let mut sides = sides.map(|(window, side)| {
            let settings = PartitionSettings {
                incarnation: 1 + u64::from(side == Side::Accepting),
                has_checks,
                ..PartitionSettings::default()
            };
            let pieces = Pieces {
                size,
                source: vec![1; 8192],
                ..Pieces::default()
            };
            let partition = Partition::new(window, GEOMETRY, 0, side, settings);
            (partition.expect("a partition"), pieces)
        });
        let mut ids = Vec::new();
        for key in 0..connections {
            let opening = OpenParams {
                key,
                class: Class::DEFAULT,
                rate: None,
                room: 1 << 18,
            };
            let opened = sides
                .each_mut()
                .map(|(partition, _)| partition.open(&opening));
            let [first, second] = opened.map(|opened| opened.expect("a free number"));
            assert!(sides[0].0.establish(first.id, second));
            assert!(sides[1].0.establish(second.id, first));
            sides[0].0.ready(first.id);
            ids.push(second.id);
        }
        let mut fixture = Self {
            sides,
            ids,
            now_ns: 1,
        };
        (0..4).for_each(|_| fixture.turn());
        assert_eq!(fixture.sides[0].0.state(), State::Ready);
        fixture
    }

    fn turn(&mut self) {
        self.now_ns += 1000;
        for (partition, pieces) in &mut self.sides {
            black_box(partition.poll(self.now_ns, pieces));
            for (key, bytes) in pieces.taken.drain(..) {
                partition.consumed(self.ids[key as usize], bytes);
            }
        }
    }

    /// Nanoseconds per slice over `slices` slices.
    fn run(&mut self, slices: u64) -> f64 {
        let (start, began) = (self.sides[1].1.slices, Instant::now());
        while self.sides[1].1.slices - start < slices {
            self.turn();
        }
        let passed = self.sides[1].1.slices - start;
        #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
        let passed = passed as f64;
        began.elapsed().as_secs_f64() * 1e9 / passed
    }
}

fn main() {
    for (connections, size, has_checks, slices) in [
        (1, 48, false, 500_000),
        (64, 48, false, 500_000),
        (1000, 48, false, 500_000),
        (64, 48, true, 500_000),
        (1, 8192, false, 50_000),
        (64, 8192, false, 50_000),
        (64, 8192, true, 50_000),
    ] {
        let mut fixture = Fixture::new(connections, size, has_checks);
        let mut times: Vec<f64> = (0..ROUNDS).map(|_| fixture.run(slices)).collect();
        times.sort_by(f64::total_cmp);
        let checked = if has_checks { "/checked" } else { "" };
        println!(
            "partition/pass/{size}/{connections}{checked}: {:.1} ns lowest, {:.1} median",
            times[0],
            times[ROUNDS / 2]
        );
    }
}
