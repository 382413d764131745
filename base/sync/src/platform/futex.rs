//! Sleeping on a futex.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::thread::futex;

use crate::Parker;

/// Sleeps on a futex (Linux). The ticket is the word that the kernel compares before it lets a thread
/// sleep.
#[derive(Debug, Default)]
pub struct Futex {
    /// Number of wake-ups. Relaxed: the fences of the [`Event`](crate::Event) order the change and the sleepers, and
    /// the kernel compares under a lock of its own.
    wakings: AtomicU32,
}

impl Parker for Futex {
    fn try_new() -> io::Result<Self> {
        Ok(Self::default())
    }

    fn ticket(&self) -> u32 {
        self.wakings.load(Ordering::Relaxed)
    }

    fn sleep(&self, ticket: u32) {
        // Whatever the reason for its return - woken, too late, a signal - the caller looks again.
        let _ = futex::wait(&self.wakings, futex::Flags::PRIVATE, ticket, None);
    }

    fn wake(&self) {
        self.wakings.fetch_add(1, Ordering::Relaxed);
        // It fails only for an address that is not mapped.
        let _ = futex::wake(
            &self.wakings,
            futex::Flags::PRIVATE,
            i32::MAX.unsigned_abs(),
        );
    }
}
