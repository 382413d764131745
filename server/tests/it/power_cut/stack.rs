//! All that is between commands and a device.

use std::path::Path;
use std::sync::Arc;

use millrace_blobfs::{CheckOptions, Clock, FormatOptions, MountOptions, Volume, check};
use millrace_block::Device;
use millrace_engine::{CommitSeq, Engine as _};
use millrace_rocksdb::{FileSystem, Options, RocksEngine};

use crate::history::fixture::Fixture;
use crate::history::restless::{OtherClient, Restless};

/// The folder of the database in its volume.
const DATA: &str = "/data";

/// A small journal, which is full now and then.
const JOURNAL_BYTES: u64 = 256 << 10;

/// A clock that moves on by a millisecond with each look.
fn clock() -> Clock {
    millrace_fixtures::blobfs::clock(1_700_000_000_000)
}

/// Makes a volume on a device.
pub(crate) fn format(device: &Arc<dyn Device>) {
    let mut options = FormatOptions::new([7; 16], clock()());
    options.journal_bytes = Some(JOURNAL_BYTES);
    Volume::format(device, &options).expect("the device is large enough");
}

/// Opens the database of a device.
pub(crate) fn open(device: Arc<dyn Device>, case: &str) -> Fixture {
    open_at(device, case).0
}

/// The same, and the commit sequence number that was found: the catalog may go on from there, to remove what was begun.
pub(crate) fn open_at(device: Arc<dyn Device>, case: &str) -> (Fixture, CommitSeq) {
    let mut options = MountOptions::new(clock());
    options.arena_bytes = 4 << 20;
    let volume = Volume::mount(device, options).unwrap_or_else(|error| panic!("{case}: {error:?}"));
    let options = Options {
        cache_bytes: 8 << 20,
        file_system: FileSystem::Blobfs(volume),
        ..Options::default()
    };
    let engine = RocksEngine::open(Path::new(DATA), options);
    let engine = engine.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    let commit_seq = engine.last_commit_seq();
    let restless = Restless::new(engine, OtherClient::default());
    let fixture = Fixture::on(Arc::new(restless));
    (
        fixture.unwrap_or_else(|error| panic!("{case}: {error:?}")),
        commit_seq,
    )
}

/// The volume is sound: there is nothing that a mount does not mend.
pub(crate) fn check_volume(device: &Arc<dyn Device>, case: &str) {
    let report = check(device, CheckOptions::default(), &mut |_| {});
    let report = report.unwrap_or_else(|error| panic!("{case}: {error:?}"));
    assert!(report.is_sound(), "{case}: {:?}", report.findings);
}
