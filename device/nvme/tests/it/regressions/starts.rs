//! Of how a controller is begun and reset.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use millrace_memory::Domain;
use millrace_nvme::{Condition, Controller, Erase, ErrorKind, Host, Lba, Options, Request};
use millrace_nvme_model as model;
use millrace_pci::{Bar, Error, Function, Result};
use model::{Fault, FaultRule, Faults, Status, Target, When};

use super::{fault, small};
use crate::fixture::{Fixture, Outcome, PATIENCE, StepHost, arena, filled, polled, quick, single};

const IDENTIFY: u8 = 0x06;
const CREATE_SQ: u8 = 0x01;
const DELETE_CQ: u8 = 0x04;
const CREATE_CQ: u8 = 0x05;
const FORMAT: u8 = 0x80;

fn admin_faults(rules: &[(u8, When, Fault)]) -> Faults {
    let rules = rules.iter().map(|(opcode, when, fault)| FaultRule {
        target: Target::AdminOpcode(*opcode),
        when: *when,
        fault: *fault,
    });
    Faults {
        rules: rules.collect(),
        ..Faults::default()
    }
}

/// A function that is watched.
#[derive(Debug)]
struct Watched {
    own: Arc<dyn Function>,
    /// Whether it may reach memory, or may have, while it did what somebody else had told it to.
    roamed: AtomicBool,
    resets: AtomicU64,
    cannot_be_reset: bool,
}

impl Watched {
    fn new(fixture: &Fixture, cannot_be_reset: bool) -> Arc<Self> {
        Arc::new(Self {
            own: fixture.model.function(),
            roamed: AtomicBool::new(false),
            resets: AtomicU64::new(0),
            cannot_be_reset,
        })
    }

    fn open(self: &Arc<Self>, fixture: &Fixture) -> millrace_nvme::Result<Arc<Controller>> {
        let host: Arc<dyn Host> = Arc::<StepHost>::clone(&fixture.host);
        Controller::open(Arc::<Self>::clone(self), host, quick())
    }
}

impl Function for Watched {
    fn name(&self) -> &str {
        self.own.name()
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        self.own.read_config(offset, bytes)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<()> {
        let (command, bus_master) = (4, 1 << 2);
        if offset == command && bytes[0] & bus_master != 0 {
            let status = self.own.bar(0)?.register(0x1c)?.load()?;
            self.roamed.fetch_or(status & 1 != 0, Ordering::Relaxed);
        }
        self.own.write_config(offset, bytes)
    }

    fn bar(&self, index: u8) -> Result<Arc<Bar>> {
        self.own.bar(index)
    }

    fn domain(&self) -> Arc<dyn Domain> {
        self.own.domain()
    }

    fn vectors(&self) -> u16 {
        self.own.vectors()
    }

    fn set_vectors(&self, events: &[BorrowedFd<'_>]) -> Result<usize> {
        self.own.set_vectors(events)
    }

    fn reset(&self) -> Result<()> {
        self.resets.fetch_add(1, Ordering::Relaxed);
        if self.cannot_be_reset {
            let refused = millrace_pci::ErrorKind::Refused;
            return Err(Error::new(refused, "not by itself"));
        }
        self.own.reset()
    }
}

/// Enables the controller, as a former driver may have left it.
fn leave_enabled(fixture: &Fixture) -> Result<()> {
    let bar = fixture.model.function().bar(0)?;
    bar.register(0x24)?.store_released(0x000f_000f)?;
    bar.store_long(0x28, 0x1000)?;
    bar.store_long(0x30, 0x2000)?;
    bar.register(0x14)?.store_released(0x0046_0001)?;
    while bar.register(0x1c)?.load()? & 1 == 0 {
        fixture.model.step();
    }
    Ok(())
}

/// A controller was let to memory before it was disabled: its queues were anywhere.
#[test]
fn what_was_left_enabled_reaches_no_memory() -> Outcome {
    let fixture = Fixture::new(small())?;
    leave_enabled(&fixture)?;
    let function = Watched::new(&fixture, false);
    let controller = function.open(&fixture)?;
    controller.health()?;
    assert!(!function.roamed.load(Ordering::Relaxed));
    assert_eq!(fixture.model.dma_faults(), []);
    Ok(())
}

/// The error of the function's reset hid why one was needed.
#[test]
fn a_controller_that_cannot_be_reset_says_what_was_wrong_first() -> Outcome {
    let fixture = Fixture::new(small())?;
    leave_enabled(&fixture)?;
    fixture.model.set_faults(Faults {
        never_disabled: true,
        ..Faults::default()
    });
    let function = Watched::new(&fixture, true);
    let error = function.open(&fixture).err().ok_or("it was opened")?;
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    let said = error.to_string();
    assert!(
        said.contains("not disabled") && said.contains("reset"),
        "{said}"
    );
    let source = std::error::Error::source(&error).ok_or("why not?")?;
    assert!(source.to_string().contains("not by itself"), "{source}");
    Ok(())
}

/// A controller that did not get ready was given up, although a reset of the function mends some.
#[test]
fn a_controller_that_does_not_come_up_is_reset_as_a_function_once() -> Outcome {
    // Of the function's reset the controller is well again; or not.
    let lost = admin_faults(&[(IDENTIFY, When::Nth(1), Fault::Lose)]);
    let dead = Faults {
        never_ready: true,
        ..Faults::default()
    };
    for (faults, result) in [(lost, Ok(())), (dead, Err(ErrorKind::TimedOut))] {
        let fixture = Fixture::new(model::Options { faults, ..small() })?;
        let function = Watched::new(&fixture, false);
        let opened = function.open(&fixture);
        let healthy = opened.and_then(|controller| controller.health());
        assert_eq!(healthy.map(|_| ()).map_err(|error| error.kind()), result);
        let resets = function.resets.load(Ordering::Relaxed);
        // The last one keeps what does not come up from memory.
        assert!((1..=2).contains(&resets), "{resets}");
    }
    Ok(())
}

/// One queue that was refused led to a reset for each attempt, which others had to bear.
#[test]
fn a_queue_that_is_refused_is_not_a_matter_of_others() -> Outcome {
    let refused = Status::QUEUE_ID.do_not_retry();
    for (status, is_final) in [(refused, true), (Status::INTERNAL, false)] {
        let fixture = Fixture::new(small())?;
        let controller = fixture.open(quick())?;
        let namespace = controller.namespace(1)?;
        let arena = arena(&controller)?;
        let (mut pair, mut other) = (polled(&controller, 8)?, polled(&controller, 8)?);
        let read = || filled(&arena, 512, 0);
        controller.reset()?;
        single(&mut other, &namespace, Request::read(Lba(0), read()?, 0))?.result?;
        let when = if is_final { When::Always } else { When::Nth(1) };
        let rules = [(CREATE_CQ, when, Fault::Fail(status))];
        fixture.model.set_faults(admin_faults(&rules));

        let ended = single(&mut pair, &namespace, Request::read(Lba(0), read()?, 0))?;
        assert_eq!(ended.result.is_err(), is_final);
        assert!(ended.data.is_some(), "the controller has no such queue");
        assert_eq!(controller.recovery().resets, 0);
        assert_eq!(controller.condition(), Condition::Ready);
        single(&mut other, &namespace, Request::read(Lba(0), read()?, 0))?.result?;
        assert_eq!(controller.resets(), 1, "the one that was asked for");
    }
    Ok(())
}

/// A completion ring that the controller would not give back was freed all the same.
#[test]
fn a_ring_that_is_not_given_back_is_taken_by_a_reset() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let refuse = Fault::Fail(Status::INTERNAL.do_not_retry());
    fixture.model.set_faults(admin_faults(&[
        (CREATE_SQ, When::Nth(1), refuse),
        (DELETE_CQ, When::Nth(1), refuse),
    ]));
    let error = polled(&controller, 8).err().ok_or("it was made")?;
    assert_eq!(error.kind(), ErrorKind::Command);
    assert_eq!(controller.recovery().resets, 1);
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
    single(&mut pair, &namespace, read)?.result?;
    assert_eq!(fixture.model.violations(), []);
    Ok(())
}

/// Nobody could learn why a controller was reset, or given up.
#[test]
fn a_controller_that_was_given_up_says_why() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    assert!(controller.last_failure().is_none());
    let read = || filled(&arena, 512, 0);

    fixture.model.set_faults(fault(When::Nth(1), Fault::Fatal));
    single(&mut pair, &namespace, Request::read(Lba(0), read()?, 0))?.result?;
    let failure = controller.last_failure().ok_or("it was reset")?;
    assert!(failure.to_string().contains("fatal status"), "{failure}");

    fixture
        .model
        .set_faults(fault(When::Always, Fault::WrongId));
    while controller.condition() == Condition::Ready {
        let request = Request::read(Lba(0), read()?, 0);
        let _ = single(&mut pair, &namespace, request)?;
    }
    let error = controller.health().err().ok_or("it was given up")?;
    assert_eq!(error.kind(), ErrorKind::Failed);
    let mut chain = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(&error);
    while let Some(error) = next {
        chain.push(error.to_string());
        next = error.source();
    }
    let said = chain.join(" <- ");
    assert!(said.contains("resets did not help"), "{said}");
    assert!(said.contains("not asked for"), "{said}");
    Ok(())
}

/// A format of all namespaces at once was taken for one of a namespace.
#[test]
fn a_format_is_of_one_namespace() -> Outcome {
    let fixture = Fixture::new(small())?;
    let controller = fixture.open(quick())?;
    for id in [0, 2, u32::MAX] {
        let before = fixture.model.counters().commands;
        let error = controller.format(id, 0, Erase::No, PATIENCE).err();
        let kind = error.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::NoNamespace), "{id}");
        assert_eq!(fixture.model.counters().commands, before, "{id}");
    }
    Ok(())
}

/// A host whose thread looks at the clock when it begins to wait, and is stopped for an hour when it looks the
/// next time; the model goes on meanwhile, and then only.
#[derive(Debug)]
struct StoppedHost {
    model: model::Controller,
    looks: AtomicU64,
}

impl Host for StoppedHost {
    fn now(&self) -> Duration {
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        if looks % 2 == 1 {
            for _ in 0..100 {
                self.model.step();
            }
        }
        Duration::from_secs(3600 * looks.div_ceil(2))
    }

    fn relax(&self, _: u32) {}
}

/// A thread that was stopped between its read of CSTS and its read of the clock reported a timeout.
#[test]
fn a_thread_that_is_stopped_does_not_make_the_controller_late() -> Outcome {
    let fixture = Fixture::new(small())?;
    leave_enabled(&fixture)?;
    let host = Arc::new(StoppedHost {
        model: fixture.model.clone(),
        looks: AtomicU64::new(0),
    });
    let function = Watched::new(&fixture, true);
    let controller = Controller::open(Arc::<Watched>::clone(&function), host, quick())?;
    controller.health()?;
    controller.reset()?;
    controller.health()?;
    assert_eq!(controller.recovery().resets, 0);
    assert_eq!(function.resets.load(Ordering::Relaxed), 0);
    Ok(())
}

/// A host that knows how it waits.
#[derive(Debug)]
struct RestingHost {
    model: model::Controller,
    time_ms: AtomicU64,
    relaxed: AtomicU64,
}

impl Host for RestingHost {
    fn now(&self) -> Duration {
        Duration::from_millis(self.time_ms.load(Ordering::Relaxed))
    }

    fn relax(&self, _: u32) {
        self.relaxed.fetch_add(1, Ordering::Relaxed);
        self.model.step();
    }

    fn rest(&self, _: u32) {
        self.time_ms.fetch_add(1, Ordering::Relaxed);
        self.model.step();
    }
}

/// A format, which may take an hour, was polled for without a rest.
#[test]
fn what_may_take_long_is_rested_through() -> Outcome {
    let fixture = Fixture::new(small())?;
    let host = Arc::new(RestingHost {
        model: fixture.model.clone(),
        time_ms: AtomicU64::new(0),
        relaxed: AtomicU64::new(0),
    });
    let shared: Arc<dyn Host> = Arc::<RestingHost>::clone(&host);
    let options = Options {
        interrupts: false,
        ..Options::default()
    };
    let controller = Controller::open(fixture.model.function(), shared, options)?;
    let rules = [(FORMAT, When::Always, Fault::Delay(100_000))];
    fixture.model.set_faults(admin_faults(&rules));
    controller.format(1, 0, Erase::No, PATIENCE)?;
    assert!(host.now() > Duration::from_secs(100));
    controller.reset()?;
    assert_eq!(host.relaxed.load(Ordering::Relaxed), 0);
    Ok(())
}
