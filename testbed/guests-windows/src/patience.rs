//! How long a silent peer is waited for.

use std::hint;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// For so long nothing may happen: less than a guest may take, more than one that is slow to boot takes.
pub(crate) const LIMIT: Duration = Duration::from_secs(120);

/// The clock is looked at, and the processor left to others, once in so many looks at memory.
const LOOKS: u32 = 256;

/// Counts looks at memory at which there was nothing new.
#[derive(Debug)]
pub(crate) struct Patience {
    looks: u32,
    since: Instant,
}

impl Patience {
    pub(crate) fn new() -> Self {
        Self {
            looks: 0,
            since: Instant::now(),
        }
    }

    /// To be called when something has happened.
    pub(crate) fn renew(&mut self) {
        if self.looks >= LOOKS {
            self.since = Instant::now();
        }
        self.looks = 0;
    }

    /// To be called when there was nothing. Returns for how long there has been nothing, if it was worth a look
    /// at the clock.
    pub(crate) fn wait(&mut self) -> Option<Duration> {
        self.looks = self.looks.saturating_add(1);
        if self.looks % LOOKS != 0 {
            hint::spin_loop();
            return None;
        }
        if self.looks == LOOKS {
            self.since = Instant::now();
        }
        thread::yield_now();
        Some(self.since.elapsed())
    }

    /// Waits, but not for ever.
    pub(crate) fn wait_for(&mut self, what: &'static str) -> Result<()> {
        match self.wait() {
            Some(silence) if silence > LIMIT => Err(Error::Silence { what }),
            _ => Ok(()),
        }
    }
}
