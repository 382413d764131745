//! Of the controller as a whole.

use std::collections::BTreeSet;
use std::sync::Arc;

use millrace_nvme::{
    Condition, Controller, Erase, ErrorKind, Host, Lba, Options, QueueOptions, Refusal, Request,
    Waiting,
};
use millrace_nvme_model as model;
use model::{Fault, Faults, When};

use super::{fault, small};
use crate::fixture::{Fixture, Outcome, PATIENCE, StepHost, arena, filled, polled, quick, single};

/// Resets of an idle controller were counted as in vain, and the ninth gave it up.
#[test]
fn resets_that_were_asked_for_are_not_in_vain() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    for round in 1..=20 {
        controller.reset()?;
        assert_eq!(controller.resets(), round);
    }
    assert_eq!(controller.condition(), Condition::Ready);
    Ok(())
}

/// The write cache was used again after a reset, although the caller had said that it is not to be.
#[test]
fn the_cache_is_used_after_a_reset_as_before() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    for used in [false, true] {
        controller.set_cache_used(used)?;
        controller.reset()?;
        assert_eq!(controller.is_cache_used()?, used);
    }
    Ok(())
}

/// The atomic unit was said as the controller says it, although longer writes than a command are cut.
#[test]
fn an_atomic_write_is_no_longer_than_a_command() -> Outcome {
    let fixture = Fixture::new(model::Options {
        transfer_max: 1,
        atomic_write: 256,
        atomic_write_power_fail: 256,
        ..small()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    assert_eq!(controller.transfer_max(), 8192);
    assert_eq!(namespace.atomic_write(), 16);
    Ok(())
}

/// A namespace could be formatted while it was used: what was known of it from before named too much memory.
#[test]
fn a_format_waits_for_queue_pairs_and_voids_namespaces() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let stale = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let formats = &stale.data().formats;
    let other = formats.iter().position(|format| format.block_shift == 12);
    let other = other.ok_or("no format of 4 KiB")?;

    let refused = controller.format(1, other, Erase::No, PATIENCE).err();
    let kind = refused.map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::Invalid), "a queue pair exists");
    let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
    single(&mut pair, &stale, read)?.result?;

    drop(pair);
    controller.format(1, other, Erase::No, PATIENCE)?;
    let mut pair = polled(&controller, 8)?;
    let read = Request::read(Lba(0), filled(&arena, 8192, 0)?, 0);
    let refused = pair.submit(&stale, read).err().ok_or("it was accepted")?;
    assert_eq!(refused.reason, Refusal::ForeignNamespace);
    let fresh = controller.namespace(1)?;
    assert_eq!(fresh.block_size(), 4096);
    single(&mut pair, &fresh, refused.request)?.result?;
    assert_eq!(fixture.model.violations(), []);
    assert_eq!(fixture.model.dma_faults(), []);
    Ok(())
}

/// As many aborts were sent as the controller takes: they filled the admin queue, and led to a reset.
#[test]
fn aborts_leave_room_in_the_admin_queue() -> Outcome {
    let fixture = Fixture::new(model::Options {
        aborts_max: 256,
        ..small()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 64)?);
    fixture
        .model
        .set_faults(fault(When::Always, Fault::Delay(2500)));
    for token in 0..60 {
        let read = Request::read(Lba(0), filled(&arena, 512, 0)?, token);
        pair.submit(&namespace, read)?;
    }
    // They time out after 2,000 rounds, which is seen by each 64th poll. The controller knows of no abort
    // yet when it is asked for its health.
    for round in 1..=2400 {
        assert_eq!(pair.poll(|_| {}), 0);
        if round > 2000 && round % 64 == 0 {
            controller.health()?;
        }
        fixture.host.relax(0);
    }
    assert_eq!(controller.resets(), 0);

    fixture.model.set_faults(Faults::default());
    let mut tokens = BTreeSet::new();
    while pair.requests_in_flight() > 0 {
        pair.wait(PATIENCE, |ended| {
            assert_eq!(ended.result, Ok(()));
            assert!(tokens.insert(ended.token), "{} has ended", ended.token);
        });
    }
    assert_eq!(tokens.len(), 60);
    assert_eq!(controller.resets(), 0);
    Ok(())
}

/// Queue pairs that poll were given the queues that have interrupt vectors.
#[test]
fn queue_pairs_that_poll_leave_vectors_to_those_that_sleep() -> Outcome {
    let fixture = Fixture::new(model::Options {
        vectors: 3,
        ..small()
    })?;
    let controller = fixture.open(Options {
        interrupts: true,
        ..quick()
    })?;
    let _polling = [polled(&controller, 4)?, polled(&controller, 4)?];
    let sleeping = QueueOptions {
        depth: 4,
        waiting: Waiting::Interrupt,
    };
    let _sleeping = [
        controller.queue_pair(sleeping)?,
        controller.queue_pair(sleeping)?,
    ];
    let third = controller.queue_pair(sleeping).err();
    let kind = third.map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::NoQueue), "there are two vectors");
    Ok(())
}

/// A function could be driven twice at a time, and each driver took the other's queues away.
#[test]
fn a_function_has_one_driver_at_a_time() -> Outcome {
    let fixture = Fixture::new(small())?;
    let function = fixture.model.function();
    let host: Arc<dyn Host> = Arc::<StepHost>::clone(&fixture.host);
    let open = || Controller::open(Arc::clone(&function), Arc::clone(&host), quick());
    let first = open()?;
    let kind = open().err().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::Invalid));
    first.health()?;
    drop(first);
    open()?;
    Ok(())
}

/// The shadows of queues with wide doorbells lay beyond the page that was offered for them.
#[test]
fn shadow_doorbells_that_do_not_fit_their_page_are_not_offered() -> Outcome {
    let fixture = Fixture::new(model::Options {
        doorbell_stride: 8,
        queues: 4,
        ..small()
    })?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let request = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
    single(&mut pair, &namespace, request)?.result?;
    fixture.model.step();
    assert_eq!(fixture.model.dma_faults(), []);
    Ok(())
}

/// Nothing showed that another class is noticed, and before the function may reach memory.
#[test]
fn what_is_no_controller_is_left_alone() -> Outcome {
    // SATA, and NVMe for administration alone.
    for class in [0x01_0601, 0x01_0803] {
        let fixture = Fixture::new(model::Options { class, ..small() })?;
        let error = fixture.open(quick()).err().ok_or("it was opened")?;
        assert_eq!(error.kind(), ErrorKind::NotNvme);
        let text = error.to_string();
        let expected = format!("has PCI class {class:#08x}, not 0x010802");
        assert!(text.contains(&expected), "{text}");
        let mut command = [0; 2];
        fixture.model.function().read_config(4, &mut command)?;
        assert_eq!(command, [0; 2], "its registers were used");
    }
    Ok(())
}
