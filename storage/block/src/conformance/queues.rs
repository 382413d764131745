//! Tests of queues: full, many, moved between threads, dropped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use super::{arena, filled, holds, run};
use crate::{Device, ErrorKind, Lba, Queue, Request};

/// Queues made in addition to [`Geometry::queues_max`], if that is at most [`QUEUES_MAX`].
const QUEUES_BEYOND: usize = 3;
const QUEUES_MAX: usize = 300;

/// A queue accepts at least its depth of requests, rejects more with `Full`, and accepts one again for each completion.
/// `run` fails while a request is in flight.
pub fn a_full_queue_refuses(device: &Arc<dyn Device>) {
    let geometry = device.geometry();
    let (arena, block) = (arena(&**device), geometry.block_bytes as usize);
    let mut queue = device.queue().expect("a queue");
    assert!(queue.poll().is_none() && queue.wait().is_none());
    let mut tokens = BTreeSet::new();
    let refused = loop {
        let token = tokens.len() as u64;
        let buffer = filled(&arena, block, 0);
        match queue.submit(Request::read(Lba(token), buffer, token)) {
            Ok(()) => assert!(tokens.insert(token)),
            Err(refused) => break refused,
        }
        assert_eq!(queue.in_flight(), tokens.len());
        // A queue may accept more than its depth; some accept any number.
        if tokens.len() == geometry.queue_depth + 16 {
            break queue
                .run(Request::flush(token))
                .expect_err("something is in flight");
        }
    };
    assert!(tokens.len() >= geometry.queue_depth);
    let kind = refused.error.kind();
    assert!(
        matches!(kind, ErrorKind::Full | ErrorKind::Invalid),
        "{kind:?}"
    );
    assert_eq!(refused.request.token, tokens.len() as u64);
    let busy = queue
        .run(Request::flush(0))
        .expect_err("something is in flight");
    assert_eq!(busy.error.kind(), ErrorKind::Invalid);
    let first = queue.wait().expect("something is in flight");
    first.result.expect("the device works");
    assert!(tokens.remove(&first.token));
    let again = Request::flush(1 << 40);
    queue.submit(again).expect("there is room again");
    tokens.insert(1 << 40);
    while let Some(completion) = queue.wait() {
        completion.result.expect("the device works");
        assert!(
            tokens.remove(&completion.token),
            "{} came twice",
            completion.token
        );
        assert_eq!(queue.in_flight(), tokens.len());
    }
    assert!(tokens.is_empty() && queue.in_flight() == 0);
}

/// Another thread receives the completions of requests that this thread submitted, during and after its life.
pub fn a_queue_moves_between_threads(device: &Arc<dyn Device>) {
    const ROUNDS: u8 = 10;
    const AT_ONCE: u64 = 4;
    let (arena, block) = (arena(&**device), device.geometry().block_bytes as usize);
    let count = AT_ONCE.min(device.geometry().queue_depth as u64);
    let mut queue = device.queue().expect("a queue");
    for round in 0..ROUNDS {
        let (own, device) = (arena.clone(), Arc::clone(device));
        let submitter = thread::spawn(move || {
            for lba in 0..count {
                let buffer = filled(&own, block, round);
                let request = match lba {
                    1 => Request::write_through(Lba(lba), buffer, lba),
                    _ => Request::write(Lba(lba), buffer, lba),
                };
                queue.submit(request).expect("an empty queue");
            }
            // Polling submits the requests to the device, and the flush too if the queue has space.
            if queue.poll().is_some() {
                queue.submit(Request::flush(count)).expect("room");
                queue.poll();
            }
            if round % 2 == 0 {
                drop(device.queue().expect("another queue"));
            }
            queue
        });
        queue = submitter.join().expect("no panic");
        while let Some(completion) = queue.wait() {
            completion.result.expect("the device works");
        }
        assert_eq!(queue.in_flight(), 0);
        for lba in 0..count {
            assert!(holds(&mut *queue, &arena, block, lba, round), "block {lba}");
        }
    }
}

/// Dropping a queue completes its requests.
pub fn dropping_a_queue_completes_requests(device: &Arc<dyn Device>) {
    let (arena, block) = (arena(&**device), device.geometry().block_bytes as usize);
    for round in 1..5_u8 {
        let mut queue = device.queue().expect("a queue");
        let count = device.geometry().queue_depth.min(16) as u64;
        for lba in 0..count {
            let request = Request::write(Lba(lba), filled(&arena, block, round), lba);
            queue.submit(request).expect("an empty queue");
        }
        if round % 2 == 0 {
            queue.poll();
        }
        drop(queue);
        let mut queue = device.queue().expect("a queue");
        for lba in 0..count {
            assert!(holds(&mut *queue, &arena, block, lba, round), "block {lba}");
        }
    }
}

/// Queues beyond [`Geometry::queues_max`] work, all at once and again after they were dropped.
pub fn more_queues_than_are_separate(device: &Arc<dyn Device>) {
    let separate = device.geometry().queues_max;
    let (arena, block) = (arena(&**device), device.geometry().block_bytes as usize);
    let count = match separate {
        few if few <= QUEUES_MAX => few + QUEUES_BEYOND,
        _ => QUEUES_BEYOND,
    };
    for round in 1..3_u8 {
        let queues = (0..count).map(|_| device.queue().expect("a queue"));
        let mut queues: Vec<Box<dyn Queue>> = queues.collect();
        // Several have requests in flight at the same time, and complete in reverse order.
        for (first, group) in queues.chunks_mut(8).enumerate() {
            let lba = |at: usize| (8 * first + at) as u64;
            for (at, queue) in group.iter_mut().enumerate() {
                let buffer = filled(&arena, block, round);
                let request = Request::write(Lba(lba(at)), buffer, lba(at));
                queue.submit(request).expect("an empty queue");
            }
            for (at, queue) in group.iter_mut().enumerate().rev() {
                let completion = queue.wait().expect("something is in flight");
                completion.result.expect("the device works");
                assert_eq!(
                    completion.token,
                    lba(at),
                    "each queue has its own completions"
                );
                assert!(queue.poll().is_none());
            }
        }
        for (at, queue) in queues.iter_mut().enumerate() {
            assert!(holds(&mut **queue, &arena, block, at as u64, round));
        }
    }
}

/// Threads with queues of their own write and read blocks of their own at the same time.
pub fn threads_use_queues_of_their_own(device: &Arc<dyn Device>) {
    const THREADS: u64 = 4;
    const ROUNDS: u64 = 24;
    let (arena, block) = (arena(&**device), device.geometry().block_bytes as usize);
    thread::scope(|scope| {
        for own in 0..THREADS {
            let (arena, device) = (arena.clone(), Arc::clone(device));
            scope.spawn(move || {
                let mut queue = device.queue().expect("a queue");
                for round in 0..ROUNDS {
                    let lba = own * 8 + round % 8;
                    let byte = u8::try_from(own * ROUNDS + round).expect("few");
                    let buffer = filled(&arena, block, byte);
                    let request = match round % 3 {
                        0 => Request::write_through(Lba(lba), buffer, round),
                        _ => Request::write(Lba(lba), buffer, round),
                    };
                    run(&mut *queue, request);
                    if round % 4 == 0 {
                        run(&mut *queue, Request::flush(round));
                    }
                    assert!(holds(&mut *queue, &arena, block, lba, byte));
                }
            });
        }
    });
}
