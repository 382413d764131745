//! Volumes that are damaged in all ways, what a check says of them, and what a repair leaves.

use std::collections::BTreeMap;
use std::sync::Arc;

use millrace_blobfs::{
    Area, CheckOptions, ErrorKind, Kind, OpenOptions, Report, Severity, Volume, check, dump,
};
use millrace_block::{Device, Image, MemoryDevice};
use millrace_power_cut::{PowerCut, Survivors};

use crate::support::{Rng, fresh_with, mount, options, pattern};

const UNIT: u64 = 4096;
const UNITS: u64 = 2048;
const CREATE: OpenOptions = OpenOptions {
    create: true,
    create_new: false,
    truncate: false,
};
const REPAIR: CheckOptions = CheckOptions {
    repair: true,
    read_data: false,
};
const READ: CheckOptions = CheckOptions {
    repair: false,
    read_data: true,
};

/// Paths of files and what is in them.
type Contents = BTreeMap<String, Vec<u8>>;

fn memory() -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(UNITS * UNIT, 512).expect("a good geometry"))
}

fn on(image: Image) -> Arc<dyn Device> {
    let geometry = MemoryDevice::geometry_of(UNITS * UNIT, 512);
    Arc::new(MemoryDevice::on(image, geometry).expect("a good geometry"))
}

fn run(device: &Arc<dyn Device>, options: CheckOptions) -> Report {
    check(device, options, &mut |progress| {
        assert!(progress.done_bytes <= progress.total_bytes, "{progress:?}");
    })
    .expect("the volume can be checked")
}

fn texts(report: &Report) -> Vec<String> {
    report.findings.iter().map(ToString::to_string).collect()
}

/// A volume with `files` files in a directory, and what is in them; unmounted in order.
fn filled(device: &Arc<dyn Device>, files: u16) -> Contents {
    filled_with(device, files, false)
}

/// The same with checksums of data or without.
fn filled_with(device: &Arc<dyn Device>, files: u16, data_checksums: bool) -> Contents {
    let volume = fresh_with(device, data_checksums);
    volume.create_dir("/db").expect("it is new");
    let mut contents = Contents::new();
    for number in 0..files {
        let path = format!("/db/{number:06}.sst");
        let bytes = pattern(u64::from(number), 100 + 1000 * usize::from(number % 9));
        write(&volume, &path, &bytes);
        contents.insert(path, bytes);
    }
    volume.unmount().expect("the device is good");
    contents
}

fn write(volume: &Volume, path: &str, bytes: &[u8]) {
    let file = volume.open(path, &CREATE).expect("the name is good");
    file.append(bytes).expect("there is room");
    file.sync().expect("the device is good");
}

/// All files of a volume, by path.
fn read_all(volume: &Volume) -> Contents {
    let mut contents = Contents::new();
    let mut open = vec![String::new()];
    while let Some(directory) = open.pop() {
        for entry in volume
            .read_dir(&format!("{directory}/"))
            .expect("it was listed")
        {
            let path = format!("{directory}/{}", entry.name);
            if entry.kind == Kind::Directory {
                open.push(path);
                continue;
            }
            let file = volume
                .open(&path, &OpenOptions::default())
                .expect("it was listed");
            let mut bytes = vec![0; usize::try_from(file.size()).expect("it is small")];
            let len = file.read_at(0, &mut bytes).expect("its blocks are good");
            assert_eq!(len, bytes.len());
            contents.insert(path, bytes);
        }
    }
    contents
}

/// The bytes of a device, to be spoilt.
struct Bytes(Image);

impl Bytes {
    fn of(device: &Arc<dyn Device>) -> Self {
        let mut image = Image::new(UNITS * UNIT);
        let mut queue = device.queue().expect("there is one");
        let arena = support_arena(device);
        for unit in 0..UNITS {
            let buffer = arena.try_buffer(4096).expect("one is free");
            let lba = millrace_block::Lba(unit * 8);
            let request = millrace_block::Request::read(lba, buffer, 0);
            let completion = queue.run(request).expect("the queue is empty");
            completion.result.expect("no block is bad");
            image.write(unit * UNIT, &completion.buffer.expect("it comes back"));
        }
        Self(image)
    }

    fn read(&self, offset: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read(offset, &mut bytes);
        bytes
    }

    fn u32(&self, offset: u64) -> u32 {
        u32::from_le_bytes(self.read(offset, 4).try_into().expect("four bytes"))
    }

    fn u64(&self, offset: u64) -> u64 {
        u64::from_le_bytes(self.read(offset, 8).try_into().expect("eight bytes"))
    }

    fn flip(&mut self, offset: u64) {
        let byte = self.read(offset, 1)[0];
        self.0.write(offset, &[byte ^ 0x10]);
    }

    /// The units of a copy of the checkpoint, as the first superblock says.
    fn checkpoint_units(&self, copy: usize) -> Vec<u64> {
        let counts = [self.u32(200), self.u32(204)];
        let first = if copy == 0 { 0 } else { counts[0] };
        (first..first + counts[copy])
            .flat_map(|index| {
                let at = 256 + 8 * u64::from(index);
                let start = u64::from(self.u32(at));
                start..start + u64::from(self.u32(at + 4))
            })
            .collect()
    }

    /// The byte at which the journal's oldest transaction begins.
    fn journal_tail(&self) -> u64 {
        UNIT + self.u64(160) * 512
    }

    /// Replaces a number that stands in a record of page `page` in both copies of the checkpoint, and makes
    /// all checksums right again.
    fn forge(&mut self, page: usize, edit: impl Fn(&mut [u8])) {
        let key = millrace_checksum::crc32c(&self.read(32, 16));
        let count = self.checkpoint_units(0).len();
        let mut checksum = 0;
        for copy in 0..2 {
            let unit = self.checkpoint_units(copy)[page];
            let mut bytes = self.read(unit * UNIT, 4096);
            edit(&mut bytes);
            let own = millrace_checksum::extend(key, &bytes[8..]);
            bytes[4..8].copy_from_slice(&own.to_le_bytes());
            self.0.write(unit * UNIT, &bytes);
        }
        for page in 0..count {
            let own = self.read(self.checkpoint_units(0)[page] * UNIT + 4, 4);
            checksum = millrace_checksum::extend(checksum, &own);
        }
        for unit in [0, UNITS - 1] {
            let mut bytes = self.read(unit * UNIT, 4096);
            bytes[192..196].copy_from_slice(&checksum.to_le_bytes());
            let own = millrace_checksum::crc32c(&bytes[12..]);
            bytes[8..12].copy_from_slice(&own.to_le_bytes());
            self.0.write(unit * UNIT, &bytes);
        }
    }

    fn device(&self) -> Arc<dyn Device> {
        on(self.0.clone())
    }
}

fn support_arena(device: &Arc<dyn Device>) -> millrace_memory::Arena {
    let options = millrace_memory::ArenaOptions {
        classes: vec![millrace_memory::SizeClass {
            size: 4096,
            count: 4,
        }],
        locked: false,
        ..millrace_memory::ArenaOptions::default()
    };
    millrace_memory::Arena::new(Arc::clone(device.domain()), &options).expect("memory is there")
}

/// Checks, repairs, and returns what is in the volume then, which must be sound.
fn repaired(device: &Arc<dyn Device>) -> (Report, Contents) {
    let before = Bytes::of(device);
    let looked = run(device, CheckOptions::default());
    let after = Bytes::of(device);
    assert!(
        before.read(0, 8 << 20) == after.read(0, 8 << 20),
        "a check writes nothing"
    );
    let report = run(device, REPAIR);
    let missed = looked
        .findings
        .iter()
        .find(|it| !report.findings.contains(it));
    assert_eq!(missed, None, "a repair finds what a check finds");
    assert!(report.is_sound(), "{report:?}");
    assert_eq!(run(device, READ).findings, []);
    let contents = read_all(&mount(device));
    assert_eq!(run(device, READ).findings, []);
    (looked, contents)
}

#[test]
fn a_sound_volume() {
    for data_checksums in [false, true] {
        let device = memory();
        let contents = filled_with(&device, 30, data_checksums);
        let report = run(&device, READ);
        assert_eq!(texts(&report), [""; 0]);
        assert!(report.is_sound() && report.is_clean_unmount && report.left.is_none());
        assert_eq!((report.files, report.directories), (30, 2));
        assert_eq!(report.transactions, 0);
        let held: u64 = contents
            .values()
            .map(|bytes| {
                let payload = if data_checksums { 504 } else { 512 };
                (bytes.len().div_ceil(payload) as u64 * 512).next_multiple_of(UNIT)
            })
            .sum();
        assert_eq!(report.data_bytes, held);
        let repaired = run(&device, REPAIR);
        assert_eq!(repaired, report, "there is nothing to repair");
        let mut text = Vec::new();
        dump(&device, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in [
            "generation",
            "\"000029.sst\"",
            "directory \"/db\"",
            "0 transactions",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(!text.contains("findings"));
    }
}

#[test]
fn a_volume_that_was_not_unmounted() {
    for data_checksums in [false, true] {
        let device = memory();
        let contents = filled_with(&device, 10, data_checksums);
        let volume = mount(&device);
        write(&volume, "/db/last", b"few bytes");
        volume.rename("/db/000001.sst", "/db/moved").unwrap();
        volume.sync().unwrap();
        let cut = Bytes::of(&device).device();
        drop(volume);
        let report = run(&cut, CheckOptions::default());
        assert_eq!(texts(&report), [""; 0]);
        assert!(!report.is_clean_unmount && report.transactions > 0);
        assert_eq!(report.files, 11);
        let mut text = Vec::new();
        dump(&cut, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        for part in ["creation of", "\"moved\"", "bytes 0..9", "transaction "] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert_eq!(read_all(&mount(&cut)).len(), contents.len() + 1);
    }
}

#[test]
fn superblocks() {
    for data_checksums in [false, true] {
        let device = memory();
        let contents = filled_with(&device, 10, data_checksums);
        let whole = Bytes::of(&device);
        for unit in [0, UNITS - 1] {
            // Nothing there, and something damaged.
            let mut bytes = Bytes::of(&device);
            bytes.0.zero(unit * UNIT, UNIT);
            let (report, found) = repaired(&bytes.device());
            assert_eq!(report.findings[0].severity, Severity::Damage);
            assert_eq!(report.findings[0].area, Area::Superblock);
            assert_eq!((report.findings.len(), found), (1, contents.clone()));
            let mut bytes = Bytes::of(&device);
            bytes.flip(unit * UNIT + 1000);
            let report = run(&bytes.device(), CheckOptions::default());
            assert_eq!(report.findings[0].severity, Severity::Note);
            assert!(report.is_sound());
            assert_eq!(read_all(&mount(&bytes.device())), contents);
        }
        let mut none = whole;
        none.0.zero(0, UNIT);
        let mut bytes = Bytes(none.0.clone());
        bytes.0.zero((UNITS - 1) * UNIT, UNIT);
        for options in [CheckOptions::default(), REPAIR] {
            let error = check(&bytes.device(), options, &mut |_| {}).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::NotAVolume);
        }
        none.flip((UNITS - 1) * UNIT + 100);
        let error = check(&none.device(), REPAIR, &mut |_| {}).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}

#[test]
fn one_copy_of_the_checkpoint() {
    for data_checksums in [false, true] {
        let device = memory();
        let contents = filled_with(&device, 300, data_checksums);
        let pages = Bytes::of(&device).checkpoint_units(0).len();
        assert!(pages > 4);
        for copy in 0..2 {
            let mut bytes = Bytes::of(&device);
            for page in (0..pages).filter(|page| page % 2 == copy) {
                let unit = bytes.checkpoint_units(copy)[page];
                bytes.flip(unit * UNIT + 40);
            }
            // And the others in the other copy.
            if copy == 1 {
                let unit = bytes.checkpoint_units(0)[0];
                bytes.flip(unit * UNIT + 40);
            }
            assert_eq!(read_all(&mount(&bytes.device())), contents);
            let (report, found) = repaired(&bytes.device());
            assert_eq!(found, contents);
            assert_eq!(report.findings.len(), 1 + copy, "{:?}", texts(&report));
            let damaged = |it: &millrace_blobfs::Finding| {
                it.severity == Severity::Damage && it.area == Area::Checkpoint
            };
            assert!(report.findings.iter().all(damaged));
        }
    }
}

#[test]
fn both_copies_of_the_checkpoint() {
    for data_checksums in [false, true] {
        let device = memory();
        let contents = filled_with(&device, 300, data_checksums);
        let pages = Bytes::of(&device).checkpoint_units(0).len();
        for page in 0..pages {
            let mut bytes = Bytes::of(&device);
            for copy in 0..2 {
                let unit = bytes.checkpoint_units(copy)[page];
                bytes.flip(unit * UNIT + 4000);
            }
            let device = bytes.device();
            let refused = Volume::mount(Arc::clone(&device), options()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corruption);
            let (report, found) = repaired(&device);
            assert!(!report.is_sound());
            let text = texts(&report).join("\n");
            let mut moved = 0;
            for (path, content) in &contents {
                if found.get(path) == Some(content) {
                    continue;
                }
                // Lost, and said so, or without its name.
                let nameless = found
                    .iter()
                    .find(|(path, found)| path.starts_with("/lost+found/") && *found == content);
                moved += usize::from(nameless.is_some());
                // A directory without its name takes its files with it.
                let said = nameless.map_or(path.as_str(), |(nameless, _)| {
                    let above = nameless.match_indices('/').nth(2);
                    above.map_or(nameless.as_str(), |(end, _)| &nameless[..end])
                });
                assert!(text.contains(said), "{said} is not in {text}");
            }
            let intact = contents
                .iter()
                .filter(|(path, _)| found.contains_key(*path));
            assert!(intact.count() + moved > 150, "page {page} costs too much");
            assert!(found.len() <= contents.len());
        }
    }
}

#[test]
fn the_journal() {
    for data_checksums in [false, true] {
        let device = memory();
        let mut contents = filled_with(&device, 5, data_checksums);
        let volume = mount(&device);
        for number in 0..20 {
            write(&volume, &format!("/new {number}"), &pattern(number, 300));
        }
        let mut bytes = Bytes::of(&device);
        drop(volume);
        // The third transaction, wherever it is: all that follow are lost.
        let tail = bytes.journal_tail();
        let mut position = tail;
        for _ in 0..2 {
            let length = u64::from(bytes.u32(position + 12)) + 32;
            position += length.next_multiple_of(512);
        }
        bytes.flip(position + 50);
        let device = bytes.device();
        let refused = Volume::mount(Arc::clone(&device), options()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Corruption);
        let (report, found) = repaired(&device);
        assert_eq!(report.transactions, 2);
        assert_eq!(report.findings.len(), 1, "{:?}", texts(&report));
        assert_eq!(report.findings[0].severity, Severity::Loss);
        assert_eq!(report.findings[0].area, Area::Journal);
        let kept: Vec<&String> = found
            .keys()
            .filter(|path| path.starts_with("/new"))
            .collect();
        assert!((1..=2).contains(&kept.len()), "{kept:?}");
        for (path, bytes) in found.iter().filter(|(path, _)| path.starts_with("/new")) {
            contents.insert(path.clone(), bytes.clone());
        }
        assert_eq!(found, contents);

        // What is left of the lost transactions is never taken for one that comes later.
        let volume = mount(&device);
        for number in 0..20 {
            let path = format!("/newer {number}");
            write(&volume, &path, &pattern(number, 300));
            contents.insert(path, pattern(number, 300));
            let cut = Bytes::of(&device).device();
            assert_eq!(texts(&run(&cut, CheckOptions::default())), [""; 0]);
        }
        let cut = Bytes::of(&device).device();
        drop(volume);
        assert_eq!(read_all(&mount(&cut)), contents);
    }
}

#[test]
fn files_that_share_units() {
    let device = memory();
    let contents = filled(&device, 8);
    let mut bytes = Bytes::of(&device);
    let page = bytes.read(bytes.checkpoint_units(0)[0] * UNIT, 4096);
    // Two files of several units: in their records the size is followed by time, count of extents, and
    // extents.
    let record = |size: u64| {
        let size = size.to_le_bytes();
        page.windows(8).position(|bytes| bytes == size).unwrap()
    };
    let (first, second) = (record(6100), record(7100));
    let extent = page[first + 20..first + 28].to_vec();
    bytes.forge(0, |page| {
        assert_eq!(page[second + 16], 1, "it has one extent");
        page[second + 20..second + 28].copy_from_slice(&extent);
    });
    let device = bytes.device();
    assert_eq!(
        Volume::mount(Arc::clone(&device), options())
            .unwrap_err()
            .kind(),
        ErrorKind::Corruption
    );
    let (report, found) = repaired(&device);
    let text = texts(&report).join("\n");
    assert!(text.contains("shares units with another"), "{text}");
    for (path, content) in &contents {
        if path == "/db/000007.sst" {
            assert_eq!(found[path], b"");
        } else {
            assert_eq!(&found[path], content);
        }
    }
}

#[test]
fn bad_blocks() {
    let geometry = MemoryDevice::geometry_of(UNITS * UNIT, 512);
    let disk = PowerCut::new(geometry).unwrap();
    let device: Arc<dyn Device> = disk.clone();
    let contents = filled(&device, 60);
    let mut text = Vec::new();
    dump(&device, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains("file, 7100 bytes"))
        .unwrap();
    let units = line.split("units ").nth(1).unwrap();
    let unit: u64 = units.split("..").next().unwrap().parse().unwrap();
    // In the second unit of a file.
    disk.make_bad(unit * 8 + 11..unit * 8 + 12);
    assert_eq!(texts(&run(&device, CheckOptions::default())), [""; 0]);
    for repair in [false, true] {
        let options = CheckOptions {
            repair,
            read_data: true,
        };
        let report = run(&device, options);
        let text = texts(&report).join("\n");
        assert_eq!(
            (report.findings.len(), report.is_sound()),
            (1, false),
            "{text}"
        );
        assert_eq!(report.left, None);
        assert!(
            text.contains("/db/000007.sst: bytes 4096..7100 cannot be read"),
            "{text}"
        );
    }
    disk.make_good(&(unit * 8 + 11..unit * 8 + 12));

    // In one copy of the checkpoint.
    let unit = Bytes::of(&device).checkpoint_units(0)[0];
    disk.make_bad(unit * 8..unit * 8 + 1);
    let report = run(&device, REPAIR);
    assert!(
        texts(&report)[0].contains("pages 0 of the first copy"),
        "{report:?}"
    );
    assert!(report.is_sound(), "{report:?}");
    disk.make_good(&(unit * 8..unit * 8 + 1));

    // In the journal, where nothing is written yet: it cannot be mended, but does no harm.
    disk.make_bad(8 + 100..8 + 102);
    let report = run(&device, REPAIR);
    let text = texts(&report).join("\n");
    assert!(text.contains("blocks 100 to 101 are unreadable"), "{text}");
    assert!(!report.is_sound());
    assert_eq!(read_all(&mount(&device)), contents);
}

#[test]
fn a_device_that_ends_too_early() {
    let device = memory();
    filled(&device, 3);
    let mut image = Image::new(UNITS * UNIT / 2);
    image.write(0, &Bytes::of(&device).read(0, 4 << 20));
    let geometry = MemoryDevice::geometry_of(UNITS * UNIT / 2, 512);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::on(image, geometry).unwrap());
    let error = check(&device, REPAIR, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption);
}

#[test]
fn a_device_that_has_grown() {
    let device = memory();
    let contents = filled(&device, 3);
    let mut image = Image::new(UNITS * UNIT * 2);
    image.write(0, &Bytes::of(&device).read(0, 8 << 20));
    let geometry = MemoryDevice::geometry_of(UNITS * UNIT * 2, 512);
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::on(image, geometry).unwrap());
    assert_eq!(run(&device, READ).findings, []);
    assert_eq!(read_all(&mount(&device)), contents);
    assert_eq!(run(&device, READ).findings, []);
}

/// A volume that has lost a page in both copies, and has data in its journal.
fn damaged(data_checksums: bool) -> (Image, Contents) {
    let device = memory();
    let mut contents = filled_with(&device, 100, data_checksums);
    let volume = mount(&device);
    write(&volume, "/late", &pattern(1, 700));
    contents.insert("/late".to_owned(), pattern(1, 700));
    let mut bytes = Bytes::of(&device);
    drop(volume);
    for copy in 0..2 {
        let unit = bytes.checkpoint_units(copy)[1];
        bytes.flip(unit * UNIT + 40);
    }
    (bytes.0, contents)
}

#[test]
fn a_power_cut_while_repairing() {
    for data_checksums in [false, true] {
        let (image, _) = damaged(data_checksums);
        let mut geometry = MemoryDevice::geometry_of(UNITS * UNIT, 512);
        geometry.volatile_cache = true;
        geometry.write_through = false;
        let (_, expected) = repaired(&on(image.clone()));
        assert!(expected.contains_key("/late"));
        let disk = PowerCut::on(image, geometry).unwrap();
        let device: Arc<dyn Device> = disk.clone();
        let report = run(&device, REPAIR);
        assert!(report.is_sound(), "{report:?}");
        let mut cursor = disk.cursor();
        for point in 0..=cursor.events() {
            cursor.advance_to(point);
            for (seed, survivors) in (0..).zip(Survivors::ALL) {
                let left: Arc<dyn Device> = Arc::new(cursor.disk(survivors, seed + point as u64));
                let report = run(&left, REPAIR);
                assert!(
                    report.is_sound(),
                    "point {point}, {survivors:?}, {seed}: {report:?}"
                );
                let found = read_all(&mount(&left));
                assert!(found == expected, "point {point}, {survivors:?}, {seed}");
            }
        }
    }
}

#[test]
fn bytes_that_are_wrong_anywhere() {
    for data_checksums in [false, true] {
        let (image, contents) = damaged(data_checksums);
        let sound = memory();
        let others = filled_with(&sound, 100, data_checksums);
        let whole = Bytes::of(&sound);
        let metadata: Vec<u64> = [0, 1, 2, UNITS - 1]
            .into_iter()
            .chain(whole.checkpoint_units(0))
            .chain(whole.checkpoint_units(1))
            .collect();
        for seed in 0..60 {
            let mut rng = Rng::new(seed);
            let (image, contents) = if seed % 2 == 0 {
                (&image, &contents)
            } else {
                (&whole.0, &others)
            };
            let mut bytes = Bytes(image.clone());
            for _ in 0..1 + rng.below(30) {
                let unit = metadata[rng.below(metadata.len())];
                // Where most of what matters is.
                let end = [64, 512, 4096][rng.below(3)];
                bytes.flip(unit * UNIT + rng.below(end) as u64);
            }
            let device = bytes.device();
            match check(&device, REPAIR, &mut |_| {}) {
                Err(error) => assert!(
                    matches!(error.kind(), ErrorKind::Corruption | ErrorKind::NotAVolume),
                    "seed {seed}: {error}"
                ),
                Ok(report) => {
                    assert!(report.is_sound(), "seed {seed}: {report:?}");
                    let found = read_all(&mount(&device));
                    // Nothing appears that was never written; a file may have lost its last part.
                    for (path, bytes) in &found {
                        let known = contents.values().any(|content| content.starts_with(bytes));
                        assert!(known, "seed {seed}: {path}");
                    }
                }
            }
        }
    }
}
