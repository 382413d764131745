//! Of queue pairs.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

use millrace_memory::Arena;
use millrace_nvme::{CommandError, Lba, Namespace, Options, QueuePair, Refusal, Request};
use millrace_nvme_model as model;
use model::{Fault, When};

use super::hooked_host::HookedHost;
use super::{fault, small};
use crate::fixture::{Fixture, Outcome, PATIENCE, arena, filled, polled, quick, single};

/// A command that was sent again was put into the ring, but the controller not told before the next poll.
#[test]
fn a_retry_is_rung_by_the_poll_that_sends_it() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let fails_once = fault(When::Nth(1), Fault::Fail(model::Status::INTERNAL));
    fixture.model.set_faults(fails_once);
    let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
    pair.submit(&namespace, read)?;
    pair.ring();
    for _ in 0..5 {
        fixture.model.step();
    }
    // One poll, as after an interrupt.
    assert_eq!(pair.poll(|_| {}), 0);
    let before = fixture.model.counters().commands;
    for _ in 0..50 {
        fixture.model.step();
    }
    assert_eq!(fixture.model.counters().commands, before + 1);
    assert_eq!(pair.poll(|ended| assert_eq!(ended.result, Ok(()))), 1);
    Ok(())
}

/// A poll that resets the controller also rings the doorbell for the commands that it resubmits: its caller may sleep
/// until the next interrupt.
#[test]
fn what_a_reset_sends_again_is_rung_by_the_poll_that_resets() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    fixture
        .model
        .set_faults(fault(When::Nth(1), Fault::WrongId));
    let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
    pair.submit(&namespace, read)?;
    pair.ring();
    for _ in 0..5 {
        fixture.model.step();
    }
    assert_eq!(pair.poll(|_| {}), 0);
    assert_eq!(controller.resets(), 1);
    for _ in 0..50 {
        fixture.model.step();
    }
    assert_eq!(pair.poll(|ended| assert_eq!(ended.result, Ok(()))), 1);
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// What waits for a slot is told of by the poll that frees one.
#[test]
fn the_rest_of_a_request_is_rung_by_the_poll_that_sends_it() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 1)?);
    // More than one command moves.
    let buffers = vec![filled(&arena, 1 << 20, 0)?, filled(&arena, 64 << 10, 0)?];
    pair.submit(&namespace, Request::read(Lba(0), buffers, 0))?;
    pair.ring();
    let first = fixture.model.counters().commands + 1;
    while fixture.model.counters().commands < first {
        fixture.model.step();
    }
    fixture.model.step();
    assert_eq!(pair.poll(|_| {}), 0);
    for _ in 0..50 {
        fixture.model.step();
    }
    assert_eq!(fixture.model.counters().commands, first + 1);
    Ok(())
}

/// A controller that completes everything twice was given up after some resets, although it had answered each time
/// as it should.
#[test]
fn answers_before_one_that_was_not_asked_for_count() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 1)?);
    fixture
        .model
        .set_faults(fault(When::Always, Fault::CompleteTwice));
    for token in 0..20 {
        let read = Request::read(Lba(token), filled(&arena, 512, 0)?, token);
        assert_eq!(single(&mut pair, &namespace, read)?.result, Ok(()));
    }
    assert!(controller.resets() > 10, "{} resets", controller.resets());
    Ok(())
}

/// A pair that was polled during a reset rang the doorbells of a queue that did not exist any more.
#[test]
fn a_poll_during_a_reset_rings_nothing() -> Outcome {
    let fixture = Fixture::new(small())?;
    let options = Options {
        shadow_doorbells: false,
        ..quick()
    };
    let (host, controller) = HookedHost::open(&fixture, options)?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let mut requests = Vec::new();
    for token in 0..5 {
        requests.push(Request::read(Lba(0), filled(&arena, 512, 0)?, token));
    }
    let first = requests.pop().expect("there are five");
    single(&mut pair, &namespace, first)?.result?;

    let pair = Arc::new(Mutex::new(pair));
    let shared = Arc::clone(&pair);
    host.set_hook(move || {
        let mut pair = shared.lock().expect("nobody has panicked");
        if let Some(request) = requests.pop() {
            let accepted = pair.submit(&namespace, request);
            accepted.expect("there is room");
        }
        assert_eq!(pair.poll(|_| {}), 0, "the controller is being reset");
    });
    controller.reset()?;
    host.clear_hook();
    for _ in 0..300 {
        fixture.model.step();
    }
    assert_eq!(fixture.model.violations(), []);

    let mut pair = pair.lock().expect("nobody has panicked");
    let mut ended = 0;
    while pair.requests_in_flight() > 0 {
        ended += pair.wait(PATIENCE, |ended| assert_eq!(ended.result, Ok(())));
    }
    assert_eq!(ended, 4);
    assert_eq!(controller.resets(), 1, "none but the one asked for");
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// A pair that was begun during a reset took itself for one of before, and its first poll reset again.
#[test]
fn a_queue_pair_made_during_a_reset_is_of_the_time_after_it() -> Outcome {
    for _ in 0..20 {
        let fixture = Fixture::new(small())?;
        let (host, controller) = HookedHost::open(&fixture, quick())?;
        let (begin, begins) = mpsc::channel();
        host.set_hook(move || {
            // The other thread hears of it once and has time to come as far as the lock; the test holds in
            // whatever order the two go on.
            let _ = begin.send(());
            for _ in 0..10 {
                thread::yield_now();
            }
        });
        let shared = Arc::clone(&controller);
        let maker = thread::spawn(move || {
            begins.recv().expect("a reset waits for the controller");
            polled(&shared, 8)
        });
        let reset = controller.reset();
        host.clear_hook();
        let made = maker.join().expect("the maker does not panic");
        reset?;
        let mut pair = made?;
        assert_eq!(pair.poll(|_| {}), 0);
        assert_eq!(controller.resets(), 1, "none but the one asked for");
        drop(pair);
        assert_eq!(fixture.model.violations(), []);
    }
    Ok(())
}

/// Leaves commands in the ring that were executed, and their number in its shadow doorbell.
fn write_ten(pair: &mut QueuePair, namespace: &Namespace, arena: &Arena) -> Outcome {
    for token in 0..10 {
        let write = Request::write(Lba(token), filled(arena, 512, 1)?, token);
        single(pair, namespace, write)?.result?;
    }
    Ok(())
}

/// A controller that steps three times when the driver looks once: it sees a new queue before the driver goes
/// on.
fn make_fast(host: &HookedHost, fixture: &Fixture) {
    let model = fixture.model.clone();
    host.set_hook(move || {
        model.step();
        model.step();
    });
}

/// Shadow doorbells were cleared after the controller knew the queue: it took old commands for new ones.
#[test]
fn shadow_doorbells_of_before_a_reset_are_not_taken_for_commands() -> Outcome {
    let fixture = Fixture::new(small())?;
    let (host, controller) = HookedHost::open(&fixture, quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 32)?);
    write_ten(&mut pair, &namespace, &arena)?;
    controller.reset()?;
    make_fast(&host, &fixture);
    for _ in 0..20 {
        assert_eq!(pair.poll(|_| {}), 0);
        fixture.model.step();
    }
    assert_eq!(
        fixture.model.counters().writes,
        10,
        "they were executed again"
    );
    assert_eq!(controller.resets(), 1, "none but the one asked for");
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// The same between a queue pair that is dropped and the next one, which is given the same queue.
#[test]
fn shadow_doorbells_of_a_former_queue_are_not_taken_for_commands() -> Outcome {
    let fixture = Fixture::new(small())?;
    let (host, controller) = HookedHost::open(&fixture, quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 32)?);
    write_ten(&mut pair, &namespace, &arena)?;
    drop(pair);
    make_fast(&host, &fixture);
    let before = fixture.model.counters().commands;
    let mut pair = polled(&controller, 32)?;
    for _ in 0..20 {
        assert_eq!(pair.poll(|_| {}), 0);
        fixture.model.step();
    }
    let commands = fixture.model.counters().commands - before;
    assert_eq!(commands, 2, "none but those that make the two rings");
    assert_eq!(controller.resets(), 0);
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// A queue that the controller refused to make again was tried for without end.
#[test]
fn a_queue_that_is_refused_after_a_reset_ends_its_requests() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let create_completion_queue = 0x05;
    fixture.model.set_faults(model::Faults {
        rules: vec![model::FaultRule {
            target: model::Target::AdminOpcode(create_completion_queue),
            when: When::Always,
            fault: Fault::Fail(model::Status::QUEUE_ID.do_not_retry()),
        }],
        ..model::Faults::default()
    });
    pair.submit(
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 7),
    )?;
    controller.reset()?;
    let mut ended = Vec::new();
    pair.wait(PATIENCE, |completion| ended.push(completion));
    let completion = ended.pop().ok_or("the request never ended")?;
    assert_eq!(
        (completion.token, completion.result),
        (7, Err(CommandError::Reset))
    );
    assert!(completion.data.is_some(), "the controller was reset");
    let refused = pair.submit(&namespace, Request::flush(8)).err();
    assert_eq!(
        refused.map(|refused| refused.reason),
        Some(Refusal::ControllerFailed)
    );
    Ok(())
}

/// A pair waited without end for a reset whose thread had panicked.
#[test]
fn a_reset_that_panicked_is_done_again() -> Outcome {
    let fixture = Fixture::new(small())?;
    let (host, controller) = HookedHost::open(&fixture, quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    host.set_hook(|| panic!("in the midst of a reset"));
    let reset = catch_unwind(AssertUnwindSafe(|| controller.reset()));
    assert!(reset.is_err(), "it waits for the controller");
    let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
    assert_eq!(single(&mut pair, &namespace, read)?.result, Ok(()));
    assert_eq!(
        controller.recovery().resets,
        1,
        "the one that was done again"
    );
    Ok(())
}
