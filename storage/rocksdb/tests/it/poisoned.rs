//! An engine after a failure.

use millrace_engine::{Batch, CommitSeq, Durability, Engine, Error, ErrorKind, ReadSet};
use millrace_rocksdb::RocksEngine;

use crate::history::Told;

/// After a failed commit or sync nothing is acknowledged, and reads go on. What is refused says `expected`.
pub(crate) fn check_poisoned(
    engine: &RocksEngine,
    told: &Told,
    failure: &Error,
    expected: &str,
    case: &str,
) {
    assert!(
        matches!(failure.kind(), ErrorKind::Io | ErrorKind::Corruption),
        "{case}: {failure}"
    );
    let mut batch = Batch::new();
    batch.put(b"after the failure", b"");
    for durability in [Durability::Buffered, Durability::Synced] {
        let refused = engine.commit(&batch, &ReadSet::none(), durability);
        let refused = refused.expect_err("nothing is acknowledged");
        assert_eq!(refused.kind(), ErrorKind::Poisoned, "{case}");
        let cause = refused.to_string();
        assert!(cause.contains(expected), "{case}: {cause}");
    }
    let refused = engine.sync().expect_err("nothing is acknowledged");
    assert_eq!(refused.kind(), ErrorKind::Poisoned, "{case}");
    assert!(engine.durable_commit_seq() >= told.durable, "{case}");
    assert!(engine.durable_commit_seq() <= told.last.next(), "{case}");
    if told.last > CommitSeq::ZERO {
        let value = engine
            .get(&told.last.get().to_be_bytes())
            .expect("reads go on");
        assert!(value.is_some(), "{case}: commit {} is gone", told.last);
    }
}
