//! A lock that survives a fork, and that refuses a signal handler above its holder.

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::errno::Errno;
use crate::lock::Refused;
use crate::thread;

use super::kernel;

const FREE: u32 = 0;
/// Flag of a lock with a sleeping waiter; the other bits are the owner's thread id.
const WANTED: u32 = 1 << 31;

/// Rounds of spinning before a waiter sleeps.
const ROUNDS: u32 = 100;

impl From<Refused> for Errno {
    fn from(_: Refused) -> Self {
        Self(libc::EAGAIN)
    }
}

/// A futex lock, after U. Drepper, "Futexes are tricky", section 5, that stores its owner. Beyond [`crate::lock::Lock`]
/// it has a value, and [`Lock::acquire`] and [`Lock::release`] without a guard, for the hooks of fork. It belongs to
/// one process, so that no owner exits without it.
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

    /// # Errors
    /// [`Refused`] in a signal handler above the code that holds it.
    pub(crate) fn lock(&self) -> Result<Guard<'_, T>, Refused> {
        self.acquire()?;
        Ok(Guard { lock: self })
    }

    /// Takes the lock within [`ROUNDS`] rounds, or returns `None`.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let own = thread::tid();
        for _ in 0..ROUNDS {
            if self.take(own) {
                return Some(Guard { lock: self });
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Whether this thread holds the lock.
    pub(crate) fn is_own(&self) -> bool {
        self.word.load(Ordering::Relaxed) & !WANTED == thread::tid()
    }

    fn take(&self, word: u32) -> bool {
        // Acquire pairs with the release of `release`.
        self.word
            .compare_exchange(FREE, word, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Takes the lock without a guard; [`Self::release`] releases it.
    ///
    /// # Errors
    /// As for [`Self::lock`].
    pub(crate) fn acquire(&self) -> Result<(), Refused> {
        let own = thread::tid();
        let (mut looks, mut taken) = (0, own);
        while !self.take(taken) {
            let word = self.word.load(Ordering::Relaxed);
            if word & !WANTED == own {
                return Err(Refused);
            }
            if looks < ROUNDS {
                looks += 1;
                std::hint::spin_loop();
                continue;
            }
            let wanted = word | WANTED;
            let is_marked = word == wanted
                || word != FREE
                    && self
                        .word
                        .compare_exchange(word, wanted, Ordering::Relaxed, Ordering::Relaxed)
                        .is_ok();
            if is_marked {
                // A thread that slept cannot know whether others do.
                taken = own | WANTED;
                kernel::futex_wait(&self.word, wanted);
            }
        }
        Ok(())
    }

    /// Releases a lock that [`Self::acquire`] took, in this process or in the parent before the fork.
    pub(crate) fn release(&self) {
        if self.word.swap(FREE, Ordering::Release) & WANTED != 0 {
            kernel::futex_wake(&self.word);
        }
    }

    /// In the child of a fork, of a lock that its thread held all along: the thread has another number now.
    pub(crate) fn keep(&self) {
        self.word.store(thread::tid(), Ordering::Relaxed);
    }
}

impl<T> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lock").finish_non_exhaustive()
    }
}

/// Guard of a [`Lock`], which releases it on drop.
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
