//! Processes that are killed while they write.
//!
//! The test starts its own executable again as the child that writes, reads from a pipe what the child
//! was told, kills it without warning, and looks at what is left.

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;

use millrace_block::{Device, FileDevice, FileOptions};
use millrace_engine::{Batch, CommitSeq, Counter, Durability, Engine, KeyRange, ReadSet};
use millrace_fixtures::count;
use millrace_random::Random;
use millrace_rocksdb::{FileSystem, Options, RocksEngine, UnsyncedLossFs};
use tempfile::TempDir;

use crate::volumes;

const WRITERS: u64 = 4;

/// A generation and a number of ten digits each, a writer of one, and two dashes.
const KEY_LEN: usize = 23;

/// The variables through which a parent tells its child what to do.
const FOLDER: &str = "MILLRACE_CRASH_FOLDER";
const DURABILITY: &str = "MILLRACE_CRASH_DURABILITY";
const FILE_SYSTEM: &str = "MILLRACE_CRASH_FILE_SYSTEM";

/// Where the engine of a scenario is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Storage {
    /// In a folder: a kill loses nothing that was written.
    Folder,
    /// In a folder of a file system that forgets.
    UnsyncedLoss,
    /// On a volume whose device is a file: what is not synced is in the process, in part.
    Volume,
}

impl Storage {
    const ALL: [Self; 3] = [Self::Folder, Self::UnsyncedLoss, Self::Volume];

    /// The name by which a child is told.
    const fn name(self) -> &'static str {
        match self {
            Self::Folder => "folder",
            Self::UnsyncedLoss => "unsyncedLoss",
            Self::Volume => "volume",
        }
    }
}

/// The device of a volume.
const IMAGE: &str = "disk.img";
const IMAGE_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Scenario {
    durability: Durability,
    storage: Storage,
}

impl Scenario {
    /// A folder in which engines can be opened.
    fn home(self) -> TempDir {
        let home = tempfile::tempdir().expect("a temporary folder");
        if self.storage == Storage::Volume {
            let path = home.path().join(IMAGE);
            FileDevice::create(&path, IMAGE_BYTES).expect("the folder is ours");
            volumes::format(&device(&path));
        }
        home
    }

    fn open(self, home: &Path) -> RocksEngine {
        let (folder, file_system) = match self.storage {
            Storage::Folder => (home, FileSystem::Default),
            Storage::UnsyncedLoss => {
                let unsynced_loss = UnsyncedLossFs::new();
                (home, FileSystem::UnsyncedLoss(unsynced_loss))
            }
            Storage::Volume => {
                let volume = volumes::mount(device(&home.join(IMAGE)));
                let volume = volume.expect("the volume mounts after a kill");
                (Path::new("/data"), FileSystem::Blobfs(volume))
            }
        };
        // Small memtables, so that kills also meet flushes and compactions.
        let options = Options {
            cache_bytes: 8 << 20,
            file_system,
            ..Options::default()
        };
        RocksEngine::open(folder, options).expect("the folder opens after a kill")
    }
}

fn device(path: &Path) -> Arc<dyn Device> {
    Arc::new(FileDevice::open(path, FileOptions::default()).expect("nobody has the device"))
}

#[test]
#[ignore = "runs until it is killed, as the child of the other tests"]
fn child() {
    let folder = env::var_os(FOLDER).expect("the parent names the folder");
    let storage = env::var(FILE_SYSTEM).unwrap();
    let storage = Storage::ALL
        .into_iter()
        .find(|known| known.name() == storage);
    let scenario = Scenario {
        durability: match env::var(DURABILITY).unwrap().as_str() {
            "synced" => Durability::Synced,
            _ => Durability::Buffered,
        },
        storage: storage.expect("the parent names the storage"),
    };
    let engine = scenario.open(Path::new(&folder));
    let generation = engine.last_commit_seq().get();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let engine = &engine;
            scope.spawn(move || write_forever(engine, scenario.durability, generation, writer));
        }
    });
}

/// Commits new keys and prints each when it is acknowledged.
fn write_forever(engine: &RocksEngine, durability: Durability, generation: u64, writer: u64) {
    let value = [0x5A; 3000];
    for number in 0_u64.. {
        let key = format!("{generation:010}-{writer}-{number:010}");
        let mut batch = Batch::new();
        batch.put(key.as_bytes(), &value);
        batch.add(b"keys", Counter { count: 1, bytes: 0 });
        let commit_seq = engine
            .commit(&batch, &ReadSet::none(), durability)
            .expect("commit succeeds");
        // One write for the whole line, so that a kill does not cut it. (A line is less than a pipe's
        // atomic unit, and the lock keeps the writers apart.)
        let line = format!("{key} {commit_seq}\n");
        if io::stdout().lock().write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

/// Lets a child write into `folder` until it has been told `acknowledgements` times that a commit was
/// made, kills it, and returns the keys and commit sequence numbers of all it was told.
fn write_and_kill(
    folder: &Path,
    scenario: Scenario,
    acknowledgements: usize,
) -> Vec<(String, CommitSeq)> {
    let durability = match scenario.durability {
        Durability::Synced => "synced",
        Durability::Buffered => "buffered",
    };
    let mut child: Child = Command::new(env::current_exe().expect("this test has a path"))
        .args([
            "--exact",
            "crash::child",
            "--ignored",
            "--nocapture",
            "--quiet",
        ])
        .env(FOLDER, folder)
        .env(DURABILITY, durability)
        .env(FILE_SYSTEM, scenario.storage.name())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let mut lines = BufReader::new(child.stdout.take().expect("the output is piped")).lines();
    let mut told = Vec::new();
    // The test runner's own lines are not of this form.
    let mut read = |line: &str| {
        let Some((key, commit_seq)) = line.split_once(' ') else {
            return;
        };
        if let (KEY_LEN, Ok(commit_seq)) = (key.len(), commit_seq.parse()) {
            told.push((key.to_owned(), CommitSeq::new(commit_seq)));
        }
    };
    for line in lines.by_ref().take(acknowledgements) {
        read(&line.expect("the child writes text"));
    }
    child.kill().expect("the child is there");
    child.wait().expect("the child is there");
    // What it was told before the kill is in the pipe. The last line may be cut.
    for line in lines.map_while(Result::ok) {
        read(&line);
    }
    told
}

/// The commits that are left are a prefix of the order: as many keys as the last commit sequence number says.
fn check_dense(engine: &RocksEngine) {
    let mut keys = 0;
    let mut cursor = engine.cursor(KeyRange::all()).expect("a cursor");
    let mut standing = cursor.seek_first().expect("the cursor moves");
    while standing {
        keys += 1;
        assert_eq!(cursor.value(), [0x5A; 3000]);
        standing = cursor.next().expect("the cursor moves");
    }
    assert_eq!(engine.last_commit_seq(), CommitSeq::new(keys));
    assert_eq!(engine.durable_commit_seq(), engine.last_commit_seq());
    let count = i64::try_from(keys).expect("few keys");
    assert_eq!(
        engine.counter(b"keys").expect("counter answers"),
        Counter { count, bytes: 0 }
    );
}

/// Kills a child `kills` times, each time over what the ones before left.
fn kill_again_and_again(scenario: Scenario, kills: u64, seed: u64) {
    let folder = scenario.home();
    let mut random = Random::new(seed);
    let mut told = Vec::new();
    for kill in 0..kills {
        let acknowledgements = 1 + random.below(250);
        let count = usize::try_from(acknowledgements).expect("it is small");
        told.append(&mut write_and_kill(folder.path(), scenario, count));
        let engine = scenario.open(folder.path());
        let case = format!("{scenario:?}, seed {seed}, kill {kill}");
        for (key, commit_seq) in &told {
            let value = engine.get(key.as_bytes()).expect("get answers");
            assert!(
                value.is_some(),
                "{case}: the acknowledged {key} of {commit_seq} is lost"
            );
            assert!(
                *commit_seq <= engine.last_commit_seq(),
                "{case}: {commit_seq}"
            );
        }
        check_dense(&engine);
    }
    assert!(
        told.len() as u64 >= kills,
        "the children were told too little to show anything"
    );
}

#[test]
fn no_acknowledged_commit_is_lost_by_a_kill() {
    let scenario = Scenario {
        durability: Durability::Synced,
        storage: Storage::Folder,
    };
    kill_again_and_again(scenario, count(5, 20), 1);
}

#[test]
fn no_acknowledged_commit_is_lost_by_a_kill_on_a_volume() {
    let scenario = Scenario {
        durability: Durability::Synced,
        storage: Storage::Volume,
    };
    kill_again_and_again(scenario, count(8, 40), 3);
}

#[test]
fn buffered_commits_on_a_volume_leave_a_prefix_after_a_kill() {
    let scenario = Scenario {
        durability: Durability::Buffered,
        storage: Storage::Volume,
    };
    let folder = scenario.home();
    for _ in 0..count(3, 10) {
        write_and_kill(folder.path(), scenario, 1000);
        check_dense(&scenario.open(folder.path()));
    }
}

#[test]
fn no_acknowledged_commit_is_lost_by_a_power_cut() {
    let scenario = Scenario {
        durability: Durability::Synced,
        storage: Storage::UnsyncedLoss,
    };
    kill_again_and_again(scenario, count(20, 80), 2);
}

#[test]
fn buffered_commits_are_lost_by_a_power_cut_but_leave_a_prefix() {
    // Shows that the tests above can fail, and that what is lost is the end.
    let scenario = Scenario {
        durability: Durability::Buffered,
        storage: Storage::UnsyncedLoss,
    };
    let folder = scenario.home();
    let told = write_and_kill(folder.path(), scenario, 100);
    let engine = scenario.open(folder.path());
    check_dense(&engine);
    let lost = told
        .iter()
        .filter(|(key, _)| engine.get(key.as_bytes()).unwrap().is_none());
    assert!(
        lost.count() > 0,
        "of {} acknowledged commits none was lost",
        told.len()
    );
}
