//! Reference-counted memory with several owners.
//!
//! # Ownership
//! | field | writer | reader |
//! |---|---|---|
//! | `shares` | every clone and drop | every clone and drop |
//! | `value` | the last owner, when it is freed | all owners |
//!
//! # Invariants
//! 1. `shares` is the number of [`Shared`] that point here; it is never zero before the value is freed.
//! 2. All operations of an owner before the drop of its share happen before the value is freed.
//!
//! A clone is made from a share that exists, so the increment needs no ordering. A decrement releases, and the
//! decrement to zero acquires the releases of all others.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::process;
use std::ptr::NonNull;
use std::sync::atomic::Ordering;

use crate::{Native, Platform, Site, Word};

/// Most shares; beyond it the process aborts, because the count could overflow to zero. Only shares leaked on purpose
/// reach it.
const SHARES_MAX: u64 = 1 << 62;

struct Inner<T, P: Platform> {
    shares: P::Word,
    value: T,
}

/// A share of a value on the heap, as [`std::sync::Arc`] without weak ones, on any [`Platform`].
pub struct Shared<T, P: Platform = Native> {
    inner: NonNull<Inner<T, P>>,
    owned: PhantomData<Inner<T, P>>,
}

// SAFETY: owners on several threads read the value, which `T: Sync` allows, and any of them may be the last
// and drop it, which `T: Send` allows.
unsafe impl<T: Send + Sync, P: Platform> Send for Shared<T, P> {}

// SAFETY: owners share `&T` between threads, which `T: Sync` allows, and the last of them drops the value, which
// `T: Send` allows; a borrowed share can be cloned.
unsafe impl<T: Send + Sync, P: Platform> Sync for Shared<T, P> {}

impl<T, P: Platform> Shared<T, P> {
    /// First share of a new allocation that holds `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        let inner = Box::new(Inner {
            shares: P::Word::new(1),
            value,
        });
        Self {
            inner: NonNull::from(Box::leak(inner)),
            owned: PhantomData,
        }
    }

    fn inner(&self) -> &Inner<T, P> {
        // SAFETY: the memory is freed by the last share alone, and this is one (invariant 1).
        unsafe { self.inner.as_ref() }
    }
}

impl<T, P: Platform> Clone for Shared<T, P> {
    fn clone(&self) -> Self {
        let before = self.inner().shares.fetch_add(1, Ordering::Relaxed);
        if before >= SHARES_MAX {
            process::abort();
        }
        Self {
            inner: self.inner,
            owned: PhantomData,
        }
    }
}

impl<T, P: Platform> Deref for Shared<T, P> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner().value
    }
}

impl<T, P: Platform> Drop for Shared<T, P> {
    fn drop(&mut self) {
        let ordering = P::ordering(Site::ShareReleased);
        if self.inner().shares.fetch_sub(1, ordering) != 1 {
            return;
        }
        P::fence(Site::LastShare);
        // SAFETY: the pointer came from a Box, and this was the last share: no other owner exists, and all operations
        // of former owners happened before (invariant 2).
        drop(unsafe { Box::from_raw(self.inner.as_ptr()) });
    }
}

impl<T: fmt::Debug, P: Platform> fmt::Debug for Shared<T, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
