//! From entries of the completion ring to requests that have ended.

use super::QueuePair;
use crate::commands::Owner;
use crate::spec::status::Status;
use crate::{CommandError, Completion, ErrorKind};

/// Polls between two checks of the clock while requests are in flight.
const POLLS_BETWEEN_CHECKS: u32 = 64;

impl QueuePair {
    /// Takes all completions without waiting; returns the number of completed requests. First submits the requests that
    /// the controller has not been notified of.
    #[inline]
    pub fn poll(&mut self, mut done: impl FnMut(Completion)) -> usize {
        self.poll_with(&mut done)
    }

    #[inline]
    pub(super) fn poll_with<F: FnMut(Completion)>(&mut self, done: &mut F) -> usize {
        let mut count = 0;
        if self.controller.epoch() != self.epoch {
            count += self.recover(done);
            if self.controller.epoch() != self.epoch {
                // Another thread is at it, or the controller is no more.
                return count;
            }
        }
        self.ring();
        count += self.take_completions(done);
        if !self.unsent.is_empty() {
            self.send_more();
        }
        self.polls = self.polls.wrapping_add(1);
        if self.polls % POLLS_BETWEEN_CHECKS == 0 {
            self.check_in_flight();
        }
        count
    }

    /// Takes entries until the phase bit ends them: no more than one for each time that a command in flight may be
    /// sent, as any other was not asked for, and ends it.
    #[inline]
    fn take_completions<F: FnMut(Completion)>(&mut self, done: &mut F) -> usize {
        let mut count = 0;
        while let Some(tail) = self.rings.completion.peek() {
            if tail.sq_id() != self.place.id || tail.sq_head() >= self.place.submission.1 {
                return self.handle_unexpected(count, done);
            }
            if tail.status().is_success() {
                if let Some((token, data)) = self.commands.finish(tail.command_id()) {
                    self.rings.completion.advance();
                    self.requests_in_flight -= 1;
                    count += 1;
                    done(Completion {
                        token,
                        result: Ok(()),
                        data: data.take(),
                    });
                    continue;
                }
            }
            let Some(index) = self.commands.find(tail.command_id()) else {
                return self.handle_unexpected(count, done);
            };
            self.rings.completion.advance();
            count += usize::from(self.command_ended(index, tail.status(), done));
        }
        if count > 0 {
            self.controller.answered();
        }
        let _ = self.rings.completion.ring(self.lag);
        count
    }

    /// Handles an unexpected completion, the next in the ring: the controller's answers are not trusted any more.
    /// Returns the number of ended requests, `count` of which ended before it.
    #[cold]
    fn handle_unexpected(&mut self, count: usize, done: &mut dyn FnMut(Completion)) -> usize {
        if count > 0 {
            self.controller.answered();
        }
        let tail = self.rings.completion.peek();
        let context = format!(
            "queue {}: completion that was not asked for: {tail:x?}",
            self.place.id
        );
        let control = self.controller.control();
        let cause = control.error(ErrorKind::Protocol, &context);
        self.controller.reset_from(self.epoch, cause);
        count + self.recover(done)
    }

    /// Whether a request ended with this command.
    #[inline(never)]
    pub(super) fn command_ended(
        &mut self,
        index: u16,
        status: Status,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        if status.is_success() {
            return self.release(index, None, done);
        }
        self.command_failed(index, status, done)
    }

    #[cold]
    pub(super) fn command_failed(
        &mut self,
        index: u16,
        status: Status,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        let slot = self.commands.get(index);
        let again = !status.is_final() && !status.is(Status::COMPARE_FAILURE);
        if again && slot.attempts < self.controller.control().options.retries {
            slot.attempts += 1;
            self.controller.recovery.count_retry();
            self.send_once_more(index);
            // The controller has space for its completion, whatever head of this poll it has not been notified of.
            let _ = self.rings.completion.ring(self.lag);
            self.ring();
            return false;
        }
        let error = if slot.aborted && status.is(Status::ABORT_REQUESTED) {
            CommandError::TimedOut
        } else {
            CommandError::Status(status)
        };
        self.release(index, Some(error), done)
    }

    /// Takes a command out of the tables; whether its request ended with it.
    pub(super) fn release(
        &mut self,
        index: u16,
        error: Option<CommandError>,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        match self.commands.get(index).owner() {
            Owner::Token(token) => {
                self.requests_in_flight -= 1;
                done(Completion {
                    token,
                    result: error.map_or(Ok(()), Err),
                    data: self.commands.release(index),
                });
                true
            }
            Owner::Request(number) => {
                self.commands.release(index);
                self.part_ended(number, error, done)
            }
        }
    }

    /// Counts a part of a request as done; whether the request ended with it.
    pub(super) fn part_ended(
        &mut self,
        number: u16,
        error: Option<CommandError>,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        let request = self.requests.get_mut(number);
        request.outstanding -= 1;
        request.has_ended_parts = true;
        if error.is_some() {
            request.error = request.error.or(error);
            // The rest of it is not worth sending.
            if request.sent < request.shape.blocks {
                request.sent = request.shape.blocks;
                self.unsent.retain(|waiting| *waiting != number);
            }
        }
        if request.outstanding > 0 || request.sent < request.shape.blocks {
            return false;
        }
        if request.is_to_repeat && request.error.is_none() {
            request.repeat();
            self.unsent.push_back(number);
            return false;
        }
        let (token, result) = (request.token, request.error.map_or(Ok(()), Err));
        let data = self.requests.take(number);
        self.requests_in_flight -= 1;
        if result == Err(CommandError::CacheLost) {
            self.controller.report_losses(self.losses_reported);
        }
        done(Completion {
            token,
            result,
            data,
        });
        true
    }
}
