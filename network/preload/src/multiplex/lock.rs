//! A lock that a fork can put right.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use super::kernel;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody sleeps for it.
const WANTED: u32 = 2;

/// Rounds of looking before sleeping.
const ROUNDS: u32 = 100;

/// A futex lock: three states, after U. Drepper, "Futexes are tricky", section 5. What it has over the standard
/// library's is [`Lock::acquire`] and [`Lock::release`] without a guard, for the hooks of fork.
pub(crate) struct Lock<T> {
    word: AtomicU32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, the holder.
unsafe impl<T: Send> Sync for Lock<T> {}

impl<T> Lock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(FREE),
            value: UnsafeCell::new(value),
        }
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        self.acquire();
        Guard { lock: self }
    }

    /// The lock, if it comes free within some looks.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        for _ in 0..ROUNDS {
            if self.take() {
                return Some(Guard { lock: self });
            }
            std::hint::spin_loop();
        }
        None
    }

    fn take(&self) -> bool {
        // Acquire pairs with the release store of `release`.
        self.word
            .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Locks without a guard; [`Self::release`] ends it.
    pub(crate) fn acquire(&self) {
        for _ in 0..ROUNDS {
            if self.take() {
                return;
            }
            std::hint::spin_loop();
        }
        while self.word.swap(WANTED, Ordering::Acquire) != FREE {
            kernel::futex_wait(&self.word, WANTED);
        }
    }

    /// Unlocks what [`Self::acquire`] locked, in this process or in the parent before the fork.
    pub(crate) fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) == WANTED {
            kernel::futex_wake(&self.word);
        }
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// Holds a [`Lock`].
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    lock: &'a Lock<T>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed alone.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        self.lock.release();
    }
}
