//! The guard of a set's lock, deferred work, and the hooks of fork.

use std::ops::{Deref, DerefMut};
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use crate::lock::Refused;

use super::lock::Guard;
use super::poll_target::PollTarget;
use super::set::{Set, State};

/// Work that is left to the holder of the lock.
pub(super) mod deferred_work {
    /// Members were closed: interests in them end.
    pub(crate) const SWEEP: u32 = 1;
    /// This process was forked: another one may read wake-ups.
    pub(crate) const SHARE: u32 = 1 << 1;
    /// This process is the child of a fork: its watchers are counted again.
    pub(crate) const COUNT: u32 = 1 << 2;
}

/// Holds the lock of a set, and runs its deferred work after.
#[derive(Debug)]
pub(super) struct Held<'a, S: PollTarget> {
    set: &'a Set<S>,
    /// `Some` until the drop.
    guard: Option<Guard<'a, State<S>>>,
}

impl<S: PollTarget> Deref for Held<'_, S> {
    type Target = State<S>;

    fn deref(&self) -> &State<S> {
        self.guard
            .as_ref()
            .expect("the guard is `Some` until the drop")
    }
}

impl<S: PollTarget> DerefMut for Held<'_, S> {
    fn deref_mut(&mut self) -> &mut State<S> {
        self.guard
            .as_mut()
            .expect("the guard is `Some` until the drop")
    }
}

impl<S: PollTarget> Drop for Held<'_, S> {
    fn drop(&mut self) {
        self.guard = None;
        self.set.run_deferred();
    }
}

impl<S: PollTarget> Set<S> {
    /// # Errors
    /// [`Refused`] in a signal handler above the code that holds the lock.
    pub(super) fn lock(&self) -> Result<Held<'_, S>, Refused> {
        Ok(self.held(self.state.lock()?))
    }

    /// Takes the lock within a few rounds, or returns `None`.
    pub(super) fn try_lock(&self) -> Option<Held<'_, S>> {
        Some(self.held(self.state.try_lock()?))
    }

    fn held<'a>(&'a self, guard: Guard<'a, State<S>>) -> Held<'a, S> {
        Held {
            set: self,
            guard: Some(guard),
        }
    }

    /// Leaves work to the holder of the lock.
    pub(super) fn defer(&self, deferred_work: u32) {
        self.deferred.fetch_or(deferred_work, Ordering::SeqCst);
        // In case the lock was released since.
        self.run_deferred();
    }

    #[inline]
    fn run_deferred(&self) {
        if self.deferred.load(Ordering::SeqCst) != 0 {
            self.run_deferred_slowly();
        }
    }

    #[cold]
    fn run_deferred_slowly(&self) {
        while self.deferred.load(Ordering::SeqCst) != 0 {
            // The holder runs it at the release.
            let Some(mut state) = self.state.try_lock() else {
                return;
            };
            let deferred = self.deferred.swap(0, Ordering::SeqCst);
            if deferred & deferred_work::COUNT != 0 {
                state.members.count_anew();
                state.kernel_watched.count_anew();
            }
            if deferred & deferred_work::SHARE != 0 {
                self.share(&mut state);
            }
            if deferred & deferred_work::SWEEP != 0 {
                let (inner, _) = self.own_sets(&state);
                state.members.sweep(inner);
                state.kernel_watched.sweep();
            }
        }
    }

    fn share(&self, state: &mut State<S>) {
        state.has_shared = true;
        // The child reads wake-ups without a broadcast: threads that sleep already must wake in time.
        if self.asleep.load(Ordering::SeqCst) > 0 {
            state.wake();
        }
    }

    /// The inner and the outer set of the kernel, as far as they are this process's own.
    pub(super) fn own_sets(&self, state: &State<S>) -> (RawFd, Option<RawFd>) {
        if self.is_inherited.load(Ordering::Relaxed) {
            return (-1, None);
        }
        (state.inner, Some(state.outer))
    }

    /// Takes the lock before a fork, so that no other thread is amid a change. If the forking thread holds the lock
    /// itself, parent and child both continue the change.
    pub(super) fn before_fork(&self) {
        let is_kept = self.state.acquire().is_ok();
        self.is_kept.store(is_kept, Ordering::Relaxed);
    }

    /// After a fork, in the parent.
    pub(super) fn after_fork_in_parent(&self) {
        if self.is_kept.swap(false, Ordering::Relaxed) {
            self.state.release();
        }
        self.defer(deferred_work::SHARE);
    }

    /// After a fork, in the child, where the other threads are not.
    pub(super) fn after_fork_in_child(&self) {
        if self.is_kept.swap(false, Ordering::Relaxed) {
            self.state.release();
        } else {
            self.state.keep();
        }
        if self.asleep.swap(0, Ordering::Relaxed) != 0 {
            // Wakes the parent's threads: one more process may read wake-ups now.
            self.wake_unlocked();
        }
        let is_open = self.is_open.load(Ordering::Relaxed);
        self.is_inherited.store(is_open, Ordering::Relaxed);
        self.defer(deferred_work::SHARE | deferred_work::COUNT);
    }

    /// Decrements `asleep`, which is 0 already in the child of a fork.
    pub(super) fn wake_up(&self) {
        let fewer = |asleep: usize| asleep.checked_sub(1);
        let _was = self
            .asleep
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, fewer);
    }
}
