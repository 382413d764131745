//! Group commit: one thread syncs the engine's log for all replies that wait for it.
//!
//! ```text
//!   worker: commit (buffered) -> park the reply -> end of its round: Journal::request(commit sequence number)
//!   journal thread: wait for a request -> Engine::sync -> raise the watermarks -> wake workers
//!   worker: release every parked reply whose level's watermark covers it
//! ```
//! When to sync is decided by a [state machine](JournalState) without a thread or a clock. [`Journal::run`] drives it
//! on a thread; a test drives it on simulated time by [`Journal::poll`] and [`Journal::synced`].
//!
//! While one sync runs, the requests of the next one gather: the more writers, the more replies a
//! sync releases. With a journal interval the thread also syncs by itself when there is something.
//!
//! # Waiting for company
//! A sync costs the processor as much as several writes. So before it syncs, the thread waits for as
//! many replies as there were writers at the last sync: those that it released and those that had come
//! by its end. It waits no longer than the last sync took, and at most [`GATHERING_MAX`]. A lone writer
//! never waits, and writers that have left are waited for once.
//!
//! # A lone writer
//! Two threads woken cost more than a sync of a quick device. So a worker whose single reply waits, while
//! there was no other writer at the last sync and that took less than [`INLINE_MAX`], syncs itself
//! ([`Journal::sync_inline`]). Its other connections wait as long.
//!
//! # Invariants
//! 1. The watermark of [`Level::Durable`] was returned by [`Engine::sync`], or what the engine began with.
//! 2. A subscriber that called [`Journal::request`] is woken after the sync that covers its commit sequence number,
//!    or after a sync failed.
//! 3. After a failed sync [`Journal::has_failed`] stays true and no sync is tried again: the engine
//!    is poisoned.

mod state;

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use millrace_engine::{CommitSeq, Engine};

use crate::acknowledgement::{Level, Watermarks};
use crate::clock::Clock;

pub use self::state::{Action, JournalState};

/// The longest a sync is put off to gather more requests.
pub const GATHERING_MAX: Duration = Duration::from_millis(1);

/// A worker syncs by itself only if the last sync took less.
pub const INLINE_MAX: Duration = Duration::from_micros(300);

/// Somebody with replies that wait for a sync.
pub trait Subscriber: Send + Sync + Debug {
    /// Whether there is anything waiting; set before [`Journal::request`] is called.
    fn is_waiting(&self) -> bool;
    /// Makes the subscriber look at [`Journal::watermarks`].
    fn wake(&self);
}

#[derive(Debug)]
struct State {
    machine: JournalState,
    subscribers: Vec<Arc<dyn Subscriber>>,
}

/// What the journal has done, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalCounters {
    /// Number of syncs that succeeded since the start.
    pub syncs: u64,
    /// Number of replies that were parked since the start.
    pub parked: u64,
}

/// The journal. See the [module's page](self).
#[derive(Debug)]
pub struct Journal {
    engine: Arc<dyn Engine>,
    clock: Arc<dyn Clock>,
    syncs_every_write: bool,
    state: Mutex<State>,
    changed: Condvar,
    watermarks: Watermarks,
    syncs: AtomicU64,
    parked: AtomicU64,
}

impl Journal {
    /// A journal for `engine`. With an `interval` above zero it also syncs that often by itself.
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>, interval: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        let durable = engine.durable_commit_seq();
        let interval = Some(interval).filter(|interval| !interval.is_zero());
        Arc::new(Self {
            engine,
            clock,
            syncs_every_write: interval.is_none(),
            state: Mutex::new(State {
                machine: JournalState::new(durable, interval),
                subscribers: Vec::new(),
            }),
            changed: Condvar::new(),
            watermarks: Watermarks::alone(durable),
            syncs: AtomicU64::new(0),
            parked: AtomicU64::new(0),
        })
    }

    /// Whether every acknowledged write waits for a sync (there is no interval).
    #[must_use]
    pub const fn syncs_every_write(&self) -> bool {
        self.syncs_every_write
    }

    /// Adds a subscriber, which is woken after each sync while it waits.
    pub fn subscribe(&self, subscriber: Arc<dyn Subscriber>) {
        self.lock().subscribers.push(subscriber);
    }

    /// Asks for a sync that covers `commit_seq`, which is visible, for so many `replies` that were parked since the
    /// last request.
    pub fn request(&self, commit_seq: CommitSeq, replies: u64) {
        self.parked.fetch_add(replies, Ordering::Relaxed);
        self.watermarks.raise(Level::Visible, commit_seq);
        if self.lock().machine.request(commit_seq, replies) {
            self.changed.notify_one();
        }
    }

    /// Syncs in the calling thread for a lone reply that waits for `commit_seq`; `false` if there is company, or
    /// the device is slow, so that it is to be [requested](Journal::request). After `true` the watermark of
    /// [`Level::Durable`] covers `commit_seq`, or [`Journal::has_failed`].
    pub fn sync_inline(&self, commit_seq: CommitSeq) -> bool {
        let now = self.clock.now();
        if !self.lock().machine.begin_alone(commit_seq, now) {
            return false;
        }
        self.parked.fetch_add(1, Ordering::Relaxed);
        if self.synced(self.engine.sync()) {
            self.changed.notify_one();
        }
        true
    }

    /// How far the commits have come.
    #[must_use]
    pub const fn watermarks(&self) -> &Watermarks {
        &self.watermarks
    }

    /// Whether a sync failed: nothing may be acknowledged any more.
    #[must_use]
    pub fn has_failed(&self) -> bool {
        self.watermarks.has_failed()
    }

    /// The counters of syncs and parked replies since the start.
    #[must_use]
    pub fn counters(&self) -> JournalCounters {
        JournalCounters {
            syncs: self.syncs.load(Ordering::Relaxed),
            parked: self.parked.load(Ordering::Relaxed),
        }
    }

    /// Ends [`Journal::run`] after a last sync.
    pub fn stop(&self) {
        self.lock().machine.stop();
        self.changed.notify_one();
    }

    /// The journal thread: returns after [`Journal::stop`] or after a sync failed.
    pub fn run(&self) {
        let mut state = self.lock();
        loop {
            let now = self.clock.now();
            state = match state.machine.poll(now, self.engine.last_commit_seq()) {
                Action::Sync => {
                    drop(state);
                    let _ = self.synced(self.engine.sync()); // this is the driver
                    self.lock()
                }
                Action::WaitUntil(until) => {
                    let waited = self.changed.wait_timeout(state, until.saturating_sub(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Action::Wait => {
                    let woken = self.changed.wait(state);
                    woken.unwrap_or_else(PoisonError::into_inner)
                }
                Action::Stop => return,
            };
        }
    }

    /// What the driver of the journal has to do now. [`Journal::run`] is one; a journal has one driver.
    #[must_use]
    pub fn poll(&self) -> Action {
        let (now, last) = (self.clock.now(), self.engine.last_commit_seq());
        self.lock().machine.poll(now, last)
    }

    /// Ends the sync that [`Journal::poll`] asked for: raises the watermarks to what it covers, or fails, and wakes the
    /// subscribers. Returns whether the driver has to poll again if it was not the driver that synced.
    pub fn synced(&self, result: millrace_engine::Result<CommitSeq>) -> bool {
        match &result {
            Ok(durable) => {
                self.watermarks.raise(Level::Durable, *durable);
                self.syncs.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => {
                self.watermarks.fail();
                tracing::error!(
                    target: "STORAGE",
                    id = 23_200_u32,
                    error = %error,
                    "Fatal: a sync of the journal failed; no write is acknowledged any more"
                );
            }
        }
        let now = self.clock.now();
        let mut state = self.lock();
        let is_driver_needed = state.machine.synced(result.ok(), now);
        for subscriber in &state.subscribers {
            if subscriber.is_waiting() {
                subscriber.wake();
            }
        }
        is_driver_needed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use millrace_engine::{Batch, Durability, MemoryEngine, ReadSet};

    use super::*;
    use crate::simulation::SimulatedClock;

    /// A subscriber that always waits, and whether it was woken.
    #[derive(Debug, Default)]
    struct Waiting(AtomicBool);

    impl Subscriber for Waiting {
        fn is_waiting(&self) -> bool {
            true
        }

        fn wake(&self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    struct Fixture {
        engine: Arc<MemoryEngine>,
        clock: Arc<SimulatedClock>,
        waiting: Arc<Waiting>,
        journal: Arc<Journal>,
    }

    fn fixture() -> Fixture {
        let engine = Arc::new(MemoryEngine::new());
        let clock = Arc::new(SimulatedClock::default());
        let journal = Journal::new(engine.clone(), Duration::ZERO, clock.clone());
        let waiting = Arc::new(Waiting::default());
        journal.subscribe(waiting.clone());
        Fixture {
            engine,
            clock,
            waiting,
            journal,
        }
    }

    impl Fixture {
        fn commit(&self) -> CommitSeq {
            let mut batch = Batch::new();
            batch.put(b"key", b"value");
            let commit = self
                .engine
                .commit(&batch, &ReadSet::none(), Durability::Buffered);
            commit.expect("it commits")
        }

        fn was_woken(&self) -> bool {
            self.waiting.0.swap(false, Ordering::SeqCst)
        }

        fn levels(&self) -> [CommitSeq; 3] {
            Level::ALL.map(|level| self.journal.watermarks().commit_seq(level))
        }
    }

    #[test]
    fn a_sync_raises_the_watermarks_and_wakes_those_who_wait() {
        let fixture = fixture();
        let (journal, commit_seq) = (&fixture.journal, fixture.commit());
        assert_eq!(journal.poll(), Action::Wait);
        journal.request(commit_seq, 3);
        assert_eq!(
            fixture.levels(),
            [commit_seq, CommitSeq::ZERO, CommitSeq::ZERO]
        );
        assert_eq!(journal.poll(), Action::Sync);
        assert!(!fixture.was_woken());
        assert!(!journal.synced(fixture.engine.sync()));
        assert!(fixture.was_woken());
        assert_eq!(fixture.levels(), [commit_seq; 3]);
        let counters = JournalCounters {
            syncs: 1,
            parked: 3,
        };
        assert_eq!(journal.counters(), counters);
    }

    #[test]
    fn a_lone_writer_syncs_by_itself() {
        let fixture = fixture();
        let journal = &fixture.journal;
        let first = fixture.commit();
        assert!(!journal.sync_inline(first), "nobody knows yet who is about");
        journal.request(first, 1);
        assert_eq!(journal.poll(), Action::Sync);
        fixture.clock.advance_to(Duration::from_micros(100));
        assert!(!journal.synced(fixture.engine.sync()));
        let second = fixture.commit();
        assert!(journal.sync_inline(second));
        assert_eq!(journal.watermarks().commit_seq(Level::Durable), second);
        assert_eq!(journal.counters().syncs, 2);
    }

    #[test]
    fn a_failed_sync_wakes_those_who_wait_and_is_the_last() {
        let fixture = fixture();
        let (journal, commit_seq) = (&fixture.journal, fixture.commit());
        journal.request(commit_seq, 1);
        assert_eq!(journal.poll(), Action::Sync);
        fixture.engine.poison();
        assert!(journal.synced(fixture.engine.sync()));
        assert!(fixture.was_woken() && journal.has_failed());
        assert_eq!(
            journal.watermarks().commit_seq(Level::Durable),
            CommitSeq::ZERO
        );
        assert_eq!(journal.poll(), Action::Stop);
    }

    #[test]
    fn the_thread_ends_after_a_last_sync() {
        let fixture = fixture();
        let commit_seq = fixture.commit();
        fixture.journal.stop();
        fixture.journal.run();
        assert_eq!(fixture.engine.durable_commit_seq(), commit_seq);
        assert_eq!(
            fixture.journal.watermarks().commit_seq(Level::Durable),
            commit_seq
        );
    }
}
