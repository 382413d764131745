//! The order of service within a host: counted turn by turn, and not timed.

use millrace_broker::forwarder::{Command, Forwarder, ForwarderPool, ForwarderSettings};
use millrace_stream::partition::{CLASSES, Class};
use millrace_stream::{Geometry, Service, Side};

use super::application::{Application, pair_of};

const SLICE: usize = 8192;
const MS: u64 = 1_000_000;

struct Fixture {
    _data_forwarder: ForwarderPool,
    forwarder: Forwarder,
    /// The sender and the receiver of each flow.
    flows: Vec<[Application; 2]>,
    now_ns: u64,
}

impl Fixture {
    /// Flows with `sizes` bytes to send.
    fn new(sizes: &[usize]) -> Self {
        let (pool, mut forwarders) =
            ForwarderPool::new(1, ForwarderSettings::default()).expect("forwarders");
        let forwarder = forwarders.pop().expect("one forwarder");
        let flows = (0..).zip(sizes).map(|(token, size)| {
            let sides = [
                (Side::Connecting, vec![1; *size]),
                (Side::Accepting, Vec::new()),
            ];
            let ends = sides.map(|(side, source)| pair_of(Geometry::DEFAULT, side, source));
            let [(first, ours), (second, theirs)] = ends;
            let ends = Box::new([ours, theirs]);
            assert!(pool.forwarder(0).send(Command::Loop { token, ends }));
            [first, second]
        });
        Self {
            flows: flows.collect(),
            _data_forwarder: pool,
            forwarder,
            now_ns: MS,
        }
    }

    /// Polls once, and lets all programs read. Returns the bytes that each has received, and the time of the next poll.
    fn poll(&mut self) -> (Vec<usize>, u64) {
        let (_, due_ns) = self.forwarder.poll(self.now_ns);
        let got = self.flows.iter_mut().map(|[_, receiver]| {
            let before = receiver.got.len();
            receiver.receive_all();
            receiver.got.len() - before
        });
        (got.collect(), due_ns)
    }

    fn serve(&mut self, flow: usize, class: u8, bytes_per_second: Option<u64>) {
        self.flows[flow][0].serve(Service {
            class: Class::new(class),
            bytes_per_second,
        });
    }
}

/// Between two slices of a small flow each large one of its class has at most one, of at most 8 KiB.
#[test]
fn a_small_flow_is_not_behind_large_ones() {
    const ROUNDS: usize = 60;
    for large in [1, 4, 16, 40] {
        let mut sizes = vec![ROUNDS];
        sizes.resize(1 + large, (ROUNDS + 5) * SLICE);
        let mut fixture = Fixture::new(&sizes);
        // For each large flow, its slices ahead of the small one, and the least of that so far.
        let (mut slices, mut least) = (vec![0; large], vec![usize::MAX; large]);
        let mut small = 0;
        for _ in 0..ROUNDS * large {
            let [first, rest @ ..] = &mut fixture.flows[..] else {
                unreachable!("there is one at least");
            };
            // The small one always has exactly one byte.
            if first[0].total_sent() == small {
                first[0].send_some(1);
            }
            rest.iter_mut().for_each(|[sender, _]| sender.send_all());
            let (got, _) = fixture.poll();
            for (count, bytes) in slices.iter_mut().zip(&got[1..]) {
                assert!(*bytes <= SLICE, "{bytes} bytes in one turn");
                *count += usize::from(*bytes > 0);
            }
            if got[0] > 0 {
                small += 1;
                for (index, count) in slices.iter().enumerate() {
                    let ahead = ROUNDS + count - small;
                    least[index] = least[index].min(ahead);
                    assert!(ahead - least[index] <= 1, "beside {large}: {index}");
                }
                if small == ROUNDS {
                    break;
                }
            }
        }
        assert_eq!(small, ROUNDS, "beside {large}: {slices:?}");
        // They had bytes to send at all times.
        assert!(slices.iter().all(|count| count + 1 >= ROUNDS));
    }
}

/// A sleeping program is not notified for each of many slices, and is notified of the last one at once.
#[test]
fn many_slices_cause_one_notification() {
    const TOLD: usize = 8 * SLICE;
    for size in [1, SLICE, 3 * SLICE, TOLD, TOLD + 1, 21 * SLICE + 7] {
        let mut fixture = Fixture::new(&[size]);
        fixture.flows[0][0].send_all();
        fixture.flows[0][1].send_all();
        let (mut rings, mut turns) = (0, 0);
        while fixture.flows[0][1].got.len() < size {
            let receiver = &mut fixture.flows[0][1];
            assert!(!receiver.arm(), "{size}: notified of all bytes");
            while !receiver.is_notified() {
                fixture.forwarder.poll(fixture.now_ns);
                turns += 1;
                assert!(turns < 1000, "{size}: nobody wakes it");
            }
            rings += 1;
            receiver.receive_all();
        }
        assert_eq!(rings, size.div_ceil(TOLD), "{size}");
    }
}

/// Classes that programs request share by weight.
#[test]
fn classes_share_by_weight() {
    const TURNS: usize = 360;
    let mut fixture = Fixture::new(&[TURNS * 2 * SLICE; CLASSES]);
    for class in 0..8 {
        fixture.serve(class.into(), class, None);
    }
    // Wake-up fds are drained now and then.
    (0..40).for_each(|_| drop(fixture.poll()));
    let mut got = [0_usize; CLASSES];
    for _ in 0..TURNS {
        fixture
            .flows
            .iter_mut()
            .for_each(|[sender, _]| sender.send_all());
        let (bytes, _) = fixture.poll();
        for (got, bytes) in got.iter_mut().zip(bytes) {
            *got += bytes;
        }
    }
    let whole: usize = got.iter().sum();
    for (class, bytes) in got.into_iter().enumerate() {
        let share = whole * (class + 1) / 36;
        assert!(
            bytes.abs_diff(share) <= share / 20,
            "class {class}: {bytes} of {share}"
        );
    }
}

/// A requested rate is kept, the forwarder sleeps until it allows more, and the rest of a killed program is not
/// delayed.
#[test]
fn rates_are_kept() {
    const RATE: u64 = 1_000_000;
    const BURST: u64 = 16 * 1024;
    let mut fixture = Fixture::new(&[3_000_000, 3_000_000]);
    fixture.serve(0, 3, Some(RATE));
    (0..40).for_each(|_| drop(fixture.poll()));
    let start_ns = fixture.now_ns;
    let mut due_ns = 0;
    for turn in 0..500 {
        fixture.now_ns += MS;
        fixture.flows[0][0].send_all();
        if turn < 50 {
            fixture.flows[1][0].send_all();
        }
        for _ in 0..3 {
            (_, due_ns) = fixture.poll();
        }
        let got = fixture.flows[0][1].got.len() as u64;
        let limit = BURST + RATE * (fixture.now_ns - start_ns) / 1_000_000_000;
        assert!(got <= limit, "{got} of {limit}");
        assert!(got + 2 * BURST >= limit, "{got} of {limit}");
    }
    assert!(
        fixture.flows[1][1].got.len() > 1_000_000,
        "the other has no limit"
    );
    assert!(fixture.now_ns < due_ns && due_ns < fixture.now_ns + 20 * MS);
    // It has a ring's worth to send, and is killed.
    let rest = fixture.flows[0][0].total_sent() - fixture.flows[0][1].got.len();
    assert!(rest > 100_000);
    fixture.flows[0][0].kill();
    (0..100).for_each(|_| drop(fixture.poll()));
    let [sender, receiver] = &fixture.flows[0];
    assert_eq!(receiver.got.len(), sender.total_sent());
}
