//! The state of the engine that a running plan reads.

use millrace_engine::{Cursor, KeyRange};
use millrace_value::{ReadView, Result};

/// The view that a plan reads at. At the latest view, one state is held while the plan follows index keys
/// to records: without it, the record could have changed since its key was read.
#[derive(Debug)]
pub(super) struct PlanView {
    view: ReadView,
    /// The state that is held; none at a fixed view, which is one state anyway.
    held: Option<ReadView>,
}

impl PlanView {
    pub(super) const fn new(view: ReadView) -> Self {
        Self { view, held: None }
    }

    /// The view without the state that is held.
    pub(super) const fn unheld(&self) -> &ReadView {
        &self.view
    }

    /// Holds the present state until [`release`](Self::release).
    pub(super) fn hold(&mut self) -> Result<()> {
        if self.held.is_none() && !self.view.is_fixed() {
            self.held = Some(self.view.fixed()?);
        }
        Ok(())
    }

    /// Lets go of the state that is held.
    pub(super) fn release(&mut self) {
        self.held = None;
    }

    /// As [`ReadView::cursor`].
    pub(super) fn cursor(&self, range: KeyRange) -> Result<Box<dyn Cursor>> {
        self.current().cursor(range)
    }

    /// As [`ReadView::get_checked`].
    pub(super) fn get_with(
        &self,
        key: &[u8],
        visit: &mut dyn FnMut(&[u8]) -> Result<()>,
    ) -> Result<bool> {
        self.current().get_checked(key, visit)
    }

    fn current(&self) -> &ReadView {
        self.held.as_ref().unwrap_or(&self.view)
    }
}
