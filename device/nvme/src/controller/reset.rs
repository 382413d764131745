//! Start and reset of a controller, and its isolation from memory.
//!
//! # The volatile cache
//! A reset by itself leaves the controller's cache as it is (Base 7.3.2). A controller that needs a reset not requested
//! by its owner may have lost power, which looks the same: each such reset counts as a loss, if there is a cache and it
//! is enabled. Writes that had succeeded before and were not flushed may be lost then; the next flush of each queue
//! pair reports it ([`CommandError::CacheLost`](crate::CommandError::CacheLost)).

use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, TryLockError};

use super::{Controller, set_vectors};
use crate::admin_commands::{Admin, Brought};
use crate::control::Control;
use crate::epoch::Epoch;
use crate::{Condition, Error, ErrorKind, Result, interrupt};

/// Consecutive resets without a valid answer after which the controller counts as failed.
const RESETS_IN_VAIN_MAX: u32 = 8;

impl Controller {
    /// Resets the controller. Each queue pair resubmits its commands in flight at its next poll.
    ///
    /// # Errors
    /// `Failed` or `Gone` if the controller does not become ready again.
    pub fn reset(&self) -> Result<()> {
        // This one is not for want of success.
        self.resets_in_vain.store(0, Ordering::Relaxed);
        let observed = self.epoch.load();
        self.reset_locked(&mut self.lock(), observed, None);
        self.check_usable()
    }

    /// Whether memory that a failed controller was given can be used again (invariant 1).
    pub(crate) fn is_quiet(&self) -> bool {
        self.is_quiet.load(Ordering::Relaxed)
    }

    /// How often it was reset in a way that its volatile cache may not have outlived.
    #[inline]
    pub(crate) fn losses(&self) -> u64 {
        self.losses.load(Ordering::Relaxed)
    }

    /// Number of losses that flushes have reported: later queue pairs and handles need not report them again.
    pub(crate) fn losses_reported(&self) -> u64 {
        self.losses_reported.load(Ordering::Relaxed)
    }

    /// Records that a flush reports `losses` losses.
    pub(crate) fn report_losses(&self, losses: u64) {
        self.losses_reported.fetch_max(losses, Ordering::Relaxed);
    }

    /// Resets the controller for this cause, unless another thread has done so since `observed`.
    pub(crate) fn reset_from(&self, observed: Epoch, cause: Error) {
        self.reset_locked(&mut self.lock(), observed, Some(cause));
    }

    /// Waits for a reset in progress; returns its outcome. Repeats a reset whose thread panicked.
    pub(crate) fn wait_for_reset(&self) -> Condition {
        self.settle_locked(&mut self.lock());
        self.condition()
    }

    /// Like `wait_for_reset` without waiting; whether no reset is in progress any more.
    pub(crate) fn try_wait_for_reset(&self) -> bool {
        let mut admin = match self.admin.try_lock() {
            Ok(admin) => admin,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        self.settle_locked(&mut admin);
        true
    }

    fn settle_locked(&self, admin: &mut Admin) {
        let epoch = self.epoch.load();
        if epoch.condition() == Condition::Resetting {
            // The lock excludes other resets.
            let cause = self.control.error(
                ErrorKind::Failed,
                "the thread that was resetting it has panicked",
            );
            self.reset_locked(admin, epoch, Some(cause));
        }
    }

    /// Resets the controller unless another thread has done so since `observed`. No cause means that the owner
    /// requested it.
    fn reset_locked(&self, admin: &mut Admin, observed: Epoch, cause: Option<Error>) {
        let current = self.epoch.load();
        let is_due = match current.condition() {
            Condition::Ready => current == observed,
            // The lock excludes other resets: the resetting thread has panicked.
            Condition::Resetting => true,
            Condition::Failed | Condition::Gone => false,
        };
        if !is_due {
            return;
        }
        let has_cache = admin.is_cache_used();
        // Its owner resets a controller that works; what ended in the middle was one that did not.
        let works = current.condition() == Condition::Ready
            && admin.broken().is_none()
            && self.control.check_alive().is_ok();
        let outlived = cause.is_none() && works;
        let cause = cause.map(Arc::new);
        if let Some(cause) = &cause {
            self.recovery.count_reset();
            self.note(cause);
        }
        let resetting = current.next();
        self.epoch.store(resetting);
        let condition = match self.restart(admin) {
            Ok(function_was_reset) => {
                // A reset of the function may have been a power loss. Flushes that queue pairs submit in the old epoch
                // must not count as later than the loss.
                if has_cache && (!outlived || function_was_reset) {
                    self.losses.fetch_add(1, Ordering::Relaxed);
                }
                Condition::Ready
            }
            Err(error) => {
                let kind = error.kind();
                self.note(&Arc::new(match cause {
                    Some(cause) => error.since(cause),
                    None => error,
                }));
                self.is_quiet
                    .store(silence(&self.control), Ordering::Relaxed);
                match kind {
                    ErrorKind::Gone => Condition::Gone,
                    _ => Condition::Failed,
                }
            }
        };
        self.epoch.store(resetting.with(condition));
    }

    /// Stores the cause of a reset or failure.
    fn note(&self, failure: &Arc<Error>) {
        let mut last = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some(Arc::clone(failure));
    }

    /// Begins it anew, as the controller that it was. Whether the function had to be reset.
    fn restart(&self, admin: &mut Admin) -> Result<bool> {
        let in_vain = self.resets_in_vain.fetch_add(1, Ordering::Relaxed);
        if in_vain >= RESETS_IN_VAIN_MAX {
            let context = "resets did not help";
            return Err(self.control.error(ErrorKind::Failed, context));
        }
        let begun = begin(&self.control, &self.vectors, admin)?;
        if begun.vectors < self.vectors.len() {
            let context = "the host has fewer interrupt vectors after a reset";
            return Err(self.control.error(ErrorKind::Function, context));
        }
        let data = &begun.brought.data;
        if (&data.serial, &data.model) != (&self.data.serial, &self.data.model) {
            let context = "another controller came back from a reset";
            return Err(self.control.error(ErrorKind::Protocol, context));
        }
        if usize::from(begun.brought.queues) < admin.queues_taken.len() {
            let context = "fewer queues after a reset";
            return Err(self.control.error(ErrorKind::Protocol, context));
        }
        Ok(begun.function_was_reset)
    }

    /// Runs admin commands. If the controller does not answer them as it should it is reset.
    pub(super) fn with_lock<T>(
        &self,
        run: impl FnOnce(&mut Admin, &Control) -> Result<T>,
    ) -> Result<T> {
        let mut admin = self.lock();
        self.settle_locked(&mut admin);
        // An abort may have found it so.
        self.mend_locked(&mut admin);
        self.check_usable()?;
        let result = run(&mut admin, &self.control);
        self.renew_event(&mut admin);
        self.mend_locked(&mut admin);
        result
    }

    /// Resets the controller if its admin queue cannot be used.
    fn mend_locked(&self, admin: &mut Admin) {
        if let Some(cause) = admin.broken() {
            self.reset_locked(admin, self.epoch.load(), Some(cause));
        }
    }

    /// Makes the event signal exactly when there are asynchronous events (invariant 3): the admin queue's own commands
    /// signal it too, and waiting for them does not clear it.
    fn renew_event(&self, admin: &mut Admin) {
        let Some(event) = self.event_interrupt() else {
            return;
        };
        interrupt::empty(event);
        if admin.has_events() {
            interrupt::signal(event);
        }
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        let kind = match self.condition() {
            Condition::Ready | Condition::Resetting => return Ok(()),
            Condition::Failed => ErrorKind::Failed,
            Condition::Gone => ErrorKind::Gone,
        };
        let error = self.control.error(kind, "the driver has abandoned it");
        Err(match self.last_failure() {
            Some(failure) => error.caused_by(failure),
            None => error,
        })
    }
}

/// A controller that was brought up.
pub(super) struct Begun {
    pub(super) brought: Brought,
    /// How many of the vectors the host signals.
    pub(super) vectors: usize,
    /// Whether that took a reset of the function.
    pub(super) function_was_reset: bool,
}

/// Brings a controller up, in whatever state it is. One that does not get ready is tried once more after a
/// reset of the function: its last owner may have left it in a bad state.
pub(super) fn begin(control: &Control, vectors: &[OwnedFd], admin: &mut Admin) -> Result<Begun> {
    let first = match begin_once(control, vectors, admin) {
        Ok(begun) => return Ok(begun),
        Err(error) => error,
    };
    if !matches!(first.kind(), ErrorKind::TimedOut | ErrorKind::Failed) {
        return Err(first);
    }
    let function = &control.function;
    // Its registers have to answer; memory it reaches once it is disabled.
    let reset = function
        .reset()
        .and_then(|()| function.set_bus_master(false));
    if let Err(error) = reset {
        return Err(first.nor("nor can the function be reset", error));
    }
    Ok(Begun {
        function_was_reset: true,
        ..begin_once(control, vectors, admin)?
    })
}

fn begin_once(control: &Control, vectors: &[OwnedFd], admin: &mut Admin) -> Result<Begun> {
    control.disable()?;
    // Whatever has reset the function, this driver or not, has taken these from it.
    control.function.set_bus_master(true)?;
    let vectors = set_vectors(control, vectors)?;
    Ok(Begun {
        brought: admin.bring_up(control)?,
        vectors,
        function_was_reset: false,
    })
}

/// Keeps the controller from memory, one way or another; whether that succeeded.
pub(super) fn silence(control: &Control) -> bool {
    let function = &control.function;
    match control.disable() {
        Ok(()) => true,
        // The registers do not respond. A device that left the bus accesses no memory.
        Err(error) if error.kind() == ErrorKind::Gone && !function.is_present() => {
            // Of a provider that does not answer nothing is known: its device may still be at work.
            function.identity().is_ok()
        }
        Err(_) => function.reset().is_ok() || function.set_bus_master(false).is_ok(),
    }
}
