//! A small history of commits, and what must be left of it.

use std::path::Path;

use millrace_engine::{Batch, CommitSeq, Counter, Durability, Engine, KeyRange, ReadSet, Result};
use millrace_rocksdb::RocksEngine;

/// Enough for several syncs of each log.
pub(crate) const COMMITS: u64 = 24;

/// Commits between two checkpoints. A checkpoint's flush begins a new log; where logs are recycled the third one
/// overwrites the first.
const CHECKPOINT_INTERVAL: u64 = 9;

/// What a workload was told.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told {
    /// The last commit sequence number that was called durable.
    pub(crate) durable: CommitSeq,
    /// The last commit sequence number that was given out at all.
    pub(crate) last: CommitSeq,
}

/// Commits from the engine's last commit sequence number on, each with a key named after its commit sequence number.
/// Every third commit waits for the device, and checkpoints flush the memtables. `acknowledged` is called whenever
/// more is durable.
pub(crate) fn work(
    engine: &RocksEngine,
    checkpoint: &Path,
    told: &mut Told,
    acknowledged: &mut dyn FnMut(CommitSeq),
) -> Result<()> {
    while engine.last_commit_seq() < CommitSeq::new(COMMITS) {
        let number = engine.last_commit_seq().next().get();
        let mut batch = Batch::new();
        batch.put(&number.to_be_bytes(), &[0xAB; 1000]);
        batch.add(
            b"keys",
            Counter {
                count: 1,
                bytes: 1008,
            },
        );
        let synced = number % 3 == 0;
        let durability = if synced {
            Durability::Synced
        } else {
            Durability::Buffered
        };
        let commit_seq = engine.commit(&batch, &ReadSet::none(), durability)?;
        assert_eq!(commit_seq, CommitSeq::new(number));
        told.last = commit_seq;
        if synced {
            told.durable = commit_seq;
            acknowledged(commit_seq);
        }
        if number % CHECKPOINT_INTERVAL == 0 {
            engine.checkpoint(&checkpoint.with_extension(number.to_string()))?;
        }
    }
    told.durable = engine.sync()?;
    acknowledged(told.durable);
    Ok(())
}

/// Every commit up to some commit sequence number is there, and none after it: the keys, the counter and the commit
/// sequence number say the same, and it is at least what was called durable.
pub(crate) fn check(engine: &RocksEngine, told: &Told, case: &str) {
    let last = engine.last_commit_seq();
    assert!(last >= told.durable, "{case}: {last} is left of {told:?}");
    // A commit that failed may have reached the device all the same, but only the first one to fail.
    assert!(
        last <= told.last.next(),
        "{case}: {last} is more than {told:?}"
    );
    let mut cursor = engine.cursor(KeyRange::all()).expect("a cursor");
    let mut standing = cursor.seek_first().expect("the cursor moves");
    for number in 1..=last.get() {
        assert!(standing, "{case}: commit {number} of {last} is missing");
        assert_eq!(cursor.key(), number.to_be_bytes(), "{case}");
        assert_eq!(cursor.value(), [0xAB; 1000], "{case}");
        standing = cursor.next().expect("the cursor moves");
    }
    assert!(!standing, "{case}: there are keys after commit_seq {last}");
    let keys = i64::try_from(last.get()).expect("few commits");
    let expected = Counter {
        count: keys,
        bytes: 1008 * keys,
    };
    assert_eq!(
        engine.counter(b"keys").expect("counter answers"),
        expected,
        "{case}"
    );
}
