//! A host that does what a test wants done while the driver waits.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_nvme::{Controller, Error, Host, Options};
use millrace_nvme_model as model;

use crate::fixture::Fixture;

/// So long a round of waiting takes.
const ROUND_NS: u64 = 100_000;

type Hook = Box<dyn FnMut() + Send>;

/// Steps the model once in a round of waiting and then runs the hook, if there is one and it does not run.
pub(crate) struct HookedHost {
    model: model::Controller,
    time_ns: AtomicU64,
    hook: Mutex<Option<Hook>>,
}

impl HookedHost {
    /// Opens the fixture's controller with such a host.
    pub(crate) fn open(
        fixture: &Fixture,
        options: Options,
    ) -> Result<(Arc<Self>, Arc<Controller>), Error> {
        let own = Arc::new(Self {
            model: fixture.model.clone(),
            time_ns: AtomicU64::new(0),
            hook: Mutex::new(None),
        });
        let host: Arc<dyn Host> = Arc::<Self>::clone(&own);
        Ok((
            own,
            Controller::open(fixture.model.function(), host, options)?,
        ))
    }

    /// From now on this is done in each round of waiting.
    pub(crate) fn set_hook(&self, hook: impl FnMut() + Send + 'static) {
        self.replace(Some(Box::new(hook)));
    }

    /// Drops the hook, once it does not run.
    pub(crate) fn clear_hook(&self) {
        self.replace(None);
    }

    fn replace(&self, hook: Option<Hook>) {
        let mut place = self.hook.lock().unwrap_or_else(PoisonError::into_inner);
        let former = std::mem::replace(&mut *place, hook);
        // What it has may wait when it is dropped.
        drop(place);
        drop(former);
    }
}

impl Host for HookedHost {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.time_ns.load(Ordering::Relaxed))
    }

    fn relax(&self, _: u32) {
        self.model.step();
        self.time_ns.fetch_add(ROUND_NS, Ordering::Relaxed);
        // It is taken while it runs, by this thread or another.
        let Ok(mut place) = self.hook.try_lock() else {
            return;
        };
        if let Some(hook) = &mut *place {
            hook();
        }
    }
}

impl fmt::Debug for HookedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookedHost").finish_non_exhaustive()
    }
}
