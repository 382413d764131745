//! Group commit: one thread syncs the engine's log for everybody who waits for it.
//!
//! ```text
//!   worker: commit (buffered) -> park the reply -> end of its round: Journal::request(optime)
//!   journal thread: wait for a request -> Engine::sync -> publish the durable optime -> wake workers
//!   worker: release every parked reply that the durable optime covers
//! ```
//! While one sync runs, the requests of the next one gather: the more writers, the more replies a
//! sync releases. With a journal interval the thread also syncs by itself when there is something.
//!
//! # Waiting for company
//! A sync costs the processor as much as several writes. So before it syncs, the thread waits for as
//! many replies as there were writers about at the last sync: those it released and those who had come
//! by its end. It waits no longer than the last sync took, and at most [`GATHERING_MAX`]. A lone writer
//! never waits, and writers who have left are waited for once.
//!
//! # A lone writer
//! Two threads woken cost more than a sync of a quick device. So a worker whose single reply waits, while
//! there was no other writer at the last sync and that took less than [`HERE_MAX`], syncs itself
//! ([`Journal::sync_here`]). Its other connections wait as long.
//!
//! # Invariants
//! 1. The published durable optime was returned by [`Engine::sync`].
//! 2. A subscriber that called [`Journal::request`] is woken after the sync that covers its optime,
//!    or after a sync failed.
//! 3. After a failed sync [`Journal::has_failed`] stays true and no sync is tried again: the engine
//!    is poisoned.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_engine::{Engine, Optime};

use crate::clock::Clock;

/// The longest a sync is put off to gather more requests.
pub const GATHERING_MAX: Duration = Duration::from_millis(1);

/// A worker syncs by itself only if the last sync took less.
pub const HERE_MAX: Duration = Duration::from_micros(300);

/// Somebody with replies that wait for a sync.
pub trait Subscriber: Send + Sync + Debug {
    /// Whether there is anything waiting; set before [`Journal::request`] is called.
    fn is_waiting(&self) -> bool;
    /// Makes the subscriber look at [`Journal::durable_optime`].
    fn wake(&self);
}

/// What the journal thread does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// It waits for a request.
    #[default]
    Idle,
    /// It waits for more of them.
    Gathering,
    /// It syncs, or has ended.
    Syncing,
}

#[derive(Debug, Default)]
struct State {
    wanted: Optime,
    phase: Phase,
    /// Whether a worker syncs by itself. It wakes the thread afterwards if others wait.
    here: bool,
    /// Replies that were parked after the last sync began.
    waiting: u64,
    /// How many replies to gather before the next sync.
    expected: u64,
    /// How long the last sync took.
    duration: Duration,
    stopping: bool,
    subscribers: Vec<Arc<dyn Subscriber>>,
}

impl State {
    /// Whether the journal thread has to be woken after a request.
    const fn concerns_the_thread(&self) -> bool {
        match self.phase {
            Phase::Idle => !self.here,
            Phase::Gathering => self.waiting >= self.expected,
            Phase::Syncing => false,
        }
    }
}

/// What the journal thread has done, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalCounters {
    /// Syncs that succeeded.
    pub syncs: u64,
    /// Replies that were parked.
    pub parked: u64,
}

/// The journal. See the [module's page](self).
#[derive(Debug)]
pub struct Journal {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    interval: Option<Duration>,
    state: Mutex<State>,
    changed: Condvar,
    /// Written by the journal thread, read by workers; `Release` and `Acquire` pair so that a worker
    /// that sees a new value also sees what the sync did.
    durable: AtomicU64,
    failed: AtomicBool,
    syncs: AtomicU64,
    parked: AtomicU64,
}

impl Journal {
    /// A journal for `engine`. With an `interval` above zero it also syncs that often by itself.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, interval: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        let durable = engine.durable_optime().get();
        Arc::new(Self {
            engine,
            clock,
            interval: Some(interval).filter(|interval| !interval.is_zero()),
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
            durable: AtomicU64::new(durable),
            failed: AtomicBool::new(false),
            syncs: AtomicU64::new(0),
            parked: AtomicU64::new(0),
        })
    }

    /// Whether every acknowledged write waits for a sync (there is no interval).
    #[must_use]
    pub const fn syncs_every_write(&self) -> bool {
        self.interval.is_none()
    }

    /// Adds somebody to be woken.
    pub fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.lock().subscribers.push(subscriber);
    }

    /// Asks for a sync that covers `optime`, for so many `replies` that were parked since the last
    /// request.
    pub fn request(&self, optime: Optime, replies: u64) {
        self.parked.fetch_add(replies, Ordering::Relaxed);
        let mut state = self.lock();
        state.wanted = state.wanted.max(optime);
        state.waiting += replies;
        let wake = state.concerns_the_thread();
        drop(state);
        if wake {
            self.changed.notify_one();
        }
    }

    /// Syncs in the calling thread for a lone reply that waits for `optime`; `false` if there is company, or
    /// the device is slow, so that it is to be [requested](Journal::request). After `true` the durable
    /// optime covers `optime`, or [`Journal::has_failed`].
    pub fn sync_here(&self, optime: Optime) -> bool {
        {
            let mut state = self.lock();
            let is_quiet = state.phase == Phase::Idle && !state.here && !state.stopping;
            let is_alone = state.waiting == 0 && state.expected == 1;
            if !is_quiet || !is_alone || state.duration >= HERE_MAX {
                return false;
            }
            state.here = true;
            state.wanted = state.wanted.max(optime);
            state.waiting = 1;
        }
        self.parked.fetch_add(1, Ordering::Relaxed);
        let succeeded = self.sync();
        let mut state = self.lock();
        state.here = false;
        let others_wait = succeeded && state.wanted > self.durable_optime();
        drop(state);
        if others_wait || !succeeded {
            self.changed.notify_one();
        }
        true
    }

    /// The optime up to which everything is on stable storage.
    #[must_use]
    pub fn durable_optime(&self) -> Optime {
        Optime::new(self.durable.load(Ordering::Acquire))
    }

    /// Whether a sync failed: nothing may be acknowledged any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Acquire)
    }

    /// What the thread has done.
    #[must_use]
    pub fn counters(&self) -> JournalCounters {
        JournalCounters {
            syncs: self.syncs.load(Ordering::Relaxed),
            parked: self.parked.load(Ordering::Relaxed),
        }
    }

    /// Ends [`Journal::run`] after a last sync.
    pub fn stop(&self) {
        self.lock().stopping = true;
        self.changed.notify_one();
    }

    /// The journal thread: returns after [`Journal::stop`] or after a sync failed.
    pub fn run(&self) {
        loop {
            let stopping = self.wait_for_work();
            if self.has_failed() {
                return;
            }
            if self.engine.last_optime() > self.durable_optime() && !self.sync() {
                return;
            }
            if stopping {
                return;
            }
        }
    }

    /// Waits until somebody wants a sync and others had the time to join, the interval is over, or the
    /// end has come; returns whether it has.
    fn wait_for_work(&self) -> bool {
        let mut state = self.lock();
        state.phase = Phase::Idle;
        let mut interval_over = false;
        while !(state.stopping
            || interval_over
            || self.has_failed()
            || (!state.here && state.wanted > self.durable_optime()))
        {
            (state, interval_over) = self.wait(state, self.interval);
        }
        state.phase = Phase::Gathering;
        let enough = self.clock.now() + state.duration.min(GATHERING_MAX);
        while !(state.stopping
            || interval_over
            || self.has_failed()
            || state.waiting >= state.expected)
        {
            let left = enough.saturating_sub(self.clock.now());
            if left.is_zero() {
                break;
            }
            (state, _) = self.wait(state, Some(left));
        }
        state.phase = Phase::Syncing;
        state.stopping
    }

    /// Waits for a notification, or until `timeout` is over; returns whether it is.
    fn wait<'a>(
        &self,
        state: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> (MutexGuard<'a, State>, bool) {
        let Some(timeout) = timeout else {
            let state = self.changed.wait(state);
            return (state.unwrap_or_else(PoisonError::into_inner), false);
        };
        let (state, waited) = self
            .changed
            .wait_timeout(state, timeout)
            .unwrap_or_else(PoisonError::into_inner);
        (state, waited.timed_out())
    }

    /// Syncs and tells everybody; returns whether it succeeded.
    fn sync(&self) -> bool {
        let released = std::mem::take(&mut self.lock().waiting);
        let began = self.clock.now();
        let result = self.engine.sync();
        match &result {
            Ok(durable) => {
                self.durable.store(durable.get(), Ordering::Release);
                self.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                self.failed.store(true, Ordering::Release);
                tracing::error!(
                    target: "STORAGE",
                    id = 23_200_u32,
                    error = %error,
                    "Fatal: a sync of the journal failed; no write is acknowledged any more"
                );
            }
        }
        let mut state = self.lock();
        state.expected = released + state.waiting;
        state.duration = self.clock.now().saturating_sub(began);
        for subscriber in &state.subscribers {
            if subscriber.is_waiting() {
                subscriber.wake();
            }
        }
        result.is_ok()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use millrace_engine::{Batch, Durability, Guards, MemoryEngine};

    use super::*;
    use crate::clock::SystemClock;

    /// A journal whose engine has one commit that is not durable.
    fn journal() -> (Arc<Journal>, Optime) {
        let engine = Arc::new(MemoryEngine::new());
        let mut batch = Batch::new();
        batch.put(b"key", b"value");
        let commit = engine.commit(&batch, &Guards::none(), Durability::Buffered);
        (
            Journal::new(engine, Duration::ZERO, Arc::new(SystemClock::new())),
            commit.expect("it commits"),
        )
    }

    fn expected_and_waiting(journal: &Journal) -> (u64, u64) {
        let state = journal.lock();
        (state.expected, state.waiting)
    }

    #[test]
    fn a_sync_expects_next_time_those_it_released_and_those_who_came_meanwhile() {
        let (journal, optime) = journal();
        journal.request(optime, 3);
        assert!(journal.sync());
        assert_eq!(journal.durable_optime(), optime);
        assert_eq!(expected_and_waiting(&journal), (3, 0));
        journal.request(optime.next(), 2);
        journal.lock().phase = Phase::Syncing;
        assert!(journal.sync());
        assert_eq!(expected_and_waiting(&journal), (2, 0));
        assert_eq!(
            journal.counters(),
            JournalCounters {
                syncs: 2,
                parked: 5
            }
        );
    }

    #[test]
    fn the_thread_is_woken_by_the_first_request_and_when_all_are_there() {
        let mut state = State {
            expected: 2,
            waiting: 1,
            ..State::default()
        };
        assert!(state.concerns_the_thread());
        state.phase = Phase::Gathering;
        assert!(!state.concerns_the_thread());
        state.waiting = 2;
        assert!(state.concerns_the_thread());
        state.phase = Phase::Syncing;
        assert!(!state.concerns_the_thread());
    }

    #[test]
    fn a_lone_writer_syncs_by_itself() {
        let (journal, optime) = journal();
        assert!(!journal.sync_here(optime), "nobody knows yet who is about");
        {
            let mut state = journal.lock();
            state.expected = 1;
            state.duration = Duration::from_micros(100);
        }
        assert!(journal.sync_here(optime));
        assert_eq!(journal.durable_optime(), optime);
        {
            let mut state = journal.lock();
            assert!(!state.here);
            state.duration = HERE_MAX;
        }
        assert!(!journal.sync_here(optime), "the device is slow");
        journal.lock().duration = Duration::ZERO;
        journal.request(optime, 1);
        assert!(!journal.sync_here(optime), "another one waits");
    }

    #[test]
    fn who_does_not_come_is_waited_for_once() {
        let (journal, optime) = journal();
        {
            let mut state = journal.lock();
            state.expected = 100;
            state.duration = Duration::from_micros(1);
        }
        journal.request(optime, 1);
        assert!(!journal.wait_for_work());
        assert!(journal.sync());
        assert_eq!(journal.lock().expected, 1);
    }

    #[test]
    fn the_end_is_not_put_off() {
        let (journal, _) = journal();
        journal.lock().expected = 100;
        journal.stop();
        assert!(journal.wait_for_work());
    }
}
