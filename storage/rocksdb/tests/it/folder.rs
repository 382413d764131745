//! What opening a folder accepts and refuses.

use std::fs;
use std::path::Path;

use millrace_engine::{Batch, CommitSeq, Counter, Durability, Engine, Error, ErrorKind, ReadSet};
use millrace_rocksdb::{Options, RocksEngine};

fn open(folder: &Path) -> RocksEngine {
    RocksEngine::open(folder, Options::default()).expect("the folder opens")
}

fn refusal(folder: &Path) -> Error {
    RocksEngine::open(folder, Options::default()).expect_err("the folder must be refused")
}

fn put(engine: &dyn Engine, key: &[u8], durability: Durability) -> CommitSeq {
    let mut batch = Batch::new();
    batch.put(key, b"value");
    batch.add(b"keys", Counter { count: 1, bytes: 8 });
    engine
        .commit(&batch, &ReadSet::none(), durability)
        .expect("commit succeeds")
}

#[test]
fn a_folder_is_created_and_opens_again_with_everything_in_it() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("a").join("b");
    for round in 1..=5_u64 {
        let engine = open(&folder);
        assert_eq!(engine.last_commit_seq(), CommitSeq::new(round - 1));
        assert_eq!(engine.durable_commit_seq(), engine.last_commit_seq());
        let keys = Counter { count: 1, bytes: 8 };
        let sum = (1..round).fold(Counter::default(), |sum, _| sum.plus(keys));
        assert_eq!(engine.counter(b"keys").unwrap(), sum);
        // Closing syncs: a buffered commit is there, too.
        assert_eq!(
            put(&engine, &round.to_be_bytes(), Durability::Buffered),
            CommitSeq::new(round)
        );
        for key in 1..=round {
            assert!(engine.get(&key.to_be_bytes()).unwrap().is_some());
        }
    }
    assert_eq!(
        fs::read_to_string(folder.join("FORMAT")).unwrap(),
        "millrace-rocksdb 1\n"
    );
}

#[test]
fn a_newer_format_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    drop(open(folder.path()));
    fs::write(folder.path().join("FORMAT"), "millrace-rocksdb 2\n").unwrap();
    let error = refusal(folder.path());
    assert_eq!(error.kind(), ErrorKind::NewerFormat);
    assert!(error.to_string().contains("has format 2"), "{error}");
}

#[test]
fn a_format_file_that_is_none_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    for text in [
        &b""[..],
        b"millrace-rocksdb",
        b"millrace-rocksdb one",
        b"other 1",
        b"\xFF\xFE",
    ] {
        fs::write(folder.path().join("FORMAT"), text).unwrap();
        assert_eq!(
            refusal(folder.path()).kind(),
            ErrorKind::Corruption,
            "{text:?}"
        );
    }
}

#[test]
fn the_folder_of_another_database_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("CURRENT"), "MANIFEST-000001\n").unwrap();
    assert_eq!(refusal(folder.path()).kind(), ErrorKind::InvalidArgument);
    assert!(!folder.path().join("FORMAT").exists());
}

#[test]
fn a_second_opening_is_refused_until_the_first_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let first = open(folder.path());
    let error = refusal(folder.path());
    assert_eq!(error.kind(), ErrorKind::Locked);
    let text = error.to_string();
    assert!(
        text.contains(folder.path().to_str().unwrap()) && text.contains("stop that"),
        "{text}"
    );
    drop(first);
    open(folder.path());
}

#[test]
fn a_damaged_table_is_an_error_and_no_panic() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("folder");
    let engine = open(&folder);
    for number in 0..1000_u32 {
        put(&engine, &number.to_be_bytes(), Durability::Buffered);
    }
    // A checkpoint's memtables are flushed.
    let copy = home.path().join("copy");
    engine.checkpoint(&copy).unwrap();
    for entry in copy.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "sst") {
            let mut bytes = fs::read(&path).unwrap();
            bytes[..200].fill(0xAA);
            // The file may be linked to the original's: write a new one.
            fs::remove_file(&path).unwrap();
            fs::write(&path, bytes).unwrap();
        }
    }
    let damaged = match RocksEngine::open(&copy, Options::default()) {
        Err(error) => error,
        Ok(engine) => engine
            .get(&0_u32.to_be_bytes())
            .expect_err("the block is damaged"),
    };
    assert_eq!(damaged.kind(), ErrorKind::Corruption, "{damaged}");
    assert!(engine.get(&0_u32.to_be_bytes()).unwrap().is_some());
}

#[test]
fn replayed_log_bytes_are_counted_and_bounded_by_what_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let replayed = |engine: &RocksEngine| {
        let statistics = engine.statistics();
        statistics
            .into_iter()
            .find(|(name, _)| *name == "wal_replayed_bytes")
            .unwrap()
            .1
    };
    let engine = open(folder.path());
    assert_eq!(replayed(&engine), 0);
    for number in 0..100_u32 {
        put(&engine, &number.to_be_bytes(), Durability::Synced);
    }
    drop(engine);
    let engine = open(folder.path());
    let bytes = replayed(&engine);
    assert!(bytes > 100 * 9 && bytes < 100 * 500, "{bytes}");
    // What was replayed is in a table file now, and its log is gone.
    drop(engine);
    assert_eq!(replayed(&open(folder.path())), 0);
}

#[cfg(unix)]
#[test]
fn a_log_overwrites_an_older_one() {
    use std::os::unix::fs::MetadataExt;

    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("data");
    let engine = open(&folder);
    // The files that are logs now, by what identifies them whatever their names are.
    let logs = || -> Vec<(u64, u64)> {
        let entries = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap());
        entries
            .filter(|entry| {
                entry
                    .path()
                    .extension()
                    .is_some_and(|extension| extension == "log")
            })
            .map(|entry| entry.metadata().unwrap())
            .map(|metadata| (metadata.ino(), metadata.len()))
            .collect()
    };
    let mut seen = Vec::new();
    let mut overwritten = 0;
    for round in 1..=6_u64 {
        put(&engine, &round.to_be_bytes(), Durability::Synced);
        for (file, size) in logs() {
            overwritten += u64::from(seen.contains(&file) && size > 0);
        }
        seen = logs().into_iter().map(|(file, _)| file).collect();
        engine
            .checkpoint(&home.path().join(round.to_string()))
            .unwrap();
    }
    assert!(overwritten > 0, "{seen:?}");
    drop(engine);
    let engine = open(&folder);
    assert_eq!(
        engine.last_commit_seq(),
        CommitSeq::new(6),
        "nothing of an old log comes back"
    );
}
