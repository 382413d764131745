//! The device under faults, on threads, and with requests that change places.

use std::sync::Arc;
use std::thread;

use millrace_block::{
    Completion, Device, ErrorKind, Geometry, Image, Lba, MemoryDevice, Queue, Request,
};
use millrace_fixtures::block::{self, arena};
use millrace_memory::{Arena, Buffer};
use millrace_power_cut::{Event, Fault, Kind, Options, Order, PowerCut, Survivors};

fn geometry() -> Geometry {
    Geometry {
        volatile_cache: true,
        ..MemoryDevice::geometry_of(1 << 20, 512)
    }
}

fn filled(arena: &Arena, blocks: usize, byte: u8) -> Buffer {
    block::filled(arena, blocks * 512, byte)
}

fn run(queue: &mut dyn Queue, request: Request) -> Completion {
    queue.run(request).expect("within the device")
}

fn first(image: &Image, block: u64) -> u8 {
    let mut byte = [0];
    image.read(block * 512, &mut byte);
    byte[0]
}

#[test]
fn a_request_fails_that_is_told_to() {
    let device = PowerCut::new(geometry()).expect("sound");
    let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
    let mut failed = |faults, requests: &[Kind]| {
        device.set_faults(faults);
        let errors = requests.iter().map(|kind| {
            let request = match kind {
                Kind::Read => Request::read(Lba(0), filled(&arena, 1, 0), 0),
                Kind::Write => Request::write(Lba(0), filled(&arena, 1, 0), 0),
                Kind::WriteThrough => Request::write_through(Lba(0), filled(&arena, 1, 0), 0),
                Kind::Flush => Request::flush(0),
                Kind::Deallocate => Request::deallocate(Lba(0), 1, 0),
                Kind::WriteZeroes => Request::write_zeroes(Lba(0), 1, 0),
            };
            let result = run(&mut *queue, request).result;
            result.err().map(|error| error.kind())
        });
        errors.collect::<Vec<_>>()
    };
    let medium = Some(ErrorKind::Medium);
    for kind in Kind::ALL {
        let fault = Fault::nth(Some(kind), 0, ErrorKind::Medium);
        let expected: Vec<_> = Kind::ALL.map(|one| medium.filter(|_| one == kind)).into();
        assert_eq!(failed(vec![fault], &Kind::ALL), expected, "{kind:?}");
    }
    let third = Fault::nth(None, 2, ErrorKind::Device);
    let requests = [Kind::Read, Kind::Flush, Kind::Write, Kind::Write];
    assert_eq!(
        failed(vec![third], &requests),
        [None, None, Some(ErrorKind::Device), None]
    );
    let from = Fault::from_nth(Some(Kind::Write), 1, ErrorKind::NoSpace);
    let no_space = Some(ErrorKind::NoSpace);
    assert_eq!(
        failed(vec![third, from], &[Kind::Write; 4]),
        [None, no_space, Some(ErrorKind::Device), no_space]
    );
    assert_eq!(failed(vec![], &[Kind::Write]), [None]);
}

#[test]
fn bad_blocks_cannot_be_read() {
    let device = PowerCut::new(geometry()).expect("sound");
    let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
    run(&mut *queue, Request::write(Lba(4), filled(&arena, 8, 9), 0))
        .result
        .expect("written");
    device.make_bad(6..8);
    for (lba, blocks, good) in [(4, 2, true), (4, 3, false), (7, 1, false), (8, 4, true)] {
        let read = run(
            &mut *queue,
            Request::read(Lba(lba), filled(&arena, blocks, 0), 0),
        );
        let buffer = read.buffer.expect("it comes back");
        assert_eq!(buffer.iter().all(|byte| *byte == 9), good);
        assert_eq!(
            read.result.err().map(|error| error.kind()),
            (!good).then_some(ErrorKind::Medium)
        );
    }
    device.make_good(&(0..2048));
    run(&mut *queue, Request::read(Lba(4), filled(&arena, 8, 0), 0))
        .result
        .expect("good again");
}

#[test]
fn what_failed_and_what_a_failed_flush_was_for_is_never_sure() {
    let device = PowerCut::new(geometry()).expect("sound");
    let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
    let write = |lba, byte| Request::write(Lba(lba), filled(&arena, 1, byte), 0);
    run(&mut *queue, write(0, 1)).result.expect("written");
    run(&mut *queue, Request::flush(0)).result.expect("flushed");
    run(&mut *queue, write(1, 1)).result.expect("written");
    device.set_faults(vec![Fault::nth(None, 0, ErrorKind::Medium)]);
    run(&mut *queue, Request::flush(0))
        .result
        .expect_err("told to fail");
    run(&mut *queue, write(2, 1)).result.expect("written");
    run(&mut *queue, Request::flush(0)).result.expect("flushed");
    device.set_faults(vec![Fault::nth(None, 0, ErrorKind::Medium)]);
    let through = Request::write_through(Lba(3), filled(&arena, 1, 1), 0);
    run(&mut *queue, through).result.expect_err("told to fail");
    run(&mut *queue, Request::flush(0)).result.expect("flushed");
    let mut cursor = device.cursor();
    cursor.advance_to(device.events());
    assert_eq!(cursor.loose(), 2);
    let nothing = cursor.image(Survivors::Nothing, 0);
    assert_eq!(
        [0, 1, 2, 3].map(|block| first(&nothing, block)),
        [1, 0, 1, 0]
    );
    let seen: Vec<_> = (0..200)
        .map(|seed| cursor.image(Survivors::Random, seed))
        .map(|image| [1, 3].map(|block| first(&image, block)))
        .collect();
    for block in [0, 1] {
        assert!(seen.iter().any(|bytes| bytes[block] == 0));
        assert!(seen.iter().any(|bytes| bytes[block] == 1));
    }
    assert!(
        seen.iter().any(|bytes| bytes[1] > 1),
        "a failed write leaves anything"
    );
    assert!(seen.iter().all(|bytes| bytes[0] <= 1));
    // What is written over it is sure again.
    let through = Request::write_through(Lba(0), filled(&arena, 4, 5), 0);
    run(&mut *queue, through).result.expect("written");
    let mut cursor = device.cursor();
    cursor.advance_to(device.events());
    assert_eq!(cursor.loose(), 0);
    assert_eq!(first(&cursor.image(Survivors::Random, 1), 3), 5);
}

#[test]
fn deallocated_blocks_hold_anything_until_they_are_written() {
    let geometry = Geometry {
        deallocated_reads_zero: false,
        ..geometry()
    };
    let device = PowerCut::new(geometry).expect("sound");
    let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
    for request in [
        Request::write(Lba(0), filled(&arena, 8, 1), 0),
        Request::deallocate(Lba(0), 8, 0),
        Request::write(Lba(4), filled(&arena, 2, 2), 0),
        Request::flush(0),
    ] {
        run(&mut *queue, request).result.expect("done");
    }
    let mut cursor = device.cursor();
    cursor.advance_to(device.events());
    let images: Vec<Image> = (0..50)
        .map(|seed| cursor.image(Survivors::Nothing, seed))
        .collect();
    for block in [0, 3, 6, 7] {
        let seen =
            |wanted: &dyn Fn(u8) -> bool| images.iter().any(|image| wanted(first(image, block)));
        assert!(seen(&|byte| byte == 0) && seen(&|byte| byte == 1) && seen(&|byte| byte > 1));
    }
    assert!(
        images
            .iter()
            .all(|image| first(image, 4) == 2 && first(image, 5) == 2)
    );
}

#[test]
fn counters_count_and_a_record_can_begin_anew() {
    let device = PowerCut::new(geometry()).expect("sound");
    let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
    run(&mut *queue, Request::write(Lba(0), filled(&arena, 4, 1), 0))
        .result
        .expect("written");
    let before = device.counters();
    assert_eq!(
        (
            before.of(Kind::Write).requests,
            before.of(Kind::Write).bytes
        ),
        (1, 2048)
    );
    assert_eq!(device.events(), 2);
    device.settle();
    assert_eq!(device.events(), 0);
    run(&mut *queue, Request::read(Lba(0), filled(&arena, 8, 0), 0))
        .result
        .expect("read");
    run(&mut *queue, Request::write_zeroes(Lba(1), 1, 0))
        .result
        .expect("written");
    let since = device.counters().since(&before);
    assert_eq!(
        (since.of(Kind::Read).requests, since.of(Kind::Read).bytes),
        (1, 4096)
    );
    assert_eq!((since.all().requests, since.all().bytes), (2, 4608));
    let mut cursor = device.cursor();
    assert_eq!((cursor.events(), cursor.event()), (2, None));
    assert!(cursor.advance());
    let (request, kind) = (0, Kind::WriteZeroes);
    let (blocks, failed) = (1..2, false);
    assert_eq!(
        cursor.event(),
        Some(Event::Submitted {
            request,
            kind,
            blocks
        })
    );
    assert!(cursor.advance() && !cursor.advance());
    assert_eq!(
        cursor.event(),
        Some(Event::Completed {
            request,
            kind,
            failed
        })
    );
    let image = cursor.image(Survivors::Nothing, 0);
    assert_eq!([0, 1, 2].map(|block| first(&image, block)), [1, 1, 1]);
    let image = cursor.image(Survivors::Everything, 0);
    assert_eq!([0, 1, 2].map(|block| first(&image, block)), [1, 0, 1]);
    // A disk after a cut is a device again.
    let again = PowerCut::on(image, geometry()).expect("sound");
    assert_eq!(first(&again.live(), 2), 1);
}

#[test]
fn shuffled_requests_change_places_by_seed() {
    let tokens = |seed| {
        let device = PowerCut::with_options(Options {
            geometry: geometry(),
            image: None,
            order: Order::Shuffled(seed),
        });
        let device = device.expect("sound");
        let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
        for token in 0..16_u8 {
            let buffer = filled(&arena, 1, token);
            queue
                .submit(Request::write(Lba(0), buffer, u64::from(token)))
                .expect("taken");
        }
        let mut tokens: Vec<u64> = Vec::new();
        let mut polls = 0;
        while queue.in_flight() > 0 {
            polls += 1;
            tokens.extend(queue.poll().map(|completion| completion.token));
        }
        assert!(queue.wait().is_none());
        assert!(polls > 16, "a poll may find nothing");
        (tokens, first(&device.live(), 0))
    };
    assert_eq!(tokens(1), tokens(1));
    let runs: Vec<_> = (0..20).map(tokens).collect();
    for (tokens, _) in &runs {
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, (0..16).collect::<Vec<_>>());
    }
    assert!(runs.iter().any(|run| run.0 != runs[0].0));
    assert!(
        runs.iter().any(|run| run.1 != 15),
        "the last one submitted is not always the last done"
    );
}

#[test]
fn many_threads_write_and_what_they_flushed_is_there() {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 50;
    for order in [Order::AtOnce, Order::Shuffled(7)] {
        let device = PowerCut::with_options(Options {
            geometry: geometry(),
            image: None,
            order,
        });
        let device = device.expect("sound");
        let arena = arena(&*device);
        // What each thread knows: from which point on which of its rounds is durable.
        let known: Vec<Vec<usize>> = thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|own| {
                    let (device, arena) = (Arc::clone(&device), arena.clone());
                    scope.spawn(move || {
                        let mut queue = device.queue().expect("a queue");
                        let mut points = Vec::new();
                        for round in 0..ROUNDS {
                            let byte = u8::try_from(round + 1).expect("few");
                            let buffer = filled(&arena, 2, byte);
                            let lba = Lba(own * 100 + 2 * round);
                            run(&mut *queue, Request::write(lba, buffer, 0))
                                .result
                                .expect("done");
                            run(&mut *queue, Request::flush(0)).result.expect("flushed");
                            points.push(device.events());
                        }
                        points
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().expect("no panic"))
                .collect()
        });
        let mut cursor = device.cursor();
        for own in 0..THREADS {
            assert!(known[usize::try_from(own).expect("few")].is_sorted());
        }
        while cursor.advance() {
            let image = cursor.image(Survivors::Random, cursor.point() as u64);
            for (own, points) in known.iter().enumerate() {
                let durable = points.iter().take_while(|point| **point <= cursor.point());
                for (round, _) in durable.enumerate() {
                    let lba = own as u64 * 100 + 2 * round as u64;
                    let byte = u8::try_from(round + 1).expect("few");
                    assert_eq!([first(&image, lba), first(&image, lba + 1)], [byte; 2]);
                }
            }
        }
    }
}

#[test]
fn dropping_a_queue_ends_what_it_has() {
    let device = PowerCut::with_options(Options {
        geometry: geometry(),
        image: None,
        order: Order::Shuffled(1),
    });
    let device = device.expect("sound");
    let (arena, mut queue) = (arena(&*device), device.queue().expect("a queue"));
    for block in 0..8 {
        queue
            .submit(Request::write(Lba(block), filled(&arena, 1, 1), 0))
            .expect("taken");
    }
    drop(queue);
    assert_eq!(device.events(), 16);
    assert!((0..8).all(|block| first(&device.live(), block) == 1));
    device.settle();
}
