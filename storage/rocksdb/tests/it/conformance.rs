//! The engine against the contract of all engines.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::place::Place;
use millrace_engine::conformance::{concurrency, contract, model};
use millrace_engine::{Batch, Durability, Engine, KeyRange, ReadSet};
use millrace_fixtures::count;
use millrace_rocksdb::{FileSystem, Options, RocksEngine, UnsyncedLossFs};

/// Makes engines in folders of their own, which live as long as this.
struct Engines {
    place: Place,
    made: AtomicUsize,
    options: Options,
}

impl Engines {
    fn new(place: Place) -> Self {
        // A small cache means small memtables, so that the tests reach files of tables.
        let options = Options {
            cache_bytes: 8 << 20,
            file_system: place.file_system(),
            ..Options::default()
        };
        Self {
            place,
            made: AtomicUsize::new(0),
            options,
        }
    }

    fn make(&self) -> Arc<dyn Engine> {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        self.open(&self.place.folder(number.to_string()))
    }

    fn open(&self, folder: &Path) -> Arc<dyn Engine> {
        Arc::new(RocksEngine::open(folder, self.options.clone()).expect("it opens"))
    }
}

/// Every test on every place.
macro_rules! on_every_place {
    ($($test:ident,)+) => {
        mod in_a_folder {
            use super::*;

            $(#[test]
            fn $test() {
                let place = Place::folders(FileSystem::Default);
                super::$test(&Engines::new(place));
            })+
        }

        mod on_a_volume_in_memory {
            use super::*;

            $(#[test]
            fn $test() {
                super::$test(&Engines::new(Place::memory()));
            })+
        }

        mod on_a_volume_in_a_file {
            use super::*;

            $(#[test]
            fn $test() {
                super::$test(&Engines::new(Place::file()));
            })+
        }
    };
}

on_every_place! {
    matches_the_oracle,
    no_update_is_lost,
    a_unique_key_has_one_winner,
    snapshots_agree_with_their_commit_seq,
    the_contract_is_kept,
    checkpoints_open,
    more_than_the_memtables_hold_is_read_back_in_order_and_space_is_given_back,
    a_large_scratch_space_is_read_back_in_order_and_freed,
}

fn matches_the_oracle(engines: &Engines) {
    model::matches_oracle(&|| engines.make(), count(16, 48));
}

#[test]
fn matches_the_oracle_on_the_unsynced_loss_fs() {
    let unsynced_loss = FileSystem::UnsyncedLoss(UnsyncedLossFs::new());
    let engines = Engines::new(Place::folders(unsynced_loss));
    model::matches_oracle(&|| engines.make(), 16);
}

fn no_update_is_lost(engines: &Engines) {
    concurrency::no_update_is_lost(&|| engines.make());
}

fn a_unique_key_has_one_winner(engines: &Engines) {
    concurrency::a_unique_key_has_one_winner(&|| engines.make());
}

fn snapshots_agree_with_their_commit_seq(engines: &Engines) {
    concurrency::snapshots_agree_with_their_commit_seq(&|| engines.make());
}

fn the_contract_is_kept(engines: &Engines) {
    contract::limits_are_kept(&|| engines.make());
    contract::ranges_are_removed_exactly(&|| engines.make());
    contract::an_empty_batch_only_checks(&|| engines.make());
    contract::snapshots_keep_their_counters(&|| engines.make());
    contract::scratch_spaces_are_apart(&|| engines.make());
    contract::sizes_are_estimated(&|| engines.make());
}

fn checkpoints_open(engines: &Engines) {
    // A checkpoint is in the file system of its engine.
    let home = engines.place.home();
    contract::checkpoints_open(&|| engines.make(), &home, &|path| engines.open(path));
}

fn more_than_the_memtables_hold_is_read_back_in_order_and_space_is_given_back(engines: &Engines) {
    const KEYS: u32 = 40_000;
    let engine = engines.make();
    let value = |number: u32| number.wrapping_mul(2_654_435_761).to_be_bytes().repeat(125);
    for number in 0..KEYS {
        let mut batch = Batch::new();
        batch.put(
            &number.reverse_bits().to_be_bytes(),
            &value(number.reverse_bits()),
        );
        engine
            .commit(&batch, &ReadSet::none(), Durability::Buffered)
            .expect("commit succeeds");
    }
    let statistic = |name: &str| {
        let statistics = engine.statistics();
        statistics
            .into_iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| value)
            .expect("it is a statistic")
    };
    assert!(
        statistic("sst_bytes") > 0,
        "nothing was flushed, so nothing was shown"
    );
    let mut cursor = engine.cursor(KeyRange::all()).expect("a cursor");
    let mut numbers = Vec::new();
    let mut standing = cursor.seek_first().expect("the cursor moves");
    while standing {
        let number = u32::from_be_bytes(cursor.key().try_into().expect("four bytes"));
        assert_eq!(cursor.value(), value(number));
        numbers.push(number);
        standing = cursor.next().expect("the cursor moves");
    }
    drop(cursor);
    assert_eq!(numbers.len(), KEYS as usize);
    assert!(numbers.is_sorted());

    let before = engine.size_estimate(&KeyRange::all()).expect("an estimate");
    let mut batch = Batch::new();
    batch.delete_range(&KeyRange::all());
    engine
        .commit(&batch, &ReadSet::none(), Durability::Buffered)
        .expect("commit succeeds");
    engine.compact(&KeyRange::all()).expect("it compacts");
    let after = engine.size_estimate(&KeyRange::all()).expect("an estimate");
    assert!(after < before / 100, "{after} of {before} bytes are left");
}

fn a_large_scratch_space_is_read_back_in_order_and_freed(engines: &Engines) {
    const KEYS: u32 = 30_000;
    let engine = engines.make();
    let mut scratch = engine.scratch().expect("scratch space");
    for number in 0..KEYS {
        scratch
            .put(&number.reverse_bits().to_be_bytes(), &[7; 500])
            .expect("it is put");
    }
    let mut cursor = scratch.cursor().expect("a cursor");
    let mut count = 0;
    let mut last = None;
    let mut standing = cursor.seek_first().expect("the cursor moves");
    while standing {
        assert!(last.as_deref() < Some(cursor.key()));
        last = Some(cursor.key().to_vec());
        count += 1;
        standing = cursor.next().expect("the cursor moves");
    }
    assert_eq!(count, KEYS);
    let folder = engines.place.folder("0");
    assert!(
        table_files(engines, &folder.join("scratch")) > 0,
        "the scratch space never left the memtable"
    );
    drop(cursor);
    drop(scratch);
    // Obsolete files go at the latest when the folder is opened again.
    drop(engine);
    drop(engines.open(&folder));
    assert_eq!(table_files(engines, &folder), 0);
    assert!(!engines.place.exists(&folder.join("scratch")));
}

fn table_files(engines: &Engines, folder: &Path) -> usize {
    let names = engines.place.names(folder);
    names.iter().filter(|name| name.ends_with(".sst")).count()
}
