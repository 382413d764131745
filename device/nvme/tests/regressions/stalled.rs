//! A provider that stops answering, as a server does that was stopped: its device may still be at work.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use millrace_memory::Domain;
use millrace_nvme::{CommandError, Condition, Controller, Host, Lba, Request};
use millrace_nvme_model as model;
use millrace_pci::{Bar, Error, ErrorKind, Function, RegisterFile, Result};
use model::{Fault, When};

use crate::bed::{Bed, Outcome, PATIENCE, StepHost, arena, filled, polled, quick};
use crate::{fault, small};

/// A function of which nothing is heard once it has stalled.
#[derive(Debug)]
struct Stalling {
    own: Arc<dyn Function>,
    stalled: Arc<AtomicBool>,
}

/// Its registers.
#[derive(Debug)]
struct Registers {
    own: Arc<Bar>,
    stalled: Arc<AtomicBool>,
}

fn check(stalled: &AtomicBool) -> Result<()> {
    if stalled.load(Ordering::Relaxed) {
        return Err(Error::new(ErrorKind::Gone, "no answer"));
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
        self.own.domain()
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

/// Memory was given back as if a provider that does not answer were a device that is off the bus.
#[test]
fn memory_is_not_given_back_by_a_provider_that_does_not_answer() -> Outcome {
    let bed = Bed::new(small())?;
    let stalled = Arc::new(AtomicBool::new(false));
    let function: Arc<dyn Function> = Arc::new(Stalling {
        own: bed.model.function(),
        stalled: Arc::clone(&stalled),
    });
    let host: Arc<dyn Host> = Arc::<StepHost>::clone(&bed.host);
    let controller = Controller::open(function, host, quick())?;
    let namespace = controller.namespace(1)?;
    let (arena, mut pair) = (arena(&controller)?, polled(&controller, 8)?);
    bed.model
        .set_faults(fault(When::Always, Fault::Delay(1_000_000)));
    pair.submit(
        &namespace,
        Request::read(Lba(0), filled(&arena, 512, 0)?, 0),
    )?;
    pair.ring();
    bed.model.step();
    stalled.store(true, Ordering::Relaxed);
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
