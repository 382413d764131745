//! The tokens of the processes that hold one record.

use std::sync::atomic::{AtomicU32, Ordering};

/// Number of token slots in one record.
pub(crate) const TOKENS: usize = 10;

/// Tokens of one record, at most [`TOKENS`].
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Tokens(pub(crate) [AtomicU32; TOKENS]);

impl Tokens {
    pub(crate) fn clear(&self) {
        for place in &self.0 {
            place.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn change(&self, from: u32, to: u32) -> bool {
        self.0.iter().any(|place| {
            place.load(Ordering::Relaxed) == from
                && place
                    .compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        })
    }

    pub(crate) fn has(&self, token: u32) -> bool {
        self.0
            .iter()
            .any(|place| place.load(Ordering::Relaxed) == token)
    }
}
