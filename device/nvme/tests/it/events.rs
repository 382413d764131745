//! Asynchronous events of a controller, and how its owner receives them.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use crate::fixture::{Fixture, Outcome, arena, filled, polled, quick, single};
use millrace_nvme::{Controller, ErrorKind, EventKind, Host, Lba, Options, Request, SystemHost};
use millrace_nvme_model as model;
use model::{Event, Fault, FaultRule, Faults, Status, Target, When};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

const SET_FEATURES: u8 = 0x09;
const GET_LOG_PAGE: u8 = 0x02;

fn admin_fault(opcode: u8, when: When, fault: Fault) -> Faults {
    Faults {
        rules: vec![FaultRule {
            target: Target::AdminOpcode(opcode),
            when,
            fault,
        }],
        ..Faults::default()
    }
}

/// What it has said, once the model has gone on.
fn heard(
    fixture: &Fixture,
    controller: &Controller,
) -> Result<Vec<EventKind>, millrace_nvme::Error> {
    for _ in 0..10 {
        fixture.model.step();
    }
    let (events, lost) = controller.take_events()?;
    assert_eq!(lost, 0);
    Ok(events.iter().map(|event| event.kind).collect())
}

#[test]
fn a_namespace_that_changes_is_heard_of_each_time() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let controller = fixture.open(quick())?;
    for _ in 0..6 {
        fixture.model.raise_event(Event::NamespaceChanged(1));
        fixture.model.step();
        let (events, lost) = controller.take_events()?;
        assert_eq!((events.len(), lost), (1, 0));
        assert!(events[0].is_namespace_change());
        assert_eq!(controller.take_events()?, (Vec::new(), 0));
    }
    Ok(())
}

#[test]
fn events_of_all_kinds_are_heard_of_after_a_reset_too() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let controller = fixture.open(quick())?;
    for _ in 0..2 {
        fixture.model.raise_event(Event::TransientError);
        fixture.model.raise_event(Event::Spare);
        fixture.model.raise_event(Event::NamespaceChanged(1));
        let mut kinds = heard(&fixture, &controller)?;
        kinds.sort_by_key(|kind| format!("{kind:?}"));
        assert_eq!(
            kinds,
            [EventKind::Error, EventKind::Health, EventKind::Notice]
        );
        controller.reset()?;
    }
    Ok(())
}

/// A controller that did not know an event that was asked for was asked for none.
#[test]
fn a_controller_that_knows_fewer_events_is_asked_for_those() -> Outcome {
    let refuse = Fault::Fail(Status::INVALID_FIELD.do_not_retry());
    let fixture = Fixture::new(model::Options {
        // The first is for the number of queues.
        faults: admin_fault(SET_FEATURES, When::Nth(2), refuse),
        ..model::Options::default()
    })?;
    let controller = fixture.open(quick())?;
    fixture.model.raise_event(Event::Temperature);
    assert_eq!(heard(&fixture, &controller)?, [EventKind::Health]);
    Ok(())
}

/// Events were forgotten when their log page could not be read.
#[test]
fn events_are_kept_until_their_log_page_was_read() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let controller = fixture.open(quick())?;
    let lose = admin_fault(GET_LOG_PAGE, When::Nth(1), Fault::Lose);
    fixture.model.set_faults(lose);
    fixture.model.raise_event(Event::Temperature);
    fixture.model.step();
    let error = controller.take_events().err();
    let kind = error.map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::TimedOut));
    assert_eq!(heard(&fixture, &controller)?, [EventKind::Health]);
    assert_eq!(controller.take_events()?, (Vec::new(), 0));
    Ok(())
}

fn is_readable(event: BorrowedFd<'_>, limit_s: i64) -> rustix::io::Result<bool> {
    let limit = Timespec {
        tv_sec: limit_s,
        tv_nsec: 0,
    };
    let mut watched = [PollFd::new(&event, PollFlags::IN)];
    Ok(poll(&mut watched, Some(&limit))? == 1)
}

/// The owner sleeps until something is said, however much the admin queue is used meanwhile.
#[test]
fn the_owner_is_woken_by_events() -> Outcome {
    let model = model::Controller::new(model::Options::default())?;
    let stepper = model::Stepper::new(model.clone());
    let host: Arc<dyn Host> = Arc::new(SystemHost::new(Instant::now()));
    let controller = Controller::open(model.function(), host, Options::default())?;
    let event = controller.event_interrupt().ok_or("no interrupts")?;
    controller.health()?;
    assert!(!is_readable(event, 0)?, "only a command has ended");
    for _ in 0..4 {
        model.raise_event(Event::Temperature);
        // A minute is for ever.
        assert!(is_readable(event, 60)?, "no interrupt");
        // That finds the event, which nobody has taken then.
        controller.health()?;
        assert!(is_readable(event, 0)?, "the interrupt is lost");
        let (events, _) = controller.take_events()?;
        assert_eq!(events.len(), 1);
        assert!(!is_readable(event, 0)?, "there is nothing any more");
    }
    drop(controller);
    drop(stepper);
    Ok(())
}

#[test]
fn without_interrupts_nobody_is_woken() -> Outcome {
    let fixture = Fixture::new(model::Options::default())?;
    let controller = fixture.open(quick())?;
    assert!(controller.event_interrupt().is_none());
    // Requests go on while events are untaken.
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    fixture.model.raise_event(Event::Temperature);
    let read = Request::read(Lba(0), filled(&arena, 4096, 0)?, 0);
    single(&mut pair, &namespace, read)?.result?;
    assert_eq!(heard(&fixture, &controller)?, [EventKind::Health]);
    Ok(())
}
