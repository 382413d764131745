//! The handle.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_pci::Function;

use crate::config_space::ConfigSpace;
use crate::faults::Faults;
use crate::function::ModelFunction;
use crate::host::{DmaFault, Doorbells, MappedFile, Memory};
use crate::lines::Lines;
use crate::options::Options;
use crate::registers::{DOORBELLS, Registers};
use crate::state::{Counters, Event, State};
use crate::violation::Violation;
use crate::{Error, ErrorKind, Result};

/// What the handles and the functions share.
///
/// Locks are taken in this order: state, table of mappings, configuration space.
#[derive(Debug)]
pub(crate) struct Inner {
    state: Mutex<State>,
    pub(crate) registers: Arc<Registers>,
    pub(crate) memory: Memory,
    pub(crate) lines: Arc<Lines>,
    pub(crate) config: Mutex<ConfigSpace>,
    pub(crate) bar_size: u64,
    /// Where the doorbells' pages end in BAR 0.
    pub(crate) doorbells_end: u64,
    pub(crate) vectors: u16,
}

impl Inner {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An NVMe controller. Handles are shares of one controller and may be used on any thread; so may its
/// function, while another thread steps.
#[derive(Clone, Debug)]
pub struct Controller {
    inner: Arc<Inner>,
}

impl Controller {
    /// A controller that was just powered on, with empty media.
    ///
    /// # Errors
    /// [`ErrorKind::Options`] if there cannot be such a one.
    pub fn new(options: Options) -> Result<Self> {
        options.check()?;
        let count = options.doorbells();
        let doorbells = if options.mapped_doorbells && Options::can_map_doorbells() {
            let size = usize::try_from(options.bar_size()).expect("BAR 0 is small");
            let (_, file) = MappedFile::create(DOORBELLS, size).map_err(|source| {
                Error::new(ErrorKind::Options, "memory for the doorbells").caused_by(source)
            })?;
            Doorbells::shared(count, 1 << options.doorbell_stride, &Arc::new(file))
        } else {
            Doorbells::new(count)
        };
        Ok(Self::with_doorbells(options, doorbells))
    }

    /// `options` were checked; there are as many doorbells as they say.
    pub(crate) fn with_doorbells(options: Options, doorbells: Doorbells) -> Self {
        let registers = Arc::new(Registers::new(&options, doorbells));
        let lines = Arc::new(Lines::default());
        let inner = Inner {
            registers: Arc::clone(&registers),
            memory: Memory::new(options.seed),
            lines: Arc::clone(&lines),
            config: Mutex::new(ConfigSpace::new(&options)),
            bar_size: options.bar_size(),
            doorbells_end: options.vector_table(),
            vectors: options.vectors,
            state: Mutex::new(State::new(options, registers, lines)),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub(crate) fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    /// The controller as a driver sees it. One driver at a time, as with hardware.
    #[must_use]
    pub fn function(&self) -> Arc<dyn Function> {
        Arc::new(ModelFunction::new(Arc::clone(&self.inner)))
    }

    /// Looks at the registers and queues once, and does what there is to do; returns how many things it
    /// did. Nothing happens outside.
    pub fn step(&self) -> usize {
        let mut state = self.inner.state();
        let table = self.inner.memory.table();
        let done = state.step(&table, self.inner.memory.is_bus_master());
        drop(table);
        done
    }

    /// Number of steps since the controller was made; resets and power cuts do not clear it.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.inner.state().steps()
    }

    /// Cuts the power: writes that were not flushed may be lost, as the seed wants, and the controller is as
    /// after power-on. What the host mapped stays mapped.
    pub fn power_cut(&self) {
        let mut state = self.inner.state();
        state.cut_power();
        self.inner.clear_function();
    }

    /// Pulls the function out: everything reads as all ones and memory is not reached any more. Plugging it
    /// in again is a power cut and [`Controller::insert`].
    pub fn remove(&self) {
        // The lock waits for a step that is under way.
        let _state = self.inner.state();
        self.inner.registers.set_removed(true);
    }

    /// Plugs the function in again, as after power-on; unflushed writes may be lost.
    pub fn insert(&self) {
        self.power_cut();
        self.inner.registers.set_removed(false);
    }

    /// Makes something happen that the host hears of, if it asked, and has read the log page of the last event of
    /// the type.
    pub fn raise_event(&self, event: Event) {
        self.inner.state().raise(event);
    }

    /// Replaces what goes wrong from now on; rules count anew. Lies about CAP stay as they were made.
    pub fn set_faults(&self, faults: Faults) {
        self.inner.state().set_faults(faults);
    }

    /// What the host did against the rules so far (the first thousand).
    #[must_use]
    pub fn violations(&self) -> Vec<Violation> {
        self.inner.state().violations()
    }

    /// Accesses to memory that was not mapped (the first thousand).
    #[must_use]
    pub fn dma_faults(&self) -> Vec<DmaFault> {
        self.inner.state().dma_faults()
    }

    /// Forgets violations and faults of memory access.
    pub fn clear_records(&self) {
        self.inner.state().clear_records();
    }

    /// Counts of commands, completions and interrupts since the controller was made.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.inner.state().counters()
    }

    /// A block as a read would find it now.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such block.
    pub fn peek(&self, namespace: u32, block: u64) -> Result<Vec<u8>> {
        let state = self.inner.state();
        let medium = state
            .medium(namespace)
            .filter(|medium| block < medium.blocks())
            .ok_or_else(|| {
                let context = format!("block {block} of namespace {namespace}");
                Error::new(ErrorKind::NotFound, context)
            })?;
        let mut bytes = vec![0; medium.block_size()];
        medium.read(block, &mut bytes);
        Ok(bytes)
    }

    /// How many writes a power cut could undo now.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such namespace.
    pub fn unflushed(&self, namespace: u32) -> Result<usize> {
        let state = self.inner.state();
        let medium = state.medium(namespace);
        let unflushed = medium.map(crate::medium::Medium::unflushed);
        unflushed.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("namespace {namespace}")))
    }

    /// A number that stands for all that a namespace holds: equal for equal contents.
    ///
    /// # Errors
    /// [`ErrorKind::NotFound`] if there is no such namespace.
    pub fn digest(&self, namespace: u32) -> Result<u64> {
        let state = self.inner.state();
        let digest = state.medium(namespace).map(crate::medium::Medium::digest);
        digest.ok_or_else(|| Error::new(ErrorKind::NotFound, format!("namespace {namespace}")))
    }
}
