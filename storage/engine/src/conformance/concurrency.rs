//! Threads that race for the same keys.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Barrier, Mutex};
use std::thread;

use super::Factory;
use crate::{Batch, CommitSeq, Counter, Durability, Engine, ErrorKind, KeyRange};

const THREADS: usize = 16;

/// Sixteen threads add one to the same key by reading and writing it under a guard, and none of the
/// additions is lost. A counter is added to beside it without any guard.
///
/// # Panics
/// When an update is lost or a commit sequence number is given twice or left out.
pub fn no_update_is_lost(make: Factory<'_>) {
    const ADDITIONS_PER_THREAD: u64 = 100;
    let engine = make();
    let commit_seqs = Mutex::new(Vec::new());
    race(|thread| {
        // Half of the threads wait for the device, so that syncs and commits overlap.
        let durability = if thread % 2 == 0 {
            Durability::Buffered
        } else {
            Durability::Synced
        };
        let mut own = Vec::new();
        for _ in 0..ADDITIONS_PER_THREAD {
            own.push(add_one(engine.as_ref(), b"sum", durability));
        }
        commit_seqs
            .lock()
            .expect("no holder of the lock panics")
            .append(&mut own);
    });
    let additions = THREADS as u64 * ADDITIONS_PER_THREAD;
    assert_eq!(read_number(engine.as_ref(), b"sum"), additions);
    let counter = engine.counter(b"additions").expect("counter answers");
    assert_eq!(
        counter,
        Counter {
            count: 1600,
            bytes: 3200
        }
    );
    let mut commit_seqs = commit_seqs
        .into_inner()
        .expect("no holder of the lock panicked");
    commit_seqs.sort_unstable();
    assert!(
        commit_seqs
            .into_iter()
            .eq((1..=additions).map(CommitSeq::new)),
        "the commit_seqs are not dense"
    );
    assert_eq!(engine.last_commit_seq(), CommitSeq::new(additions));
}

fn add_one(engine: &dyn Engine, key: &[u8], durability: Durability) -> CommitSeq {
    let mut batch = Batch::new();
    loop {
        let mut read_set = engine.read_set();
        read_set.add(key);
        let sum = read_number(engine, key) + 1;
        batch.clear();
        batch.put(key, &sum.to_be_bytes());
        batch.add(b"additions", Counter { count: 1, bytes: 2 });
        match engine.commit(&batch, &read_set, durability) {
            Ok(commit_seq) => return commit_seq,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
}

fn read_number(engine: &dyn Engine, key: &[u8]) -> u64 {
    let value = engine.get(key).expect("get answers");
    value.map_or(0, |bytes| {
        u64::from_be_bytes(bytes.try_into().expect("eight bytes were put"))
    })
}

/// Sixteen threads insert the same unique keys, and each key has exactly one winner.
///
/// # Panics
/// When a key has none or two.
pub fn a_unique_key_has_one_winner(make: Factory<'_>) {
    const KEYS: u32 = 50;
    let engine = make();
    let wins: Vec<AtomicUsize> = (0..KEYS).map(|_| AtomicUsize::new(0)).collect();
    race(|thread| {
        for (number, wins) in (0_u32..).zip(&wins) {
            if insert_unique(
                engine.as_ref(),
                &number.to_be_bytes(),
                &thread.to_be_bytes(),
            ) {
                wins.fetch_add(1, Ordering::Relaxed);
            }
        }
    });
    for (number, wins) in wins.iter().enumerate() {
        assert_eq!(wins.load(Ordering::Relaxed), 1, "key {number}");
    }
    assert_eq!(engine.last_commit_seq(), CommitSeq::new(u64::from(KEYS)));
}

fn insert_unique(engine: &dyn Engine, key: &[u8], value: &[u8]) -> bool {
    loop {
        let mut read_set = engine.read_set();
        read_set.add(key);
        if engine.get(key).expect("get answers").is_some() {
            return false;
        }
        let mut batch = Batch::new();
        batch.put(key, value);
        match engine.commit(&batch, &read_set, Durability::Buffered) {
            Ok(_) => return true,
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
}

/// Writers put their commit's number under two keys while readers check that a snapshot always sees the
/// same number under both, that it is the snapshot's commit sequence number and the number of commits that a counter
/// counts in it, and that a durable commit sequence number is never taken back.
///
/// # Panics
/// When a batch is seen in part or at the wrong commit sequence number.
pub fn snapshots_agree_with_their_commit_seq(make: Factory<'_>) {
    const COMMITS_PER_WRITER: usize = 200;
    let engine = make();
    let writers = AtomicUsize::new(THREADS / 2);
    race(|thread| {
        if thread % 2 == 0 {
            for _ in 0..COMMITS_PER_WRITER {
                commit_own_commit_seq(engine.as_ref());
            }
            writers.fetch_sub(1, Ordering::Release);
            return;
        }
        let mut durable = CommitSeq::ZERO;
        // The check runs at least once more after the last writer is done.
        loop {
            let done = writers.load(Ordering::Acquire) == 0;
            check_snapshot(engine.as_ref());
            let now = if thread == 1 {
                engine.sync().expect("sync")
            } else {
                engine.durable_commit_seq()
            };
            assert!(
                now >= durable,
                "the durable commit_seq went back from {durable} to {now}"
            );
            durable = now;
            if done {
                break;
            }
        }
    });
    assert_eq!(
        engine.last_commit_seq(),
        CommitSeq::new((THREADS / 2 * COMMITS_PER_WRITER) as u64)
    );
}

/// Commits a batch that holds the commit sequence number it will get, by guarding a key that every writer writes.
fn commit_own_commit_seq(engine: &dyn Engine) {
    loop {
        let mut read_set = engine.read_set();
        read_set.add(b"left");
        let commit_seq = read_set.start().next();
        let mut batch = Batch::new();
        batch.put(b"left", &commit_seq.get().to_be_bytes());
        batch.put(b"right", &commit_seq.get().to_be_bytes());
        batch.add(b"commits", Counter { count: 1, bytes: 3 });
        match engine.commit(&batch, &read_set, Durability::Buffered) {
            Ok(committed) => return assert_eq!(committed, commit_seq),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error}"),
        }
    }
}

fn check_snapshot(engine: &dyn Engine) {
    let seen_before = engine.last_commit_seq();
    let snapshot = engine.snapshot().expect("a snapshot");
    assert!(snapshot.commit_seq() >= seen_before);
    let commits = i64::try_from(snapshot.commit_seq().get()).expect("few commits");
    let counted = Counter {
        count: commits,
        bytes: 3 * commits,
    };
    assert_eq!(
        snapshot.counter(b"commits").expect("counter answers"),
        counted
    );
    let mut cursor = snapshot.cursor(KeyRange::all()).expect("a cursor");
    if snapshot.commit_seq() == CommitSeq::ZERO {
        assert!(!cursor.seek_first().expect("the cursor moves"));
        return;
    }
    for key in [&b"left"[..], b"right"] {
        let value = snapshot
            .get(key)
            .expect("get answers")
            .expect("both keys are there");
        assert_eq!(value, snapshot.commit_seq().get().to_be_bytes());
        assert!(cursor.seek(key).expect("the cursor moves"));
        assert_eq!(cursor.value(), value);
    }
}

/// Runs `run` in all threads at once, with the thread's number.
fn race(run: impl Fn(usize) + Sync) {
    let start = Barrier::new(THREADS);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (start, run) = (&start, &run);
            scope.spawn(move || {
                start.wait();
                run(thread);
            });
        }
    });
}
