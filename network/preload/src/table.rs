//! Descriptor numbers of this process that are user-level.
//!
//! The fast path of every call is [`FdTable::lookup`]: a comparison, a load and a branch, and two more loads for a number
//! that has no value. A number without a value, and without a pending transition ([`fd_transition`]), is the kernel's alone.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::fd_transition;
use crate::limits::NUMBERS;

/// A map from descriptor numbers below [`NUMBERS`] to values that live for ever.
///
/// As a static it takes no memory until numbers are used: all bytes are zero at first.
#[derive(Debug)]
pub(crate) struct FdTable<T: 'static> {
    /// Value of each number, or null.
    pub(crate) slots: [AtomicPtr<T>; NUMBERS],
    /// Highest number that ever had a value: the end of a walk.
    pub(crate) highest: AtomicUsize,
}

impl<T> FdTable<T> {
    fn slot(&self, fd: c_int) -> Option<&AtomicPtr<T>> {
        self.slots.get(usize::try_from(fd).ok()?)
    }

    /// The value of a number, or `None` for a kernel descriptor.
    ///
    /// The reference stays valid, as values are never unmapped, but the value may serve another descriptor later. The
    /// type of the value says what prevents that.
    #[inline]
    pub(crate) fn lookup(&self, fd: c_int) -> Option<&'static T> {
        // Acquire pairs with the release of `insert`: all that was written to the value before is visible.
        let slot = self.slot(fd)?;
        let mut value = slot.load(Ordering::Acquire);
        if value.is_null() {
            if fd_transition::has_pending() {
                fd_transition::wait(fd);
            }
            // Also without a pending transition: it may have ended after the first load.
            value = slot.load(Ordering::Acquire);
        }
        // SAFETY: `insert` stored a `&'static T`, or the pointer is null.
        unsafe { value.as_ref() }
    }

    /// Whether the number still has this value.
    #[inline]
    pub(crate) fn holds(&self, fd: c_int, value: &'static T) -> bool {
        self.slot(fd)
            .is_some_and(|slot| ptr::eq(slot.load(Ordering::Acquire), value))
    }

    /// Gives the number to a value. False if the number is too high.
    pub(crate) fn insert(&self, fd: c_int, value: &'static T) -> bool {
        let Some(slot) = self.slot(fd) else {
            return false;
        };
        self.highest
            .fetch_max(usize::try_from(fd).unwrap_or(0), Ordering::Relaxed);
        slot.store(ptr::from_ref(value).cast_mut(), Ordering::Release);
        true
    }

    /// Takes the number from its value, and returns that.
    pub(crate) fn remove(&self, fd: c_int) -> Option<&'static T> {
        let slot = self.slot(fd)?;
        if slot.load(Ordering::Relaxed).is_null() {
            return None;
        }
        let value = slot.swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `insert` stored a `&'static T`, or the pointer is null.
        unsafe { value.as_ref() }
    }

    /// All numbers from `first` to `last` that have a value, in ascending order.
    pub(crate) fn numbers(
        &self,
        first: usize,
        last: usize,
    ) -> impl Iterator<Item = (c_int, &'static T)> {
        let last = last
            .min(NUMBERS - 1)
            .min(self.highest.load(Ordering::Relaxed));
        (first..=last).filter_map(|number| {
            let fd = c_int::try_from(number).ok()?;
            let value = self.slot(fd)?.load(Ordering::Acquire);
            // SAFETY: `insert` stored a `&'static T`, or the pointer is null.
            unsafe { value.as_ref() }.map(|value| (fd, value))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::entry::{Entry, FDS};
    use crate::fd_transition::FdTransition;

    /// A number without a descriptor in this process.
    const FD: c_int = 900_000;
    const ROUNDS: u32 = 100_000;
    /// Number of spins before the test yields.
    const SPINS: u32 = 1000;

    /// Waits until a count is reached.
    fn await_count(count: &AtomicU32, wanted: u32) {
        let mut spins = 0;
        while count.load(Ordering::Acquire) < wanted {
            spins += 1;
            if spins % SPINS == 0 {
                thread::yield_now();
            }
            std::hint::spin_loop();
        }
    }

    /// A lookup after the begin of a transition finds its result, also if the transition ends between the load of the
    /// slot and the check for transitions. (Such a lookup took the number for the kernel's.)
    #[test]
    fn a_lookup_after_the_begin_of_a_transition_finds_its_result() {
        let entry = Entry::epoll_set(ptr::null_mut(), |_| ()).expect("there is memory");
        let (begun, looked) = (AtomicU32::new(0), AtomicU32::new(0));
        let missed = thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let change = FdTransition::begin(FD);
                    begun.store(round, Ordering::Release);
                    assert!(FDS.insert(FD, entry));
                    drop(change);
                    await_count(&looked, round);
                }
            });
            let mut missed = 0;
            for round in 1..=ROUNDS {
                await_count(&begun, round);
                while FDS.lookup(FD).is_none() {
                    missed += 1;
                }
                FDS.remove(FD);
                looked.store(round, Ordering::Release);
            }
            missed
        });
        assert_eq!(missed, 0, "of {ROUNDS} changes");
    }
}
