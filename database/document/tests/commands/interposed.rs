//! An engine that lets a test act at a chosen moment of somebody else's command.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex};

use millrace_engine::{
    Batch, Counter, Cursor, Durability, Engine, Guards, KeyRange, MemoryEngine, Optime, Result,
    Scratch, Snapshot,
};

/// When a test acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// Before a commit: what it read may change under it.
    BeforeCommit,
    /// After a commit has become visible and before its caller knows.
    AfterCommit,
    /// Before a cursor is opened on the engine's present state.
    Cursor,
}

type Action = Box<dyn FnOnce() + Send>;

/// An action and how many of its moments pass before.
struct Appointment {
    moment: Moment,
    passes: u64,
    action: Action,
}

/// The engine in memory, with one appointment at a time. While the action runs there is none, so that
/// it can use the engine itself.
pub(crate) struct Interposed {
    inner: MemoryEngine,
    appointment: Mutex<Option<Appointment>>,
}

impl Interposed {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: MemoryEngine::new(),
            appointment: Mutex::new(None),
        })
    }

    /// Runs `action` at the moment with this number, counted from zero.
    pub(crate) fn at(&self, moment: Moment, number: u64, action: impl FnOnce() + Send + 'static) {
        let appointment = Appointment {
            moment,
            passes: number,
            action: Box::new(action),
        };
        *self.appointment.lock().expect("no holder panics") = Some(appointment);
    }

    /// That the action was run.
    pub(crate) fn assert_acted(&self) {
        assert!(
            self.appointment.lock().expect("no holder panics").is_none(),
            "the moment never came"
        );
    }

    fn pass(&self, moment: Moment) {
        let mut slot = self.appointment.lock().expect("no holder panics");
        match slot.as_mut() {
            Some(appointment) if appointment.moment == moment => {
                if appointment.passes > 0 {
                    appointment.passes -= 1;
                    return;
                }
            }
            _ => return,
        }
        let due = slot.take();
        drop(slot);
        if let Some(appointment) = due {
            (appointment.action)();
        }
    }
}

impl fmt::Debug for Interposed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interposed")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl Engine for Interposed {
    fn get_with(&self, key: &[u8], visit: &mut dyn FnMut(&[u8])) -> Result<bool> {
        self.inner.get_with(key, visit)
    }

    fn multi_get(&self, keys: &[&[u8]], visit: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<()> {
        self.inner.multi_get(keys, visit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        self.pass(Moment::Cursor);
        self.inner.cursor(range)
    }

    fn commit(&self, batch: &Batch, guards: &Guards, durability: Durability) -> Result<Optime> {
        self.pass(Moment::BeforeCommit);
        let optime = self.inner.commit(batch, guards, durability)?;
        self.pass(Moment::AfterCommit);
        Ok(optime)
    }

    fn counter(&self, key: &[u8]) -> Result<Counter> {
        self.inner.counter(key)
    }

    fn last_optime(&self) -> Optime {
        self.inner.last_optime()
    }

    fn durable_optime(&self) -> Optime {
        self.inner.durable_optime()
    }

    fn sync(&self) -> Result<Optime> {
        self.inner.sync()
    }

    fn scratch(&self) -> Result<Box<dyn Scratch>> {
        self.inner.scratch()
    }

    fn checkpoint(&self, target: &Path) -> Result<Optime> {
        self.inner.checkpoint(target)
    }

    fn size_estimate(&self, range: &KeyRange) -> Result<u64> {
        self.inner.size_estimate(range)
    }

    fn compact(&self, range: &KeyRange) -> Result<()> {
        self.inner.compact(range)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.inner.statistics()
    }
}
