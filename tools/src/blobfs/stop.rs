//! Ends long work in order when somebody presses Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::SIGINT;

use super::{ToolError, ErrorKind};

/// Whether the work is to end.
#[derive(Clone, Debug)]
pub(super) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// The first Ctrl-C from now on asks for the end, the second one ends the process.
    pub(super) fn on_signal() -> Result<Self, ToolError> {
        let stop = Arc::new(AtomicBool::new(false));
        let failed = |source| {
            ToolError::new(ErrorKind::System, "signals could not be watched").caused_by(source)
        };
        signal_hook::flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&stop))
            .map_err(failed)?;
        signal_hook::flag::register(SIGINT, Arc::clone(&stop)).map_err(failed)?;
        Ok(Self(stop))
    }

    /// Nothing, unless the work is to end.
    pub(super) fn check(&self) -> Result<(), ToolError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(ToolError::new(ErrorKind::Interrupted, "interrupted"));
        }
        Ok(())
    }
}
