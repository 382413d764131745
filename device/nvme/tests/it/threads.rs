//! The model stepped by a thread of its own, and threads that use it, reset it, pull it out and drop what
//! they have while others go on. No time is asserted: a test that hangs is ended by a watchdog.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::scene::{MapHook, Outcome, Scene, Stepped, bounded, filled, small_arena};
use millrace_memory::Arena;
use millrace_nvme::{
    CommandError, Completion, Condition, Data, ErrorKind, Lba, Namespace, Options, QueueOptions,
    QueuePair, Refusal, Request, SharedHandle, SharedQueue, Waiting,
};
use millrace_nvme_model as model;
use millrace_random::Random;
use model::{Fault, FaultRule, Faults, Target, When};

/// Blocks that one request covers, and their bytes.
const SLOT_BLOCKS: u64 = 16;
const SLOT_BYTES: usize = 16 * 512;
/// A thread has so many of these.
const SLOTS: u64 = 24;
/// So long a call waits at most; the watchdog ends a test before.
const PATIENCE: Duration = Duration::from_secs(600);

/// Adds one when a request succeeds; the threads that reset, or pull out, look at it.
type Progress = AtomicU64;

/// What a thread knows of its blocks: the version that it wrote last, unless a write of it failed.
struct Ledger {
    base: u64,
    seed: u64,
    versions: Vec<Option<u64>>,
    /// Of each request under way by its token: the slot, and the version if it writes.
    requests_in_flight: HashMap<u64, (u64, Option<u64>)>,
    token_next: u64,
    succeeded: u64,
    failed: u64,
}

impl Ledger {
    fn new(thread: u64, seed: u64) -> Self {
        Self {
            base: thread * SLOTS * SLOT_BLOCKS,
            seed,
            versions: vec![None; usize::try_from(SLOTS).expect("a few")],
            requests_in_flight: HashMap::new(),
            token_next: thread << 32,
            succeeded: 0,
            failed: 0,
        }
    }

    fn lba(&self, slot: u64) -> Lba {
        Lba(self.base + slot * SLOT_BLOCKS)
    }

    /// What every 8 bytes of a slot hold in a version.
    fn word(&self, slot: u64, version: u64) -> [u8; 8] {
        (self.lba(slot).0 << 40 | version).to_le_bytes()
    }

    /// A request for a slot that no request under way names; none if there is none, or no memory.
    fn request(&mut self, arena: &Arena, random: &mut Random) -> Option<Request> {
        let slot = random.below(SLOTS);
        if self
            .requests_in_flight
            .values()
            .any(|(busy, _)| *busy == slot)
        {
            return None;
        }
        let mut buffer = arena.try_buffer(SLOT_BYTES).ok()?;
        let token = self.token_next;
        self.token_next += 1;
        let index = usize::try_from(slot).expect("a few");
        if random.below(2) == 0 {
            let version = token & 0xff_ffff;
            let word = self.word(slot, version);
            buffer
                .chunks_mut(8)
                .for_each(|chunk| chunk.copy_from_slice(&word));
            self.versions[index] = None;
            self.requests_in_flight.insert(token, (slot, Some(version)));
            Some(Request::write(self.lba(slot), buffer, token))
        } else {
            buffer.fill(0xee);
            self.requests_in_flight.insert(token, (slot, None));
            Some(Request::read(self.lba(slot), buffer, token))
        }
    }

    /// A request was not accepted.
    fn refused(&mut self, token: u64) {
        self.requests_in_flight.remove(&token);
    }

    fn ended(&mut self, completion: Completion, progress: &Progress) {
        let seed = self.seed;
        let (slot, written) = self
            .requests_in_flight
            .remove(&completion.token)
            .unwrap_or_else(|| panic!("seed {seed}: token {:#x} is not ours", completion.token));
        let data = completion.data.and_then(Data::into_buffer);
        let buffer = data.expect("the model can be kept from memory, so it comes back");
        if completion.result.is_err() {
            self.failed += 1;
            return;
        }
        self.succeeded += 1;
        progress.fetch_add(1, Ordering::Relaxed);
        let index = usize::try_from(slot).expect("a few");
        if written.is_some() {
            self.versions[index] = written;
        } else if let Some(version) = self.versions[index] {
            let word = self.word(slot, version);
            let right = buffer.chunks(8).all(|chunk| chunk == word);
            assert!(
                right,
                "seed {seed}: slot {slot} does not hold version {version}"
            );
        }
    }

    /// The requests under way will not be heard of again.
    fn forget(&mut self) {
        self.requests_in_flight.clear();
    }
}

/// Reads and writes until `rounds` are done or the controller is no more.
fn use_pair(
    pair: &mut QueuePair,
    namespace: &Namespace,
    ledger: &mut Ledger,
    rounds: u64,
    progress: &Progress,
) -> Outcome {
    let arena = small_arena(pair.controller(), 32)?;
    let mut random = Random::new(ledger.seed);
    for _ in 0..rounds {
        for _ in 0..=random.below(pair.depth() as u64) {
            let Some(request) = ledger.request(&arena, &mut random) else {
                continue;
            };
            if let Err(refused) = pair.submit(namespace, request) {
                ledger.refused(refused.request.token);
                match refused.reason {
                    Refusal::QueueFull => break,
                    Refusal::ControllerFailed => return Ok(()),
                    other => return Err(other.to_string().into()),
                }
            }
        }
        let some_left = random.below(2) == 0;
        while pair.requests_in_flight() > usize::from(some_left) {
            pair.wait(PATIENCE, |completion| ledger.ended(completion, progress));
        }
    }
    while pair.requests_in_flight() > 0 {
        pair.wait(PATIENCE, |completion| ledger.ended(completion, progress));
    }
    assert!(
        ledger.requests_in_flight.is_empty(),
        "all that was accepted has ended"
    );
    Ok(())
}

/// Reads and writes by handles, which are dropped now and then while their requests are under way.
fn use_shared(
    queue: &SharedQueue,
    scene: &Scene,
    ledger: &mut Ledger,
    rounds: u64,
    progress: &Progress,
) -> Outcome {
    let arena = small_arena(&scene.controller, 64)?;
    let mut random = Random::new(ledger.seed);
    let mut handle = queue.handle();
    for _ in 0..rounds {
        if scene.controller.condition() == Condition::Gone {
            break;
        }
        for _ in 0..=random.below(2) {
            let Some(request) = ledger.request(&arena, &mut random) else {
                continue;
            };
            if let Err(refused) = handle.submit(&scene.namespace, request) {
                ledger.refused(refused.request.token);
                match refused.reason {
                    Refusal::QueueFull => break,
                    Refusal::ControllerFailed => return Ok(()),
                    other => return Err(other.to_string().into()),
                }
            }
        }
        match random.below(16) {
            // Writes that nobody hears of might come after later ones: those are waited for.
            0 if ledger
                .requests_in_flight
                .values()
                .all(|(_, written)| written.is_none()) =>
            {
                ledger.forget();
                handle = queue.handle();
            }
            1..6 => {
                if let Some(completion) = handle.poll() {
                    ledger.ended(completion, progress);
                }
            }
            _ => wait_once(&mut handle, ledger, progress),
        }
    }
    while handle.requests_in_flight() > 0 {
        wait_once(&mut handle, ledger, progress);
    }
    Ok(())
}

fn wait_once(handle: &mut SharedHandle, ledger: &mut Ledger, progress: &Progress) {
    if let Some(completion) = handle.wait() {
        ledger.ended(completion, progress);
    }
}

/// Calls `then` each time that so many more requests have succeeded, until `ended`.
fn each_time(
    progress: &Progress,
    every: u64,
    ended: &AtomicBool,
    mut then: impl FnMut() -> Outcome,
) -> Outcome {
    let mut next = every;
    while !ended.load(Ordering::Relaxed) {
        if progress.load(Ordering::Relaxed) < next {
            thread::yield_now();
            continue;
        }
        then()?;
        next = progress.load(Ordering::Relaxed) + every;
    }
    Ok(())
}

/// Runs `work` on so many threads with their numbers, and `beside` until they have ended.
fn on_threads(
    threads: u64,
    work: impl Fn(u64) -> Outcome + Sync,
    beside: impl FnOnce(&AtomicBool) -> Outcome + Send,
) -> Outcome {
    let ended = AtomicBool::new(false);
    thread::scope(|scope| {
        let work = &work;
        let workers: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let beside = scope.spawn(|| beside(&ended));
        let outcomes: Vec<_> = workers
            .into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect();
        ended.store(true, Ordering::Relaxed);
        let outcome = beside.join();
        for outcome in outcomes.into_iter().chain([outcome]) {
            match outcome {
                Ok(outcome) => outcome?,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(())
    })
}

fn waiting_of(number: u64) -> Waiting {
    [Waiting::Poll, Waiting::Interrupt, Waiting::Hybrid(200)]
        [usize::try_from(number % 3).expect("below 3")]
}

fn pair(scene: &Scene, depth: u16, waiting: Waiting) -> Result<QueuePair, millrace_nvme::Error> {
    scene.controller.queue_pair(QueueOptions { depth, waiting })
}

#[test]
fn queue_pairs_survive_resets_by_another_thread() -> Outcome {
    bounded(|| {
        let scene = Scene::new(model::Options::default(), Options::default())?;
        let progress = Progress::new(0);
        let posted = AtomicU64::new(0);
        on_threads(
            3,
            |number| {
                let mut ledger = Ledger::new(number, number);
                let mut pair = pair(&scene, 8, waiting_of(number))?;
                use_pair(&mut pair, &scene.namespace, &mut ledger, 250, &progress)?;
                assert!(ledger.succeeded > 100, "{} of them", ledger.succeeded);
                Ok(())
            },
            |ended| {
                each_time(&progress, 40, ended, || {
                    scene.controller.reset()?;
                    posted.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
            },
        )?;
        let posted = posted.into_inner();
        assert!(posted > 5, "{posted} resets");
        assert_eq!(
            scene.controller.resets(),
            posted,
            "no reset but those asked for"
        );
        assert_eq!(scene.controller.condition(), Condition::Ready);
        scene.check_records()
    })
}

#[test]
fn queue_pairs_are_made_and_dropped_while_another_thread_resets() -> Outcome {
    bounded(|| {
        let scene = Scene::new(model::Options::default(), Options::default())?;
        let progress = Progress::new(0);
        let posted = AtomicU64::new(0);
        on_threads(
            2,
            |number| {
                for round in 0..30 {
                    let mut ledger = Ledger::new(number, round);
                    let mut pair = pair(&scene, 4, waiting_of(round))?;
                    use_pair(&mut pair, &scene.namespace, &mut ledger, 4, &progress)?;
                }
                Ok(())
            },
            |ended| {
                each_time(&progress, 3, ended, || {
                    scene.controller.reset()?;
                    posted.fetch_add(1, Ordering::Relaxed);
                    Ok(())
                })
            },
        )?;
        assert_eq!(scene.controller.resets(), posted.into_inner());
        scene.check_records()
    })
}

/// Four threads with a queue of so few entries that they stand in each other's way.
fn share(waiting: Waiting, reset: bool) -> Outcome {
    let scene = Scene::new(model::Options::default(), Options::default())?;
    let progress = Progress::new(0);
    let queue = SharedQueue::new(pair(&scene, 3, waiting)?, 2);
    on_threads(
        4,
        |number| {
            let mut ledger = Ledger::new(number, number);
            use_shared(&queue, &scene, &mut ledger, 300, &progress)?;
            assert!(ledger.succeeded > 50, "{} of them", ledger.succeeded);
            assert!(reset || ledger.failed == 0, "{} failed", ledger.failed);
            Ok(())
        },
        |ended| {
            each_time(&progress, 60, ended, || {
                if reset {
                    scene.controller.reset()?;
                }
                Ok(())
            })
        },
    )?;
    drop(queue);
    scene.check_records()
}

#[test]
fn threads_that_poll_share_a_queue() -> Outcome {
    bounded(|| share(Waiting::Poll, false))
}

#[test]
fn threads_that_sleep_share_a_queue() -> Outcome {
    bounded(|| share(Waiting::Interrupt, false))
}

#[test]
fn threads_that_do_both_share_a_queue() -> Outcome {
    bounded(|| share(Waiting::Hybrid(100), false))
}

#[test]
fn threads_share_a_queue_while_another_one_resets() -> Outcome {
    bounded(|| share(Waiting::Poll, true))?;
    bounded(|| share(Waiting::Hybrid(100), true))
}

#[test]
fn one_thread_has_two_handles() -> Outcome {
    bounded(|| {
        for waiting in [Waiting::Poll, Waiting::Interrupt, Waiting::Hybrid(100)] {
            let scene = Scene::new(model::Options::default(), Options::default())?;
            let queue = SharedQueue::new(pair(&scene, 3, waiting)?, 4);
            let arena = small_arena(&scene.controller, 16)?;
            let mut handles = [queue.handle(), queue.handle()];
            for round in 0..100 {
                for (number, handle) in (0..).zip(&mut handles) {
                    for token in 0..=round % 4 {
                        let request =
                            Request::read(Lba(token), filled(&arena, 512, 0)?, number << 8 | token);
                        handle
                            .submit(&scene.namespace, request)
                            .map_err(|e| e.to_string())?;
                    }
                }
                // The second one's completions come while the first one waits, or later.
                for (number, handle) in (0..).zip(&mut handles) {
                    let mut tokens = Vec::new();
                    while let Some(completion) = handle.wait() {
                        assert_eq!(completion.result, Ok(()));
                        tokens.push(completion.token);
                    }
                    tokens.sort_unstable();
                    let expected: Vec<u64> =
                        (0..=round % 4).map(|token| number << 8 | token).collect();
                    assert_eq!(tokens, expected, "{waiting:?}");
                }
            }
            drop((handles, queue));
            scene.check_records()?;
        }
        Ok(())
    })
}

fn delayed(steps: u64) -> Faults {
    Faults {
        rules: vec![FaultRule {
            target: Target::Io,
            when: When::Always,
            fault: Fault::Delay(steps),
        }],
        ..Faults::default()
    }
}

#[test]
fn a_thread_that_sleeps_does_not_turn_in_circles() -> Outcome {
    bounded(|| {
        let scene = Scene::new(model::Options::default(), Options::default())?;
        let arena = small_arena(&scene.controller, 4)?;
        for (waiting, budget) in [(Waiting::Interrupt, 0), (Waiting::Hybrid(64), 64)] {
            let mut pair = pair(&scene, 4, waiting)?;
            let queue = SharedQueue::new(self::pair(&scene, 4, waiting)?, 4);
            let mut handle = queue.handle();
            for steps in [1, 100, 10_000, 200_000] {
                scene.model.set_faults(delayed(steps));
                let before = scene.host.counts();
                let read = || {
                    let buffer = filled(&arena, 512, 0)?;
                    Ok::<_, millrace_memory::Exhausted>(Request::read(Lba(0), buffer, 0))
                };
                pair.submit(&scene.namespace, read()?)
                    .map_err(|e| e.to_string())?;
                assert_eq!(
                    pair.wait(PATIENCE, |ended| assert_eq!(ended.result, Ok(()))),
                    1
                );
                let after_pair = scene.host.counts();
                handle
                    .submit(&scene.namespace, read()?)
                    .map_err(|e| e.to_string())?;
                let ended = handle.wait().ok_or("none was under way")?;
                assert_eq!(ended.result, Ok(()));
                let after = scene.host.counts();
                let rounds = [
                    after_pair.relaxed - before.relaxed,
                    after.relaxed - after_pair.relaxed,
                ];
                assert!(
                    rounds.iter().all(|rounds| *rounds <= budget),
                    "{waiting:?}, {steps} steps: {rounds:?} rounds of polling"
                );
                // Sleeping looks at the clock ten times a second, turning in circles always.
                let looks = after.looked - before.looked;
                assert!(
                    looks < 2000,
                    "{waiting:?}, {steps} steps: {looks} looks at the clock"
                );
            }
        }
        scene.check_records()
    })
}

#[test]
fn one_of_two_threads_drives_while_both_sleep() -> Outcome {
    bounded(|| {
        let scene = Scene::new(model::Options::default(), Options::default())?;
        let queue = SharedQueue::new(pair(&scene, 4, Waiting::Interrupt)?, 4);
        scene.model.set_faults(delayed(20_000));
        let before = scene.host.counts();
        on_threads(
            2,
            |number| {
                let arena = small_arena(&scene.controller, 4)?;
                let mut handle = queue.handle();
                for token in 0..10 {
                    let request = Request::read(Lba(number), filled(&arena, 512, 0)?, token);
                    handle
                        .submit(&scene.namespace, request)
                        .map_err(|e| e.to_string())?;
                    let ended = handle.wait().ok_or("none was under way")?;
                    assert_eq!((ended.token, ended.result), (token, Ok(())));
                }
                Ok(())
            },
            |_| Ok(()),
        )?;
        assert_eq!(scene.host.counts().relaxed - before.relaxed, 0);
        scene.check_records()
    })
}

#[test]
fn pulling_it_out_ends_what_all_threads_do() -> Outcome {
    bounded(|| {
        for round in 0..6 {
            let scene = Scene::new(model::Options::default(), Options::default())?;
            let progress = Progress::new(0);
            let queue = SharedQueue::new(pair(&scene, 3, waiting_of(round))?, 2);
            on_threads(
                4,
                |number| {
                    let mut ledger = Ledger::new(number, round);
                    if number < 2 {
                        let mut pair = match pair(&scene, 4, waiting_of(round + number)) {
                            // Others were quick enough to have it pulled out by then.
                            Err(error) if error.kind() == ErrorKind::Gone => return Ok(()),
                            made => made?,
                        };
                        use_pair(&mut pair, &scene.namespace, &mut ledger, 100_000, &progress)
                    } else {
                        use_shared(&queue, &scene, &mut ledger, 100_000, &progress)
                    }
                },
                |ended| {
                    each_time(&progress, 20 + 30 * round, ended, || {
                        scene.model.remove();
                        Ok(())
                    })
                },
            )?;
            assert_eq!(scene.controller.condition(), Condition::Gone);
            let mut late = queue.handle();
            let result = match late.submit(&scene.namespace, Request::flush(0)) {
                Ok(()) => late.wait().ok_or("none was under way")?.result,
                Err(refused) => {
                    assert_eq!(refused.reason, Refusal::ControllerFailed);
                    Err(CommandError::Gone)
                }
            };
            assert_eq!(result, Err(CommandError::Gone));
            assert_eq!(scene.model.dma_faults(), []);
        }
        Ok(())
    })
}

#[test]
fn queue_pairs_are_dropped_with_requests_under_way() -> Outcome {
    bounded(|| {
        let scene = Scene::new(model::Options::default(), Options::default())?;
        for round in 0..60 {
            scene.model.set_faults(delayed([0, 1, 50, 5000][round % 4]));
            let arena = small_arena(&scene.controller, 16)?;
            let mut pair = pair(&scene, 8, waiting_of(round as u64))?;
            for token in 0..8 {
                let buffer = filled(&arena, SLOT_BYTES, 1)?;
                let request = if token % 2 == 0 {
                    Request::read(Lba(token * SLOT_BLOCKS), buffer, token)
                } else {
                    Request::write(Lba(token * SLOT_BLOCKS), buffer, token)
                };
                pair.submit(&scene.namespace, request)
                    .map_err(|e| e.to_string())?;
            }
            if round % 3 > 0 {
                pair.ring();
            }
            if round % 3 > 1 {
                pair.poll(|_| {});
            }
            if round % 5 == 4 {
                let queue = SharedQueue::new(pair, 4);
                drop(queue);
            } else {
                drop(pair);
            }
            // Memory that the controller still reached would be missed here.
            drop(arena);
        }
        assert_eq!(scene.controller.resets(), 0);
        scene.check_records()
    })
}

#[test]
fn a_lost_command_ends_what_sleeps() -> Outcome {
    bounded(|| {
        let options = Options {
            command_timeout: Duration::from_millis(20),
            retries: 1,
            ..Options::default()
        };
        let scene = Scene::new(model::Options::default(), options)?;
        let arena = small_arena(&scene.controller, 4)?;
        for waiting in [Waiting::Interrupt, Waiting::Hybrid(64)] {
            let mut handle = SharedQueue::new(pair(&scene, 4, waiting)?, 4).handle();
            scene.model.set_faults(Faults {
                rules: vec![FaultRule {
                    target: Target::Io,
                    when: When::Always,
                    fault: Fault::Lose,
                }],
                ..Faults::default()
            });
            let request = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
            handle
                .submit(&scene.namespace, request)
                .map_err(|e| e.to_string())?;
            let ended = handle.wait().ok_or("none was under way")?;
            assert_eq!(ended.result, Err(CommandError::TimedOut));
            assert!(ended.data.is_some());
            scene.model.set_faults(Faults::default());
            let request = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
            handle
                .submit(&scene.namespace, request)
                .map_err(|e| e.to_string())?;
            let ended = handle.wait().ok_or("none was under way")?;
            assert_eq!(ended.result, Ok(()));
        }
        scene.check_records()
    })
}

#[test]
fn a_reset_while_a_queue_pair_is_made_is_noticed() -> Outcome {
    for use_it in [false, true] {
        let hook = Arc::new(MapHook::default());
        let stepped = Stepped::new(1, Some(&hook))?;
        let namespace = stepped.controller.namespace(1)?;
        let options = QueueOptions {
            depth: 8,
            waiting: Waiting::Poll,
        };
        // Its memory is mapped before the controller hears of it.
        hook.reset_at_next_map(&stepped.controller);
        let mut pair = stepped.controller.queue_pair(options)?;
        assert_eq!(stepped.controller.resets(), 1);
        if use_it {
            pair.submit(&namespace, Request::flush(7))
                .map_err(|e| e.to_string())?;
            pair.wait(PATIENCE, |ended| assert_eq!(ended.result, Ok(())));
        }
        // The controller must not keep the queue, whose memory is freed.
        drop(pair);
        drop(stepped.controller.queue_pair(options)?);
        assert_eq!(stepped.controller.resets(), 1, "used: {use_it}");
        assert_eq!(stepped.model.violations(), [], "used: {use_it}");
    }
    Ok(())
}
