//! The order of service: counted, not timed.

use std::collections::BTreeMap;

use millrace_memory::{Pages, RegionOptions};
use millrace_stream::Side;
use millrace_stream::partition::Partition;
use millrace_stream::partition::{
    Class, ConnectionId, Endpoints, Fetched, OpenParams, PartitionGeometry, PartitionSettings,
    Progress, Rate, Reset, State,
};
use millrace_window::{Mapped, Window};

use super::fixture::{MS, opening, settings};

const GEOMETRY: PartitionGeometry = PartitionGeometry {
    partitions: 1,
    ring_lines: 4096,
};

const MTU: usize = 8192;
const ROOM: u64 = 1 << 18;

/// A program that always has bytes, in pieces of a given size, until all are sent.
#[derive(Debug)]
struct Flow {
    id: Option<ConnectionId>,
    piece: usize,
    left: usize,
    received: u64,
    /// Whether received bytes are consumed at once.
    reads: bool,
}

/// All flows of one side, and a log of their slices.
#[derive(Debug, Default)]
struct Flows {
    flows: BTreeMap<u32, Flow>,
    slices: Vec<u32>,
    taken: Vec<(u32, u64)>,
    /// The only flow that may be reset.
    expected: Option<u32>,
}

impl Endpoints for Flows {
    fn fetch(&mut self, key: u32, into: &mut [u8]) -> Fetched {
        let flow = self.flows.get_mut(&key).expect("a flow");
        let bytes = into.len().min(flow.piece).min(flow.left);
        flow.left -= bytes;
        self.slices.push(key);
        Fetched {
            bytes,
            has_more: flow.left > 0,
            is_urgent: false,
        }
    }

    fn deliver(&mut self, key: u32, bytes: &[u8]) {
        let flow = self.flows.get_mut(&key).expect("a flow");
        flow.received += bytes.len() as u64;
        if flow.reads {
            self.taken.push((key, bytes.len() as u64));
        }
    }

    fn finished(&mut self, _: u32) {}

    fn reset(&mut self, key: u32, reason: Reset) {
        assert_eq!(self.expected, Some(key), "it was reset: {reason:?}");
    }

    fn closed(&mut self, _: u32) {}
}

struct Fixture {
    sides: [(Partition<Mapped>, Flows); 2],
    now_ns: u64,
}

impl Fixture {
    fn new() -> Self {
        Self::with_mtu(MTU)
    }

    fn with_mtu(mtu: usize) -> Self {
        let options = RegionOptions {
            pages: Pages::Base,
            node: None,
            locked: false,
        };
        let (first, file) = Window::create(GEOMETRY.size(), &options).expect("memory");
        let second = Window::attach(&file).expect("the same memory");
        let sides = [(&first, Side::Connecting), (&second, Side::Accepting)];
        let sides = sides.map(|(window, side)| {
            let settings = PartitionSettings {
                mtu: u32::try_from(mtu).expect("small"),
                connections_max: 256,
                ..settings(1 + u64::from(side == Side::Accepting))
            };
            let partition = Partition::new(window, GEOMETRY, 0, side, settings);
            (partition.expect("a partition"), Flows::default())
        });
        let mut fixture = Self { sides, now_ns: 0 };
        (0..4).for_each(|_| fixture.turn());
        assert_eq!(fixture.sides[0].0.state(), State::Ready);
        fixture
    }

    /// Adds a flow from the first side to the second.
    fn add(&mut self, opening: &OpenParams, piece: usize, left: usize, reads: bool) {
        let key = opening.key;
        let opened = [0, 1].map(|side: usize| self.sides[side].0.open(opening).expect("free"));
        for side in [0, 1] {
            let (partition, flows) = &mut self.sides[side];
            assert!(partition.establish(opened[side].id, opened[1 - side]));
            let flow = Flow {
                id: Some(opened[side].id),
                piece,
                left,
                received: 0,
                reads,
            };
            flows.flows.insert(key, flow);
        }
        self.sides[0].0.ready(opened[0].id);
    }

    fn poll(&mut self, side: usize) -> Progress {
        let (partition, flows) = &mut self.sides[side];
        let progress = partition.poll(self.now_ns, flows);
        for (key, bytes) in flows.taken.drain(..) {
            let id = flows.flows[&key].id.expect("it was set");
            partition.consumed(id, bytes);
        }
        progress
    }

    fn turn(&mut self) {
        self.now_ns += MS;
        self.poll(0);
        self.poll(1);
    }

    fn received(&self, key: u32) -> u64 {
        self.sides[1].1.flows[&key].received
    }
}

fn of_class(key: u32, class: u8) -> OpenParams {
    OpenParams {
        class: Class::new(class).expect("below eight"),
        ..opening(key, ROOM)
    }
}

/// Between two slices of a small flow, each large one of its class has at most one.
#[test]
fn a_small_flow_is_not_behind_large_ones() {
    for large in [1_u32, 4, 16] {
        let mut fixture = Fixture::new();
        for key in 1..=large {
            fixture.add(&opening(key, ROOM), MTU, usize::MAX, true);
        }
        // The large ones have filled their share.
        (0..50).for_each(|_| fixture.turn());
        fixture.sides[0].1.slices.clear();
        fixture.add(&opening(0, ROOM), 64, usize::MAX, true);
        (0..500).for_each(|_| fixture.turn());
        let slices = &fixture.sides[0].1.slices;
        let turns: Vec<&[u32]> = slices.split(|key| *key == 0).collect();
        assert!(turns.len() > 200, "{} slices of the small one", turns.len());
        // The last is incomplete.
        for turn in &turns[..turns.len() - 1] {
            for key in 1..=large {
                let count = turn.iter().filter(|other| **other == key).count();
                assert!(count <= 1, "beside {large}: {count} slices of {key}");
            }
        }
    }
}

/// While others are active a flow has a few slices in the ring, and not all of it.
#[test]
fn flows_share_the_ring() {
    let mut fixture = Fixture::new();
    for key in 0..2 {
        fixture.add(&opening(key, ROOM), MTU, usize::MAX, true);
    }
    // The peer reads nothing.
    for _ in 0..50 {
        fixture.poll(0);
    }
    let slices = &fixture.sides[0].1.slices;
    assert!(slices.len() <= 2 * 3, "{} slices", slices.len());
    // Alone, it may use the whole ring.
    let mut fixture = Fixture::new();
    fixture.add(&opening(0, ROOM), MTU, usize::MAX, true);
    for _ in 0..50 {
        fixture.poll(0);
    }
    assert!(fixture.sides[0].1.slices.len() > 20);
}

#[test]
fn classes_share_by_weight() {
    const FLOWS: u32 = 24;
    let mut fixture = Fixture::with_mtu(1024);
    let weights = PartitionSettings::default().weights;
    for class in 0..8 {
        for flow in 0..FLOWS {
            let opening = of_class(u32::from(class) * FLOWS + flow, class);
            fixture.add(&opening, MTU, usize::MAX, true);
        }
    }
    (0..1000).for_each(|_| fixture.turn());
    let received = |class: usize| -> u64 {
        let first = u32::try_from(class).expect("few") * FLOWS;
        (first..first + FLOWS)
            .map(|key| fixture.received(key))
            .sum()
    };
    let whole: u64 = (0..8).map(received).sum();
    let weight: u64 = weights.iter().map(|weight| u64::from(*weight)).sum();
    assert!(whole > 50_000_000, "{whole}");
    for (class, own) in weights.into_iter().enumerate() {
        let (share, got) = (whole * u64::from(own) / weight, received(class));
        assert!(
            got.abs_diff(share) < share / 20,
            "class {class}: {got} of {share}"
        );
        let flows = FLOWS * u32::try_from(class).expect("few");
        let least = (flows..flows + FLOWS)
            .map(|key| fixture.received(key))
            .min();
        let fair = got / u64::from(FLOWS);
        assert!(
            least.is_some_and(|least| least > fair - fair / 20),
            "class {class}"
        );
    }
}

/// Receivers that stop get what they granted and no more, and delay no other connection.
#[test]
fn a_stalled_receiver_delays_no_other() {
    let turns_for = |stopped: u32| {
        let mut fixture = Fixture::new();
        for key in 1..=stopped {
            fixture.add(&opening(key, ROOM), MTU, usize::MAX, false);
        }
        (0..200).for_each(|_| fixture.turn());
        for key in 1..=stopped {
            assert_eq!(fixture.received(key), ROOM);
        }
        fixture.add(&opening(0, ROOM), MTU, 4_000_000, true);
        let mut turns = 0;
        while fixture.received(0) < 4_000_000 {
            fixture.turn();
            turns += 1;
            assert!(turns < 10_000, "it hangs");
        }
        turns
    };
    let alone = turns_for(0);
    for stopped in [1, 8, 32] {
        assert_eq!(turns_for(stopped), alone, "beside {stopped}");
    }
}

#[test]
fn rates_are_kept() {
    const RATE: u64 = 1_000_000;
    const BURST: u64 = 20_000;
    let mut fixture = Fixture::new();
    let rate = Rate {
        bytes_per_second: RATE,
        burst: BURST,
    };
    let limited = OpenParams {
        rate: Some(rate),
        ..opening(0, ROOM)
    };
    fixture.add(&limited, MTU, usize::MAX, true);
    fixture.add(&opening(1, ROOM), MTU, usize::MAX, true);
    let start_ns = fixture.now_ns;
    for _ in 0..5000 {
        fixture.turn();
        let elapsed_ns = fixture.now_ns - start_ns;
        let limit = BURST + RATE * elapsed_ns / 1_000_000_000;
        assert!(fixture.received(0) <= limit);
        assert!(fixture.received(0) + BURST + 2 * MTU as u64 >= limit - BURST.min(limit));
    }
    assert!(
        fixture.received(1) > 20 * fixture.received(0),
        "the other has no limit"
    );
    // With another rate it does not wait for the first one's time.
    let before = fixture.received(0);
    let id = fixture.sides[0].1.flows[&0].id.expect("it is open");
    fixture.sides[0].0.serve(id, Class::DEFAULT, None);
    (0..200).for_each(|_| fixture.turn());
    assert!(fixture.received(0) > before + 1_000_000);
    // Alone, it reports its due time.
    let mut fixture = Fixture::new();
    fixture.add(&limited, MTU, usize::MAX, true);
    let due = |fixture: &mut Fixture| {
        fixture.turn();
        fixture.poll(0)
    };
    let progress = (0..10).map(|_| due(&mut fixture)).last().expect("ten");
    assert!(!progress.has_more && progress.due_ns > fixture.now_ns);
}

/// A connection that is over while it is paced frees its entry at once.
#[test]
fn a_slow_one_that_is_over_keeps_no_place() {
    let mut fixture = Fixture::new();
    let rate = Rate {
        bytes_per_second: 1,
        burst: 100,
    };
    let slow = |key| OpenParams {
        rate: Some(rate),
        ..opening(key, ROOM)
    };
    // More than the table and the heap have entries for.
    for key in 0..2000 {
        fixture.add(&slow(key), MTU, usize::MAX, true);
        (0..2).for_each(|_| fixture.turn());
        // Fewer at once at the ring's end.
        assert!((1..=100).contains(&fixture.received(key)), "it is paced");
        let id = fixture.sides[0].1.flows[&key].id.expect("it is open");
        fixture.sides[1].1.expected = Some(key);
        fixture.sides[0].0.reset(id, 104);
        (0..3).for_each(|_| fixture.turn());
        for side in &fixture.sides {
            assert_eq!(side.0.totals().connections, 0, "{key}");
        }
    }
    fixture.add(&opening(5000, ROOM), MTU, 100_000, true);
    (0..100).for_each(|_| fixture.turn());
    assert_eq!(fixture.received(5000), 100_000);
}
