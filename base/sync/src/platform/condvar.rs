//! Sleeping on a condition variable.

use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crate::Parker;

/// Sleeps on a condition variable: the parker of [`Native`](crate::Native) on systems other than Linux. Any number of
/// threads may sleep. The ticket is the number of wake-ups so far, modulo 2^32.
#[derive(Debug, Default)]
pub struct CondvarParker {
    wakings: Mutex<u32>,
    woken: Condvar,
}

impl CondvarParker {
    /// The number of wake-ups. No code panics while it holds the lock.
    fn lock(&self) -> MutexGuard<'_, u32> {
        self.wakings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Parker for CondvarParker {
    fn try_new() -> io::Result<Self> {
        Ok(Self::default())
    }

    fn ticket(&self) -> u32 {
        *self.lock()
    }

    fn sleep(&self, ticket: u32) {
        let unchanged = |wakings: &mut u32| *wakings == ticket;
        drop(self.woken.wait_while(self.lock(), unchanged));
    }

    fn wake(&self) {
        let mut wakings = self.lock();
        *wakings = wakings.wrapping_add(1);
        drop(wakings);
        self.woken.notify_all();
    }
}
