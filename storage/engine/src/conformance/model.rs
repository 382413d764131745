//! Random histories, compared with the oracle after every step.

use std::cell::Cell;
use std::ops::Range;

use proptest::collection::vec;
use proptest::prelude::{Just, Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use super::Factory;
use crate::{
    Batch, Counter, Cursor, Durability, Engine, KeyRange, MemoryEngine, ReadSet, Scratch, Snapshot,
};

type Key = Vec<u8>;

/// One change in a batch.
#[derive(Clone, Debug)]
enum Change {
    Put(Key, Vec<u8>),
    Delete(Key),
    DeleteRange(KeyRange),
    Add(Key, Counter),
}

/// One movement of a cursor.
#[derive(Clone, Debug)]
enum Step {
    SeekFirst,
    SeekLast,
    Seek(Key),
    SeekBack(Key),
    Next,
    Previous,
}

/// One step of a history.
#[derive(Clone, Debug)]
enum Action {
    Commit(Vec<Change>, Durability),
    /// ReadSet a key, lets another commit go first, then tries its own.
    Guarded(Key, Vec<Change>, Vec<Change>),
    Get(Key),
    MultiGet(Vec<Key>),
    Walk(KeyRange, Vec<Step>),
    /// Opens a cursor, commits, and only then walks.
    WalkLater(KeyRange, Vec<Change>, Vec<Step>),
    /// Takes a snapshot in place of the one held.
    Snapshot,
    WalkSnapshot(KeyRange, Vec<Step>),
    GetSnapshot(Vec<Key>),
    Counter(Key),
    Sync,
    Compact(KeyRange),
    ScratchPut(Key, Vec<u8>),
    WalkScratch(Vec<Step>),
    NewScratch,
}

/// Few and short keys over bytes that are awkward to order, so that histories meet themselves.
fn key() -> impl Strategy<Value = Key> {
    vec(select(&[0x00, b'a', b'b', 0xFE, 0xFF][..]), 0..4)
}

fn value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => (1..20_000_usize).prop_map(|len| vec![7; len])]
}

fn range() -> impl Strategy<Value = KeyRange> {
    prop_oneof![
        2 => (key(), key()).prop_map(|(start, end)| KeyRange { start, end: Some(end) }),
        1 => key().prop_map(|start| KeyRange { start, end: None }),
        1 => key().prop_map(|prefix| KeyRange::prefix(&prefix)),
        1 => Just(KeyRange::all()),
    ]
}

fn changes(len: Range<usize>) -> impl Strategy<Value = Vec<Change>> {
    let delta = (-5..5_i64, -100..100_i64).prop_map(|(count, bytes)| Counter { count, bytes });
    let change = prop_oneof![
        8 => (key(), value()).prop_map(|(key, value)| Change::Put(key, value)),
        3 => key().prop_map(Change::Delete),
        1 => range().prop_map(Change::DeleteRange),
        2 => (key(), delta).prop_map(|(key, delta)| Change::Add(key, delta)),
    ];
    vec(change, len)
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        1 => Just(Step::SeekFirst),
        1 => Just(Step::SeekLast),
        1 => key().prop_map(Step::Seek),
        1 => key().prop_map(Step::SeekBack),
        4 => Just(Step::Next),
        4 => Just(Step::Previous),
    ];
    vec(step, 1..20)
}

fn action() -> impl Strategy<Value = Action> {
    let durability = select(&[Durability::Buffered, Durability::Synced][..]);
    prop_oneof![
        8 => (changes(0..6), durability).prop_map(|(changes, durability)| {
            Action::Commit(changes, durability)
        }),
        2 => (key(), changes(0..3), changes(0..3))
            .prop_map(|(key, first, own)| Action::Guarded(key, first, own)),
        2 => key().prop_map(Action::Get),
        1 => vec(key(), 0..8).prop_map(Action::MultiGet),
        3 => (range(), steps()).prop_map(|(range, steps)| Action::Walk(range, steps)),
        2 => (range(), changes(1..4), steps())
            .prop_map(|(range, changes, steps)| Action::WalkLater(range, changes, steps)),
        1 => Just(Action::Snapshot),
        2 => (range(), steps()).prop_map(|(range, steps)| Action::WalkSnapshot(range, steps)),
        1 => vec(key(), 0..8).prop_map(Action::GetSnapshot),
        1 => key().prop_map(Action::Counter),
        1 => Just(Action::Sync),
        1 => range().prop_map(Action::Compact),
        2 => (key(), value()).prop_map(|(key, value)| Action::ScratchPut(key, value)),
        1 => steps().prop_map(Action::WalkScratch),
        1 => Just(Action::NewScratch),
    ]
}

/// Runs `cases` random histories of up to 60 steps against the oracle.
///
/// # Panics
/// When the engine answers differently from the oracle; the shortest history found is in the message.
pub fn matches_oracle(make: Factory<'_>, cases: u32) {
    let config = Config {
        cases,
        failure_persistence: None,
        ..Config::default()
    };
    let walked = Cell::new(0_usize);
    TestRunner::new(config)
        .run(&vec(action(), 1..60), |actions| {
            let (oracle, engine) = (MemoryEngine::new(), make());
            let mut pair = Pair::new(&oracle, engine.as_ref());
            for action in &actions {
                pair.run(action);
            }
            pair.compare_whole();
            walked.set(walked.get() + pair.entries_walked);
            Ok(())
        })
        .unwrap_or_else(|failure| panic!("{failure}"));
    assert!(walked.get() > 0, "no history had an entry to compare");
}

/// The oracle and the engine, in states that no operation can tell apart.
struct Pair<'a> {
    oracle: &'a MemoryEngine,
    engine: &'a dyn Engine,
    snapshots: [Box<dyn Snapshot>; 2],
    scratches: [Box<dyn Scratch>; 2],
    entries_walked: usize,
}

impl<'a> Pair<'a> {
    fn new(oracle: &'a MemoryEngine, engine: &'a dyn Engine) -> Self {
        let (snapshots, scratches) = (snapshots(oracle, engine), scratches(oracle, engine));
        Self {
            oracle,
            engine,
            snapshots,
            scratches,
            entries_walked: 0,
        }
    }

    fn run(&mut self, action: &Action) {
        match action {
            Action::Commit(changes, durability) => {
                self.commit(changes, &ReadSet::none(), *durability)
            }
            Action::Guarded(key, first, own) => self.guarded(key, first, own),
            Action::Get(key) => {
                let value = self.engine.get(key).expect("get answers");
                assert_eq!(value, self.oracle.get(key).expect("the oracle answers"));
            }
            Action::MultiGet(keys) => self.compare_multi_get(keys),
            Action::Walk(range, steps) => {
                let (oracle, engine) = self.cursors(range);
                self.walk(oracle, engine, steps);
            }
            Action::WalkLater(range, changes, steps) => {
                let (oracle, engine) = self.cursors(range);
                self.commit(changes, &ReadSet::none(), Durability::Buffered);
                self.walk(oracle, engine, steps);
            }
            Action::Snapshot => self.snapshots = snapshots(self.oracle, self.engine),
            Action::WalkSnapshot(range, steps) => {
                let [oracle, engine] = self
                    .snapshots
                    .each_ref()
                    .map(|s| s.cursor(range.clone()).expect("a cursor"));
                self.walk(oracle, engine, steps);
            }
            Action::GetSnapshot(keys) => self.compare_snapshots(keys),
            Action::Counter(key) => {
                let counter = self.engine.counter(key).expect("counter answers");
                assert_eq!(
                    counter,
                    self.oracle.counter(key).expect("the oracle answers")
                );
            }
            Action::Sync => self.sync(),
            Action::Compact(range) => self.engine.compact(range).expect("compact succeeds"),
            Action::ScratchPut(key, value) => self.scratch_put(key, value),
            Action::WalkScratch(steps) => {
                let [oracle, engine] = self
                    .scratches
                    .each_ref()
                    .map(|s| s.cursor().expect("a cursor"));
                self.walk(oracle, engine, steps);
            }
            Action::NewScratch => self.scratches = scratches(self.oracle, self.engine),
        }
    }

    fn cursors(&self, range: &KeyRange) -> (Box<dyn Cursor>, Box<dyn Cursor>) {
        let engines: [&dyn Engine; 2] = [self.oracle, self.engine];
        let [oracle, engine] = engines.map(|e| e.cursor(range.clone()).expect("a cursor"));
        (oracle, engine)
    }

    fn commit(&self, changes: &[Change], read_set: &ReadSet, durability: Durability) {
        let batch = batch(changes);
        let expected = self.oracle.commit(&batch, &ReadSet::none(), durability);
        let commit_seq = self
            .engine
            .commit(&batch, read_set, durability)
            .expect("commit succeeds");
        assert_eq!(commit_seq, expected.expect("the oracle commits"));
        assert_eq!(self.engine.last_commit_seq(), commit_seq);
        if durability == Durability::Synced {
            assert_eq!(self.engine.durable_commit_seq(), commit_seq);
        }
        assert!(self.engine.durable_commit_seq() <= self.engine.last_commit_seq());
    }

    /// The engine must refuse its second commit if the first wrote the guarded key. It may refuse more.
    fn guarded(&self, key: &Key, first: &[Change], own: &[Change]) {
        let mut read_set = self.engine.read_set();
        read_set.add(key);
        self.commit(first, &ReadSet::none(), Durability::Buffered);
        let own_batch = batch(own);
        let must_conflict = first.iter().any(|change| match change {
            Change::Put(k, _) | Change::Delete(k) => k == key,
            Change::DeleteRange(range) => range.contains(key),
            Change::Add(..) => false,
        });
        match self
            .engine
            .commit(&own_batch, &read_set, Durability::Buffered)
        {
            Ok(commit_seq) => {
                assert!(!must_conflict, "a change of a guarded key was overlooked");
                let expected = self
                    .oracle
                    .commit(&own_batch, &read_set, Durability::Buffered);
                // The oracle's table is smaller: it may refuse what the engine accepts.
                let expected = expected.or_else(|_| {
                    self.oracle
                        .commit(&own_batch, &ReadSet::none(), Durability::Buffered)
                });
                assert_eq!(commit_seq, expected.expect("the oracle commits"));
            }
            Err(error) => assert_eq!(error.kind(), crate::ErrorKind::Conflict, "{error}"),
        }
    }

    fn compare_multi_get(&self, keys: &[Key]) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let engines: [&dyn Engine; 2] = [self.oracle, self.engine];
        let [oracle, engine] = engines.map(|engine| {
            let mut seen = Vec::new();
            let visit = &mut |index, value: Option<&[u8]>| {
                seen.push((index, value.map(<[u8]>::to_vec)));
            };
            engine.multi_get(&keys, visit).expect("multi_get answers");
            seen
        });
        assert_eq!(engine, oracle);
    }

    fn compare_snapshots(&self, keys: &[Key]) {
        let [oracle, engine] = &self.snapshots;
        assert_eq!(engine.commit_seq(), oracle.commit_seq());
        for key in keys {
            let value = engine.get(key).expect("get answers");
            assert_eq!(value, oracle.get(key).expect("the oracle answers"));
            let counter = engine.counter(key).expect("counter answers");
            assert_eq!(counter, oracle.counter(key).expect("the oracle answers"));
        }
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let [oracle, engine] = self.snapshots.each_ref().map(|snapshot| {
            let mut seen = Vec::new();
            let visit = &mut |index, value: Option<&[u8]>| {
                seen.push((index, value.map(<[u8]>::to_vec)));
            };
            snapshot.multi_get(&keys, visit).expect("multi_get answers");
            seen
        });
        assert_eq!(engine, oracle);
    }

    fn sync(&self) {
        let durable = self.engine.sync().expect("sync succeeds");
        assert_eq!(durable, self.engine.last_commit_seq());
        assert_eq!(durable, self.engine.durable_commit_seq());
        assert_eq!(durable, self.oracle.sync().expect("the oracle syncs"));
    }

    fn scratch_put(&mut self, key: &[u8], value: &[u8]) {
        for scratch in &mut self.scratches {
            scratch.put(key, value).expect("put succeeds");
            let stored = scratch.get(key).expect("get answers");
            assert_eq!(stored.as_deref(), Some(value));
        }
        let [oracle, engine] = self
            .scratches
            .each_ref()
            .map(|scratch| scratch.bytes_stored());
        assert_eq!(engine, oracle);
    }

    fn walk(&mut self, mut oracle: Box<dyn Cursor>, mut engine: Box<dyn Cursor>, steps: &[Step]) {
        for step in steps {
            let [expected, standing] = [&mut oracle, &mut engine].map(|cursor| take(cursor, step));
            assert_eq!(standing, expected, "after {step:?}");
            if standing {
                assert_eq!(engine.key(), oracle.key(), "after {step:?}");
                assert_eq!(engine.value(), oracle.value(), "after {step:?}");
                self.entries_walked += 1;
            }
        }
    }

    /// Everything from end to end, both ways.
    fn compare_whole(&mut self) {
        let entries = entries(self.oracle);
        for (first, further) in [
            (Step::SeekFirst, Step::Next),
            (Step::SeekLast, Step::Previous),
        ] {
            let (oracle, engine) = self.cursors(&KeyRange::all());
            let mut steps = vec![first];
            steps.resize(entries + 2, further);
            self.walk(oracle, engine, &steps);
        }
    }
}

fn entries(engine: &dyn Engine) -> usize {
    let mut cursor = engine.cursor(KeyRange::all()).expect("a cursor");
    let mut entries = 0;
    let mut standing = cursor.seek_first().expect("the cursor moves");
    while standing {
        entries += 1;
        standing = cursor.next().expect("the cursor moves");
    }
    entries
}

fn take(cursor: &mut Box<dyn Cursor>, step: &Step) -> bool {
    let standing = match step {
        Step::SeekFirst => cursor.seek_first(),
        Step::SeekLast => cursor.seek_last(),
        Step::Seek(key) => cursor.seek(key),
        Step::SeekBack(key) => cursor.seek_back(key),
        Step::Next => cursor.next(),
        Step::Previous => cursor.previous(),
    };
    standing.expect("the cursor moves")
}

fn batch(changes: &[Change]) -> Batch {
    let mut batch = Batch::new();
    for change in changes {
        match change {
            Change::Put(key, value) => batch.put(key, value),
            Change::Delete(key) => batch.delete(key),
            Change::DeleteRange(range) => batch.delete_range(range),
            Change::Add(key, delta) => batch.add(key, *delta),
        }
    }
    batch
}

fn snapshots(oracle: &MemoryEngine, engine: &dyn Engine) -> [Box<dyn Snapshot>; 2] {
    let engines: [&dyn Engine; 2] = [oracle, engine];
    engines.map(|engine| engine.snapshot().expect("a snapshot"))
}

fn scratches(oracle: &MemoryEngine, engine: &dyn Engine) -> [Box<dyn Scratch>; 2] {
    let engines: [&dyn Engine; 2] = [oracle, engine];
    engines.map(|engine| engine.scratch().expect("scratch space"))
}
