//! What RocksDB can do that the engine makes no use of, on a volume.

use std::path::Path;
use std::sync::Arc;

use millrace_blobfs::{Clock, FormatOptions, MountOptions, OpenOptions, Timestamp, Volume};
use millrace_block::{Device, MemoryDevice};
use millrace_engine::{Batch, Durability, Engine as _, ErrorKind, ReadSet};
use rocksdb::backup::{BackupEngine, BackupEngineOptions, RestoreOptions};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::{DB, DBCompressionType, IteratorMode, Options, ReadOptions, WriteOptions};

use crate::RocksEngine;

const KEYS: u32 = 3000;

fn environment(volume: &Volume, root: &str) -> rocksdb::Env {
    super::environment(volume, Path::new(root)).expect("the path is UTF-8")
}

fn volume(data_checksums: bool) -> Volume {
    let device: Arc<dyn Device> =
        Arc::new(MemoryDevice::new(128 << 20, 512).expect("memory can be had"));
    let clock: Clock = Arc::new(|| Timestamp(1));
    let format = FormatOptions {
        data_checksums,
        ..FormatOptions::new([7; 16], Timestamp(1))
    };
    Volume::format(&device, &format).expect("it is formatted");
    let volume = Volume::mount(device, MountOptions::new(clock)).expect("it is a volume");
    volume.create_dir("/db").expect("the volume is empty");
    volume
}

/// Options for a database in the folder `/db`.
fn options(volume: &Volume) -> Options {
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_env(&environment(volume, "/db"));
    options.set_compression_type(DBCompressionType::None);
    options
}

fn value(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(300)
}

fn fill(db: &DB) {
    for number in 0..KEYS {
        db.put(number.to_be_bytes(), value(number))
            .expect("it is put");
    }
}

fn check(db: &DB) {
    for number in (0..KEYS).step_by(7) {
        let found = db.get(number.to_be_bytes()).expect("it is read");
        assert_eq!(found, Some(value(number)), "{number}");
    }
}

fn names(volume: &Volume, folder: &str) -> Vec<String> {
    let entries = volume.read_dir(folder).expect("the folder is there");
    entries.into_iter().map(|entry| entry.name).collect()
}

/// The files of a folder that end so.
fn count(volume: &Volume, folder: &str, ending: &str) -> usize {
    let names = names(volume, folder);
    names.iter().filter(|name| name.ends_with(ending)).count()
}

#[test]
fn the_name_that_rocksdb_has_for_the_folder_leaves_nothing_behind() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let db = DB::open(&options(&volume), "/").expect("it opens");
        fill(&db);
        drop(db);
        check(&DB::open(&options(&volume), "/").expect("it opens"));
        assert_eq!(names(&volume, "/"), ["db"]);
        for name in ["CURRENT", "IDENTITY", "LOCK", "LOG"] {
            assert!(
                names(&volume, "/db").iter().any(|known| known == name),
                "{name}"
            );
        }
        DB::destroy(&options(&volume), "/").expect("it is destroyed");
        assert!(names(&volume, "/").is_empty());
    }
}

#[test]
fn values_in_files_of_their_own() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let mut options = options(&volume);
        options.set_enable_blob_files(true);
        options.set_min_blob_size(100);
        options.set_enable_blob_gc(true);
        options.set_blob_gc_age_cutoff(1.0);
        let db = DB::open(&options, "/").expect("it opens");
        fill(&db);
        db.flush().expect("it is flushed");
        assert!(count(&volume, "/db", ".blob") > 0);
        check(&db);
        fill(&db);
        db.flush().expect("it is flushed");
        db.compact_range(None::<&[u8]>, None::<&[u8]>);
        drop(db);
        check(&DB::open(&options, "/").expect("it opens"));
    }
}

#[test]
fn a_checkpoint_shares_files_by_links_and_outlives_its_database() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let db = DB::open(&options(&volume), "/").expect("it opens");
        fill(&db);
        db.flush().expect("it is flushed");
        let checkpoint = Checkpoint::new(&db).expect("it is made");
        checkpoint
            .create_checkpoint("/../copy")
            .expect("it is written");
        drop(checkpoint);
        let tables = names(&volume, "/copy");
        let tables = tables.iter().filter(|name| name.ends_with(".sst"));
        for table in tables {
            let status = volume
                .status(&format!("/copy/{table}"))
                .expect("it is there");
            assert_eq!(status.links, 2, "{table}");
        }
        drop(db);
        DB::destroy(&options(&volume), "/").expect("it is destroyed");
        let mut options = Options::default();
        options.set_env(&environment(&volume, "/copy"));
        check(&DB::open(&options, "/").expect("the copy opens"));
    }
}

#[test]
fn a_backup_is_restored() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let db = DB::open(&options(&volume), "/").expect("it opens");
        fill(&db);
        // It reads the database by the names that the database has for its files.
        let environment = environment(&volume, "/db");
        let backups = || {
            let options = BackupEngineOptions::new("/../backups").expect("a path");
            BackupEngine::open(&options, &environment).expect("backups open")
        };
        backups()
            .create_new_backup_flush(&db, true)
            .expect("it is written");
        db.put(b"later", b"not in the backup").expect("it is put");
        drop(db);
        DB::destroy(&options(&volume), "/").expect("it is destroyed");
        let folder = Path::new("/");
        let restored =
            backups().restore_from_latest_backup(folder, folder, &RestoreOptions::default());
        restored.expect("it is restored");
        let db = DB::open(&options(&volume), "/").expect("it opens");
        check(&db);
        assert_eq!(db.get(b"later").expect("it is read"), None);
    }
}

#[test]
fn scans_and_sets_of_keys_are_read_ahead_and_at_once() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let mut options = options(&volume);
        // Nothing stays in a cache: every block comes from the device.
        let mut table = rocksdb::BlockBasedOptions::default();
        table.disable_cache();
        options.set_block_based_table_factory(&table);
        let db = DB::open(&options, "/").expect("it opens");
        fill(&db);
        db.flush().expect("it is flushed");
        for is_async in [false, true] {
            for readahead in [0, 64 << 10, 1 << 20] {
                let mut options = ReadOptions::default();
                options.set_async_io(is_async);
                options.set_readahead_size(readahead);
                let mut expected = 0..KEYS;
                for item in db.iterator_opt(IteratorMode::Start, options) {
                    let (key, found) = item.expect("it is read");
                    let number = expected.next().expect("no more than there are");
                    assert_eq!(
                        (&*key, &*found),
                        (&number.to_be_bytes()[..], &value(number)[..])
                    );
                }
                assert_eq!(expected.next(), None);
                // A scan that is given up has reads under way.
                let mut options = ReadOptions::default();
                options.set_async_io(is_async);
                options.set_readahead_size(readahead);
                let mut iterator = db.iterator_opt(IteratorMode::Start, options);
                assert!(iterator.next().is_some());
            }
        }
        let numbers: Vec<u32> = (0..KEYS).step_by(3).collect();
        let found = db.multi_get(numbers.iter().map(|number| number.to_be_bytes()));
        for (number, found) in numbers.into_iter().zip(found) {
            assert_eq!(found.expect("it is read"), Some(value(number)));
        }
    }
}

#[test]
fn a_log_that_is_recycled_is_emptied() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let mut options = options(&volume);
        options.set_recycle_log_file_num(2);
        let db = DB::open(&options, "/").expect("it opens");
        let mut synced = WriteOptions::default();
        synced.set_sync(true);
        for number in 0..20_u32 {
            db.put_opt(number.to_be_bytes(), value(number), &synced)
                .expect("it is put");
            if number % 4 == 3 {
                db.flush().expect("it is flushed");
            }
        }
        drop(db);
        let db = DB::open(&options, "/").expect("it opens");
        for number in 0..20_u32 {
            let found = db.get(number.to_be_bytes()).expect("it is read");
            assert_eq!(found, Some(value(number)), "{number}");
        }
    }
}

#[test]
fn a_second_opening_is_refused_with_the_words_that_programs_know() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let db = DB::open(&options(&volume), "/").expect("it opens");
        let refused = DB::open(&options(&volume), "/").expect_err("it is open");
        assert!(
            refused.as_ref().contains("lock hold by current process"),
            "{refused}"
        );
        drop(db);
        drop(DB::open(&options(&volume), "/").expect("it opens again"));
    }
}

#[test]
fn files_in_memory_mapping_are_read_as_a_whole() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let mut options = options(&volume);
        options.set_allow_mmap_reads(true);
        options.set_compression_type(DBCompressionType::None);
        let db = DB::open(&options, "/").expect("it opens");
        fill(&db);
        db.flush().expect("it is flushed");
        check(&db);
    }
}

/// An engine in a folder of a volume.
fn engine(volume: &Volume, folder: &str) -> millrace_engine::Result<RocksEngine> {
    let options = crate::Options {
        cache_bytes: 8 << 20,
        file_system: crate::FileSystem::Blobfs(volume.clone()),
        ..crate::Options::default()
    };
    RocksEngine::open(Path::new(folder), options)
}

fn commit(engine: &RocksEngine, key: &[u8]) {
    let mut batch = Batch::new();
    batch.put(key, b"value");
    let committed = engine.commit(&batch, &ReadSet::none(), Durability::Synced);
    committed.expect("it is committed");
}

fn write(volume: &Volume, path: &str, contents: &[u8]) {
    let options = OpenOptions {
        create: true,
        truncate: true,
        ..OpenOptions::default()
    };
    let file = volume.open(path, &options).expect("the folder is there");
    file.append(contents).expect("there is space");
}

#[test]
fn an_engine_makes_its_folder_and_keeps_its_rules_on_a_volume() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let opened = engine(&volume, "/a/b").expect("it opens");
        commit(&opened, b"key");
        let locked = engine(&volume, "/a/b").expect_err("it is open");
        assert_eq!(locked.kind(), ErrorKind::Locked, "{locked:?}");
        // Engines in other folders of the volume do not meet it.
        drop(engine(&volume, "/a/c").expect("it opens"));
        drop(opened);
        let opened = engine(&volume, "/a/b").expect("it opens again");
        assert!(opened.get(b"key").expect("it is read").is_some());
        let statistics = opened.statistics();
        let statistic = |name| {
            statistics
                .iter()
                .find(|(known, _)| *known == name)
                .map(|known| known.1)
        };
        assert!(statistic("wal_replayed_bytes") > Some(0), "{statistics:?}");
        assert!(statistic("blobfs_syncs_total") > Some(0), "{statistics:?}");
        drop(opened);

        write(&volume, "/a/b/FORMAT", b"millrace-rocksdb 2\n");
        let newer = engine(&volume, "/a/b").expect_err("it is newer");
        assert_eq!(newer.kind(), ErrorKind::NewerFormat, "{newer:?}");
        write(&volume, "/a/b/FORMAT", b"\xFF");
        let damaged = engine(&volume, "/a/b").expect_err("it is no format");
        assert_eq!(damaged.kind(), ErrorKind::Corruption, "{damaged:?}");
        write(&volume, "/db/CURRENT", b"MANIFEST-000001\n");
        let foreign = engine(&volume, "/db").expect_err("it is somebody else's");
        assert_eq!(foreign.kind(), ErrorKind::InvalidArgument, "{foreign:?}");
    }
}

#[test]
fn a_checkpoint_of_an_engine_goes_anywhere_on_its_volume() {
    for data_checksums in [false, true] {
        let volume = volume(data_checksums);
        let opened = engine(&volume, "/a/b").expect("it opens");
        commit(&opened, b"key");
        for target in ["/copy", "/a/b/inside", "/a/beside"] {
            opened.checkpoint(Path::new(target)).expect(target);
            let refused = opened
                .checkpoint(Path::new(target))
                .expect_err("it is there");
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{refused:?}");
            let copy = engine(&volume, target).expect(target);
            assert!(copy.get(b"key").expect("it is read").is_some());
        }
    }
}
