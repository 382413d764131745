//! The admin queue: commands to the controller as a whole, one caller at a time.
//!
//! The caller waits for its own command. Asynchronous event requests and aborts stay in the queue; the next user of the
//! queue, or a check for events, takes their completions.

use std::collections::VecDeque;
use std::time::Duration;

use crate::events::AsyncEvent;
use crate::rings::{CompletionRing, SubmissionRing};
use crate::spec::command::{Command, admin};
use crate::spec::status::Status;
use crate::{Error, ErrorKind, Host, Result};

/// Entries of the two rings.
pub(crate) const ADMIN_ENTRIES: u16 = 32;
/// The most events that are kept for the caller; more are counted.
const EVENTS_MAX: usize = 64;

/// Purpose of a command in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Purpose {
    /// A command whose caller waits.
    Caller,
    /// An asynchronous event request.
    Event,
    /// An abort; its result is ignored.
    Abort,
}

/// How a caller's command ended.
#[derive(Clone, Copy, Debug)]
struct Ended {
    result: u32,
    status: Status,
}

/// The two rings, and what lies in them.
#[derive(Debug)]
pub(crate) struct AdminQueue {
    submission: SubmissionRing,
    completion: CompletionRing,
    /// Commands in flight. Their ids count up, so that a late completion of an abandoned command does not match another
    /// command.
    in_flight: Vec<(u16, Purpose)>,
    id_next: u16,
    /// The command that a caller waits for.
    awaited: Option<u16>,
    ended: Option<Ended>,
    events: VecDeque<AsyncEvent>,
    events_lost: u64,
    /// Event requests that ended and were not made again yet.
    events_due: usize,
    aborts_max: usize,
    /// Cause for which the queue is unusable: a command timed out, or the controller violated the specification.
    broken: Option<Error>,
}

impl AdminQueue {
    pub(crate) fn new(submission: SubmissionRing, completion: CompletionRing) -> Self {
        Self {
            submission,
            completion,
            in_flight: Vec::with_capacity(usize::from(ADMIN_ENTRIES)),
            id_next: 0,
            awaited: None,
            ended: None,
            events: VecDeque::with_capacity(EVENTS_MAX),
            events_lost: 0,
            events_due: 0,
            aborts_max: 1,
            broken: None,
        }
    }

    /// Why it cannot be used until it is restarted; none if it can.
    pub(crate) fn broken(&self) -> Option<Error> {
        self.broken.as_ref().map(Error::copy)
    }

    /// It cannot be used until it is restarted.
    pub(crate) fn break_off(&mut self, error: &Error) {
        self.broken = Some(error.copy());
    }

    pub(crate) const fn submission(&self) -> &SubmissionRing {
        &self.submission
    }

    pub(crate) const fn completion(&self) -> &CompletionRing {
        &self.completion
    }

    /// Begins anew, as the controller does when it is enabled.
    pub(crate) fn restart(&mut self) {
        self.submission.restart();
        self.submission.doorbell.restart(None);
        self.completion.restart();
        self.completion.doorbell.restart(None);
        self.in_flight.clear();
        self.awaited = None;
        self.ended = None;
        self.events_due = 0;
        self.broken = None;
    }

    /// How many aborts may be under way.
    pub(crate) fn set_aborts_max(&mut self, aborts: usize) {
        self.aborts_max = aborts;
    }

    /// Submits a command and waits for it; returns its result.
    ///
    /// # Errors
    /// `Command` with the status; `TimedOut`, `Protocol`, or the error of `check_alive`, after which the queue is
    /// broken.
    pub(crate) fn execute(
        &mut self,
        what: &str,
        command: Command,
        host: &dyn Host,
        limit: Duration,
        alive: &dyn Fn() -> Result<()>,
    ) -> Result<u32> {
        let sent = self.send(command, Purpose::Caller);
        self.awaited = Some(sent.inspect_err(|error| self.break_off(error))?);
        let ended = self.wait(what, host, limit, alive);
        let ended = ended.inspect_err(|error| self.break_off(error))?;
        if ended.status.is_success() {
            Ok(ended.result)
        } else {
            Err(Error::command(what, ended.status))
        }
    }

    fn wait(
        &mut self,
        what: &str,
        host: &dyn Host,
        limit: Duration,
        alive: &dyn Fn() -> Result<()>,
    ) -> Result<Ended> {
        let start = host.now();
        let mut round = 0_u32;
        loop {
            let is_check = round % ROUNDS_BETWEEN_CHECKS == ROUNDS_BETWEEN_CHECKS - 1;
            // Before the look at the ring: this thread may be stopped in between, which is not the
            // controller's fault.
            let is_late = is_check && host.now().saturating_sub(start) > limit;
            self.poll()?;
            if let Some(ended) = self.ended.take() {
                return Ok(ended);
            }
            if is_check {
                alive()?;
            }
            if is_late {
                let context = format!("{what}: no completion after {} ms", limit.as_millis());
                return Err(Error::new(ErrorKind::TimedOut, context));
            }
            host.rest(round);
            round = round.wrapping_add(1);
        }
    }

    /// Submits `count` asynchronous event requests.
    pub(crate) fn request_events(&mut self, count: usize) -> Result<()> {
        for _ in 0..count {
            self.send(Command::new(admin::ASYNC_EVENT, 0), Purpose::Event)?;
        }
        Ok(())
    }

    /// Asks for a command of an I/O queue to be aborted. False if as many aborts as the controller takes are
    /// under way.
    pub(crate) fn try_abort(&mut self, queue: u16, command: u16) -> Result<bool> {
        self.poll()?;
        let aborts = self.in_flight.iter();
        if aborts.filter(|(_, p)| *p == Purpose::Abort).count() >= self.aborts_max {
            return Ok(false);
        }
        let abort = Command::new(admin::ABORT, 0)
            .with_10_11(u32::from(queue) | u32::from(command) << 16, 0);
        self.send(abort, Purpose::Abort)?;
        Ok(true)
    }

    /// Whether there are events that were not taken.
    pub(crate) fn has_events(&self) -> bool {
        !self.events.is_empty()
    }

    /// The events since the last call, oldest first, and the number lost before them because they were not taken.
    pub(crate) fn take_events(&mut self) -> (Vec<AsyncEvent>, u64) {
        let lost = std::mem::take(&mut self.events_lost);
        (self.events.drain(..).collect(), lost)
    }

    /// Takes back what was taken, before all that came since.
    pub(crate) fn put_back_events(&mut self, events: Vec<AsyncEvent>, lost: u64) {
        self.events_lost += lost;
        for event in events.into_iter().rev() {
            if self.events.len() == EVENTS_MAX {
                self.events_lost += 1;
            } else {
                self.events.push_front(event);
            }
        }
    }

    /// Makes those event requests again that ended.
    pub(crate) fn renew_events(&mut self) -> Result<()> {
        let due = std::mem::take(&mut self.events_due);
        self.request_events(due)
    }

    fn send(&mut self, command: Command, purpose: Purpose) -> Result<u16> {
        if self.in_flight.len() + 1 >= usize::from(ADMIN_ENTRIES) {
            let context = "the admin queue is full of commands without completion";
            return Err(Error::new(ErrorKind::TimedOut, context));
        }
        while self.in_flight.iter().any(|(id, _)| *id == self.id_next) {
            self.id_next = id_after(self.id_next);
        }
        let id = self.id_next;
        self.id_next = id_after(id);
        self.submission.push(&command.words(id));
        self.in_flight.push((id, purpose));
        self.submission.ring()?;
        Ok(id)
    }

    /// Takes all completions.
    pub(crate) fn poll(&mut self) -> Result<()> {
        while let Some(tail) = self.completion.peek() {
            let result = self.completion.result();
            let id = tail.command_id();
            let found = self.in_flight.iter().position(|(known, _)| *known == id);
            let head_lies = tail.sq_head() >= self.submission.entries() || tail.sq_id() != 0;
            let Some(index) = found.filter(|_| !head_lies) else {
                let context = format!("admin completion that was not asked for: {tail:x?}");
                let error = Error::new(ErrorKind::Protocol, context);
                self.break_off(&error);
                return Err(error);
            };
            self.completion.advance();
            let (_, purpose) = self.in_flight.swap_remove(index);
            let status = tail.status();
            match purpose {
                Purpose::Caller if self.awaited == Some(id) => {
                    self.ended = Some(Ended { result, status });
                }
                // The command was abandoned.
                Purpose::Caller => {}
                Purpose::Abort => {}
                Purpose::Event if status.is_success() => self.keep(AsyncEvent::parse(result)),
                // The controller accepts fewer requests than it reported: this one is not repeated.
                Purpose::Event => {}
            }
        }
        self.completion.ring(0)
    }

    fn keep(&mut self, event: AsyncEvent) {
        self.events_due += 1;
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
            self.events_lost += 1;
        }
        self.events.push_back(event);
    }
}

/// Ids count up and wrap before 0xffff, which means "no command" in the error log.
const fn id_after(id: u16) -> u16 {
    (id + 1) % u16::MAX
}

/// Rounds of waiting between two checks of the clock and the controller's status.
const ROUNDS_BETWEEN_CHECKS: u32 = 64;
