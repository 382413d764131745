//! A lock with a value, that survives a fork, and that refuses a signal handler above its holder.

use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::{fmt, mem};

use crate::errno::Errno;
use crate::lock::{self, Refused};

impl From<Refused> for Errno {
    fn from(_: Refused) -> Self {
        Self(libc::EAGAIN)
    }
}

/// A [`lock::Lock`] of one process with its value; [`Mutex::acquire`] and [`Mutex::release`] take and release it without
/// a guard, for the hooks of fork.
pub(crate) struct Mutex<T> {
    lock: lock::Lock<false>,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached by one thread at a time, the holder.
unsafe impl<T: Send> Sync for Mutex<T> {}

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            lock: lock::Lock::new(),
            value: UnsafeCell::new(value),
        }
    }

    /// # Errors
    /// [`Refused`] in a signal handler above the code that holds it.
    pub(crate) fn lock(&self) -> Result<Guard<'_, T>, Refused> {
        let held = self.lock.take()?;
        Ok(Guard {
            mutex: self,
            _held: held,
        })
    }

    /// Takes the lock after a short spin, or returns `None`.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T>> {
        let held = self.lock.try_take()?;
        Some(Guard {
            mutex: self,
            _held: held,
        })
    }

    /// Whether this thread holds the lock.
    pub(crate) fn is_own(&self) -> bool {
        self.lock.is_own()
    }

    /// Takes the lock without a guard; [`Self::release`] releases it.
    ///
    /// # Errors
    /// As for [`Self::lock`].
    pub(crate) fn acquire(&self) -> Result<(), Refused> {
        self.lock.take().map(mem::forget)
    }

    /// Releases a lock that [`Self::acquire`] took, in this process or in the parent before the fork.
    pub(crate) fn release(&self) {
        self.lock.release();
    }

    /// In the child of a fork, of a lock that its thread held all along: the thread has another id now.
    pub(crate) fn keep(&self) {
        self.lock.keep();
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

/// Guard of a [`Mutex`], which releases it on drop.
#[derive(Debug)]
pub(crate) struct Guard<'a, T> {
    mutex: &'a Mutex<T>,
    _held: lock::Guard<'a, false>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock.
        unsafe { &*self.mutex.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is borrowed alone.
        unsafe { &mut *self.mutex.value.get() }
    }
}
