//! After a queue pair is made, what it does allocates nothing and frees nothing. The model does both when it
//! is stepped: that is not counted.
//!
//! A program of its own: it replaces the allocator of the whole process.

#[path = "it/fixture.rs"]
mod fixture;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use fixture::{Fixture, Outcome, PATIENCE, StepHost, arena, filled, polled, quick, single};
use millrace_memory::Arena;
use millrace_nvme::{
    CommandError, Completion, Controller, Data, Host, Lba, Namespace, Options, QueuePair, Request,
    ScatterGather, SharedQueue,
};
use millrace_nvme_model as model;
use model::{Fault, FaultRule, Faults, Target, When};

thread_local! {
    /// Whether this thread counts, and how often it allocated or freed since then.
    static COUNT: Cell<(bool, u64)> = const { Cell::new((false, 0)) };
}

/// The system's allocator, which counts for each thread.
struct Counting;

fn count() {
    COUNT.with(|cell| {
        let (counts, number) = cell.get();
        cell.set((counts, number + u64::from(counts)));
    });
}

// SAFETY: all of it is the system's allocator's; counting touches neither memory nor layout, and allocates
// nothing itself, since the counter is made at compile time and has nothing to drop.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of this very function.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller keeps the promises of this very function; the memory came from `System`.
        unsafe { System.dealloc(address, layout) }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller keeps the promises of this very function; the memory came from `System`.
        unsafe { System.realloc(address, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Runs something; returns also how often it allocated or freed.
fn counted<T>(run: impl FnOnce() -> T) -> (T, u64) {
    COUNT.set((true, 0));
    let value = run();
    let (_, number) = COUNT.replace((false, 0));
    (value, number)
}

/// Runs something within what is counted that is not counted.
fn uncounted<T>(run: impl FnOnce() -> T) -> T {
    let before = COUNT.replace((false, 0));
    let value = run();
    COUNT.set(before);
    value
}

/// A host that steps the model uncounted.
#[derive(Debug)]
struct Apart(Arc<StepHost>);

impl Host for Apart {
    fn now(&self) -> Duration {
        self.0.now()
    }

    fn relax(&self, round: u32) {
        uncounted(|| self.0.relax(round));
    }
}

fn opened(
    fixture: &Fixture,
    options: Options,
) -> Result<(Arc<Controller>, Namespace), millrace_nvme::Error> {
    let host = Arc::new(Apart(Arc::clone(&fixture.host)));
    let controller = Controller::open(fixture.model.function(), host, options)?;
    let namespace = controller.namespace(1)?;
    Ok((controller, namespace))
}

/// A model with blocks of 512 bytes and commands of 16 KiB at most.
fn model_options() -> model::Options {
    model::Options {
        namespaces: vec![model::NamespaceOptions {
            block_size: 512,
            blocks: 16 << 10,
            optimal_boundary: 24,
            ..model::NamespaceOptions::default()
        }],
        transfer_max: 2,
        sgl: model::SglSupport::Any,
        ..model::Options::default()
    }
}

/// Submits all requests, polls until they have ended, and returns them; nothing may be allocated.
fn run(
    fixture: &Fixture,
    pair: &mut QueuePair,
    namespace: &Namespace,
    requests: Vec<Request>,
) -> Vec<Completion> {
    let mut ended = Vec::with_capacity(requests.len());
    let wanted = requests.len();
    let mut requests = requests.into_iter();
    for request in requests.by_ref() {
        let (accepted, number) = counted(|| pair.submit(namespace, request).is_ok());
        assert!(accepted);
        assert_eq!(number, 0, "submitting allocated");
    }
    let mut polls = 0;
    while ended.len() < wanted {
        let ((), number) = counted(|| {
            pair.ring();
            pair.poll(|completion| ended.push(completion));
        });
        assert_eq!(number, 0, "polling allocated");
        fixture.model.step();
        polls += 1;
        assert!(polls < 100_000, "requests do not end");
    }
    ended
}

fn rule(when: When, fault: Fault) -> Faults {
    Faults {
        rules: vec![FaultRule {
            target: Target::Io,
            when,
            fault,
        }],
        ..Faults::default()
    }
}

fn reads(
    arena: &Arena,
    count: u64,
    len: usize,
) -> Result<Vec<Request>, millrace_memory::Exhausted> {
    (0..count)
        .map(|token| {
            Ok(Request::read(
                Lba(token * 256),
                filled(arena, len, 0)?,
                token,
            ))
        })
        .collect()
}

fn all_succeeded(ended: &[Completion]) -> bool {
    ended.iter().all(|completion| completion.result == Ok(()))
}

#[test]
fn the_counter_counts() {
    let (boxed, number) = counted(|| Box::new(1));
    assert_eq!((*boxed, number), (1, 1));
    let ((), number) = counted(|| drop(boxed));
    assert_eq!(number, 1);
    let (vector, number) = counted(|| uncounted(|| vec![1]));
    assert_eq!((vector, number), (vec![1], 0));
}

#[test]
fn buffers_are_taken_and_given_back() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let controller = fixture.open(quick())?;
    let arena = arena(&controller)?;
    for len in [1, 512, 4096, 4097, 64 << 10, 1 << 20] {
        let (buffer, number) = counted(|| arena.try_buffer(len).map(|buffer| buffer.len()));
        assert_eq!((buffer, number), (Ok(len), 0), "{len} bytes");
    }
    let held: Vec<_> = (0..4).map(|_| arena.try_buffer(1 << 20)).collect();
    let (none, number) = counted(|| arena.try_buffer(1 << 20).is_err());
    assert_eq!((none, number), (true, 0));
    drop(held);
    Ok(())
}

#[test]
fn requests_of_all_kinds() -> Outcome {
    for scatter_gather in [ScatterGather::Never, ScatterGather::Always] {
        let fixture = Fixture::new(model_options())?;
        let options = Options {
            scatter_gather,
            ..quick()
        };
        let (controller, namespace) = opened(&fixture, options)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 16)?);
        for _ in 0..20 {
            let requests = vec![
                Request::write(Lba(0), filled(&arena, 4096, 1)?, 0),
                Request::write_through(Lba(100), filled(&arena, 512, 1)?, 1),
                Request::read(Lba(200), filled(&arena, 8192, 1)?, 2),
                Request::compare(Lba(8000), filled(&arena, 512, 0)?, 3),
                Request::flush(4),
                Request::write_zeroes(Lba(300), 5000, 5),
                Request::deallocate(Lba(9000), 16, 6),
                // Longer than a command, across boundaries, and more commands than the queue holds.
                Request::write(Lba(1000), filled(&arena, 1 << 20, 1)?, 7),
                Request::read(Lba(4000), filled(&arena, 1 << 20, 1)?, 8),
            ];
            let ended = run(&fixture, &mut pair, &namespace, requests);
            assert!(all_succeeded(&ended), "{ended:?}");
        }
        single(&mut pair, &namespace, Request::flush(0))?.result?;
        assert_eq!(fixture.model.violations(), []);
    }
    Ok(())
}

#[test]
fn requests_in_pieces() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let (controller, namespace) = opened(&fixture, quick())?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    for _ in 0..20 {
        let pieces = |byte| {
            let pieces = [512, 1024, 100 * 512, 512].map(|len| filled(&arena, len, byte));
            pieces.into_iter().collect::<Result<Vec<_>, _>>()
        };
        let requests = vec![
            Request::write(Lba(7), pieces(1)?, 0),
            Request::read(Lba(500), pieces(2)?, 1),
        ];
        let ended = run(&fixture, &mut pair, &namespace, requests);
        assert!(all_succeeded(&ended), "{ended:?}");
        let whole = |data: &Option<Data>| data.as_ref().map(|data| data.buffers().len()) == Some(4);
        assert!(ended.iter().all(|completion| whole(&completion.data)));
    }
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

#[test]
fn what_is_refused() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let (controller, namespace) = opened(&fixture, quick())?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 1)?);
    let beyond = Request::read(Lba(u64::MAX), filled(&arena, 512, 0)?, 0);
    let (refused, number) = counted(|| pair.submit(&namespace, beyond).is_err());
    assert_eq!((refused, number), (true, 0));
    let (accepted, number) = counted(|| pair.submit(&namespace, Request::flush(0)).is_ok());
    assert_eq!((accepted, number), (true, 0));
    let (refused, number) = counted(|| pair.submit(&namespace, Request::flush(0)).is_err());
    assert_eq!((refused, number), (true, 0));
    Ok(())
}

#[test]
fn commands_that_are_sent_again_after_a_status() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let (controller, namespace) = opened(&fixture, quick())?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let internal = Fault::Fail(model::Status::INTERNAL);
    fixture.model.set_faults(rule(When::OneIn(3), internal));
    for _ in 0..20 {
        run(&fixture, &mut pair, &namespace, reads(&arena, 8, 64 << 10)?);
    }
    fixture.model.set_faults(rule(When::Always, internal));
    let ended = run(&fixture, &mut pair, &namespace, reads(&arena, 4, 64 << 10)?);
    let is_status =
        |completion: &Completion| matches!(completion.result, Err(CommandError::Status(_)));
    assert!(ended.iter().all(is_status), "{ended:?}");
    assert_eq!(controller.resets(), 0);
    Ok(())
}

#[test]
fn commands_that_are_sent_again_after_a_reset() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let (controller, namespace) = opened(&fixture, quick())?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    for round in 0..20 {
        let requests = reads(&arena, 8, 64 << 10)?;
        for request in requests {
            let (accepted, number) = counted(|| pair.submit(&namespace, request).is_ok());
            assert_eq!((accepted, number), (true, 0));
        }
        if round % 2 == 0 {
            pair.ring();
            fixture.model.step();
        }
        // The reset itself allocates: it identifies the controller anew.
        controller.reset()?;
        let mut ended = Vec::with_capacity(8);
        let mut polls = 0;
        while ended.len() < 8 {
            let (_, number) = counted(|| pair.poll(|completion| ended.push(completion)));
            assert_eq!(
                number, 0,
                "making the queue anew, or sending again, allocated"
            );
            fixture.model.step();
            polls += 1;
            assert!(polls < 100_000, "requests do not end");
        }
        assert!(all_succeeded(&ended), "{ended:?}");
    }
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

#[test]
fn aborts_of_commands_that_take_too_long() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let (controller, namespace) = opened(&fixture, quick())?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    // Three times as long as a command has, in steps: it is aborted, which ends it or not.
    fixture
        .model
        .set_faults(rule(When::Nth(2), Fault::Delay(50_000)));
    for request in reads(&arena, 4, 4096)? {
        let (accepted, number) = counted(|| pair.submit(&namespace, request).is_ok());
        assert_eq!((accepted, number), (true, 0));
    }
    let mut ended = Vec::with_capacity(4);
    let before = fixture.model.counters().commands;
    while ended.len() < 4 && controller.resets() == 0 {
        let (_, number) = counted(|| pair.poll(|completion| ended.push(completion)));
        if controller.resets() == 0 {
            assert_eq!(number, 0, "an abort allocated");
        }
        fixture.host.relax(0);
        assert!(fixture.host.now() < PATIENCE, "requests do not end");
    }
    assert!(
        fixture.model.counters().commands - before > 4,
        "nothing was aborted"
    );
    Ok(())
}

#[test]
fn a_shared_queue_once_its_handles_are_made() -> Outcome {
    let fixture = Fixture::new(model_options())?;
    let (controller, namespace) = opened(&fixture, quick())?;
    let arena = arena(&controller)?;
    let queue = SharedQueue::new(polled(&controller, 8)?, 4);
    let mut handles = [queue.handle(), queue.handle()];
    for _ in 0..20 {
        for handle in &mut handles {
            for request in reads(&arena, 4, 4096)? {
                let (accepted, number) = counted(|| handle.submit(&namespace, request).is_ok());
                assert_eq!((accepted, number), (true, 0));
            }
        }
        for handle in &mut handles {
            while handle.requests_in_flight() > 2 {
                let (ended, number) = counted(|| handle.poll());
                assert_eq!(number, 0, "polling allocated");
                assert!(ended.is_none_or(|completion| completion.result == Ok(())));
                fixture.model.step();
            }
            while handle.requests_in_flight() > 0 {
                let (ended, number) = counted(|| handle.wait());
                assert_eq!(number, 0, "waiting allocated");
                assert_eq!(ended.map(|completion| completion.result), Some(Ok(())));
            }
        }
    }
    Ok(())
}
