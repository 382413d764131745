//! A provider that stops answering, as a server does that was stopped: its device may still be at work.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use millrace_memory::{Arena, ArenaOptions, Domain, Iova, Pages, Region, SizeClass};
use millrace_nvme::{CommandError, Condition, Controller, ErrorKind, Host, Lba, Request};
use millrace_nvme_model as model;
use millrace_pci::{Bar, Error, Function, RegisterFile, Result};
use model::{Fault, When};

use super::{fault, small};
use crate::fixture::{Fixture, Outcome, PATIENCE, StepHost, arena, filled, polled, quick};

/// A function of which nothing is heard once it has stalled.
#[derive(Debug)]
struct Stalling {
    own: Arc<dyn Function>,
    domain: Arc<Counting>,
    stalled: Arc<AtomicBool>,
}

/// Where it reaches memory: counts what is taken from it.
#[derive(Debug)]
struct Counting {
    own: Arc<dyn Domain>,
    unmapped: AtomicU64,
}

impl Domain for Counting {
    fn map(&self, region: &Arc<Region>) -> millrace_memory::Result<Iova> {
        self.own.map(region)
    }

    unsafe fn unmap(&self, iova: Iova) -> millrace_memory::Result<()> {
        self.unmapped.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps the same promise.
        unsafe { self.own.unmap(iova) }
    }
}

/// Its registers.
#[derive(Debug)]
struct Registers {
    own: Arc<Bar>,
    stalled: Arc<AtomicBool>,
}

fn check(stalled: &AtomicBool) -> Result<()> {
    if stalled.load(Ordering::Relaxed) {
        return Err(Error::new(millrace_pci::ErrorKind::Gone, "no answer"));
    }
    Ok(())
}

impl RegisterFile for Registers {
    fn load(&self, offset: u64) -> Result<u32> {
        check(&self.stalled)?;
        self.own.register(offset)?.load()
    }

    fn store(&self, offset: u64, value: u32) -> Result<()> {
        check(&self.stalled)?;
        self.own.register(offset)?.store_released(value)
    }
}

impl Function for Stalling {
    fn name(&self) -> &str {
        self.own.name()
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> Result<()> {
        check(&self.stalled)?;
        self.own.read_config(offset, bytes)
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> Result<()> {
        check(&self.stalled)?;
        self.own.write_config(offset, bytes)
    }

    fn bar(&self, index: u8) -> Result<Arc<Bar>> {
        let own = self.own.bar(index)?;
        let size = own.size();
        let stalled = Arc::clone(&self.stalled);
        let registers = Registers { own, stalled };
        Ok(Arc::new(Bar::new(size, Vec::new(), Arc::new(registers))))
    }

    fn domain(&self) -> Arc<dyn Domain> {
        Arc::<Counting>::clone(&self.domain)
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn set_vectors(&self, _: &[BorrowedFd<'_>]) -> Result<usize> {
        Ok(0)
    }

    fn reset(&self) -> Result<()> {
        check(&self.stalled)?;
        self.own.reset()
    }
}

/// A controller whose provider can be stalled.
struct Scene {
    fixture: Fixture,
    stalled: Arc<AtomicBool>,
    domain: Arc<Counting>,
    controller: Arc<Controller>,
}

impl Scene {
    fn new() -> std::result::Result<Self, Box<dyn std::error::Error>> {
        let fixture = Fixture::new(small())?;
        let stalled = Arc::new(AtomicBool::new(false));
        let own = fixture.model.function();
        let domain = Arc::new(Counting {
            own: own.domain(),
            unmapped: AtomicU64::new(0),
        });
        let function: Arc<dyn Function> = Arc::new(Stalling {
            own,
            domain: Arc::clone(&domain),
            stalled: Arc::clone(&stalled),
        });
        let host: Arc<dyn Host> = Arc::<StepHost>::clone(&fixture.host);
        Ok(Self {
            controller: Controller::open(function, host, quick())?,
            fixture,
            stalled,
            domain,
        })
    }

    /// From now on nothing is heard of it; commands that it has are long in coming.
    fn stall(&self) {
        self.stalled.store(true, Ordering::Relaxed);
    }

    fn delay(&self) {
        let faults = fault(When::Always, Fault::Delay(1_000_000));
        self.fixture.model.set_faults(faults);
    }
}

/// Memory was given back as if a provider that does not answer were a device that is off the bus.
#[test]
fn memory_is_not_given_back_by_a_provider_that_does_not_answer() -> Outcome {
    let scene = Scene::new()?;
    let controller = &scene.controller;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(controller)?, polled(controller, 8)?);
    scene.delay();
    pair.submit(
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    pair.ring();
    scene.fixture.model.step();
    scene.stall();
    let mut ended = Vec::new();
    pair.wait(PATIENCE, |completion| ended.push(completion));
    let completion = ended.pop().ok_or("the request never ended")?;
    assert_eq!(completion.result, Err(CommandError::Gone));
    assert!(
        completion.data.is_none(),
        "the device may still write there"
    );
    assert_eq!(controller.condition(), Condition::Gone);
    Ok(())
}

/// The same when the pair was dropped without a poll: the arena gave the buffer out again.
#[test]
fn memory_of_a_dropped_pair_is_not_given_back_either() -> Outcome {
    let scene = Scene::new()?;
    let controller = &scene.controller;
    let namespace = controller.namespace(1)?;
    let options = ArenaOptions {
        classes: vec![SizeClass {
            size: 512,
            count: 1,
        }],
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    let arena = Arena::new(Arc::clone(controller.domain()), &options)?;
    let mut pair = polled(controller, 8)?;
    scene.delay();
    pair.submit(&namespace, Request::read(Lba(0), arena.try_buffer(512)?, 0))?;
    pair.ring();
    scene.fixture.model.step();
    scene.stall();
    drop(pair);
    assert_eq!(controller.condition(), Condition::Gone);
    assert!(
        arena.try_buffer(512).is_err(),
        "the device may still write there"
    );
    let unmapped = scene.domain.unmapped.load(Ordering::Relaxed);
    assert_eq!(unmapped, 0, "rings that the device may still use");
    Ok(())
}

/// The same of the rings of a pair that could not be made: the controller may know them.
#[test]
fn memory_of_a_pair_that_was_not_made_is_kept() -> Outcome {
    let scene = Scene::new()?;
    scene.stall();
    let kind = polled(&scene.controller, 8).err().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::Gone));
    assert_eq!(scene.domain.unmapped.load(Ordering::Relaxed), 0);
    Ok(())
}
