//! A pair of rings, driven by one thread.
//!
//! # Ownership
//! All of it is its owner's. With other threads it shares the controller alone, whose epoch it reads at
//! every poll.
//!
//! # Invariants
//! 1. No more commands are in flight than there are slots, which is less than either ring has entries.
//! 2. Data of a request is given back only when none of its commands is in flight, or the controller has
//!    lost the queue they were in.
//! 3. What is in flight is in the queue of `epoch`; when the controller's epoch is another, the queue is made
//!    anew and all of it is sent again or fails.

use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::marker::PhantomData;
use std::mem;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};

use crate::admin_commands::{QueuePlace, take_memory};
use crate::check::{Addressing, Part, Shape};
use crate::commands::{Active, Commands, Owner, Requests};
use crate::epoch::Epoch;
use crate::interrupt;
use crate::request::{Refusal, Refused};
use crate::rings::{CompletionRing, SubmissionRing};
use crate::spec::command::Command;
use crate::spec::status::Status;
use crate::transfer::Lists;
use crate::{
    CommandError, Completion, Condition, Controller, Data, Error, ErrorKind, Namespace,
    QueueOptions, Request, Result, Waiting,
};

/// The most commands in flight of one queue pair: ids keep at least 4 bits for their sequence.
const DEPTH_MAX: u32 = 4095;
/// After so many polls the clock is looked at, if anything is in flight.
const POLLS_BETWEEN_CHECKS: u32 = 64;
/// After so long, at most, commands in flight and the controller's status are looked at.
pub(crate) const TIME_BETWEEN_CHECKS: Duration = Duration::from_millis(100);

/// The rings and lists, in memory that is the queue pair's own.
#[derive(Debug)]
struct Rings {
    submission: SubmissionRing,
    completion: CompletionRing,
    lists: Lists,
}

/// A queue pair. It belongs to one thread at a time: it is `Send` and not `Sync`.
///
/// Dropping it takes its queue from the controller; data of requests that are still under way is freed after
/// that.
pub struct QueuePair {
    controller: Arc<Controller>,
    place: QueuePlace,
    /// The most requests under way, and commands in flight.
    depth: u16,
    /// Requests under way.
    under_way: usize,
    /// Bytes of a device page.
    page: u64,
    epoch: Epoch,
    waiting: Waiting,
    /// Where the rings and lists lie.
    arena: Arena,
    rings: Rings,
    /// Whether the controller may know the queue.
    is_made: bool,
    /// Whether the controller was given up; then its epoch is never this pair's again.
    is_dead: bool,
    commands: Commands,
    requests: Requests,
    /// Requests of which something is left to send.
    unsent: VecDeque<u16>,
    /// How many completions the controller need not be told of yet.
    lag: u16,
    polls: u32,
    checked: Duration,
    /// Rounds of polling before it sleeps, under [`Waiting::Hybrid`].
    rounds: u32,
    one_thread: PhantomData<Cell<()>>,
}

impl QueuePair {
    pub(crate) fn new(controller: Arc<Controller>, options: QueueOptions) -> Result<Self> {
        if options.depth == 0 {
            let context = "a queue pair for no commands";
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let epoch = controller.epoch();
        let (id, vector) = controller.take_queue(options.waiting.interrupts())?;
        let made = Rings::new(&controller, id, options.depth);
        let (rings, depth, arena) = made.inspect_err(|_| controller.give_queue(id))?;
        let lag = match options.waiting {
            // What is not told takes room that completions in flight do not need.
            Waiting::Poll => rings.completion.entries() - 1 - depth,
            Waiting::Interrupt | Waiting::Hybrid(_) => 0,
        };
        let mut pair = Self {
            epoch,
            place: rings.place(id, vector),
            waiting: options.waiting,
            arena,
            rings,
            depth,
            under_way: 0,
            page: controller.page_size(),
            is_made: false,
            is_dead: false,
            commands: Commands::new(depth),
            requests: Requests::new(depth),
            unsent: VecDeque::with_capacity(usize::from(depth)),
            lag,
            polls: 0,
            checked: Duration::ZERO,
            rounds: 0,
            one_thread: PhantomData,
            controller,
        };
        pair.make_queue()?;
        Ok(pair)
    }

    /// The controller whose queue it is.
    #[must_use]
    pub const fn controller(&self) -> &Arc<Controller> {
        &self.controller
    }

    /// How many requests can be under way.
    #[must_use]
    pub fn depth(&self) -> usize {
        usize::from(self.depth)
    }

    /// How many requests are under way.
    #[must_use]
    pub const fn under_way(&self) -> usize {
        self.under_way
    }

    /// Whether it takes no request now.
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.under_way >= self.depth as usize
    }

    /// Whether a completion lies there that was not taken.
    pub(crate) fn has_completed(&self) -> bool {
        self.rings.completion.peek().is_some()
    }

    /// What becomes readable when the controller interrupts; none if the pair polls. After it did, call
    /// [`QueuePair::wait`] or empty the eventfd before the next [`QueuePair::poll`].
    #[must_use]
    pub fn interrupt(&self) -> Option<BorrowedFd<'_>> {
        self.place
            .vector
            .map(|vector| self.controller.vector(vector))
    }

    /// Accepts a request. The controller hears of it at the next [`QueuePair::ring`], [`QueuePair::poll`] or
    /// [`QueuePair::wait`], so that many requests cost one doorbell.
    ///
    /// # Errors
    /// The request, and why it is not accepted; nothing was done then.
    pub fn submit(
        &mut self,
        namespace: &Namespace,
        request: Request,
    ) -> std::result::Result<(), Refused> {
        let checked = if self.is_full() {
            Err(Refusal::QueueFull)
        } else if self.is_dead {
            Err(Refusal::Dead)
        } else {
            self.controller.check(namespace, &request)
        };
        let shape = match checked {
            Ok(shape) => shape,
            Err(reason) => return Err(Refused { request, reason }),
        };
        let Some(command) = self.short_command(namespace, &request, shape) else {
            self.accept(namespace, request, shape);
            return Ok(());
        };
        self.under_way += 1;
        let owner = Owner::Token(request.token);
        let entry = self.commands.start(owner, request.data, |_, _| command);
        self.rings.submission.push(&entry);
        Ok(())
    }

    /// The command of a request that can be sent now, is one command, and needs no list.
    #[inline(always)]
    fn short_command(
        &self,
        namespace: &Namespace,
        request: &Request,
        shape: Shape,
    ) -> Option<Command> {
        let blocks = shape.single(request.lba.0)?;
        let Some(Data::One(buffer)) = &request.data else {
            return None;
        };
        if shape.addressing != Addressing::Pages
            || self.commands.is_full()
            || !self.unsent.is_empty()
        {
            return None;
        }
        let pointer = Lists::two_pages(buffer.iova().0, buffer.len() as u64, self.page)?;
        Some(
            Command::new(shape.opcode, namespace.id())
                .with_pointer(pointer)
                .with_blocks(request.lba.0, shape.flags, blocks),
        )
    }

    /// Tells the controller of the requests so far.
    pub fn ring(&mut self) {
        // A provider that fails here is noticed by the next check of the controller's status.
        let _ = self.rings.submission.ring();
    }

    /// Takes what has completed, without waiting; returns how many requests have. Those that were not told
    /// to the controller yet are told.
    pub fn poll(&mut self, mut done: impl FnMut(Completion)) -> usize {
        self.poll_with(&mut done)
    }

    /// Waits until a request completes, nothing is under way, or `limit` is over; returns how many have
    /// completed. How it waits was said when the pair was made.
    pub fn wait(&mut self, limit: Duration, mut done: impl FnMut(Completion)) -> usize {
        let controller = Arc::clone(&self.controller);
        let host = &*controller.control().host;
        let mut start = None;
        let mut round: u32 = 0;
        loop {
            let count = self.poll_with(&mut done);
            if count > 0 || self.under_way == 0 {
                self.adapt(round);
                return count;
            }
            if round < self.rounds_before_sleep() {
                host.relax(round);
            } else {
                let start = *start.get_or_insert_with(|| host.now());
                let left = limit.saturating_sub(host.now().saturating_sub(start));
                let slept = self.sleep(left.min(TIME_BETWEEN_CHECKS));
                if !slept {
                    host.relax(round);
                }
                self.check_in_flight();
            }
            round = round.saturating_add(1);
            if round % POLLS_BETWEEN_CHECKS == 0 || start.is_some() {
                let now = host.now();
                if now.saturating_sub(*start.get_or_insert(now)) >= limit {
                    return self.poll_with(&mut done);
                }
            }
        }
    }

    fn poll_with(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
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
        self.send_more();
        // What was sent again, and what has waited for a slot.
        self.ring();
        self.polls = self.polls.wrapping_add(1);
        if self.polls % POLLS_BETWEEN_CHECKS == 0 {
            self.check_in_flight();
        }
        count
    }

    /// Accepts a request that was checked, while the pair is not full.
    #[inline(never)]
    pub(crate) fn accept(&mut self, namespace: &Namespace, request: Request, shape: Shape) {
        let waits = self.commands.is_full() || !self.unsent.is_empty();
        let Some(blocks) = shape.single(request.lba.0).filter(|_| !waits) else {
            self.accept_parts(namespace, request, shape);
            return;
        };
        let part = Part {
            namespace: namespace.id(),
            block_shift: namespace.block_shift(),
            lba: request.lba.0,
            offset: 0,
            blocks,
        };
        self.under_way += 1;
        let (lists, page) = (&self.rings.lists, self.page);
        let owner = Owner::Token(request.token);
        let entry = self.commands.start(owner, request.data, |index, data| {
            part.command(&shape, lists, index, data, page)
        });
        self.rings.submission.push(&entry);
    }

    /// The same of a request that becomes several commands, or has to wait.
    #[cold]
    fn accept_parts(&mut self, namespace: &Namespace, request: Request, shape: Shape) {
        let active = Active {
            shape,
            namespace: namespace.id(),
            block_shift: namespace.block_shift(),
            lba: request.lba.0,
            sent: 0,
            outstanding: 0,
            error: None,
            token: request.token,
            is_taken: true,
        };
        self.under_way += 1;
        let number = self.requests.put(active, request.data);
        // Those that came first are sent first.
        if !self.unsent.is_empty() || !self.send_parts(number) {
            self.unsent.push_back(number);
        }
    }

    /// Sends what is left of the requests that wait, as far as slots go.
    fn send_more(&mut self) {
        while let Some(index) = self.unsent.front().copied() {
            if !self.send_parts(index) {
                return;
            }
            self.unsent.pop_front();
        }
    }

    /// Sends commands of a request; whether nothing of it is left to send.
    fn send_parts(&mut self, number: u16) -> bool {
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
    fn send_once_more(&mut self, index: u16) {
        let entry = self.commands.entry(index);
        self.rings.submission.push(&entry);
    }

    fn take_completions(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let mut count = 0;
        // No more than are in flight can have completed: a controller that writes without end is not
        // followed without end.
        for _ in 0..self.commands.in_flight() {
            let Some(tail) = self.rings.completion.peek() else {
                break;
            };
            let known = self.commands.find(tail.command_id());
            let lies = tail.sq_id() != self.place.id || tail.sq_head() >= self.place.submission.1;
            let Some(index) = known.filter(|_| !lies) else {
                return count + self.reset_and_recover(done);
            };
            self.rings.completion.advance();
            count += usize::from(self.command_ended(index, tail.status(), done));
        }
        let _ = self.rings.completion.ring(self.lag);
        if self.commands.in_flight() == 0 && self.rings.completion.peek().is_some() {
            // Nothing was asked for.
            return count + self.reset_and_recover(done);
        }
        count
    }

    /// Whether a request ended with this command.
    #[inline(always)]
    fn command_ended(
        &mut self,
        index: u16,
        status: Status,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        if status.is_success() {
            self.controller.succeeded();
            return self.release(index, None, done);
        }
        self.command_failed(index, status, done)
    }

    #[cold]
    fn command_failed(
        &mut self,
        index: u16,
        status: Status,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        let slot = self.commands.get(index);
        let again = !status.is_final() && !status.is(Status::COMPARE_FAILURE);
        if again && slot.attempts < self.controller.control().options.retries {
            slot.attempts += 1;
            self.send_once_more(index);
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
    #[inline(always)]
    fn release(
        &mut self,
        index: u16,
        error: Option<CommandError>,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        match self.commands.get(index).owner {
            Owner::Token(token) => {
                self.under_way -= 1;
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
    fn part_ended(
        &mut self,
        number: u16,
        error: Option<CommandError>,
        done: &mut dyn FnMut(Completion),
    ) -> bool {
        let request = self.requests.get_mut(number);
        request.outstanding -= 1;
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
        let (token, result) = (request.token, request.error.map_or(Ok(()), Err));
        let data = self.requests.take(number);
        self.under_way -= 1;
        done(Completion {
            token,
            result,
            data,
        });
        true
    }

    /// Looks for commands that take too long, and whether the controller lives.
    pub(crate) fn check_in_flight(&mut self) {
        if self.commands.in_flight() == 0 {
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
        let mut lost = controller.check_alive().is_err();
        for index in 0..self.commands.slots() {
            let id = self.commands.id_of(index);
            let slot = self.commands.get(index);
            if !slot.in_flight {
                continue;
            }
            let seen = *slot.seen.get_or_insert(now);
            if now.saturating_sub(seen) < limit {
                continue;
            }
            if slot.aborted {
                lost = true;
                break;
            }
            // If the abort cannot be sent now the command has as long again in any case.
            controller.try_abort(self.place.id, id);
            slot.aborted = true;
            slot.seen = Some(now);
        }
        if lost {
            controller.reset_from(self.epoch);
        }
    }

    fn reset_and_recover(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        self.controller.reset_from(self.epoch);
        self.recover(done)
    }

    /// After a reset: makes the queue anew and sends again what was in flight. Returns how many requests
    /// ended because they were sent often enough, or because the controller is no more.
    fn recover(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        loop {
            let epoch = self.controller.epoch();
            match epoch.condition() {
                Condition::Resetting => return 0,
                Condition::Failed => {
                    self.is_dead = true;
                    return self.fail_all(CommandError::Failed, done);
                }
                Condition::Gone => {
                    self.is_dead = true;
                    return self.fail_all(CommandError::Gone, done);
                }
                Condition::Ready if epoch == self.epoch => return 0,
                Condition::Ready => {}
            }
            if self.make_queue().is_ok() {
                return self.send_again(done);
            }
            // It was disabled before the queue could be made, so what was in flight is not any more; it is
            // tried again as often as the controller resets in vain.
            self.controller.reset_from(epoch);
        }
    }

    fn make_queue(&mut self) -> Result<()> {
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

    fn send_again(&mut self, done: &mut dyn FnMut(Completion)) -> usize {
        let retries = self.controller.control().options.retries;
        let mut count = 0;
        for index in 0..self.commands.slots() {
            let slot = self.commands.get(index);
            if !slot.in_flight {
                continue;
            }
            if slot.attempts < retries {
                slot.attempts += 1;
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
        count
    }

    /// Ends everything; memory that the controller may still reach is given up.
    fn fail_all(&mut self, error: CommandError, done: &mut dyn FnMut(Completion)) -> usize {
        let quiet = self.controller.is_quiet();
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
            if !self.commands.get(index).in_flight {
                continue;
            }
            let owner = self.commands.get(index).owner;
            let data = self.commands.release(index);
            if let Owner::Token(token) = owner {
                fail(token, error, data);
                count += 1;
            }
        }
        self.unsent.clear();
        self.under_way = 0;
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

    /// Sleeps until the controller interrupts, or so long; false if the pair cannot sleep.
    fn sleep(&self, limit: Duration) -> bool {
        let Some(event) = self.interrupt() else {
            return false;
        };
        interrupt::empty(event);
        if !self.has_completed() {
            interrupt::sleep(&[event], limit);
        }
        true
    }

    pub(crate) const fn rounds_before_sleep(&self) -> u32 {
        match self.waiting {
            Waiting::Poll => u32::MAX,
            Waiting::Interrupt => 0,
            Waiting::Hybrid(most) => {
                // Twice what it took of late; if that is too long polling is in vain.
                let wanted = self.rounds.saturating_mul(2).saturating_add(64);
                if wanted > most { 0 } else { wanted }
            }
        }
    }

    /// Learns from a wait that took so many rounds.
    pub(crate) fn adapt(&mut self, round: u32) {
        if let Waiting::Hybrid(most) = self.waiting {
            let seen = round.min(most);
            self.rounds = self.rounds - self.rounds / 8 + seen / 8;
        }
    }
}

impl Rings {
    /// The memory of queue `id` for `depth` commands, fewer if the controller's limit is lower.
    fn new(controller: &Controller, id: u16, depth: u16) -> Result<(Self, u16, Arena)> {
        let entries_max = controller.capabilities().queue_entries_max();
        let depth = u32::from(depth).min(DEPTH_MAX).min(entries_max - 1);
        let to_u16 = |entries: u32| u16::try_from(entries).expect("no more than 8,192");
        let submission = to_u16(depth + 1);
        let completion = to_u16((2 * (depth + 1)).min(entries_max));
        let depth = to_u16(depth);

        let page = controller.page_size();
        let page_bytes = usize::try_from(page).expect("no more than 64 KiB");
        let whole = |size: usize| size.next_power_of_two().max(page_bytes);
        let submission_size = whole(SubmissionRing::size(submission));
        let completion_size = whole(CompletionRing::size(completion));
        let list_size = Lists::place_size(controller.transfer_max(), page);
        let lists_size = whole(list_size * usize::from(depth));
        let arena = Arena::new(
            Arc::clone(controller.domain()),
            &ArenaOptions {
                classes: classes(&[submission_size, completion_size, lists_size]),
                pages: Pages::Base,
                node: None,
            },
        )?;
        let (submission_bell, completion_bell) = controller.doorbells(id)?;
        let rings = Self {
            submission: SubmissionRing::new(
                take_memory(&arena, submission_size, page)?,
                submission,
                submission_bell,
            ),
            completion: CompletionRing::new(
                take_memory(&arena, completion_size, page)?,
                completion,
                completion_bell,
            ),
            lists: Lists::new(take_memory(&arena, lists_size, page)?, list_size),
        };
        Ok((rings, depth, arena))
    }

    fn place(&self, id: u16, vector: Option<u16>) -> QueuePlace {
        QueuePlace {
            id,
            submission: (self.submission.memory().iova(), self.submission.entries()),
            completion: (self.completion.memory().iova(), self.completion.entries()),
            vector,
        }
    }
}

/// One block of each size.
fn classes(sizes: &[usize]) -> Vec<SizeClass> {
    let mut classes: Vec<SizeClass> = Vec::new();
    for size in sizes {
        match classes.iter_mut().find(|class| class.size == *size) {
            Some(class) => class.count += 1,
            None => classes.push(SizeClass {
                size: *size,
                count: 1,
            }),
        }
    }
    classes
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        let controller = Arc::clone(&self.controller);
        if self.is_made {
            let deleted = controller.delete_queue(self.place.id, self.epoch);
            if deleted.is_err() {
                // A reset takes the queue from it as well.
                controller.reset_from(self.epoch);
            }
        }
        let mut round = 0;
        while controller.condition() == Condition::Resetting {
            controller.control().host.relax(round);
            round = round.saturating_add(1);
        }
        if controller.condition() == Condition::Failed && !controller.is_quiet() {
            // The controller may still write there: the memory is given up, mapped and locked as it is.
            self.fail_all(CommandError::Failed, &mut |_| {});
            mem::forget(self.arena.clone());
        }
        controller.give_queue(self.place.id);
    }
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuePair")
            .field("controller", &self.controller.name())
            .field("id", &self.place.id)
            .field("depth", &self.depth())
            .field("under_way", &self.under_way())
            .finish_non_exhaustive()
    }
}
