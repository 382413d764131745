//! The in-memory engine against the contract of all engines.

use std::fs;
use std::sync::Arc;

use millrace_engine::conformance::{concurrency, contract, model};
use millrace_engine::{
    Batch, Durability, Engine, ErrorKind, KeyRange, MemoryEngine, ReadSet, Snapshot,
};

fn make() -> Arc<dyn Engine> {
    Arc::new(MemoryEngine::new())
}

#[test]
fn histories_repeat() {
    // The oracle against itself: shows that the histories are sound, and that answers do not depend on
    // anything but the history.
    model::matches_oracle(&make, 256);
}

#[test]
fn no_update_is_lost() {
    concurrency::no_update_is_lost(&make);
}

#[test]
fn a_unique_key_has_one_winner() {
    concurrency::a_unique_key_has_one_winner(&make);
}

#[test]
fn snapshots_agree_with_their_commit_seq() {
    concurrency::snapshots_agree_with_their_commit_seq(&make);
}

#[test]
fn the_contract_is_kept() {
    contract::limits_are_kept(&make);
    contract::ranges_are_removed_exactly(&make);
    contract::an_empty_batch_only_checks(&make);
    contract::snapshots_keep_their_counters(&make);
    contract::scratch_spaces_are_apart(&make);
    contract::sizes_are_estimated(&make);
}

#[test]
fn checkpoints_open() {
    let folder = tempfile::tempdir().unwrap();
    contract::checkpoints_open(&make, folder.path(), &|path| {
        Arc::new(MemoryEngine::open_checkpoint(path).unwrap())
    });
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("checkpoint");
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    engine
        .commit(&batch, &ReadSet::none(), Durability::Synced)
        .unwrap();
    engine.checkpoint(&target).unwrap();
    let bytes = fs::read(target.join("memory")).unwrap();
    for len in 0..bytes.len() {
        fs::write(target.join("memory"), &bytes[..len]).unwrap();
        let error = MemoryEngine::open_checkpoint(&target).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "cut to {len} bytes");
    }
    fs::remove_file(target.join("memory")).unwrap();
    assert_eq!(
        MemoryEngine::open_checkpoint(&target).unwrap_err().kind(),
        ErrorKind::Io
    );
}

#[test]
fn a_poisoned_engine_only_reads() {
    let engine = MemoryEngine::new();
    let mut batch = Batch::new();
    batch.put(b"key", b"value");
    engine
        .commit(&batch, &ReadSet::none(), Durability::Synced)
        .unwrap();
    engine.poison();
    let refused = engine.commit(&batch, &ReadSet::none(), Durability::Buffered);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(engine.sync().unwrap_err().kind(), ErrorKind::Poisoned);
    assert_eq!(engine.get(b"key").unwrap().as_deref(), Some(&b"value"[..]));
    let snapshot: Box<dyn Snapshot> = engine.snapshot().unwrap();
    assert!(
        snapshot
            .cursor(KeyRange::all())
            .unwrap()
            .seek_first()
            .unwrap()
    );
}
