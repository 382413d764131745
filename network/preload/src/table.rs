//! Which descriptor numbers are ours.
//!
//! The fast exit of every call is [`lookup`]: a comparison, a load and a branch, and two more loads for a number that
//! is not ours. A number whose place is null while no connect of it is under way is the kernel's alone.

use std::ffi::c_int;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use crate::entry::Entry;
use crate::under_way;

/// How many numbers there can be: a descriptor of a higher one is never ours.
pub(crate) const NUMBERS: usize = 1 << 20;

/// 8 MiB of zeros that take no memory until they are used.
static TABLE: [AtomicPtr<Entry>; NUMBERS] = [const { AtomicPtr::new(ptr::null_mut()) }; NUMBERS];

/// The highest number that was ever inserted: a walk ends there.
static HIGHEST: AtomicUsize = AtomicUsize::new(0);

fn place(fd: c_int) -> Option<&'static AtomicPtr<Entry>> {
    TABLE.get(usize::try_from(fd).ok()?)
}

/// The entry of a number. Entries are never unmapped, so that it may be looked at, but it may be another's by then:
/// see [`Entry`] for what keeps it.
#[inline]
pub(crate) fn lookup(fd: c_int) -> Option<&'static Entry> {
    // Acquire pairs with the release of `insert`: who finds an entry finds what was written to it.
    let place = place(fd)?;
    let mut entry = place.load(Ordering::Acquire);
    if entry.is_null() {
        if under_way::is_any() {
            under_way::wait(fd);
        }
        // Also if no change was found: it may have ended since the place was looked at.
        entry = place.load(Ordering::Acquire);
    }
    // SAFETY: what is in the table came from a reference to an entry, and these live for ever.
    unsafe { entry.as_ref() }
}

/// Whether the number still means this entry.
#[inline]
pub(crate) fn holds(fd: c_int, entry: &'static Entry) -> bool {
    place(fd).is_some_and(|place| ptr::eq(place.load(Ordering::Acquire), entry))
}

/// Gives the number to an entry. False if the number is too high.
pub(crate) fn insert(fd: c_int, entry: &'static Entry) -> bool {
    let Some(place) = place(fd) else {
        return false;
    };
    HIGHEST.fetch_max(usize::try_from(fd).unwrap_or(0), Ordering::Relaxed);
    place.store(ptr::from_ref(entry).cast_mut(), Ordering::Release);
    true
}

/// Takes the number away from whatever entry has it.
pub(crate) fn remove(fd: c_int) -> Option<&'static Entry> {
    let place = place(fd)?;
    if place.load(Ordering::Relaxed).is_null() {
        return None;
    }
    let entry = place.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: as in `lookup`.
    unsafe { entry.as_ref() }
}

/// All numbers from `first` to `last` that are ours, and their entries.
pub(crate) fn numbers(first: usize, last: usize) -> impl Iterator<Item = (c_int, &'static Entry)> {
    let last = last.min(NUMBERS - 1).min(HIGHEST.load(Ordering::Relaxed));
    (first..=last).filter_map(|number| {
        let fd = c_int::try_from(number).ok()?;
        let entry = place(fd)?.load(Ordering::Acquire);
        // SAFETY: as in `lookup`.
        unsafe { entry.as_ref() }.map(|entry| (fd, entry))
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::thread;

    use super::*;
    use crate::under_way::Change;

    /// No descriptor of this process has it.
    const FD: c_int = 900_000;
    const ROUNDS: u32 = 100_000;
    /// So often a count is looked at before the processor is given away.
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

    /// Whoever looks after a change began finds what it made, also if it ends between the look at the place and the
    /// one at changes. (Such a lookup took the number for the kernel's.)
    #[test]
    fn who_knows_of_a_change_finds_what_it_made() {
        let entry = Entry::epoll_set(ptr::null_mut()).expect("there is memory");
        let (begun, looked) = (AtomicU32::new(0), AtomicU32::new(0));
        let missed = thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    let change = Change::begin(FD);
                    begun.store(round, Ordering::Release);
                    assert!(insert(FD, entry));
                    drop(change);
                    await_count(&looked, round);
                }
            });
            let mut missed = 0;
            for round in 1..=ROUNDS {
                await_count(&begun, round);
                while lookup(FD).is_none() {
                    missed += 1;
                }
                remove(FD);
                looked.store(round, Ordering::Release);
            }
            missed
        });
        assert_eq!(missed, 0, "of {ROUNDS} changes");
    }
}
