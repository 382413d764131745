//! Files and names of a mounted volume.

use std::sync::Arc;

use millrace_blobfs::{ErrorKind, Kind};
use millrace_block::{Device, MemoryDevice};

use crate::support::{mount, pattern};
use crate::{CREATE, OPEN, contents, fresh, read};

fn device(bytes: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(bytes, 512).expect("a small device"))
}

#[test]
fn what_was_appended_is_there_at_once_and_after_a_mount() {
    let device = device(64 << 20);
    let volume = fresh(&device);
    let mut expected = Vec::new();
    let file = volume.open("/a", &CREATE).unwrap();
    for (seed, len) in [1, 511, 512, 513, 4096, 100_000, 3_000_000, 7, 70_000]
        .into_iter()
        .enumerate()
    {
        let bytes = pattern(seed as u64, len);
        file.append(&bytes).unwrap();
        expected.extend_from_slice(&bytes);
        assert!(contents(&file) == expected, "after {len} more bytes");
        file.sync().unwrap();
        assert!(
            contents(&file) == expected,
            "after the sync of {len} more bytes"
        );
    }
    drop(file);
    assert!(read(&volume, "a") == expected);
    drop(volume);
    let volume = mount(&device);
    assert!(read(&volume, "//a") == expected);
    volume.unmount().unwrap();
    assert_eq!(
        volume.open("/b", &CREATE).unwrap_err().kind(),
        ErrorKind::ReadOnly
    );
}

#[test]
fn names_behave_as_posix_has_them() {
    let device = device(8 << 20);
    let volume = fresh(&device);
    volume.create_dir("/d").unwrap();
    volume.create_dir("/d/e/").unwrap();
    assert_eq!(
        volume.create_dir("/d").unwrap_err().kind(),
        ErrorKind::Exists
    );
    assert_eq!(
        volume.create_dir("/x/y").unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let file = volume.open("/d/e/f", &CREATE).unwrap();
    file.append(b"one").unwrap();
    volume.link("/d/e/f", "/g").unwrap();
    assert_eq!(volume.status("/g").unwrap().links, 2);
    volume.rename("/d/e", "/h").unwrap();
    assert_eq!(read(&volume, "/h/f"), b"one");
    volume.remove("/h/f").unwrap();
    assert_eq!(
        volume.open("/h/f", &OPEN).unwrap_err().kind(),
        ErrorKind::NotFound
    );
    let other = volume.open("/k", &CREATE).unwrap();
    other.append(b"two").unwrap();
    volume.rename("/k", "/g").unwrap();
    // Both the replaced file and the one in its place can still be used.
    file.append(b"more").unwrap();
    assert_eq!(contents(&file), b"onemore");
    other.append(b"more").unwrap();
    assert_eq!(read(&volume, "/g"), b"twomore");
    assert_eq!(
        volume.remove_dir("/").unwrap_err().kind(),
        ErrorKind::InvalidPath
    );
    assert_eq!(
        volume.remove("/h").unwrap_err().kind(),
        ErrorKind::IsDirectory
    );
    assert_eq!(
        volume.remove_dir("/g").unwrap_err().kind(),
        ErrorKind::NotDirectory
    );
    volume.remove_dir("/h").unwrap();
    let names: Vec<_> = volume
        .read_dir("/")
        .unwrap()
        .into_iter()
        .map(|entry| (entry.name, entry.kind))
        .collect();
    assert_eq!(
        names,
        [
            ("d".to_owned(), Kind::Directory),
            ("g".to_owned(), Kind::File)
        ]
    );
    let lock = volume.lock("/LOCK").unwrap();
    assert_eq!(volume.lock("//LOCK").unwrap_err().kind(), ErrorKind::InUse);
    drop(lock);
    volume.lock("/LOCK").unwrap();
}

#[test]
fn space_comes_back_and_a_full_volume_says_so() {
    let device = device(4 << 20);
    let volume = fresh(&device);
    let before = volume.space();
    for round in 0..20 {
        let path = format!("/{round}");
        let file = volume.open(&path, &CREATE).unwrap();
        let block = pattern(round, 100_000);
        let error = loop {
            if let Err(error) = file.append(&block) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::NoSpace);
        let whole = file.size() / 100_000;
        assert_eq!(file.size() % 100_000, 0, "a refused append leaves nothing");
        assert!(
            whole * 100_000 > before.free_bytes * 9 / 10,
            "{whole} of {before:?}"
        );
        file.sync().unwrap();
        drop(file);
        assert_eq!(read(&volume, &path).len() as u64, whole * 100_000);
        volume.remove(&path).unwrap();
    }
    volume.sync().unwrap();
    drop(volume);
    let after = mount(&device).space();
    assert_eq!(after.free_bytes, before.free_bytes);
}
