//! From a request to entries of the submission ring.

use super::QueuePair;
use crate::commands::{Active, Owner};
use crate::request::{Refusal, Refused};
use crate::shape::{Part, Shape};
use crate::{CommandError, Namespace, Request};

impl QueuePair {
    /// Accepts a request. The next [`QueuePair::ring`], [`QueuePair::poll`] or [`QueuePair::wait`] notifies the
    /// controller, so that many requests cost one doorbell.
    ///
    /// # Errors
    /// The request and the reason of the refusal; nothing was done.
    #[inline]
    pub fn submit(&mut self, namespace: &Namespace, request: Request) -> Result<(), Refused> {
        // A command in flight, or more, is each request's as long as none waits: with a free slot there is
        // room for a request too.
        if self.commands.is_full() || !self.unsent.is_empty() || self.is_failed {
            return self.submit_any(namespace, request);
        }
        let Some(command) = self.controller.short_command(namespace, &request) else {
            return self.submit_any(namespace, request);
        };
        self.requests_in_flight += 1;
        let owner = Owner::Token(request.token);
        let entry = self.commands.start(owner, request.data, |_, _| command);
        self.rings.submission.push(&entry);
        Ok(())
    }

    /// Accepts a request of any kind.
    #[inline(never)]
    fn submit_any(&mut self, namespace: &Namespace, request: Request) -> Result<(), Refused> {
        let checked = if self.is_full() {
            Err(if self.is_failed {
                Refusal::ControllerFailed
            } else {
                Refusal::QueueFull
            })
        } else {
            self.controller.check(namespace, &request)
        };
        match checked {
            Ok(shape) => {
                self.accept(namespace, request, shape);
                Ok(())
            }
            Err(reason) => Err(Refused { request, reason }),
        }
    }

    /// Notifies the controller of all accepted requests (doorbell).
    #[inline]
    pub fn ring(&mut self) {
        // A provider that fails here is noticed by the next check of the controller's status.
        let _ = self.rings.submission.ring();
    }

    /// Accepts a checked request, while the pair is not full. A flush that must report a loss of the cache is
    /// submitted, but does not succeed.
    pub(crate) fn accept(&mut self, namespace: &Namespace, request: Request, shape: Shape) {
        let tells_loss = shape.is_flush() && self.takes_loss();
        let waits = self.commands.is_full() || !self.unsent.is_empty() || tells_loss;
        let Some(blocks) = shape.single(request.lba.0).filter(|_| !waits) else {
            let error = tells_loss.then_some(CommandError::CacheLost);
            self.accept_parts(namespace, request, shape, error);
            return;
        };
        let part = Part {
            namespace: namespace.id(),
            block_shift: namespace.block_shift(),
            lba: request.lba.0,
            offset: 0,
            blocks,
        };
        self.requests_in_flight += 1;
        let (lists, page) = (&self.rings.lists, self.page);
        let owner = Owner::Token(request.token);
        let entry = self.commands.start(owner, request.data, |index, data| {
            part.command(&shape, lists, index, data, page)
        });
        self.rings.submission.push(&entry);
    }

    /// Accepts a checked request of one of several owners; `losses_reported` is the number of losses that this owner
    /// knows.
    pub(crate) fn accept_for(
        &mut self,
        losses_reported: &mut u64,
        namespace: &Namespace,
        request: Request,
        shape: Shape,
    ) {
        self.losses_reported = *losses_reported;
        self.accept(namespace, request, shape);
        *losses_reported = self.losses_reported;
    }

    /// The same of a request that becomes several commands, or has to wait, or whose error is known.
    #[cold]
    pub(super) fn accept_parts(
        &mut self,
        namespace: &Namespace,
        request: Request,
        shape: Shape,
        error: Option<CommandError>,
    ) {
        let active = Active {
            shape,
            namespace: namespace.id(),
            block_shift: namespace.block_shift(),
            lba: request.lba.0,
            sent: 0,
            outstanding: 0,
            has_ended_parts: false,
            is_to_repeat: false,
            error,
            token: request.token,
            is_taken: true,
        };
        self.requests_in_flight += 1;
        let number = self.requests.put(active, request.data);
        // Those that came first are sent first.
        if !self.unsent.is_empty() || !self.send_parts(number) {
            self.unsent.push_back(number);
        }
    }

    /// Submits the waiting parts of requests as far as slots are free, and notifies the controller.
    #[inline(never)]
    pub(super) fn send_more(&mut self) {
        while let Some(index) = self.unsent.front().copied() {
            if !self.send_parts(index) {
                break;
            }
            self.unsent.pop_front();
        }
        self.ring();
    }

    /// Sends commands of a request; whether nothing of it is left to send.
    pub(super) fn send_parts(&mut self, number: u16) -> bool {
        loop {
            let request = self.requests.get_mut(number);
            let (shape, offset) = (request.shape, request.sent);
            let left = shape.blocks - offset;
            if left == 0 {
                return true;
            }
            if self.commands.is_full() {
                return false;
            }
            let part = Part {
                namespace: request.namespace,
                block_shift: request.block_shift,
                lba: request.lba + offset,
                offset,
                blocks: shape.limits.next(request.lba + offset, left),
            };
            request.sent += u64::from(part.blocks);
            request.outstanding += 1;
            let (lists, page) = (&self.rings.lists, self.page);
            let data = self.requests.data(number);
            let entry = self
                .commands
                .start(Owner::Request(number), None, |index, _| {
                    part.command(&shape, lists, index, data, page)
                });
            self.rings.submission.push(&entry);
        }
    }

    /// Writes the entry of a slot's command again.
    pub(super) fn send_once_more(&mut self, index: u16) {
        let entry = self.commands.entry(index);
        self.rings.submission.push(&entry);
    }
}
