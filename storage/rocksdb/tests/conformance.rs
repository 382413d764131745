//! The engine against the contract of all engines.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_engine::conformance::{concurrency, contract, model};
use millrace_engine::{Batch, Durability, Engine, Guards, KeyRange};
use millrace_rocksdb::{FileSystem, ForgetfulFileSystem, Options, RocksEngine};
use tempfile::TempDir;

/// Makes engines in folders of their own, which live as long as this.
struct Engines {
    home: TempDir,
    made: AtomicUsize,
    options: Options,
}

impl Engines {
    fn new(file_system: FileSystem) -> Self {
        // A small cache means small memtables, so that the tests reach files of tables.
        let options = Options {
            cache_bytes: 8 << 20,
            file_system,
            ..Options::default()
        };
        Self {
            home: tempfile::tempdir().expect("a temporary folder"),
            made: AtomicUsize::new(0),
            options,
        }
    }

    fn make(&self) -> Arc<dyn Engine> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.open(&self.home.path().join(number.to_string()))
    }

    fn open(&self, folder: &Path) -> Arc<dyn Engine> {
        Arc::new(RocksEngine::open(folder, self.options.clone()).expect("it opens"))
    }
}

#[test]
fn matches_the_oracle() {
    let engines = Engines::new(FileSystem::Default);
    model::matches_oracle(&|| engines.make(), 48);
}

#[test]
fn matches_the_oracle_on_the_forgetful_file_system() {
    let engines = Engines::new(FileSystem::Forgetful(ForgetfulFileSystem::new()));
    model::matches_oracle(&|| engines.make(), 16);
}

#[test]
fn no_update_is_lost() {
    let engines = Engines::new(FileSystem::Default);
    concurrency::no_update_is_lost(&|| engines.make());
}

#[test]
fn a_unique_key_has_one_winner() {
    let engines = Engines::new(FileSystem::Default);
    concurrency::a_unique_key_has_one_winner(&|| engines.make());
}

#[test]
fn snapshots_agree_with_their_optime() {
    let engines = Engines::new(FileSystem::Default);
    concurrency::snapshots_agree_with_their_optime(&|| engines.make());
}

#[test]
fn the_contract_is_kept() {
    let engines = Engines::new(FileSystem::Default);
    contract::limits_are_kept(&|| engines.make());
    contract::ranges_are_removed_exactly(&|| engines.make());
    contract::an_empty_batch_only_checks(&|| engines.make());
    contract::scratch_spaces_are_apart(&|| engines.make());
    contract::sizes_are_estimated(&|| engines.make());
}

#[test]
fn checkpoints_open() {
    let engines = Engines::new(FileSystem::Default);
    let folder = tempfile::tempdir().unwrap();
    contract::checkpoints_open(&|| engines.make(), folder.path(), &|path| {
        engines.open(path)
    });
}

#[test]
fn more_than_the_memtables_hold_is_read_back_in_order_and_space_is_given_back() {
    const KEYS: u32 = 40_000;
    let engines = Engines::new(FileSystem::Default);
    let engine = engines.make();
    let value = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes().repeat(125);
    for number in 0..KEYS {
        let mut batch = Batch::new();
        batch.put(
            &number.reverse_bits().to_be_bytes(),
            &value(number.reverse_bits()),
        );
        engine
            .commit(&batch, &Guards::none(), Durability::Buffered)
            .unwrap();
    }
    let statistic = |name: &str| {
        let statistics = engine.statistics();
        statistics
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
            .unwrap()
    };
    assert!(
        statistic("sst_bytes") > 0,
        "nothing was flushed, so nothing was shown"
    );
    let mut cursor = engine.cursor(KeyRange::all()).unwrap();
    let mut numbers = Vec::new();
    let mut standing = cursor.seek_first().unwrap();
    while standing {
        let number = u32::from_be_bytes(cursor.key().try_into().unwrap());
        assert_eq!(cursor.value(), value(number));
        numbers.push(number);
        standing = cursor.next().unwrap();
    }
    drop(cursor);
    assert_eq!(numbers.len(), KEYS as usize);
    assert!(numbers.is_sorted());

    let before = engine.size_estimate(&KeyRange::all()).unwrap();
    let mut batch = Batch::new();
    batch.delete_range(&KeyRange::all());
    engine
        .commit(&batch, &Guards::none(), Durability::Buffered)
        .unwrap();
    engine.compact(&KeyRange::all()).unwrap();
    let after = engine.size_estimate(&KeyRange::all()).unwrap();
    assert!(after < before / 100, "{after} of {before} bytes are left");
}

#[test]
fn a_large_scratch_space_is_read_back_in_order_and_freed() {
    const KEYS: u32 = 30_000;
    let engines = Engines::new(FileSystem::Default);
    let engine = engines.make();
    let mut scratch = engine.scratch().unwrap();
    for number in 0..KEYS {
        scratch
            .put(&number.reverse_bits().to_be_bytes(), &[7; 500])
            .unwrap();
    }
    let mut cursor = scratch.cursor().unwrap();
    let mut count = 0;
    let mut last = None;
    let mut standing = cursor.seek_first().unwrap();
    while standing {
        assert!(last.as_deref() < Some(cursor.key()));
        last = Some(cursor.key().to_vec());
        count += 1;
        standing = cursor.next().unwrap();
    }
    assert_eq!(count, KEYS);
    let folder = engines.home.path().join("0");
    assert!(
        table_files(&folder.join("scratch")) > 0,
        "the scratch space never left the memtable"
    );
    drop(cursor);
    drop(scratch);
    // Obsolete files go at the latest when the folder is opened again.
    drop(engine);
    drop(engines.open(&folder));
    assert_eq!(table_files(&folder), 0);
    assert!(!folder.join("scratch").exists());
}

fn table_files(folder: &Path) -> usize {
    let entries = folder.read_dir().expect("the folder is there");
    let names = entries.map(|entry| entry.expect("the folder can be read").file_name());
    names
        .filter(|name| name.to_string_lossy().ends_with(".sst"))
        .count()
}
