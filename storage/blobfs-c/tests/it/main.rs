//! The interface as a program in C sees it.

mod header;
mod program;

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use millrace_blobfs::{FormatOptions, MountOptions, Timestamp};
use millrace_blobfs_c::*;
use millrace_block::{Device, MemoryDevice};
use program::{Failed, File, Volume};

const CREATE: u32 = 1;
const CREATE_NEW: u32 = 2;
const TRUNCATE: u32 = 4;

const FORMAT_BLANK: u32 = 1;

fn volume() -> Volume {
    let options = OpenOptions {
        format: FORMAT_BLANK,
        ..OpenOptions::default()
    };
    Volume::open("mem:64M", options).expect("memory can be had")
}

/// Whether a call failed so.
fn is<T: std::fmt::Debug>(outcome: Result<T, Failed>, code: Code) -> bool {
    let failed = outcome.expect_err("it must fail");
    assert!(!failed.message.is_empty());
    failed.code == code as i32
}

#[test]
fn files_are_written_and_read() {
    let volume = volume();
    let file = volume.file("/a", CREATE).unwrap();
    file.append(b"hello ").unwrap();
    file.append(b"").unwrap();
    file.append(b"world").unwrap();
    assert_eq!(file.size(), 11);
    assert_eq!(file.read_at(0, 100).unwrap(), b"hello world");
    assert_eq!(file.read_at(6, 3).unwrap(), b"wor");
    assert_eq!(file.read_at(11, 5).unwrap(), b"");
    assert_eq!(file.read_at(1 << 40, 5).unwrap(), b"");
    assert_eq!(file.read_at(0, 0).unwrap(), b"");
    file.write_at(0, b"J").unwrap();
    file.write_at(12, b"!").unwrap();
    assert_eq!(file.read_at(0, 100).unwrap(), b"Jello world\0!");
    file.truncate(5).unwrap();
    file.truncate(7).unwrap();
    assert_eq!(file.read_at(0, 100).unwrap(), b"Jello\0\0");
    file.reserve(1 << 20).unwrap();
    file.write_behind().unwrap();
    file.sync().unwrap();
    let status = file.status().unwrap();
    assert_eq!((status.size, status.links, status.kind), (7, 1, 0));
    assert!(is(file.reserve(1 << 40), Code::NoSpace));
}

#[test]
fn many_parts_and_reads_under_way_give_what_single_reads_give() {
    let volume = volume();
    let file = volume.file("/a", CREATE).unwrap();
    let contents: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7 % 251) as u8).collect();
    file.append(&contents).unwrap();
    for round in ["with a tail in memory", "synced"] {
        let places = [
            (0, 10),
            (4095, 2),
            (1_000_003, 300_000),
            (2_999_990, 100),
            (3_000_000, 9),
            (17, 0),
        ];
        let expected = places.map(|(offset, length)| {
            let start = usize::try_from(offset).unwrap().min(contents.len());
            contents[start..(start + length).min(contents.len())].to_vec()
        });
        let parts = file.read_many(&places).unwrap();
        for ((part, expected), place) in parts.into_iter().zip(&expected).zip(places) {
            assert_eq!(part.as_ref(), Ok(expected), "{round}, {place:?}");
        }
        let started = places.map(|(offset, length)| file.start_read(offset, length).unwrap());
        for ((mut read, expected), place) in started.into_iter().zip(&expected).zip(places) {
            // Whether it is done yet is the device's affair.
            let _ = read.is_done().unwrap();
            assert_eq!(&read.wait().unwrap(), expected, "{round}, {place:?}");
            assert!(read.is_done().unwrap());
            assert_eq!(&read.wait().unwrap(), expected, "{round}, {place:?}, again");
        }
        // Reads that nobody waits for are given up, and outlive the file's handle.
        let other = volume.file("/a", 0).unwrap();
        let abandoned = other.start_read(0, 100_000).unwrap();
        drop(other);
        drop(abandoned);
        file.sync().unwrap();
    }
    assert!(file.read_many(&[]).unwrap().is_empty());
}

#[test]
fn names_come_and_go() {
    let volume = volume();
    volume.create_dir("/d").unwrap();
    assert!(is(volume.create_dir("d"), Code::Exists));
    assert!(is(volume.create_dir("/no/d"), Code::NotFound));
    let file = volume.file("/d//a", CREATE_NEW).unwrap();
    assert!(is(volume.file("/d/a", CREATE_NEW), Code::Exists));
    assert!(is(volume.file("/d", 0), Code::IsDirectory));
    assert!(is(volume.file("/none", 0), Code::NotFound));
    file.append(b"kept").unwrap();
    file.sync().unwrap();
    volume.link("/d/a", "/d/b").unwrap();
    assert!(is(volume.link("/d/a", "/d/b"), Code::Exists));
    assert_eq!(volume.status(b"/d/b").unwrap().links, 2);
    assert_eq!(
        volume.status(b"/d/b").unwrap().id,
        volume.status(b"/d/a").unwrap().id
    );
    volume.rename("/d/a", "/d/c").unwrap();
    volume.set_modified("/d/c", 1_234_567).unwrap();
    assert_eq!(volume.status(b"/d/b").unwrap().modified_ms, 1_234_567);
    volume.create_dir("/d/e").unwrap();
    let mut entries = volume.read_dir("/d/").unwrap();
    entries.sort();
    let names = [("b", 0), ("c", 0), ("e", 1)];
    assert_eq!(entries, names.map(|(name, kind)| (name.to_owned(), kind)));
    assert!(is(volume.read_dir("/d/b"), Code::NotDirectory));
    assert!(is(volume.remove("/d/e"), Code::IsDirectory));
    assert!(is(volume.remove_dir("/d"), Code::NotEmpty));
    volume.remove_dir("/d/e").unwrap();
    volume.remove("/d/b").unwrap();
    volume.remove("/d/c").unwrap();
    assert!(is(volume.remove("/d/c"), Code::NotFound));
    // Without a name the file still exists for open handles.
    assert_eq!(file.read_at(0, 9).unwrap(), b"kept");
    drop(file);
    volume.remove_dir("/d").unwrap();
    volume.sync().unwrap();
    assert!(volume.read_dir("").unwrap().is_empty());
}

#[test]
fn opening_can_empty_a_file() {
    let volume = volume();
    volume.file("/a", CREATE).unwrap().append(b"old").unwrap();
    assert_eq!(volume.file("/a", CREATE).unwrap().size(), 3);
    assert_eq!(volume.file("/a", CREATE | TRUNCATE).unwrap().size(), 0);
}

#[test]
fn a_lock_excludes_until_it_is_given_back() {
    let volume = volume();
    let lock = volume.lock("/LOCK").unwrap();
    assert!(is(volume.lock("/LOCK"), Code::InUse));
    assert!(volume.lock("/LOCK2").is_ok());
    drop(lock);
    drop(volume.lock("/LOCK").unwrap());
    assert_eq!(volume.status(b"/LOCK").unwrap().size, 0);
}

#[test]
fn a_volume_says_what_it_has_and_did() {
    let volume = volume();
    assert_eq!(volume.block_bytes() % 512, 0);
    let before = volume.space();
    assert!(
        before.total_bytes > 32 << 20 && before.free_bytes <= before.total_bytes,
        "{before:?}"
    );
    let file = volume.file("/a", CREATE).unwrap();
    file.append(&vec![7; 4 << 20]).unwrap();
    file.sync().unwrap();
    let after = volume.space();
    assert!(
        after.free_bytes <= before.free_bytes - (4 << 20),
        "{before:?} {after:?}"
    );
    let counters = volume.counters();
    assert!(
        counters.writes >= 1 && counters.write_bytes >= 4 << 20,
        "{counters:?}"
    );
    assert!(
        counters.syncs >= 1 && counters.transactions >= 1,
        "{counters:?}"
    );
}

#[test]
fn handles_may_be_given_back_in_any_order() {
    let volume = volume();
    let file = volume.file("/a", CREATE).unwrap();
    let lock = volume.lock("/LOCK").unwrap();
    drop(volume);
    file.append(b"still here").unwrap();
    assert_eq!(file.read_at(0, 100).unwrap(), b"still here");
    drop(file);
    drop(lock);
}

#[test]
fn after_an_unmount_everything_is_refused() {
    let volume = volume();
    let file = volume.file("/a", CREATE).unwrap();
    file.append(b"x").unwrap();
    assert!(is(volume.unmount(), Code::InUse));
    drop(file);
    volume.unmount().unwrap();
    assert!(volume.file("/b", CREATE).is_err());
    assert!(volume.rename("/a", "/b").is_err());
}

#[test]
fn what_makes_no_sense_is_refused_and_explained() {
    let never = OpenOptions::default();
    assert!(is(Volume::open("mem:16M", never), Code::NotAVolume));
    for spec in ["", "floppy:", "floppy:1", "mem"] {
        let failed = Volume::open(spec, never).expect_err(spec);
        assert_eq!(failed.code, Code::Invalid as i32, "{failed:?}");
    }
    let strange = OpenOptions { format: 3, ..never };
    assert!(is(Volume::open("mem:16M", strange), Code::Invalid));
    let contradictory = OpenOptions {
        format: FORMAT_BLANK,
        read_only: 1,
        ..never
    };
    assert!(is(Volume::open("mem:16M", contradictory), Code::Invalid));
    let volume = volume();
    assert!(is(volume.file("/a", 8), Code::Invalid));
    assert!(is(volume.status(b"/\xFF"), Code::InvalidPath));
    assert!(is(volume.file(&"x".repeat(300), CREATE), Code::InvalidPath));
    // A text that is longer than the room is cut between two characters.
    let failed = volume
        .file(&"ß/".repeat(400), 0)
        .expect_err("there is none");
    assert!(failed.message.len() < 508, "{failed:?}");
}

#[test]
fn null_is_refused_where_it_must_not_be() {
    let volume = volume();
    let file = volume.file("/a", CREATE).unwrap();
    let (none, error) = (ptr::null_mut(), ptr::null_mut());
    // SAFETY: the call checks the volume for null, and writes no error through a null `error`.
    let unmounted = unsafe { millrace_blobfs_unmount(ptr::null(), error) };
    // SAFETY: the call checks the file for null, and writes no error through a null `error`.
    let synced = unsafe { millrace_blobfs_file_sync(ptr::null(), error) };
    // SAFETY: `file` is open until the end of the test, and the call checks the data for null.
    let appended = unsafe { millrace_blobfs_append(file.0, ptr::null(), 1, error) };
    // SAFETY: `volume` is open until the end of the test, and the call checks the output for null.
    let asked = unsafe { millrace_blobfs_get_space(volume.0, ptr::null_mut(), error) };
    // SAFETY: `file` is open until the end of the test; a null buffer of 0 bytes is valid, and the output is checked.
    let read = unsafe { millrace_blobfs_read_at(file.0, 0, none, 0, ptr::null_mut(), error) };
    // SAFETY: the call checks the read for null before it uses the output.
    let polled = unsafe { millrace_blobfs_read_poll(ptr::null_mut(), ptr::null_mut(), error) };
    // SAFETY: the call checks the spec for null; null options are the defaults.
    let opened =
        unsafe { millrace_blobfs_open(ptr::null(), 5, ptr::null(), ptr::null_mut(), error) };
    for code in [unmounted, synced, appended, asked, read, polled, opened] {
        assert_eq!(code, Code::Invalid as i32);
    }
    // SAFETY: `file` is open until the end of the test; null data of 0 bytes are valid.
    let nothing_appended = unsafe { millrace_blobfs_append(file.0, ptr::null(), 0, error) };
    assert_eq!(nothing_appended, 0);
    // SAFETY: the size of a null file is 0; nothing is dereferenced.
    let size = unsafe { millrace_blobfs_file_size(ptr::null()) };
    // SAFETY: the block size of a null volume is 0; nothing is dereferenced.
    let block_bytes = unsafe { millrace_blobfs_block_bytes(ptr::null()) };
    // SAFETY: the length of a null listing is 0; nothing is dereferenced.
    let length = unsafe { millrace_blobfs_listing_length(ptr::null()) };
    assert_eq!((size, block_bytes, length), (0, 0, 0));
}

#[test]
fn giving_null_back_does_nothing() {
    // SAFETY: to close a null volume is defined to do nothing.
    unsafe { millrace_blobfs_close(ptr::null_mut()) };
    // SAFETY: to close a null file is defined to do nothing.
    unsafe { millrace_blobfs_file_close(ptr::null_mut()) };
    // SAFETY: to release a null lock is defined to do nothing.
    unsafe { millrace_blobfs_unlock(ptr::null_mut()) };
    // SAFETY: to free a null read is defined to do nothing.
    unsafe { millrace_blobfs_read_free(ptr::null_mut()) };
    // SAFETY: to free a null listing is defined to do nothing.
    unsafe { millrace_blobfs_listing_free(ptr::null_mut()) };
}

#[test]
fn a_panic_comes_back_as_a_code_and_poisons() {
    let panics = Arc::new(AtomicBool::new(false));
    let armed = Arc::clone(&panics);
    let clock: millrace_blobfs::Clock = Arc::new(move || {
        assert!(!armed.load(Ordering::Relaxed), "a clock that stopped");
        Timestamp(1)
    });
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, 512).unwrap());
    millrace_blobfs::Volume::format(&device, &FormatOptions::new([1; 16], Timestamp(1))).unwrap();
    let mounted = millrace_blobfs::Volume::mount(device, MountOptions::new(clock)).unwrap();
    let volume = Volume(VolumeHandle::into_raw(mounted));
    let file = volume.file("/a", CREATE).unwrap();
    panics.store(true, Ordering::Relaxed);
    assert!(is(file.append(b"x"), Code::Panic));
    panics.store(false, Ordering::Relaxed);
    assert!(is(file.append(b"x"), Code::Poisoned));
    assert!(is(file.read_at(0, 1), Code::Poisoned));
    assert!(is(volume.sync(), Code::Poisoned));
    // Handles are still given back, whatever state their insides are in.
    drop(file);
    drop(volume);
}

#[test]
fn threads_share_volumes_and_files() {
    const THREADS: u8 = 8;
    const RECORDS: usize = 50;
    let volume = volume();
    let shared = volume.file("/shared", CREATE).unwrap();
    let work = |number: u8, volume: &Volume, shared: &File| {
        let own = volume.file(&format!("/{number}"), CREATE).unwrap();
        for _ in 0..RECORDS {
            shared.append(&[number; 100]).unwrap();
            own.append(&[number; 1000]).unwrap();
            own.sync().unwrap();
            shared.sync().unwrap();
        }
        assert_eq!(
            own.read_at(0, 1 << 20).unwrap(),
            vec![number; 1000 * RECORDS]
        );
    };
    thread::scope(|scope| {
        for number in 0..THREADS {
            let (volume, shared) = (&volume, &shared);
            scope.spawn(move || work(number, volume, shared));
        }
    });
    let contents = shared.read_at(0, 1 << 20).unwrap();
    assert_eq!(contents.len(), usize::from(THREADS) * RECORDS * 100);
    // Each append is there as a whole.
    let mut counts = [0; THREADS as usize];
    for record in contents.chunks(100) {
        assert!(record.iter().all(|byte| *byte == record[0]));
        counts[usize::from(record[0])] += 1;
    }
    assert_eq!(counts, [RECORDS; THREADS as usize]);
}
