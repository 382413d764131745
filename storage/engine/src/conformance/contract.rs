//! The single rules of the contract.

use std::path::Path;
use std::sync::Arc;

use super::Factory;
use crate::{
    Batch, CommitSeq, Counter, Durability, Engine, ErrorKind, KEY_LEN_MAX, KeyRange, ReadSet,
    Result, VALUE_LEN_MAX,
};

fn put(engine: &dyn Engine, key: &[u8], value: &[u8]) -> CommitSeq {
    let mut batch = Batch::new();
    batch.put(key, value);
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .expect("commit succeeds")
}

/// What is too long is refused before anything is written; what is just short enough is kept.
///
/// # Panics
/// When the engine keeps what it should refuse or the other way round.
pub fn limits_are_kept(make: Factory<'_>) {
    let engine = make();
    let (long_key, long_value) = (vec![0xFF; KEY_LEN_MAX], vec![0xAB; VALUE_LEN_MAX]);
    let commit_seq = put(engine.as_ref(), &long_key, &long_value);
    assert_eq!(
        engine.get(&long_key).expect("get answers").as_ref(),
        Some(&long_value)
    );

    let too_long_key = vec![0; KEY_LEN_MAX + 1];
    let mut batch = Batch::new();
    batch.put(b"written with it", b"");
    batch.put(&too_long_key, b"");
    let refused = engine.commit(&batch, &ReadSet::none(), Durability::Buffered);
    assert_eq!(
        refused.expect_err("a key is too long").kind(),
        ErrorKind::TooLarge
    );
    assert_eq!(engine.get(b"written with it").expect("get answers"), None);
    assert_eq!(engine.last_commit_seq(), commit_seq);

    let mut scratch = engine.scratch().expect("scratch space");
    let refused = scratch.put(&too_long_key, b"");
    assert_eq!(
        refused.expect_err("a key is too long").kind(),
        ErrorKind::TooLarge
    );
    // The engine is as good as before.
    assert_eq!(put(engine.as_ref(), b"k", b"v"), commit_seq.next());
}

/// A range without an end takes the longest keys with it, and one range's removal leaves its
/// neighbours.
///
/// # Panics
/// When a key stays or goes that should not.
pub fn ranges_are_removed_exactly(make: Factory<'_>) {
    let engine = make();
    let longest = vec![0xFF; KEY_LEN_MAX];
    for key in [&b""[..], b"a", b"b", b"b\0", b"c", &longest] {
        put(engine.as_ref(), key, b"v");
    }
    let mut batch = Batch::new();
    batch.put(b"bb", b"gone, for it comes first");
    batch.delete_range(&KeyRange::new(*b"b", *b"c"));
    batch.put(b"b\x01", b"there, for it comes later");
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .expect("commit succeeds");
    assert_eq!(
        keys(engine.as_ref()),
        [&b""[..], b"a", b"b\x01", b"c", &longest]
    );

    batch.clear();
    batch.delete_range(&KeyRange {
        start: b"b".to_vec(),
        end: None,
    });
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .expect("commit succeeds");
    assert_eq!(keys(engine.as_ref()), [&b""[..], b"a"]);

    batch.clear();
    batch.delete_range(&KeyRange::all());
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .expect("commit succeeds");
    assert!(keys(engine.as_ref()).is_empty());
}

fn keys(engine: &dyn Engine) -> Vec<Vec<u8>> {
    let mut cursor = engine.cursor(KeyRange::all()).expect("a cursor");
    let mut keys = Vec::new();
    let mut standing = cursor.seek_first().expect("the cursor moves");
    while standing {
        keys.push(cursor.key().to_vec());
        standing = cursor.next().expect("the cursor moves");
    }
    keys
}

/// An empty batch gets no commit sequence number, and its read set is checked all the same.
///
/// # Panics
/// When it gets one or they are not.
pub fn an_empty_batch_only_checks(make: Factory<'_>) {
    let engine = make();
    let (empty, none) = (Batch::new(), ReadSet::none());
    let commit = |read_set: &ReadSet, durability| engine.commit(&empty, read_set, durability);
    assert_eq!(
        commit(&none, Durability::Buffered).expect("nothing to refuse"),
        CommitSeq::ZERO
    );
    let mut read_set = engine.read_set();
    read_set.add(b"k");
    let commit_seq = put(engine.as_ref(), b"k", b"v");
    let refused = commit(&read_set, Durability::Buffered);
    assert_eq!(
        refused.expect_err("k was written").kind(),
        ErrorKind::Conflict
    );
    assert_eq!(
        commit(&none, Durability::Synced).expect("nothing to refuse"),
        commit_seq
    );
    assert_eq!(engine.durable_commit_seq(), commit_seq);
    assert_eq!(engine.last_commit_seq(), commit_seq);
}

/// A snapshot keeps the counters of its commit_seq: sums, sums that return to zero, and counters that were
/// never added to.
///
/// # Panics
/// When a snapshot's counter differs from the engine's counter at the snapshot's commit sequence number.
pub fn snapshots_keep_their_counters(make: Factory<'_>) {
    let engine = make();
    let keys = [&b"a"[..], b"b", b"never"];
    let counters = |read: &dyn Fn(&[u8]) -> Result<Counter>| {
        keys.map(|key| read(key).expect("counter answers"))
    };
    let mut held = vec![(
        engine.snapshot().expect("a snapshot"),
        [Counter::default(); 3],
    )];
    for (key, count, bytes) in [
        (b"a", 3, 30),
        (b"b", -1, i64::MIN),
        (b"a", -3, -30),
        (b"a", 1, 0),
    ] {
        let mut batch = Batch::new();
        batch.add(key, Counter { count, bytes });
        let commit_seq = engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("commit succeeds");
        let snapshot = engine.snapshot().expect("a snapshot");
        assert_eq!(snapshot.commit_seq(), commit_seq);
        held.push((snapshot, counters(&|key| engine.counter(key))));
    }
    assert_eq!(held[3].1[0], Counter::default(), "the sum is zero again");
    for (snapshot, expected) in &held {
        let seen = counters(&|key| snapshot.counter(key));
        assert_eq!(seen, *expected, "at {}", snapshot.commit_seq());
    }
}

/// Two scratch spaces do not see each other, nor does the engine see them.
///
/// # Panics
/// When one does.
pub fn scratch_spaces_are_apart(make: Factory<'_>) {
    let engine = make();
    let [mut first, mut second] = [(); 2].map(|()| engine.scratch().expect("scratch space"));
    first.put(b"k", b"first").expect("put succeeds");
    second.put(b"k", b"second").expect("put succeeds");
    second.put(b"", b"empty key").expect("put succeeds");
    assert_eq!(
        first.get(b"k").expect("get answers").as_deref(),
        Some(&b"first"[..])
    );
    drop(first);
    assert_eq!(
        second.get(b"k").expect("get answers").as_deref(),
        Some(&b"second"[..])
    );
    let mut cursor = second.cursor().expect("a cursor");
    assert!(cursor.seek_first().expect("the cursor moves"));
    assert_eq!(
        (cursor.key(), cursor.value()),
        (&b""[..], &b"empty key"[..])
    );
    assert!(cursor.next().expect("the cursor moves"));
    assert!(!cursor.next().expect("the cursor moves"));
    assert_eq!(second.bytes_stored(), 16);
    assert!(keys(engine.as_ref()).is_empty());
    assert_eq!(engine.last_commit_seq(), CommitSeq::ZERO);
    // A cursor outlives its scratch space, and the engine's handle.
    assert!(cursor.seek(b"j").expect("the cursor moves"));
    drop(second);
    drop(engine);
    assert_eq!(cursor.value(), b"second");
}

/// A checkpoint opens as an engine with the same keys, counters and commit_seq, and goes on from there;
/// what the original commits later is not in it. A folder that exists is refused.
///
/// # Panics
/// When the copy differs.
pub fn checkpoints_open(make: Factory<'_>, folder: &Path, open: &dyn Fn(&Path) -> Arc<dyn Engine>) {
    let engine = make();
    let mut batch = Batch::new();
    batch.put(b"kept", b"1");
    batch.add(
        b"c",
        Counter {
            count: 3,
            bytes: -4,
        },
    );
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .expect("commit succeeds");
    let commit_seq = put(engine.as_ref(), b"kept too", b"2");
    let target = folder.join("checkpoint");
    assert_eq!(
        engine.checkpoint(&target).expect("checkpoint succeeds"),
        commit_seq
    );
    put(engine.as_ref(), b"later", b"3");
    let refused = engine.checkpoint(&target).expect_err("the folder exists");
    assert_eq!(refused.kind(), ErrorKind::InvalidArgument);

    let copy = open(&target);
    assert_eq!(keys(copy.as_ref()), [&b"kept"[..], b"kept too"]);
    assert_eq!(
        (copy.last_commit_seq(), copy.durable_commit_seq()),
        (commit_seq, commit_seq)
    );
    let counter = copy.counter(b"c").expect("counter answers");
    assert_eq!(
        counter,
        Counter {
            count: 3,
            bytes: -4
        }
    );
    assert_eq!(put(copy.as_ref(), b"own", b"4"), commit_seq.next());
    assert_eq!(keys(engine.as_ref()), [&b"kept"[..], b"kept too", b"later"]);
}

/// The estimate of a range's size is near the truth once its keys are on storage, and nothing outside
/// counts.
///
/// # Panics
/// When it is off by more than half of what was stored.
pub fn sizes_are_estimated(make: Factory<'_>) {
    let engine = make();
    // Values that do not compress: the hash chain of a linear congruential generator.
    let mut state = 1_u64;
    let mut stored = 0;
    for number in 0..1000_u32 {
        let mut value = Vec::with_capacity(1000);
        while value.len() < 1000 {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            value.extend_from_slice(&state.to_be_bytes()[..4]);
        }
        let key = [b"m", &number.to_be_bytes()[..]].concat();
        stored += key.len() + value.len();
        put(engine.as_ref(), &key, &value);
    }
    engine.sync().expect("sync succeeds");
    let estimate = |prefix: &[u8]| {
        let bytes = engine
            .size_estimate(&KeyRange::prefix(prefix))
            .expect("an estimate");
        usize::try_from(bytes).expect("the estimate fits")
    };
    let whole = estimate(b"m");
    assert!(
        whole > stored / 2 && whole < stored * 2,
        "{whole} for {stored} bytes"
    );
    engine.compact(&KeyRange::all()).expect("compact succeeds");
    let whole = estimate(b"m");
    assert!(
        whole > stored / 2 && whole < stored * 2,
        "{whole} for {stored} bytes"
    );
    assert!(estimate(b"z") < stored / 10);
}
