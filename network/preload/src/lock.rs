//! A lock in memory that processes share: a futex whose word is its owner's thread number.
//!
//! # Protocol
//! 1. 0 is free; otherwise the low bits are the owner, and the highest bit says that somebody sleeps.
//! 2. Whoever sleeps does so for 100 ms at most, then looks whether the owner is alive. A dead owner's lock is
//!    taken over; what it protected may be half changed, which [`Guard::taken_over`] says.
//! 3. A thread that meets its own lock is a signal handler above the code that holds it: it gets
//!    [`Refused`] and must not wait.

use std::sync::atomic::{AtomicU32, Ordering};

use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex;

use crate::thread;

/// Somebody sleeps.
const CONTENDED: u32 = 1 << 31;
/// How often a taken lock is looked at before the thread sleeps.
const LOOKS: u32 = 100;
/// How long a sleep is, before the owner is looked for.
const PATIENCE: futex::Timespec = futex::Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A lock between threads of several processes.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lock(AtomicU32);

/// The thread holds the lock already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a> {
    lock: &'a Lock,
    /// Its last owner died while it held the lock.
    pub(crate) taken_over: bool,
}

impl Lock {
    /// A free one.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Lets a lock go whose guard was forgotten.
    pub(crate) fn release(&self) {
        drop(self.guard(false));
    }

    /// In the child of a fork: the owner, if there was one, is not there.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn take(&self) -> Result<Guard<'_>, Refused> {
        let own = thread::tid();
        // Acquire pairs with the release of `Guard::drop`, here and in `wait`.
        if self
            .0
            .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
        {
            return Ok(self.guard(false));
        }
        self.wait(own)
    }

    fn guard(&self, taken_over: bool) -> Guard<'_> {
        Guard {
            lock: self,
            taken_over,
        }
    }

    #[cold]
    fn wait(&self, own: u32) -> Result<Guard<'_>, Refused> {
        let mut looks = 0;
        // Once this thread slept it cannot know whether others do.
        let mut taken = own;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & !CONTENDED == own {
                return Err(Refused);
            }
            if word == 0 {
                if self
                    .0
                    .compare_exchange(0, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return Ok(self.guard(false));
                }
                continue;
            }
            if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
                continue;
            }
            let marked = word | CONTENDED;
            if word != marked
                && self
                    .0
                    .compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            taken = own | CONTENDED;
            let slept = futex::wait(&self.0, futex::Flags::empty(), marked, Some(&PATIENCE));
            if slept == Err(Errno::TIMEDOUT)
                && is_dead(word & !CONTENDED)
                && self
                    .0
                    .compare_exchange(marked, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return Ok(self.guard(true));
            }
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the acquire of whoever takes it next.
        if self.lock.0.swap(0, Ordering::Release) & CONTENDED != 0 {
            let _woken = futex::wake(&self.lock.0, futex::Flags::empty(), 1);
        }
    }
}

pub(crate) fn is_dead(tid: u32) -> bool {
    i32::try_from(tid)
        .ok()
        .and_then(Pid::from_raw)
        .is_none_or(|tid| test_kill_process(tid) == Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Shared(Lock, UnsafeCell<u64>);

    // SAFETY: the cell is accessed by whoever holds the lock.
    unsafe impl Sync for Shared {}

    #[test]
    fn one_at_a_time() {
        let shared = Shared(Lock::new(), UnsafeCell::new(0));
        let whole = &shared;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    let shared: &Shared = whole;
                    for _ in 0..20_000 {
                        let _guard = shared.0.take().expect("the thread holds no lock");
                        // SAFETY: the lock is held.
                        unsafe { *shared.1.get() += 1 };
                    }
                });
            }
        });
        assert_eq!(shared.1.into_inner(), 80_000);
    }

    #[test]
    fn ones_own_lock_is_refused() {
        let lock = Lock::new();
        let guard = lock.take().expect("it is free");
        assert_eq!(lock.take().err(), Some(Refused));
        drop(guard);
        assert!(lock.take().is_ok());
    }

    #[test]
    fn a_dead_owners_lock_is_taken_over() {
        let tid = std::thread::spawn(thread::tid)
            .join()
            .expect("it does not panic");
        let lock = Lock(AtomicU32::new(tid));
        let guard = lock.take().expect("the owner is dead");
        assert!(guard.taken_over);
    }
}
