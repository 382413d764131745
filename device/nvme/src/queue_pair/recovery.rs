//! What is done when commands are late, and after a reset.

use std::mem;
use std::time::Duration;

use super::QueuePair;
use crate::commands::Owner;
use crate::{CommandError, Completion, Condition, Data, ErrorKind, Result};

/// Longest time between two checks of commands in flight and of the controller's status.
pub(crate) const TIME_BETWEEN_CHECKS: Duration = Duration::from_millis(100);

/// Attempts to create a queue after a reset, each after a further reset.
const ATTEMPTS_MAX: u32 = 8;

impl QueuePair {
    /// Checks for commands that time out, and the controller's status.
    pub(crate) fn check_in_flight(&mut self) {
        if self.requests_in_flight == 0 {
            return;
        }
        let controller = &*self.controller;
        let control = controller.control();
        let limit = control.options.command_timeout;
        let now = control.host.now();
        if now.saturating_sub(self.checked) < TIME_BETWEEN_CHECKS.min(limit / 4) {
            return;
        }
        self.checked = now;
        let mut cause = controller.check_alive().err();
        for index in 0..self.commands.slots() {
            let id = self.commands.id_of(index);
            let slot = self.commands.get(index);
            if !slot.in_flight() {
                continue;
            }
            let seen = *slot.seen.get_or_insert(now);
            if now.saturating_sub(seen) < limit {
                continue;
            }
            if slot.aborted {
                let context = format!(
                    "queue {}: command {id:#x} did not end within {} ms, nor when it was aborted",
                    self.place.id,
                    limit.as_millis()
                );
                cause = cause.or_else(|| Some(control.error(ErrorKind::TimedOut, &context)));
                break;
            }
            // If the abort cannot be sent now the command has as long again in any case.
            controller.try_abort(self.place.id, id);
            slot.aborted = true;
            slot.seen = Some(now);
        }
        if let Some(cause) = cause {
            controller.reset_from(self.epoch, cause);
        }
    }

    /// After a reset: creates the queue again, resubmits the commands that were in flight, and notifies the controller.
    /// Returns the number of requests that ended because of too many resubmissions, or because the controller failed.
    pub(super) fn recover(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        for _ in 0..ATTEMPTS_MAX {
            let epoch = self.controller.epoch();
            match epoch.condition() {
                // Another thread is at it, unless it has panicked.
                Condition::Resetting if self.controller.try_wait_for_reset() => continue,
                Condition::Resetting => return 0,
                Condition::Failed => {
                    return self.fail_all(CommandError::Failed, done);
                }
                Condition::Gone => {
                    return self.fail_all(CommandError::Gone, done);
                }
                Condition::Ready if epoch == self.epoch => return 0,
                Condition::Ready if self.is_failed => break,
                Condition::Ready => {}
            }
            // It was disabled before the queue could be made, so what was in flight is not any more.
            let Err(error) = self.make_queue() else {
                return self.send_again(done);
            };
            match error.status() {
                None => self.controller.reset_from(epoch, error),
                // It works, but does not give this queue; others are not to suffer for it.
                Some(status) if status.is_final() => break,
                Some(_) => {}
            }
        }
        // It serves others and not this pair.
        self.fail_all(CommandError::Reset, done)
    }

    pub(super) fn make_queue(&mut self) -> Result<()> {
        self.rings.submission.restart();
        self.rings.completion.restart();
        self.is_made = false;
        let (epoch, shadows) = self.controller.create_queue(&self.place)?;
        self.epoch = epoch;
        self.is_made = true;
        let [submission, completion] = shadows;
        self.rings.submission.doorbell.restart(submission);
        self.rings.completion.doorbell.restart(completion);
        Ok(())
    }

    pub(super) fn send_again(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let losses = self.controller.losses();
        let cache_lost = losses != self.losses_seen;
        self.losses_seen = losses;
        if cache_lost {
            self.fail_flushes_unsent();
            self.repeat_writes();
        }
        let retries = self.controller.control().options.retries;
        let mut count = 0;
        for index in 0..self.commands.slots() {
            let slot = self.commands.get(index);
            if !slot.in_flight() {
                continue;
            }
            if cache_lost && slot.is_flush() {
                self.losses_reported = losses;
                self.controller.report_losses(losses);
                count += usize::from(self.release(index, Some(CommandError::CacheLost), done));
                continue;
            }
            if slot.attempts < retries {
                slot.attempts += 1;
                self.controller.recovery.count_retry();
                self.send_once_more(index);
                continue;
            }
            let error = if slot.aborted {
                CommandError::TimedOut
            } else {
                CommandError::Reset
            };
            count += usize::from(self.release(index, Some(error), done));
        }
        self.ring();
        count
    }

    /// Makes flushes that are not submitted yet report a loss of the cache: they also cover writes before the loss.
    fn fail_flushes_unsent(&mut self) {
        for number in 0..self.requests.places() {
            let request = self.requests.get_mut(number);
            if request.is_taken && request.shape.is_flush() && request.outstanding == 0 {
                request.error = Some(CommandError::CacheLost);
                self.losses_reported = self.losses_seen;
            }
        }
    }

    /// Has writes of which a part ended before a loss of the cache, and may be lost, sent again from their
    /// beginning: they end after it.
    fn repeat_writes(&mut self) {
        for number in 0..self.requests.places() {
            let request = self.requests.get_mut(number);
            if !request.is_taken || !request.has_ended_parts || !request.shape.is_cached() {
                continue;
            }
            if request.outstanding > 0 {
                request.is_to_repeat = true;
            } else {
                // It waits for a place for what is left of it.
                request.repeat();
            }
        }
    }

    /// Whether a flush accepted now must report a loss; if so, it counts as reported.
    pub(super) fn takes_loss(&mut self) -> bool {
        let losses = self.controller.losses();
        let takes = losses != self.losses_reported;
        self.losses_reported = losses;
        takes
    }

    /// Fails all requests; leaks memory that the controller may still access.
    pub(super) fn fail_all(
        &mut self,
        error: CommandError,
        done: &mut dyn FnMut(Completion),
    ) -> usize {
        self.is_failed = true;
        self.requests_in_flight_max = 0;
        let given_up = matches!(
            self.controller.condition(),
            Condition::Failed | Condition::Gone
        );
        // One that is ready was reset since, and has lost this pair's queue.
        let quiet = !given_up || self.controller.is_quiet();
        let mut fail = |token, error, mut data: Option<Data>| {
            if !quiet {
                mem::forget(data.take());
            }
            done(Completion {
                token,
                result: Err(error),
                data,
            });
        };
        let mut count = 0;
        for index in 0..self.commands.slots() {
            if !self.commands.get(index).in_flight() {
                continue;
            }
            let owner = self.commands.get(index).owner();
            let data = self.commands.release(index);
            if let Owner::Token(token) = owner {
                fail(token, error, data);
                count += 1;
            }
        }
        self.unsent.clear();
        self.requests_in_flight = 0;
        for number in 0..self.requests.places() {
            let request = *self.requests.get(number);
            if request.is_taken {
                let data = self.requests.take(number);
                fail(request.token, request.error.unwrap_or(error), data);
                count += 1;
            }
        }
        count
    }
}
