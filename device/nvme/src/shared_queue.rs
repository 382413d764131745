//! A queue pair that many threads use.
//!
//! # Protocol
//! ```text
//!   thread A --request--+                      +--completion--> A's ring
//!   thread B --request--+--> inbox --> pair ---+--completion--> B's ring
//!   thread C --request--+   (the lock's holder +--completion--> C's ring
//!                            lock moves both)
//! ```
//! No thread is dedicated to the pair: a waiting thread that finds the lock free drives it for all, until its own
//! request is complete; then it wakes the sleeping threads, and one of them drives on. A thread that finds the lock
//! taken spins and then sleeps.
//!
//! # Ownership
//! | object | owner |
//! |---|---|
//! | the pair, the inbox's end, the completion rings' ends | the lock's holder |
//! | a handle: the inbox's other end, its own completion ring's other end | its thread |
//!
//! # Invariants
//! 1. A handle has no more requests under way than its completion ring has slots.
//! 2. A thread sleeps on `idle` only after it has announced its sleep and then found no completion and the lock taken;
//!    releasing the lock and delivering a completion notify afterwards.
//! 3. The driver sleeps only after it has announced its sleep and then found the inbox empty; adding a request to the
//!    inbox notifies afterwards.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use millrace_sync::ring::{self, Consumer, HeapCells, Multi, Producer, Single};
use millrace_sync::{Event, Native, NativeEventFd, Shared};

use crate::interrupt;
use crate::queue_pair::TIME_BETWEEN_CHECKS;
use crate::request::{Refusal, Refused};
use crate::shape::Shape;
use crate::{CommandError, Completion, Condition, Controller, Namespace, QueuePair, Request};

/// Polls of a thread that does not drive, before it sleeps.
const POLLS_BEFORE_SLEEP: u32 = 256;
/// Rounds without a completion after which the driver checks for lost commands.
const ROUNDS_BETWEEN_CHECKS: u32 = 64;

/// A request on its way to the pair.
#[derive(Debug)]
struct InboxRequest {
    handle: usize,
    namespace: Namespace,
    request: Request,
    shape: Shape,
}

/// A handle's completion ring, as the driver has it.
#[derive(Debug)]
struct Outbox {
    ring: Producer<HeapCells<Completion, Native>, Single>,
    /// Zero while there is the handle; then the number of requests it has ever submitted, and one.
    closed: Shared<AtomicU64>,
    /// How many of its requests have come in.
    came_in: u64,
    requests_in_flight: usize,
    /// Number of losses of the cache that a flush of the handle has reported.
    losses_reported: u64,
    /// Whether a flush that has just ended reports all losses that the pair has seen.
    reports_loss: bool,
}

impl Outbox {
    /// Whether the handle was dropped. Pairs with the release in its drop: all its submissions are visible then.
    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire) != 0
    }

    /// Whether another handle can have its place: nothing of it is in the inbox or the pair.
    fn is_unused(&self) -> bool {
        let submitted = self.closed.load(Ordering::Acquire);
        submitted == self.came_in + 1 && self.requests_in_flight == 0
    }
}

/// What the lock guards.
#[derive(Debug)]
struct Driver {
    pair: QueuePair,
    inbox: Consumer<HeapCells<InboxRequest, Native>, Single>,
    outboxes: Vec<Outbox>,
    /// Owner and token of each request in flight in the pair.
    owners: Vec<(usize, u64)>,
    owners_free: Vec<usize>,
}

#[derive(Debug)]
struct Inner {
    controller: Arc<Controller>,
    driver: Mutex<Driver>,
    /// Where threads sleep that wait for a completion or for the lock.
    idle: Event<Native>,
    /// Event on which the driver sleeps.
    posted: Event<NativeEventFd>,
}

/// A queue pair for many threads: each makes itself a handle.
pub struct SharedQueue {
    inner: Arc<Inner>,
    inbox: Mutex<Producer<HeapCells<InboxRequest, Native>, Multi>>,
    requests_max: usize,
}

impl SharedQueue {
    /// Shares `pair`, for handles that have `requests_max` requests each under way at most.
    ///
    /// # Panics
    /// If `requests_max` is zero, or if the process has no descriptor left for an eventfd.
    #[must_use]
    pub fn new(pair: QueuePair, requests_max: usize) -> Self {
        let depth = pair.depth();
        let (inbox, inbox_end) = ring::bounded(depth.max(64));
        let controller = Arc::clone(pair.controller());
        assert!(requests_max > 0, "handles for no requests");
        let driver = Driver {
            pair,
            inbox: inbox_end,
            outboxes: Vec::new(),
            owners: vec![(0, 0); depth],
            owners_free: (0..depth).collect(),
        };
        Self {
            inner: Arc::new(Inner {
                controller,
                driver: Mutex::new(driver),
                idle: Event::new(),
                posted: Event::try_new().expect("a descriptor is left for an eventfd"),
            }),
            inbox: Mutex::new(inbox),
            requests_max,
        }
    }

    /// A handle for the calling thread. Waits for the lock.
    #[must_use]
    pub fn handle(&self) -> SharedHandle {
        let (producer, completions) = ring::bounded(self.requests_max);
        let closed = Shared::new(AtomicU64::new(0));
        let outbox = Outbox {
            ring: producer,
            closed: closed.clone(),
            came_in: 0,
            requests_in_flight: 0,
            losses_reported: self.inner.controller.losses_reported(),
            reports_loss: false,
        };
        let driver = self.inner.driver.lock();
        let mut driver = driver.unwrap_or_else(PoisonError::into_inner);
        let outboxes = &mut driver.outboxes;
        let unused = outboxes.iter().position(Outbox::is_unused);
        let number = unused.unwrap_or(outboxes.len());
        match outboxes.get_mut(number) {
            Some(place) => *place = outbox,
            None => outboxes.push(outbox),
        }
        drop(driver);
        self.inner.idle.notify();
        let inbox = self.inbox.lock();
        SharedHandle {
            inner: Arc::clone(&self.inner),
            number,
            inbox: inbox.unwrap_or_else(PoisonError::into_inner).clone(),
            completions,
            closed,
            submitted: 0,
            requests_in_flight: 0,
            requests_max: self.requests_max,
        }
    }
}

/// Handle of one thread to a [`SharedQueue`]. Requests in flight when it is dropped are still executed when another
/// thread drives the pair; their completions are dropped.
pub struct SharedHandle {
    inner: Arc<Inner>,
    number: usize,
    inbox: Producer<HeapCells<InboxRequest, Native>, Multi>,
    completions: Consumer<HeapCells<Completion, Native>, Single>,
    closed: Shared<AtomicU64>,
    submitted: u64,
    requests_in_flight: usize,
    requests_max: usize,
}

impl SharedHandle {
    /// Accepts a request; the next thread that drives the pair submits it, as [`SharedHandle::poll`] and
    /// [`SharedHandle::wait`] do.
    ///
    /// # Errors
    /// The request and the reason of the refusal; nothing was done.
    pub fn submit(&mut self, namespace: &Namespace, request: Request) -> Result<(), Refused> {
        let refuse = |request, reason| Err(Refused { request, reason });
        if self.requests_in_flight == self.requests_max {
            return refuse(request, Refusal::QueueFull);
        }
        let condition = self.inner.controller.condition();
        if matches!(condition, Condition::Failed | Condition::Gone) {
            return refuse(request, Refusal::ControllerFailed);
        }
        let shape = match self.inner.controller.check(namespace, &request) {
            Ok(shape) => shape,
            Err(reason) => return refuse(request, reason),
        };
        let posted = InboxRequest {
            handle: self.number,
            namespace: namespace.clone(),
            request,
            shape,
        };
        if let Err(posted) = self.inbox.try_push(posted) {
            // No thread has driven the pair for a while.
            self.drive_once();
            if let Err(posted) = self.inbox.try_push(posted) {
                return refuse(posted.request, Refusal::QueueFull);
            }
        }
        self.submitted += 1;
        self.requests_in_flight += 1;
        self.inner.posted.notify();
        Ok(())
    }

    /// How many requests are under way.
    #[must_use]
    pub const fn requests_in_flight(&self) -> usize {
        self.requests_in_flight
    }

    /// Takes a completion without waiting; drives the pair one round if no thread does.
    pub fn poll(&mut self) -> Option<Completion> {
        if let Some(completion) = self.take() {
            return Some(completion);
        }
        self.drive_once();
        self.take()
    }

    /// Drives the pair one round, if no thread does.
    fn drive_once(&self) {
        if let Some(mut turn) = DriverTurn::try_take(&self.inner) {
            turn.round();
        }
    }

    /// Waits until a request ends; none if none is under way.
    pub fn wait(&mut self) -> Option<Completion> {
        if self.requests_in_flight == 0 {
            return None;
        }
        let inner = Arc::clone(&self.inner);
        let completions = &mut self.completions;
        let turn = inner
            .idle
            .wait(POLLS_BEFORE_SLEEP, || match completions.try_pop() {
                Some(completion) => Some(Turn::Done(completion)),
                None => DriverTurn::try_take(&inner).map(Turn::Drive),
            });
        let completion = match turn {
            Turn::Done(completion) => completion,
            Turn::Drive(mut driver) => driver.drive(&inner, || completions.try_pop()),
        };
        self.requests_in_flight -= 1;
        Some(completion)
    }

    fn take(&mut self) -> Option<Completion> {
        let completion = self.completions.try_pop()?;
        self.requests_in_flight -= 1;
        Some(completion)
    }
}

/// What a thread that waits comes to.
enum Turn<'a> {
    /// The thread's request is complete.
    Done(Completion),
    /// It is to drive the pair.
    Drive(DriverTurn<'a>),
}

impl Driver {
    /// Moves requests in and completions out once; how many of both.
    fn round(&mut self) -> usize {
        self.take_in() + self.give_out()
    }

    fn take_in(&mut self) -> usize {
        let mut count = 0;
        while self.pair.has_room() {
            let Some(mut posted) = self.inbox.try_pop() else {
                break;
            };
            let place = self.owners_free.pop();
            let place = place.expect("there are as many places as requests in the pair");
            self.owners[place] = (posted.handle, posted.request.token);
            let outbox = &mut self.outboxes[posted.handle];
            outbox.came_in += 1;
            outbox.requests_in_flight += 1;
            posted.request.token = place as u64;
            self.pair.accept_for(
                &mut outbox.losses_reported,
                &posted.namespace,
                posted.request,
                posted.shape,
            );
            count += 1;
        }
        count
    }

    fn give_out(&mut self) -> usize {
        let (owners, free) = (&self.owners, &mut self.owners_free);
        let outboxes = &mut self.outboxes;
        let mut any_heard = false;
        let count = self.pair.poll(|mut completion| {
            let place = usize::try_from(completion.token).expect("it was an index");
            let (handle, token) = owners[place];
            free.push(place);
            completion.token = token;
            let outbox = &mut outboxes[handle];
            outbox.requests_in_flight -= 1;
            if completion.result == Err(CommandError::CacheLost) {
                outbox.reports_loss = true;
                any_heard = true;
            }
            if outbox.is_closed() {
                return;
            }
            let pushed = outbox.ring.try_push(completion);
            // Invariant 1.
            assert!(pushed.is_ok(), "a handle's ring has room for its requests");
        });
        if any_heard {
            let losses = self.pair.losses_seen();
            for outbox in outboxes.iter_mut().filter(|outbox| outbox.reports_loss) {
                outbox.reports_loss = false;
                outbox.losses_reported = outbox.losses_reported.max(losses);
            }
        }
        count
    }

    /// Drives the pair until `own` has something.
    fn drive(&mut self, inner: &Inner, mut own: impl FnMut() -> Option<Completion>) -> Completion {
        let mut round: u32 = 0;
        loop {
            let moved = self.round();
            if let Some(completion) = own() {
                self.pair.adapt(round);
                return completion;
            }
            if moved > 0 {
                // Others may have got theirs.
                inner.idle.notify();
                round = 0;
                continue;
            }
            if round < self.pair.rounds_before_sleep() || !self.sleep(inner) {
                inner.controller.control().host.relax(round);
            }
            round = round.saturating_add(1);
            if round % ROUNDS_BETWEEN_CHECKS == 0 {
                self.pair.check_in_flight();
            }
        }
    }

    /// Sleeps until an interrupt or a new request; false if the pair can only poll.
    fn sleep(&mut self, inner: &Inner) -> bool {
        let Some(interrupt) = self.pair.event() else {
            return false;
        };
        interrupt::empty(interrupt);
        let announced = inner.posted.announce();
        let busy = self.take_in() > 0 || self.pair.has_completed();
        if !busy {
            if let Some(interrupt) = self.pair.event() {
                let posted = inner.posted.parker().as_fd();
                interrupt::sleep(&[interrupt, posted], TIME_BETWEEN_CHECKS);
            }
            self.pair.check_in_flight();
        }
        drop(announced);
        true
    }
}

/// The lock. Its release, also by a panic, wakes the sleeping threads: one of them must drive now.
struct DriverTurn<'a> {
    driver: Option<MutexGuard<'a, Driver>>,
    idle: &'a Event<Native>,
}

impl<'a> DriverTurn<'a> {
    /// The lock, unless it is taken. A panic of its holder leaves the tables between two steps.
    fn try_take(inner: &'a Inner) -> Option<Self> {
        let driver = match inner.driver.try_lock() {
            Ok(driver) => driver,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        Some(Self {
            driver: Some(driver),
            idle: &inner.idle,
        })
    }
}

impl Deref for DriverTurn<'_> {
    type Target = Driver;

    fn deref(&self) -> &Driver {
        self.driver.as_ref().expect("it is there until the drop")
    }
}

impl DerefMut for DriverTurn<'_> {
    fn deref_mut(&mut self) -> &mut Driver {
        self.driver.as_mut().expect("it is there until the drop")
    }
}

impl Drop for DriverTurn<'_> {
    fn drop(&mut self) {
        self.driver = None;
        self.idle.notify();
    }
}

impl Drop for SharedHandle {
    fn drop(&mut self) {
        self.closed.store(self.submitted + 1, Ordering::Release);
    }
}

impl fmt::Debug for SharedQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedQueue")
            .field("controller", &self.inner.controller.name())
            .field("requests_max", &self.requests_max)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for SharedHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedHandle")
            .field("number", &self.number)
            .field("under_way", &self.requests_in_flight)
            .finish_non_exhaustive()
    }
}
