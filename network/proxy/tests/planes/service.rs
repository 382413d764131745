//! Who is served when within a host: counted, turn by turn, and not timed.

use millrace_proxy::plane::{Command, DataPlane, Plane, PlaneSettings};
use millrace_stream::partition::{CLASSES, Class};
use millrace_stream::{Geometry, Service, Side};

use crate::application::{Application, pair_of};

const SLICE: usize = 8192;
const MS: u64 = 1_000_000;

struct Bed {
    _data_plane: DataPlane,
    plane: Plane,
    /// Who sends and who receives.
    flows: Vec<[Application; 2]>,
    now_ns: u64,
}

impl Bed {
    /// Flows that have so many bytes to send.
    fn new(sizes: &[usize]) -> Self {
        let (data_plane, mut planes) = DataPlane::new(1, PlaneSettings::default()).expect("planes");
        let plane = planes.pop().expect("one plane");
        let flows = (0..).zip(sizes).map(|(token, size)| {
            let sides = [
                (Side::Connecting, vec![1; *size]),
                (Side::Accepting, Vec::new()),
            ];
            let ends = sides.map(|(side, source)| pair_of(Geometry::DEFAULT, side, source));
            let [(first, ours), (second, theirs)] = ends;
            let ends = Box::new([ours, theirs]);
            assert!(data_plane.plane(0).tell(Command::Loop { token, ends }));
            [first, second]
        });
        Self {
            flows: flows.collect(),
            _data_plane: data_plane,
            plane,
            now_ns: MS,
        }
    }

    /// Polls once, and lets all programs read. How many bytes each has got, and when there is more at the latest.
    fn poll(&mut self) -> (Vec<usize>, u64) {
        let (_, due_ns) = self.plane.poll(self.now_ns);
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

/// Between two slices of a small flow no large one of its class has more than one, of 8 KiB at most.
#[test]
fn a_small_flow_is_not_behind_large_ones() {
    const ROUNDS: usize = 60;
    for large in [1, 4, 16, 40] {
        let mut sizes = vec![ROUNDS];
        sizes.resize(1 + large, (ROUNDS + 5) * SLICE);
        let mut bed = Bed::new(&sizes);
        // Of each large one how many slices it is ahead of the small one, and how many it was at least so far.
        let (mut slices, mut least) = (vec![0; large], vec![usize::MAX; large]);
        let mut small = 0;
        for _ in 0..ROUNDS * large {
            let [first, rest @ ..] = &mut bed.flows[..] else {
                unreachable!("there is one at least");
            };
            // The small one always has a byte, and no more.
            if first[0].total_sent() == small {
                first[0].send_some(1);
            }
            rest.iter_mut().for_each(|[sender, _]| sender.send_all());
            let (got, _) = bed.poll();
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
        // They were there all the time.
        assert!(slices.iter().all(|count| count + 1 >= ROUNDS));
    }
}

/// A program that sleeps is not woken for each slice of many, and of the last as soon as there are no more.
#[test]
fn many_slices_are_told_of_at_once() {
    const TOLD: usize = 8 * SLICE;
    for size in [1, SLICE, 3 * SLICE, TOLD, TOLD + 1, 21 * SLICE + 7] {
        let mut bed = Bed::new(&[size]);
        bed.flows[0][0].send_all();
        bed.flows[0][1].send_all();
        let (mut rings, mut turns) = (0, 0);
        while bed.flows[0][1].got.len() < size {
            let receiver = &mut bed.flows[0][1];
            assert!(!receiver.arm(), "{size}: it was told of all that is there");
            while !receiver.is_rung() {
                bed.plane.poll(bed.now_ns);
                turns += 1;
                assert!(turns < 1000, "{size}: nobody wakes it");
            }
            rings += 1;
            receiver.receive_all();
        }
        assert_eq!(rings, size.div_ceil(TOLD), "{size}");
    }
}

/// Classes that programs say share by weight.
#[test]
fn classes_share_by_weight() {
    const TURNS: usize = 360;
    let mut bed = Bed::new(&[TURNS * 2 * SLICE; CLASSES]);
    for class in 0..8 {
        bed.serve(class.into(), class, None);
    }
    // Bells are answered now and then.
    (0..40).for_each(|_| drop(bed.poll()));
    let mut got = [0_usize; CLASSES];
    for _ in 0..TURNS {
        bed.flows
            .iter_mut()
            .for_each(|[sender, _]| sender.send_all());
        let (bytes, _) = bed.poll();
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

/// A rate that a program says is kept, the plane sleeps until it may go on, and what the dead leave is not held up.
#[test]
fn rates_are_kept() {
    const RATE: u64 = 1_000_000;
    const BURST: u64 = 16 * 1024;
    let mut bed = Bed::new(&[3_000_000, 3_000_000]);
    bed.serve(0, 3, Some(RATE));
    (0..40).for_each(|_| drop(bed.poll()));
    let start_ns = bed.now_ns;
    let mut due_ns = 0;
    for turn in 0..500 {
        bed.now_ns += MS;
        bed.flows[0][0].send_all();
        if turn < 50 {
            bed.flows[1][0].send_all();
        }
        for _ in 0..3 {
            (_, due_ns) = bed.poll();
        }
        let got = bed.flows[0][1].got.len() as u64;
        let limit = BURST + RATE * (bed.now_ns - start_ns) / 1_000_000_000;
        assert!(got <= limit, "{got} of {limit}");
        assert!(got + 2 * BURST >= limit, "{got} of {limit}");
    }
    assert!(
        bed.flows[1][1].got.len() > 1_000_000,
        "the other has no limit"
    );
    assert!(bed.now_ns < due_ns && due_ns < bed.now_ns + 20 * MS);
    // It has a ring's worth to send yet, and is killed.
    let rest = bed.flows[0][0].total_sent() - bed.flows[0][1].got.len();
    assert!(rest > 100_000);
    bed.flows[0][0].kill();
    (0..100).for_each(|_| drop(bed.poll()));
    let [sender, receiver] = &bed.flows[0];
    assert_eq!(receiver.got.len(), sender.total_sent());
}
