//! Images beside all that are possible.

mod legal;

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_block::{Device, ErrorKind, Geometry, Image, Lba, MemoryDevice, Request};
use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};

use self::legal::Bytes;
use crate::{Cursor, Fault, Kind, Options, Order, PowerCut, Survivors};
use millrace_random::Random;

const BLOCK: usize = 512;
/// As many images are made of a point at most.
const IMAGES_MAX: u64 = 40_000;

fn geometry(blocks: u64, atomic_blocks: u32, volatile_cache: bool) -> Geometry {
    Geometry {
        atomic_blocks,
        volatile_cache,
        queue_depth: 4,
        ..MemoryDevice::geometry_of(blocks * BLOCK as u64, 512)
    }
}

fn arena(device: &PowerCut) -> Arena {
    let options = ArenaOptions {
        classes: vec![SizeClass {
            size: 8 * BLOCK,
            count: 32,
        }],
        pages: Pages::Base,
        node: None,
        locked: false,
    };
    Arena::new(Arc::clone(device.domain()), &options).expect("there is memory")
}

fn heads(image: &Image) -> Bytes {
    let mut bytes = vec![0; usize::try_from(image.bytes()).expect("small")];
    image.read(0, &mut bytes);
    for block in bytes.chunks(BLOCK) {
        assert!(
            block.iter().all(|byte| *byte == block[0]),
            "blocks are whole"
        );
    }
    bytes.iter().step_by(BLOCK).copied().collect()
}

/// A run of a few requests on two queues of a device of four blocks, drawn from a seed.
fn run(seed: u64) -> Arc<PowerCut> {
    let mut random = Random::new(seed);
    let atomic = [1, 1, 2, 2, 4][random.index(5)];
    let geometry = geometry(4, atomic, random.chance(7, 8));
    let order = match random.chance(3, 4) {
        true => Order::Shuffled(seed),
        false => Order::AtOnce,
    };
    let options = Options {
        geometry,
        image: None,
        order,
    };
    let device = PowerCut::with_options(options).expect("a sound geometry");
    let flushes = if random.chance(1, 3) {
        let after = random.below(2);
        let fault = Fault::nth(Some(Kind::Flush), after, ErrorKind::Medium);
        device.set_faults(vec![fault]);
        4
    } else {
        2
    };
    let arena = arena(&device);
    let mut queues = [0, 1].map(|_| device.queue().expect("there are queues"));
    let mut value = 0;
    let mut changes = 0;
    while changes < 6 {
        let queue = &mut queues[random.index(2)];
        if queue.in_flight() == 4 || random.chance(1, 2) {
            queue.poll();
            continue;
        }
        let (lba, left) = draw_blocks(&mut random);
        let request = match random.below(10) {
            kind if kind < flushes => Request::flush(0),
            4 => Request::write_zeroes(Lba(lba), left, 0),
            5 => Request::deallocate(Lba(lba), left, 0),
            kind => {
                let len = usize::try_from(left).expect("few") * BLOCK;
                let mut buffer = arena.try_buffer(len).expect("free");
                for block in buffer.chunks_mut(BLOCK) {
                    value += 1;
                    block.fill(value);
                }
                match kind {
                    6..8 => Request::write_through(Lba(lba), buffer, 0),
                    _ => Request::write(Lba(lba), buffer, 0),
                }
            }
        };
        changes += u32::from(Kind::of(request.operation).changes());
        queue.submit(request).expect("within the device");
    }
    // Some end with requests in flight.
    if random.chance(1, 2) {
        for queue in &mut queues {
            while queue.wait().is_some() {}
        }
    }
    device
}

fn draw_blocks(random: &mut Random) -> (u64, u64) {
    let lba = random.below(4);
    (lba, 1 + random.below(4 - lba))
}

/// Whether an image is possible, unit by unit.
fn assert_legal(image: &Bytes, legal: &[BTreeSet<Bytes>], atomic: usize, what: &str) {
    for (unit, legal) in image.chunks(atomic).zip(legal) {
        assert!(
            legal.contains(unit),
            "{image:?} is not possible: {what}, {legal:?}"
        );
    }
}

/// Makes images until all that are possible have come; each must be.
fn all_come(cursor: &Cursor, legal: &[BTreeSet<Bytes>], atomic: usize, what: &str) {
    for survivors in Survivors::ALL {
        for seed in 0..8 {
            let image = heads(&cursor.image(survivors, seed));
            assert_legal(
                &image,
                legal,
                atomic,
                &format!("{what}, {survivors:?} by {seed}"),
            );
        }
    }
    let whole: usize = legal.iter().map(BTreeSet::len).product();
    let mut seen: Vec<BTreeSet<Bytes>> = vec![BTreeSet::new(); legal.len()];
    let mut together = BTreeSet::new();
    for seed in 0..IMAGES_MAX {
        let image = heads(&cursor.image(Survivors::Random, seed));
        assert_legal(&image, legal, atomic, what);
        for (unit, seen) in image.chunks(atomic).zip(&mut seen) {
            seen.insert(unit.to_vec());
        }
        together.insert(image);
        // Of many units not all combinations are waited for.
        if seen == legal && (together.len() == whole || (whole > 64 && seed > 200)) {
            return;
        }
    }
    panic!(
        "{what}: of {legal:?} only {seen:?} come, {} of {whole} together",
        together.len()
    );
}

#[test]
fn the_images_are_those_that_are_possible() {
    for seed in 0..60 {
        let device = run(seed);
        let record = device.state().record.clone();
        let atomic = usize::try_from(record.geometry.atomic_blocks).expect("few");
        let mut cursor = device.cursor();
        loop {
            let point = cursor.point();
            let legal = legal::units(&record, point);
            let what = format!("seed {seed}, point {point} of {:#?}", record.asked);
            // Most points are like the one before.
            if point % 3 == 0 || point == cursor.events() {
                all_come(&cursor, &legal, atomic, &what);
            } else {
                for by in 0..20 {
                    let image = heads(&cursor.image(Survivors::Random, by));
                    assert_legal(&image, &legal, atomic, &what);
                }
            }
            if !cursor.advance() {
                break;
            }
        }
    }
}
