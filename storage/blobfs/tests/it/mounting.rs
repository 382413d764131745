//! What a mount reads, writes, survives and refuses.

use std::ops::Range;
use std::sync::Arc;

use millrace_blobfs::{
    CheckOptions, ErrorKind, FormatOptions, MountOptions, Timestamp, Volume, check, dump,
};
use millrace_block::{Device, FileDevice, FileOptions, Image, MemoryDevice};
use millrace_fixtures::seeds;
use millrace_power_cut::{Counters, Kind, PowerCut, Survivors};

use crate::history::collect;
use crate::support::{mount, options, pattern};
use crate::{CREATE, OPEN, contents, read, write};

/// Blocks of a unit.
const UNIT: u64 = 8;

fn power_cut(bytes: u64) -> Arc<PowerCut> {
    let mut geometry = MemoryDevice::geometry_of(bytes, 512);
    geometry.volatile_cache = true;
    geometry.write_through = false;
    PowerCut::new(geometry).unwrap()
}

fn shared(device: &Arc<PowerCut>) -> Arc<dyn Device> {
    Arc::clone(device) as _
}

fn format(device: &Arc<PowerCut>, uuid: u8, data_checksums: bool) {
    let format = FormatOptions {
        journal_bytes: Some(512 << 10),
        data_checksums,
        ..FormatOptions::new([uuid; 16], Timestamp(1))
    };
    Volume::format(&shared(device), &format).unwrap();
}

/// The same device with its power off and on again. What was written is there.
fn restarted(device: &PowerCut) -> Arc<PowerCut> {
    PowerCut::on(device.live(), device.geometry().clone()).unwrap()
}

fn read_only(device: &Arc<PowerCut>) -> Volume {
    let options = MountOptions {
        read_only: true,
        ..options()
    };
    Volume::mount(shared(device), options).unwrap()
}

/// Files in all states, all synced: written back, written back in part, journaled. Not unmounted.
fn in_use(bytes: u64, data_checksums: bool) -> Arc<PowerCut> {
    let device = power_cut(bytes);
    format(&device, 3, data_checksums);
    let volume = mount(&shared(&device));
    for number in 0..40 {
        let file = volume.open(&format!("home{number}"), &CREATE).unwrap();
        file.append(&pattern(number, 100_000)).unwrap();
        file.sync().unwrap();
    }
    for number in 0..60 {
        volume.create_dir(&format!("{number:0>200}")).unwrap();
    }
    volume.unmount().unwrap();
    drop(volume);
    let volume = mount(&shared(&device));
    let mut open = Vec::new();
    for number in 0..20 {
        let file = volume.open(&format!("end{number}"), &CREATE).unwrap();
        file.append(&pattern(number, 70_001)).unwrap();
        file.sync().unwrap();
        file.append(&pattern(number + 1000, 333)).unwrap();
        file.sync().unwrap();
        open.push(file);
        let file = volume.open(&format!("journal{number}"), &CREATE).unwrap();
        file.append(&pattern(number, 2_000)).unwrap();
        file.sync().unwrap();
        open.push(file);
    }
    let restarted = restarted(&device);
    drop(open);
    restarted
}

fn check_files(volume: &Volume) {
    for number in 0..40 {
        assert!(read(volume, &format!("home{number}")) == pattern(number, 100_000));
    }
    for number in 0..20 {
        let mut expected = pattern(number, 70_001);
        expected.extend(pattern(number + 1000, 333));
        assert!(read(volume, &format!("end{number}")) == expected);
        assert!(read(volume, &format!("journal{number}")) == pattern(number, 2_000));
    }
}

/// Bytes of a file in a block.
const fn payload_bytes(data_checksums: bool) -> usize {
    if data_checksums { 504 } else { 512 }
}

/// The ranges of units in each line of a dump that begins so.
fn lines(device: &Arc<PowerCut>, begin: &str) -> Vec<Vec<Range<u64>>> {
    let mut text = Vec::new();
    dump(&shared(device), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let range = |word: &str| {
        let (start, end) = word.split_once("..")?;
        Some(start.parse().ok()?..end.parse().ok()?)
    };
    text.lines()
        .filter(|line| line.trim_start().starts_with(begin))
        .map(|line| line.split(' ').filter_map(range).collect())
        .collect()
}

/// All of them.
fn units(device: &Arc<PowerCut>, begin: &str) -> Vec<Range<u64>> {
    lines(device, begin).concat()
}

fn blocks(units: &Range<u64>) -> Range<u64> {
    units.start * UNIT..units.end * UNIT
}

fn mounted(device: &Arc<PowerCut>) -> (Volume, Counters) {
    let before = device.counters();
    let volume = mount(&shared(device));
    (volume, device.counters().since(&before))
}

#[test]
fn a_mount_reads_metadata_and_journal_whatever_the_size_of_the_device() {
    for data_checksums in [false, true] {
        let mut counts = Vec::new();
        for bytes in [16 << 20, 64 << 30] {
            let device = in_use(bytes, data_checksums);
            let checkpoint: u64 = units(&device, "copy")
                .iter()
                .map(|units| units.end - units.start)
                .sum();
            let device = restarted(&device);
            let (volume, count) = mounted(&device);
            check_files(&volume);
            let reads = count.of(Kind::Read);
            // Two superblocks, a copy of the checkpoint, the journal, and the first and the last block of the journaled data.
            let most = 2 * 4096 + checkpoint / 2 * 4096 + (512 << 10) + 40 * 2 * 512;
            assert!(reads.bytes <= most, "{reads:?}, not {most}");
            counts.push(reads);
            drop(volume);
            let (_, clean) = mounted(&restarted(&device));
            assert!(clean.of(Kind::Read).bytes <= most);
            // It is marked as in use.
            assert_eq!(clean.of(Kind::Write).requests, 2);
        }
        assert_eq!(counts[0], counts[1]);
    }
}

#[test]
fn a_mount_for_reading_shows_everything_and_writes_nothing() {
    for data_checksums in [false, true] {
        let device = in_use(32 << 20, data_checksums);
        let before = device.counters();
        let volume = read_only(&device);
        check_files(&volume);
        let file = volume.open("end3", &OPEN).unwrap();
        let mut expected = pattern(3, 70_001);
        expected.extend(pattern(1003, 333));
        let mut begun = file.start_read(69_000, 10_000).unwrap();
        assert!(begun.wait().unwrap() == &expected[69_000..]);
        drop(begun);
        let mut parts =
            [(69_990, 20), (70_001, 333), (100, 10)].map(|(offset, len)| (offset, vec![0; len]));
        let mut parts: Vec<_> = parts
            .iter_mut()
            .map(|(offset, out)| millrace_blobfs::ReadPart {
                offset: *offset,
                out,
                result: Ok(0),
            })
            .collect();
        file.read_many(&mut parts);
        for part in parts {
            let at = usize::try_from(part.offset).unwrap();
            assert_eq!(part.result.unwrap(), part.out.len());
            assert!(*part.out == expected[at..at + part.out.len()]);
        }
        let refused = [
            file.append(b"x"),
            file.write_at(0, b"x"),
            file.truncate(0),
            file.reserve(1 << 20),
            file.sync(),
            volume.create_dir("d"),
            volume.rename("end1", "end2"),
            volume.remove("end1"),
            volume.link("end1", "new"),
            volume.set_modified("end1", Timestamp(3)),
            volume.open("new", &CREATE).map(|_| ()),
            volume.lock("new").map(|_| ()),
        ];
        for (number, result) in refused.into_iter().enumerate() {
            assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnly, "{number}");
        }
        drop(file);
        volume.sync().unwrap();
        volume.unmount().unwrap();
        drop(volume);
        let since = device.counters().since(&before);
        assert_eq!(since.all(), since.of(Kind::Read));
        check_files(&mounted(&device).0);
    }
}

#[test]
fn either_superblock_may_be_unreadable() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        let last = device.geometry().blocks - UNIT;
        for bad in [0..1, 0..UNIT, last..last + 1, last..last + UNIT] {
            let device = restarted(&device);
            device.make_bad(bad.clone());
            check_files(&read_only(&device));
            let (volume, _) = mounted(&device);
            check_files(&volume);
            write(&volume, "after", b"x");
            drop(volume);
            // They were written again.
            device.make_good(&bad);
            let report = check(&shared(&device), CheckOptions::default(), &mut |_| {}).unwrap();
            assert!(report.findings.is_empty(), "{bad:?}: {:?}", report.findings);
        }
        device.make_bad(0..1);
        device.make_bad(last..last + 1);
        let error = Volume::mount(shared(&device), options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io, "{error:?}");
    }
}

#[test]
fn either_copy_of_the_checkpoint_may_be_unreadable() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        let copies = lines(&device, "copy");
        for copy in &copies {
            let device = restarted(&device);
            for units in copy {
                device.make_bad(blocks(units));
            }
            check_files(&read_only(&device));
            let (volume, _) = mounted(&device);
            check_files(&volume);
        }
        // The first block of each copy, and the end of the last.
        let ends: Vec<_> = copies
            .iter()
            .map(|copy| (copy[0].start * UNIT, copy[copy.len() - 1].end * UNIT))
            .collect();
        // A page here, and another one there.
        let damaged = restarted(&device);
        damaged.make_bad(ends[0].0..ends[0].0 + 1);
        damaged.make_bad(ends[1].1 - 1..ends[1].1);
        check_files(&mounted(&damaged).0);
        // A page in both: what it held is lost, and nothing is written before somebody has had it mended.
        let damaged = restarted(&device);
        for (_, end) in ends {
            damaged.make_bad(end - 1..end);
        }
        let error = Volume::mount(shared(&damaged), options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
        let before = damaged.counters();
        let volume = read_only(&damaged);
        let names = collect(&volume);
        assert!(names.len() > 20, "{names:?}");
        assert_eq!(
            damaged.counters().since(&before).of(Kind::Write).requests,
            0
        );
        drop(volume);
        let repair = CheckOptions {
            repair: true,
            ..CheckOptions::default()
        };
        let report = check(&shared(&damaged), repair, &mut |_| {}).unwrap();
        assert!(report.is_sound(), "{:?}", report.left);
        assert!(!collect(&mounted(&damaged).0).is_empty());
    }
}

#[test]
fn a_bad_block_of_a_file_costs_what_is_in_it() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        let (volume, _) = mounted(&device);
        let id = volume.status("home7").unwrap().id;
        let location = units(&restarted(&device), &format!("#{id} file"))[0].clone();
        let bad = location.start * UNIT + 20..location.start * UNIT + 21;
        let payload = payload_bytes(data_checksums);
        device.make_bad(bad.clone());
        let file = volume.open("home7", &OPEN).unwrap();
        let mut all = vec![0; 100_000];
        assert_eq!(file.read_at(0, &mut all).unwrap_err().kind(), ErrorKind::Io);
        let begun = file
            .start_read(20 * payload as u64, 10)
            .and_then(|mut read| read.wait().map(|_| ()));
        assert_eq!(begun.unwrap_err().kind(), ErrorKind::Io);
        for (offset, len) in [(0, 20 * payload), (21 * payload, 50_000)] {
            let mut part = vec![0; len];
            assert_eq!(file.read_at(offset as u64, &mut part).unwrap(), len);
            assert!(part == pattern(7, 100_000)[offset..offset + len]);
        }
        // All else goes on, and so does this file.
        file.append(b"more").unwrap();
        file.sync().unwrap();
        write(&volume, "other", b"x");
        volume.sync().unwrap();
        drop(file);
        volume.remove("home7").unwrap();
        drop(volume);
        let (volume, _) = mounted(&restarted(&device));
        assert!(read(&volume, "home8") == pattern(8, 100_000));
        assert!(read(&volume, "other") == b"x");
    }
}

#[test]
fn a_bad_block_where_carried_bytes_belong_costs_no_other_file() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        let id = {
            let volume = read_only(&device);
            volume.status("end4").unwrap().id
        };
        let location = units(&device, &format!("#{id} file"))[0].clone();
        // Its final location has the earlier bytes, and the journal the later ones.
        let payload = payload_bytes(data_checksums);
        let block = location.start * UNIT + (70_001 / payload) as u64;
        device.make_bad(block..block + 1);
        let (volume, _) = mounted(&device);
        for number in (0..20).filter(|number| *number != 4) {
            assert_eq!(read(&volume, &format!("end{number}")).len(), 70_334);
        }
        let file = volume.open("end4", &OPEN).unwrap();
        let mut out = vec![0; 70_001 / payload * payload];
        assert_eq!(file.read_at(0, &mut out).unwrap(), out.len());
        assert!(out == pattern(4, 70_001)[..out.len()]);
        let error = file.read_at(70_000, &mut out).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
    }
}

#[test]
fn a_journal_that_cannot_be_read_is_told() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        let journal = blocks(&units(&device, "journal  ")[0]);
        let repair = CheckOptions {
            repair: true,
            ..CheckOptions::default()
        };
        // Nothing is in its last block.
        let unused = restarted(&device);
        unused.make_bad(journal.end - 1..journal.end);
        check_files(&mounted(&unused).0);
        for (in_front, is_bad) in [(7, true), (7, false), (0, true)] {
            let at = journal.start + first_transaction(&device) + in_front;
            let damaged = if is_bad {
                let damaged = restarted(&device);
                damaged.make_bad(at..at + 1);
                damaged
            } else {
                let mut image = device.live();
                image.write(at * 512 + 40, b"damage");
                PowerCut::on(image, device.geometry().clone()).unwrap()
            };
            let error = Volume::mount(shared(&damaged), options()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{error:?}");
            assert!(error.to_string().contains("journal"), "{error}");
            let before = damaged.counters();
            let volume = read_only(&damaged);
            for number in 0..40 {
                assert!(read(&volume, &format!("home{number}")) == pattern(number, 100_000));
            }
            let names = collect(&volume);
            assert_eq!(names.contains_key("end0"), in_front > 0);
            assert!(!names.contains_key("journal19"));
            drop(volume);
            assert_eq!(
                damaged.counters().since(&before).of(Kind::Write).requests,
                0
            );
            if is_bad {
                continue;
            }
            let report = check(&shared(&damaged), repair, &mut |_| {}).unwrap();
            assert!(report.is_sound(), "{:?}", report.left);
            let repaired = PowerCut::on(damaged.live(), damaged.geometry().clone()).unwrap();
            assert_eq!(collect(&mounted(&repaired).0), names);
        }
    }
}

/// Where in the journal the first transaction is, in blocks.
fn first_transaction(device: &Arc<PowerCut>) -> u64 {
    let mut text = Vec::new();
    dump(&shared(device), &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let tail = text
        .lines()
        .find(|line| line.contains("journal tail"))
        .unwrap();
    tail.rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn one_process_has_a_volume() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk.img");
    FileDevice::create(&path, 16 << 20).unwrap();
    let open = || FileDevice::open(&path, FileOptions::default());
    let device: Arc<dyn Device> = Arc::new(open().unwrap());
    Volume::format(&device, &FormatOptions::new([1; 16], Timestamp(1))).unwrap();
    let volume = mount(&device);
    drop(device);
    write(&volume, "a", b"kept");
    let second = open().unwrap_err();
    assert_eq!(second.kind(), millrace_block::ErrorKind::InUse, "{second}");
    let file = volume.open("a", &OPEN).unwrap();
    drop(volume);
    // An open file is a share of the volume.
    assert_eq!(open().unwrap_err().kind(), millrace_block::ErrorKind::InUse);
    drop(file);
    let device: Arc<dyn Device> = Arc::new(open().unwrap());
    assert!(read(&mount(&device), "a") == b"kept");
}

#[test]
fn the_journal_of_an_earlier_volume_is_never_done_again() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        // Nothing of it is overwritten but superblocks and checkpoint.
        format(&device, 4, !data_checksums);
        let (volume, _) = mounted(&restarted(&device));
        assert!(collect(&volume).is_empty());
        drop(volume);
        let volume = mount(&shared(&device));
        for number in 0..30 {
            volume.create_dir(&format!("d{number}")).unwrap();
            volume.sync().unwrap();
            let restarted = restarted(&device);
            let names = collect(&mounted(&restarted).0);
            assert_eq!(names.len(), number + 1, "{names:?}");
        }
    }
}

#[test]
fn a_volume_that_is_made_over_another_is_the_one_or_the_other_or_none() {
    for data_checksums in [false, true] {
        for seed in seeds(0..1) {
            let device = in_use(16 << 20, data_checksums);
            let old = collect(&read_only(&device));
            device.settle();
            format(&device, 4, !data_checksums);
            let mut cursor = device.cursor();
            let mut seen = [0; 3];
            loop {
                for survivors in Survivors::ALL {
                    let image = cursor.image(survivors, seed * 1000 + cursor.point() as u64);
                    let disk = PowerCut::on(image, device.geometry().clone()).unwrap();
                    match Volume::mount(shared(&disk), options()) {
                        Ok(volume) if collect(&volume) == old => {
                            check_files(&volume);
                            seen[0] += 1;
                        }
                        Ok(volume) => {
                            assert!(collect(&volume).is_empty(), "event {}", cursor.point());
                            write(&volume, "a", b"new");
                            seen[1] += 1;
                        }
                        Err(error) => {
                            let is_none = matches!(
                                error.kind(),
                                ErrorKind::NotAVolume | ErrorKind::Corruption
                            );
                            assert!(is_none, "{error:?}");
                            format(&disk, 5, data_checksums);
                            assert!(collect(&mounted(&disk).0).is_empty());
                            seen[2] += 1;
                        }
                    }
                }
                if !cursor.advance() {
                    break;
                }
            }
            assert!(seen.iter().all(|&count| count > 0), "{seen:?}");
        }
    }
}

#[test]
fn a_device_may_have_grown_and_may_not_have_shrunk() {
    for data_checksums in [false, true] {
        let device = in_use(16 << 20, data_checksums);
        let mut bytes = vec![0; 16 << 20];
        device.live().read(0, &mut bytes);
        for (size, is_good) in [((16 << 20) + 1_048_576, true), ((16 << 20) - 4096, false)] {
            let mut image = Image::new(size);
            let len = bytes.len().min(usize::try_from(size).unwrap());
            image.write(0, &bytes[..len]);
            let disk: Arc<dyn Device> =
                Arc::new(MemoryDevice::on(image, MemoryDevice::geometry_of(size, 512)).unwrap());
            match Volume::mount(disk, options()) {
                Ok(volume) => {
                    assert!(is_good);
                    check_files(&volume);
                }
                Err(error) => {
                    assert!(!is_good);
                    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
                }
            }
        }
        let empty: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, 512).unwrap());
        let error = Volume::mount(empty, options()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotAVolume, "{error}");
    }
}

#[test]
fn a_volume_with_open_files_is_not_unmounted() {
    let device = power_cut(16 << 20);
    format(&device, 1, true);
    let volume = mount(&shared(&device));
    write(&volume, "a", &pattern(1, 100_000));
    let file = volume.open("a", &OPEN).unwrap();
    let read = file.start_read(0, 1000).unwrap();
    assert_eq!(volume.unmount().unwrap_err().kind(), ErrorKind::InUse);
    drop(file);
    assert_eq!(
        volume.unmount().unwrap_err().kind(),
        ErrorKind::InUse,
        "a read was begun"
    );
    drop(read);
    volume.unmount().unwrap();
    volume.unmount().unwrap();
    // What was there can be read still.
    assert!(contents(&volume.open("a", &OPEN).unwrap()) == pattern(1, 100_000));
    assert_eq!(
        volume.create_dir("d").unwrap_err().kind(),
        ErrorKind::ReadOnly
    );
    let before = device.counters();
    drop(volume);
    assert_eq!(device.counters().since(&before).of(Kind::Write).requests, 0);
}
