//! The state of the engine that a running plan reads.

use std::sync::Arc;

use millrace_engine::{Cursor, Engine, KeyRange, Snapshot};

use crate::Result;

/// The engine, or one state of it while a plan follows index keys to records: without a snapshot, the
/// record could have changed since its key was read.
#[derive(Debug)]
pub(super) struct View {
    engine: Arc<dyn Engine>,
    snapshot: Option<Box<dyn Snapshot>>,
}

impl View {
    pub(super) const fn new(engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            snapshot: None,
        }
    }

    pub(super) fn engine(&self) -> &dyn Engine {
        self.engine.as_ref()
    }

    pub(super) const fn shared_engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Holds the engine's present state until [`release`](Self::release).
    pub(super) fn hold(&mut self) -> Result<()> {
        if self.snapshot.is_none() {
            self.snapshot = Some(self.engine.snapshot()?);
        }
        Ok(())
    }

    /// Lets go of the state that is held.
    pub(super) fn release(&mut self) {
        self.snapshot = None;
    }

    pub(super) fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        Ok(match &self.snapshot {
            Some(snapshot) => snapshot.cursor(range)?,
            None => self.engine.cursor(range)?,
        })
    }

    /// Calls `visit` with the value of `key`; whether there is one. `visit` must not call the engine.
    pub(super) fn get_with(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        let mut outcome = Ok(());
        let mut record = |bytes: &[u8]| outcome = visit(bytes);
        let found = match &self.snapshot {
            Some(snapshot) => snapshot.get_with(key, &mut record)?,
            None => self.engine.get_with(key, &mut record)?,
        };
        outcome?;
        Ok(found)
    }
}
