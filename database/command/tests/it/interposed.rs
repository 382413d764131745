//! An engine that lets a test act at a chosen moment of another client's command.

use std::fmt;
use std::sync::Mutex;

use millrace_engine::conformance::hooked::{Hooked, Hooks};
use millrace_engine::{Engine, MemoryEngine};

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

/// One appointment at a time. While the action runs there is none, so that it can use the engine itself.
#[derive(Default)]
pub(crate) struct Appointments {
    appointment: Mutex<Option<Appointment>>,
}

/// The engine in memory, with appointments.
pub(crate) type Interposed = Hooked<MemoryEngine, Appointments>;

impl Appointments {
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

impl fmt::Debug for Appointments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Appointments").finish_non_exhaustive()
    }
}

impl Hooks for Appointments {
    fn before_commit(&self) {
        self.pass(Moment::BeforeCommit);
    }

    fn after_commit(&self, _: &dyn Engine) {
        self.pass(Moment::AfterCommit);
    }

    fn before_cursor(&self) {
        self.pass(Moment::Cursor);
    }
}
