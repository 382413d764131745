//! Power that comes back by itself: the driver resets the controller and goes on, and what its volatile cache
//! had is gone. Writes had succeeded; the next flush must not.

use std::sync::Arc;

use crate::fixture::{Fixture, Outcome, PATIENCE, arena, filled, polled, quick, single};
use millrace_memory::Arena;
use millrace_nvme::{
    CommandError, Completion, Controller, Data, Host, Lba, Namespace, QueuePair, Request,
    SharedHandle, SharedQueue,
};
use millrace_nvme_model as model;

const LOST: Result<(), CommandError> = Err(CommandError::CacheLost);

fn options() -> model::Options {
    model::Options {
        namespaces: vec![model::NamespaceOptions {
            block_size: 512,
            blocks: 4096,
            ..model::NamespaceOptions::default()
        }],
        ..model::Options::default()
    }
}

/// A controller in use.
struct Scene {
    namespace: Namespace,
    arena: Arena,
    controller: Arc<Controller>,
    fixture: Fixture,
}

impl Scene {
    fn new(options: model::Options) -> Result<Self, Box<dyn std::error::Error>> {
        let fixture = Fixture::new(options)?;
        let controller = fixture.open(quick())?;
        Ok(Self {
            namespace: controller.namespace(1)?,
            arena: arena(&controller)?,
            controller,
            fixture,
        })
    }

    fn pair(&self) -> Result<QueuePair, millrace_nvme::Error> {
        polled(&self.controller, 8)
    }

    /// How a request ends.
    fn run(
        &self,
        pair: &mut QueuePair,
        request: Request,
    ) -> Result<Result<(), CommandError>, Box<dyn std::error::Error>> {
        Ok(single(pair, &self.namespace, request)?.result)
    }

    fn flush(
        &self,
        pair: &mut QueuePair,
    ) -> Result<Result<(), CommandError>, Box<dyn std::error::Error>> {
        self.run(pair, Request::flush(0))
    }

    /// Writes blocks that lie in the cache then.
    fn write(&self, pair: &mut QueuePair) -> Outcome {
        for lba in 0..64 {
            let write = Request::write(Lba(lba), filled(&self.arena, 512, 7)?, lba);
            self.run(pair, write)??;
        }
        Ok(())
    }

    /// How many of the blocks hold what was written.
    fn kept(&self) -> Result<u64, model::Error> {
        let mut kept = 0;
        for lba in 0..64 {
            kept += u64::from(self.fixture.model.peek(1, lba)? == [7; 512]);
        }
        Ok(kept)
    }

    fn read(&self, pair: &mut QueuePair) -> Outcome {
        let read = Request::read(Lba(100), filled(&self.arena, 512, 0)?, 0);
        self.run(pair, read)??;
        Ok(())
    }
}

#[test]
fn a_flush_after_a_cut_of_the_power_fails_once() -> Outcome {
    let scene = Scene::new(options())?;
    let mut pair = scene.pair()?;
    scene.write(&mut pair)?;
    scene.fixture.model.power_cut();
    assert_ne!(scene.kept()?, 64, "the model loses what was not flushed");
    assert_eq!(scene.flush(&mut pair)?, LOST);
    assert_eq!(scene.controller.recovery().resets, 1);

    scene.write(&mut pair)?;
    assert_eq!(scene.flush(&mut pair)?, Ok(()), "of what was written since");
    assert_eq!(scene.fixture.model.unflushed(1)?, 0);
    Ok(())
}

#[test]
fn a_flush_fails_also_when_others_have_gone_on_before_it() -> Outcome {
    let scene = Scene::new(options())?;
    let mut pair = scene.pair()?;
    scene.write(&mut pair)?;
    scene.fixture.model.power_cut();
    scene.read(&mut pair)?;
    assert_eq!(scene.controller.recovery().resets, 1, "it was sent again");
    let forced = Request::write_through(Lba(200), filled(&scene.arena, 512, 9)?, 0);
    assert_eq!(scene.run(&mut pair, forced)?, Ok(()), "that needs no cache");
    assert_eq!(scene.flush(&mut pair)?, LOST);
    assert_eq!(scene.flush(&mut pair)?, Ok(()));
    Ok(())
}

#[test]
fn a_flush_that_waits_for_a_place_fails_too() -> Outcome {
    let scene = Scene::new(model::Options {
        transfer_max: 1,
        queue_entries_max: 4,
        ..options()
    })?;
    let mut pair = scene.pair()?;
    let write = Request::write(Lba(0), filled(&scene.arena, 1 << 20, 7)?, 1);
    pair.submit(&scene.namespace, write)?;
    pair.submit(&scene.namespace, Request::flush(2))?;
    pair.ring();
    scene.fixture.model.step();
    scene.fixture.model.power_cut();
    let mut ended = Vec::new();
    while pair.requests_in_flight() > 0 {
        pair.wait(PATIENCE, |completion| {
            ended.push((completion.token, completion.result));
        });
    }
    ended.sort_by_key(|(token, _)| *token);
    assert_eq!(ended, [(1, Ok(())), (2, LOST)]);
    assert_eq!(scene.flush(&mut pair)?, Ok(()));
    Ok(())
}

/// Parts of a write ended before the loss, others after it: all of it is on the medium after the next flush.
#[test]
fn a_write_that_straddles_a_loss_is_written_again() -> Outcome {
    let scene = Scene::new(model::Options {
        transfer_max: 1,
        queue_entries_max: 4,
        ..options()
    })?;
    let mut pair = scene.pair()?;
    let bytes = 64 << 10;
    let write = Request::write(Lba(0), filled(&scene.arena, bytes, 7)?, 1);
    pair.submit(&scene.namespace, write)?;
    let before = scene.fixture.model.counters().completions;
    while scene.fixture.model.counters().completions < before + 4 {
        assert_eq!(pair.poll(|_| {}), 0, "it has more parts than that");
        scene.fixture.model.step();
    }
    assert_eq!(pair.poll(|_| {}), 0);
    pair.submit(&scene.namespace, Request::flush(2))?;
    scene.fixture.model.power_cut();
    let mut ended = Vec::new();
    while pair.requests_in_flight() > 0 {
        pair.wait(PATIENCE, |completion| {
            ended.push((completion.token, completion.result));
        });
    }
    ended.sort_by_key(|(token, _)| *token);
    assert_eq!(ended, [(1, Ok(())), (2, LOST)]);
    assert_eq!(scene.flush(&mut pair)?, Ok(()));
    scene.fixture.model.power_cut();
    for block in 0..bytes as u64 / 512 {
        assert_eq!(
            scene.fixture.model.peek(1, block)?,
            [7; 512],
            "block {block}"
        );
    }
    Ok(())
}

/// Nobody has heard of a loss whose flush was given up with its pair.
#[test]
fn a_loss_that_nobody_heard_of_is_told_again() -> Outcome {
    let scene = Scene::new(options())?;
    let (mut first, mut second) = (scene.pair()?, scene.pair()?);
    scene.write(&mut first)?;
    scene.fixture.model.power_cut();
    scene.read(&mut second)?;
    first.submit(&scene.namespace, Request::flush(1))?;
    drop(first);
    let mut later = scene.pair()?;
    assert_eq!(scene.flush(&mut later)?, LOST);
    assert_eq!(scene.flush(&mut later)?, Ok(()));
    Ok(())
}

#[test]
fn each_pair_tells_once() -> Outcome {
    let scene = Scene::new(options())?;
    let (mut first, mut second) = (scene.pair()?, scene.pair()?);
    scene.write(&mut first)?;
    scene.fixture.model.power_cut();
    scene.read(&mut second)?;
    // The loss concerns the owner of a dropped pair.
    let mut unannounced = scene.pair()?;
    assert_eq!(scene.flush(&mut second)?, LOST);
    assert_eq!(scene.flush(&mut first)?, LOST);
    assert_eq!(scene.flush(&mut unannounced)?, LOST);
    let mut later = scene.pair()?;
    for pair in [&mut first, &mut second, &mut unannounced, &mut later] {
        assert_eq!(scene.flush(pair)?, Ok(()));
    }
    Ok(())
}

/// Drives the queue until a request of the handle has ended.
fn ended(
    scene: &Scene,
    handle: &mut SharedHandle,
) -> Result<Completion, Box<dyn std::error::Error>> {
    for _ in 0..1_000_000 {
        if let Some(ended) = handle.poll() {
            return Ok(ended);
        }
        scene.fixture.host.relax(0);
    }
    Err("the request never ended".into())
}

#[test]
fn each_handle_of_a_shared_pair_tells_once() -> Outcome {
    let scene = Scene::new(options())?;
    let queue = SharedQueue::new(scene.pair()?, 4);
    let mut handles = [queue.handle(), queue.handle(), queue.handle()];
    for (handle, lba) in handles.iter_mut().zip(0..) {
        let write = Request::write(Lba(lba), filled(&scene.arena, 512, 7)?, 0);
        handle.submit(&scene.namespace, write)?;
        ended(&scene, handle)?.result?;
    }
    scene.fixture.model.power_cut();
    // The first one's is under way when the reset comes, the others' come after it.
    for expected in [LOST, Ok(()), Ok(())] {
        for handle in &mut handles {
            handle.submit(&scene.namespace, Request::flush(0))?;
            assert_eq!(ended(&scene, handle)?.result, expected);
        }
    }
    assert_eq!(scene.controller.recovery().resets, 1);
    Ok(())
}

#[test]
fn a_reset_that_was_asked_for_keeps_the_cache() -> Outcome {
    let scene = Scene::new(options())?;
    let mut pair = scene.pair()?;
    scene.write(&mut pair)?;
    scene.controller.reset()?;
    assert_eq!(scene.flush(&mut pair)?, Ok(()));
    assert_eq!(scene.kept()?, 64);

    // But not if it was for a controller that had lost its power.
    scene.write(&mut pair)?;
    scene.fixture.model.power_cut();
    scene.controller.reset()?;
    assert_eq!(scene.flush(&mut pair)?, LOST);
    assert_eq!(scene.flush(&mut pair)?, Ok(()));
    Ok(())
}

#[test]
fn nothing_is_lost_without_a_cache() -> Outcome {
    let without = Scene::new(model::Options {
        volatile_cache: false,
        ..options()
    })?;
    let unused = Scene::new(options())?;
    unused.controller.set_cache_used(false)?;
    for scene in [without, unused] {
        let mut pair = scene.pair()?;
        for _ in 0..2 {
            scene.write(&mut pair)?;
            scene.fixture.model.power_cut();
            assert_eq!(scene.flush(&mut pair)?, Ok(()));
            assert_eq!(scene.kept()?, 64);
        }
        assert_eq!(scene.controller.recovery().resets, 2);
    }
    Ok(())
}

/// What is in flight is sent again: its own data it has still.
#[test]
fn writes_in_flight_are_written_after_the_loss() -> Outcome {
    let scene = Scene::new(options())?;
    let mut pair = scene.pair()?;
    scene.fixture.model.set_faults(model::Faults {
        rules: vec![model::FaultRule {
            target: model::Target::Io,
            when: model::When::Always,
            fault: model::Fault::Delay(50),
        }],
        ..model::Faults::default()
    });
    for lba in 0..8 {
        let write = Request::write(Lba(lba), filled(&scene.arena, 512, 8)?, lba);
        pair.submit(&scene.namespace, write)?;
    }
    pair.ring();
    scene.fixture.model.step();
    scene.fixture.model.power_cut();
    while pair.requests_in_flight() > 0 {
        pair.wait(PATIENCE, |ended| {
            assert_eq!(ended.result, Ok(()));
            assert!(ended.data.and_then(Data::into_buffer).is_some());
        });
    }
    for lba in 0..8 {
        assert_eq!(scene.fixture.model.peek(1, lba)?, [8; 512]);
    }
    assert_eq!(scene.flush(&mut pair)?, LOST, "others may be lost");
    Ok(())
}
