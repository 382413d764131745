//! Syncs of the log that all waiting threads share (group commit).
//!
//! Protocol: a thread that needs a commit durable checks whether a sync covers it already. If not and no
//! thread is syncing, it becomes the leader: it reads the last published commit sequence number, syncs the log and
//! publishes that commit sequence number as durable. Otherwise it waits for the leader to finish and checks again. So
//! any number of waiters that arrive during one sync share the next one.
//!
//! Invariants:
//! 1. `durable` only rises, and reaches *n* only after a sync that began when *n* was published.
//! 2. There is at most one leader, and it holds no lock while it syncs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard};

use millrace_engine::{CommitSeq, Result};

#[derive(Debug)]
pub(crate) struct GroupSync {
    /// Whether there is a leader.
    led: Mutex<bool>,
    /// Signalled when the leader is done.
    done: Condvar,
    /// The durable commit sequence number. The leader's `Release` store pairs with the `Acquire` loads of the threads
    /// that then report durability.
    durable: AtomicU64,
    syncs: AtomicU64,
    acknowledgements: AtomicU64,
}

impl GroupSync {
    /// At the start everything up to `durable` is durable.
    pub(crate) fn new(durable: CommitSeq) -> Self {
        Self {
            led: Mutex::new(false),
            done: Condvar::new(),
            durable: AtomicU64::new(durable.get()),
            syncs: AtomicU64::new(0),
            acknowledgements: AtomicU64::new(0),
        }
    }

    pub(crate) fn durable(&self) -> CommitSeq {
        CommitSeq::new(self.durable.load(Ordering::Acquire))
    }

    /// How many syncs there were.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs.load(Ordering::Relaxed)
    }

    /// The number of calls that returned with a durable commit.
    pub(crate) fn acknowledgements(&self) -> u64 {
        self.acknowledgements.load(Ordering::Relaxed)
    }

    /// Returns once everything up to `target` is durable, with the durable commit sequence number. `last` gives the
    /// last published commit sequence number, `sync` makes everything published before it was called durable.
    pub(crate) fn wait(
        &self,
        target: CommitSeq,
        last: impl Fn() -> CommitSeq,
        sync: impl Fn() -> Result<()>,
    ) -> Result<CommitSeq> {
        while self.durable() < target {
            let led = self.lock();
            if *led {
                // Spurious wake-ups do no harm: the loop looks again.
                drop(self.done.wait(led).expect("no holder of the lock panics"));
            } else if self.durable() < target {
                let leader = Leader::new(self, led);
                let reached = last();
                sync()?;
                self.syncs.fetch_add(1, Ordering::Relaxed);
                self.durable.fetch_max(reached.get(), Ordering::Release);
                drop(leader);
            }
        }
        self.acknowledgements.fetch_add(1, Ordering::Relaxed);
        Ok(self.durable())
    }

    fn lock(&self) -> MutexGuard<'_, bool> {
        self.led.lock().expect("no holder of the lock panics")
    }
}

/// The right to sync, given back when dropped, also by an error or a panic.
struct Leader<'a> {
    group: &'a GroupSync,
}

impl<'a> Leader<'a> {
    fn new(group: &'a GroupSync, mut led: MutexGuard<'a, bool>) -> Self {
        *led = true;
        Self { group }
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        *self.group.lock() = false;
        self.group.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use millrace_engine::{Error, ErrorKind};

    use super::*;

    #[test]
    fn what_is_durable_needs_no_sync() {
        let group = GroupSync::new(CommitSeq::new(5));
        let durable = group.wait(
            CommitSeq::new(5),
            || panic!("not asked"),
            || panic!("not synced"),
        );
        assert_eq!(durable.unwrap(), CommitSeq::new(5));
        assert_eq!((group.syncs(), group.acknowledgements()), (0, 1));
    }

    #[test]
    fn a_sync_covers_what_was_published_before_it_and_no_more() {
        let group = GroupSync::new(CommitSeq::ZERO);
        let last = AtomicU64::new(3);
        let read = || CommitSeq::new(last.load(Ordering::Relaxed));
        let publish_more = || {
            last.store(9, Ordering::Relaxed);
            Ok(())
        };
        assert_eq!(
            group.wait(CommitSeq::new(2), read, publish_more).unwrap(),
            CommitSeq::new(3)
        );
        assert_eq!(
            group.wait(CommitSeq::new(9), read, publish_more).unwrap(),
            CommitSeq::new(9)
        );
        assert_eq!(group.syncs(), 2);
    }

    #[test]
    fn a_failed_sync_makes_nothing_durable_and_lets_the_next_one_try() {
        let group = GroupSync::new(CommitSeq::ZERO);
        let fail = || Err(Error::new(ErrorKind::Io, "the device failed"));
        let error = group
            .wait(CommitSeq::new(1), || CommitSeq::new(1), fail)
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert_eq!(group.durable(), CommitSeq::ZERO);
        assert_eq!((group.syncs(), group.acknowledgements()), (0, 0));
        let durable = group.wait(CommitSeq::new(1), || CommitSeq::new(1), || Ok(()));
        assert_eq!(durable.unwrap(), CommitSeq::new(1));
    }

    #[test]
    fn waiters_share_a_sync() {
        const WAITERS: u64 = 8;
        let group = GroupSync::new(CommitSeq::ZERO);
        let all_published = Barrier::new(8);
        let last = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..WAITERS {
                scope.spawn(|| {
                    let own = CommitSeq::new(last.fetch_add(1, Ordering::SeqCst) + 1);
                    all_published.wait();
                    let read = || CommitSeq::new(last.load(Ordering::SeqCst));
                    assert!(group.wait(own, read, || Ok(())).unwrap() >= own);
                });
            }
        });
        // All were published before the first sync began, so one was enough.
        assert_eq!((group.syncs(), group.acknowledgements()), (1, WAITERS));
    }
}
