//! A host that has fewer interrupt vectors left than the controller has.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_memory::Domain;
use millrace_nvme::{
    Condition, Controller, Error, ErrorKind, Host, Lba, Options, QueueOptions, Request, Waiting,
};
use millrace_pci::{Bar, Function, Result};

use super::small;
use crate::fixture::{Fixture, Outcome, StepHost, arena, filled, polled, quick, single};

/// A function of which the host signals the first vectors only.
#[derive(Debug)]
struct Scarce {
    own: Arc<dyn Function>,
    free: AtomicUsize,
}

impl Function for Scarce {
    fn name(&self) -> &str {
        self.own.name()
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        self.own.read_config(offset, bytes)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<()> {
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
        let taken = events.len().min(self.free.load(Ordering::Relaxed));
        self.own.set_vectors(&events[..taken])
    }

    fn reset(&self) -> Result<()> {
        self.own.reset()
    }
}

/// A controller on a host with so many vectors.
fn open(
    fixture: &Fixture,
    free: usize,
) -> std::result::Result<(Arc<Scarce>, Arc<Controller>), Error> {
    let function = Arc::new(Scarce {
        own: fixture.model.function(),
        free: AtomicUsize::new(free),
    });
    let host: Arc<dyn Host> = Arc::<StepHost>::clone(&fixture.host);
    let options = Options {
        interrupts: true,
        ..quick()
    };
    let controller = Controller::open(Arc::<Scarce>::clone(&function), host, options)?;
    Ok((function, controller))
}

const SLEEPING: QueueOptions = QueueOptions {
    depth: 4,
    waiting: Waiting::Interrupt,
};

/// A controller could not be opened at all.
#[test]
fn as_many_queue_pairs_sleep_as_the_host_has_vectors_for() -> Outcome {
    for free in [0, 1, 2, 4] {
        let fixture = Fixture::new(small())?;
        let (_, controller) = open(&fixture, free)?;
        // The first vector is the admin queue's.
        let expected = free.saturating_sub(1);
        assert_eq!(controller.has_interrupts(), expected > 0);
        let mut sleeping = Vec::new();
        for _ in 0..expected {
            sleeping.push(controller.queue_pair(SLEEPING)?);
        }
        let refused = controller.queue_pair(SLEEPING).err();
        let kind = refused.map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::NoQueue), "{free} vectors");

        let namespace = controller.namespace(1)?;
        let (arena, mut pair) = (arena(&controller)?, polled(&controller, 4)?);
        let read = Request::read(Lba(0), filled(&arena, 512, 0)?, 0);
        single(&mut pair, &namespace, read)?.result?;
        assert_eq!(fixture.model.violations(), []);
    }
    Ok(())
}

/// Queue pairs would sleep for ever.
#[test]
fn a_controller_that_has_lost_vectors_does_not_come_back() -> Outcome {
    let fixture = Fixture::new(small())?;
    let (function, controller) = open(&fixture, 3)?;
    function.free.store(2, Ordering::Relaxed);
    let kind = controller.reset().err().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::Failed));
    assert_eq!(controller.condition(), Condition::Failed);
    Ok(())
}
