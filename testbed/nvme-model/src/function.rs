//! The controller as a PCI function in this process.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, PoisonError};

use millrace_memory::{self as memory, Domain, Iova, Region};
use millrace_pci::{self as pci, Bar, Function, RegisterFile};

use crate::controller::Inner;
use crate::host::Table;
use crate::registers::{DOORBELLS, Registers};
use crate::state::State;

/// What a driver gets.
#[derive(Debug)]
pub(crate) struct ModelFunction {
    inner: Arc<Inner>,
    bar: Arc<Bar>,
    domain: Arc<ModelDomain>,
}

/// The controller's address space.
#[derive(Debug)]
struct ModelDomain {
    inner: Arc<Inner>,
}

/// BAR 0.
#[derive(Debug)]
struct ModelRegisters {
    registers: Arc<Registers>,
}

impl ModelFunction {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        let file = Arc::new(ModelRegisters {
            registers: Arc::clone(&inner.registers),
        });
        let size = usize::try_from(inner.doorbells_end - DOORBELLS).expect("few doorbells");
        let mapped = inner.registers.doorbells.file();
        let areas = mapped.map(|file| file.area(DOORBELLS, size));
        let areas = areas.into_iter().collect();
        Self {
            bar: Arc::new(Bar::new(inner.bar_size, areas, file)),
            domain: Arc::new(ModelDomain {
                inner: Arc::clone(&inner),
            }),
            inner,
        }
    }
}

fn outside(what: &str, offset: impl std::fmt::LowerHex) -> pci::Error {
    pci::Error::new(pci::ErrorKind::OutOfRange, format!("{what} {offset:#x}"))
}

impl Function for ModelFunction {
    fn name(&self) -> &str {
        "model"
    }

    fn read_config(&self, offset: u16, bytes: &mut [u8]) -> pci::Result<()> {
        if self.inner.read_config(usize::from(offset), bytes) {
            return Ok(());
        }
        Err(outside("configuration space at", offset))
    }

    fn write_config(&self, offset: u16, bytes: &[u8]) -> pci::Result<()> {
        if self.inner.write_config(usize::from(offset), bytes) {
            return Ok(());
        }
        Err(outside("configuration space at", offset))
    }

    fn bar(&self, index: u8) -> pci::Result<Arc<Bar>> {
        match index {
            0 => Ok(Arc::clone(&self.bar)),
            _ => Err(outside("base address", index)),
        }
    }

    fn domain(&self) -> Arc<dyn Domain> {
        Arc::clone(&self.domain) as Arc<dyn Domain>
    }

    fn vectors(&self) -> u16 {
        self.inner.vectors
    }

    fn set_vectors(&self, events: &[BorrowedFd<'_>]) -> pci::Result<usize> {
        if events.len() > usize::from(self.inner.vectors) {
            return Err(outside("vector", events.len()));
        }
        let owned = events
            .iter()
            .map(|event| event.try_clone_to_owned().map(Some))
            .collect::<Result<Vec<_>, _>>();
        let owned = owned.map_err(|source| {
            pci::Error::new(pci::ErrorKind::Refused, "keeping an eventfd").caused_by(source)
        })?;
        self.inner.lines.set(owned);
        Ok(events.len())
    }

    fn reset(&self) -> pci::Result<()> {
        if self.inner.registers.is_removed() {
            return Err(pci::Error::new(pci::ErrorKind::Gone, "reset of the model"));
        }
        self.inner.reset();
        Ok(())
    }
}

impl RegisterFile for ModelRegisters {
    #[inline]
    fn load(&self, offset: u64) -> pci::Result<u32> {
        Ok(self.registers.load(offset))
    }

    #[inline]
    fn store(&self, offset: u64, value: u32) -> pci::Result<()> {
        self.registers.store(offset, value);
        Ok(())
    }
}

impl Domain for ModelDomain {
    fn map(&self, region: &Arc<Region>) -> memory::Result<Iova> {
        self.inner.memory.map_region(region).map(Iova)
    }

    unsafe fn unmap(&self, iova: Iova) -> memory::Result<()> {
        if self.inner.unmap(iova.0, None) {
            return Ok(());
        }
        Err(memory::Error::new(
            memory::ErrorKind::NotMapped,
            format!("device address {iova}"),
        ))
    }
}

impl Inner {
    pub(crate) fn read_config(&self, offset: usize, bytes: &mut [u8]) -> bool {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let is_inside = config.read(offset, bytes);
        drop(config);
        if is_inside && self.registers.is_removed() {
            bytes.fill(u8::MAX);
        }
        is_inside
    }

    pub(crate) fn write_config(&self, offset: usize, bytes: &[u8]) -> bool {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        let is_inside = config.write(offset, bytes);
        self.memory.set_bus_master(config.is_bus_master());
        is_inside
    }

    /// Takes a mapping from the controller, and records it if the controller may still use it; returns whether
    /// there was one.
    pub(crate) fn unmap(&self, address: u64, size: Option<u64>) -> bool {
        let mut state = self.state();
        let table = self.memory.table();
        if let Some(range) = table.range(address, size) {
            self.check_unmapping(&mut state, &range, &table);
        }
        drop(table);
        self.memory.remove(address, size)
    }

    /// Takes all mappings from the controller, in the same way.
    pub(crate) fn unmap_all(&self) {
        let mut state = self.state();
        let table = self.memory.table();
        self.check_unmapping(&mut state, &(0..u64::MAX), &table);
        drop(table);
        self.memory.clear();
    }

    fn check_unmapping(&self, state: &mut State, range: &Range<u64>, table: &Table) {
        // Otherwise it reaches no memory, whatever it has been told.
        if self.memory.is_bus_master() && !self.registers.is_removed() {
            state.check_unmapping(range, table);
        }
    }

    /// A function-level reset.
    pub(crate) fn reset(&self) {
        let mut state = self.state();
        state.reset_function();
        self.clear_function();
    }

    /// Configuration space and vectors as after power-on.
    pub(crate) fn clear_function(&self) {
        let mut config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        config.clear();
        drop(config);
        self.memory.set_bus_master(false);
        self.lines.set(Vec::new());
    }
}
