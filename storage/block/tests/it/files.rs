//! Files and block specials: exclusive opening, refusals, and changes of the file below.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use millrace_block::{
    Device, ErrorKind, FileDevice, FileOptions, Lba, Operation, Request, Result, conformance,
};
use millrace_fixtures::block::{self, arena};
use millrace_memory::{Arena, Buffer};
use tempfile::TempDir;

const BYTES: u64 = 4 << 20;
/// Tells a child of this test which file to open.
const CHILD_OPENS: &str = "MILLRACE_TEST_OPENS";

fn folder() -> TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("the build folder can be written")
}

/// A folder, which goes with the test, and a new file in it.
fn file() -> (TempDir, PathBuf) {
    let folder = folder();
    let path = folder.path().join("device");
    FileDevice::create(&path, BYTES).expect("there is space");
    (folder, path)
}

fn open(path: &Path) -> Result<FileDevice> {
    FileDevice::open(path, FileOptions::default())
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("refused").kind()
}

fn filled(arena: &Arena, byte: u8) -> Buffer {
    block::filled(arena, 4096, byte)
}

#[test]
fn a_new_file_has_its_space_and_no_other_user() {
    let (folder, path) = file();
    let metadata = fs::metadata(&path).expect("it is there");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), BYTES);
    assert!(metadata.blocks() * 512 >= BYTES, "the space is allocated");
    assert_eq!(kind(FileDevice::create(&path, BYTES)), ErrorKind::Invalid);
    let other = folder.path().join("other");
    for bytes in [0, 1, 4095, !4095] {
        assert_eq!(kind(FileDevice::create(&other, bytes)), ErrorKind::Invalid);
    }
    let missing = folder.path().join("no folder").join("other");
    assert_eq!(
        kind(FileDevice::create(&missing, BYTES)),
        ErrorKind::NotFound
    );
    let huge = FileDevice::create(&other, 1 << 60);
    assert_eq!(kind(huge), ErrorKind::NoSpace);
    assert!(!other.exists(), "what could not be made is not there");
}

#[test]
fn what_is_no_device_is_refused() {
    let folder = folder();
    assert_eq!(kind(open(folder.path())), ErrorKind::Invalid);
    assert_eq!(kind(open(Path::new("/dev/null"))), ErrorKind::Invalid);
    let path = folder.path().join("device");
    assert_eq!(kind(open(&path)), ErrorKind::NotFound);
    for len in [0, 511] {
        fs::write(&path, vec![0; len]).expect("written");
        assert_eq!(kind(open(&path)), ErrorKind::Invalid);
    }
    // What is no whole block at the end is not part of it.
    fs::write(&path, vec![0; 70_000]).expect("written");
    let device = open(&path).expect("a file");
    let geometry = device.geometry();
    assert_eq!(geometry.blocks, 70_000 / u64::from(geometry.block_bytes));
    assert!(geometry.volatile_cache);
    assert_eq!(device.name(), format!("file:{}", path.display()));
}

#[test]
fn a_file_is_for_one_opening_alone() {
    let (_folder, path) = file();
    let device = open(&path).expect("it is free");
    let error = open(&path).expect_err("it is in use");
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("in use"), "{error}");
    assert!(!another_process_opens(&path));
    let queue = device.queue().expect("a queue");
    drop(device);
    assert_eq!(kind(open(&path)), ErrorKind::InUse);
    drop(queue);
    assert!(another_process_opens(&path));
    open(&path).expect("it is free again");
}

/// Whether a process of its own can open the file.
fn another_process_opens(path: &Path) -> bool {
    let own = std::env::current_exe().expect("a test has a file");
    let mut child = Command::new(own);
    child.args(["--exact", "files::a_child_opens_what_it_is_told_to"]);
    let ended = child.env(CHILD_OPENS, path).output();
    ended.expect("a test can be run").status.success()
}

#[test]
fn a_child_opens_what_it_is_told_to() {
    if let Some(path) = std::env::var_os(CHILD_OPENS) {
        open(Path::new(&path)).expect("it is free");
    }
}

#[test]
fn a_file_that_becomes_shorter_is_an_error() {
    for io_uring in [true, false] {
        let (_folder, path) = file();
        let options = FileOptions {
            io_uring,
            ..FileOptions::default()
        };
        let device = FileDevice::open(&path, options).expect("a file");
        let (arena, mut queue) = (arena(&device), device.queue().expect("a queue"));
        let shorter = fs::OpenOptions::new()
            .write(true)
            .open(&path)
            .expect("ours");
        shorter.set_len(1 << 20).expect("ours");
        let lba = Lba((2 << 20) / u64::from(device.geometry().block_bytes));
        let read = || Request::read(lba, filled(&arena, 0), 7);
        let completion = queue.run(read()).expect("within the device as it was");
        assert_eq!(kind(completion.result), ErrorKind::Device);
        queue.submit(read()).expect("within the device as it was");
        let completion = queue.wait().expect("one is in flight");
        assert_eq!(
            (completion.token, kind(completion.result)),
            (7, ErrorKind::Device)
        );
        assert!(completion.buffer.is_some(), "the buffer comes back");
    }
}

#[test]
fn deallocation_makes_holes() {
    let (_folder, path) = file();
    let device = open(&path).expect("a file");
    let (arena, mut queue) = (arena(&device), device.queue().expect("a queue"));
    let before = fs::metadata(&path).expect("ours").blocks();
    let blocks = (1 << 20) / u64::from(device.geometry().block_bytes);
    let request = Request::deallocate(Lba(0), blocks, 0);
    match queue.submit(request) {
        Ok(()) => {}
        Err(refused) => {
            assert_eq!(refused.error.kind(), ErrorKind::Unsupported);
            println!("skipped: {}", refused.error);
            return;
        }
    }
    queue
        .wait()
        .expect("one is in flight")
        .result
        .expect("it makes holes");
    assert!(fs::metadata(&path).expect("ours").blocks() < before);
    assert_eq!(fs::metadata(&path).expect("ours").len(), BYTES);
    let read = queue
        .run(Request::read(Lba(0), filled(&arena, 9), 0))
        .expect("within");
    assert!(
        read.buffer
            .expect("a read has one")
            .iter()
            .all(|byte| *byte == 0)
    );
}

/// A block special on a file, until this is dropped.
struct Loop(PathBuf);

impl Loop {
    /// None where that may not be done.
    fn new(file: &Path) -> Option<Self> {
        let made = Command::new("losetup")
            .args(["--find", "--show"])
            .arg(file)
            .output()
            .ok()?;
        if !made.status.success() {
            println!("skipped: {}", String::from_utf8_lossy(&made.stderr).trim());
            return None;
        }
        let name = String::from_utf8(made.stdout).expect("a path");
        Some(Self(PathBuf::from(name.trim())))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let ended = Command::new("losetup")
            .arg("--detach")
            .arg(&self.0)
            .status();
        assert!(
            ended.is_ok_and(|status| status.success()),
            "{:?} stays",
            self.0
        );
    }
}

#[test]
fn block_specials_do_what_devices_do() {
    let (_folder, path) = file();
    let Some(special) = Loop::new(&path) else {
        return;
    };
    for (direct, io_uring) in [(true, true), (false, true), (true, false)] {
        let options = FileOptions { direct, io_uring };
        let device = FileDevice::open(&special.0, options).expect("a block special");
        println!("{:?}, {:?}", device.geometry(), device.notes());
        assert_eq!(device.geometry().bytes(), BYTES);
        assert_eq!(kind(open(&special.0)), ErrorKind::InUse);
        assert!(!another_process_opens(&special.0));
        conformance::all(&(Arc::new(device) as Arc<dyn Device>), 0..6);
    }
    open(&special.0).expect("it is free again");
}

#[test]
fn all_operations_complete_by_either_way() {
    for io_uring in [true, false] {
        let (_folder, path) = file();
        let options = FileOptions {
            io_uring,
            ..FileOptions::default()
        };
        let device = FileDevice::open(&path, options).expect("a file");
        let (arena, mut queue) = (arena(&device), device.queue().expect("a queue"));
        for (token, operation) in [
            (1, Operation::Write),
            (2, Operation::WriteThrough),
            (3, Operation::Flush),
            (4, Operation::WriteZeroes(8)),
            (5, Operation::Read),
        ] {
            let moves = matches!(
                operation,
                Operation::Read | Operation::Write | Operation::WriteThrough
            );
            let request = || Request {
                operation,
                lba: Lba(16),
                buffer: moves.then(|| filled(&arena, 3)),
                token,
            };
            queue.submit(request()).expect("it makes sense");
            let completion = queue.wait().expect("one is in flight");
            assert_eq!(completion.token, token);
            completion
                .result
                .unwrap_or_else(|error| panic!("{operation:?}: {error}"));
            let completion = queue.run(request()).expect("it makes sense");
            completion
                .result
                .unwrap_or_else(|error| panic!("{operation:?}: {error}"));
        }
    }
}

#[test]
fn what_is_only_read_stays_as_it_was() {
    let (_folder, path) = file();
    let times = || {
        let metadata = fs::metadata(&path).expect("it is there");
        (
            metadata.modified().expect("files have times"),
            (metadata.ctime(), metadata.ctime_nsec()),
        )
    };
    let before = (times(), fs::read(&path).expect("it is ours"));
    for direct in [true, false] {
        let device = FileDevice::open(
            &path,
            FileOptions {
                direct,
                ..FileOptions::default()
            },
        )
        .expect("nobody has it");
        let arena = arena(&device);
        let mut queue = device.queue().expect("a queue");
        let read = queue.run(Request::read(Lba(0), filled(&arena, 1), 0));
        let completion = read.expect("it is taken");
        completion.result.expect("it is read");
        drop((completion.buffer, queue, device));
        assert!(
            (times(), fs::read(&path).expect("it is ours")) == before,
            "{direct}"
        );
    }
}
