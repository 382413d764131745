//! Volumes with data checksums: each damaged block is reported with its file and its bytes, and all other blocks stay
//! readable.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use millrace_blobfs::{
    Area, CheckOptions, Error, ErrorKind, File, FormatOptions, MountOptions, ReadPart, Report,
    Severity, Timestamp, Volume, check, dump,
};
use millrace_block::{
    Completion, Device, Geometry, Lba, MemoryDevice, Operation, Queue, Refused, Request,
    Result as DeviceResult,
};
use millrace_memory::{Arena, ArenaOptions, Domain};

use crate::support::{fresh_with, mount, options, pattern};
use crate::{CREATE, OPEN, contents, write};

const BYTES: u64 = 16 << 20;
const UNIT: u64 = 4096;
const READ: CheckOptions = CheckOptions {
    repair: false,
    read_data: true,
};

fn memory(block: u32) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::new(BYTES, block).unwrap())
}

/// Reads and writes blocks of a device behind the volume's back.
struct Raw {
    queue: Box<dyn Queue>,
    arena: Arena,
    block: usize,
}

impl Raw {
    fn new(device: &Arc<dyn Device>) -> Self {
        let options = ArenaOptions {
            locked: false,
            ..ArenaOptions::default()
        };
        Self {
            queue: device.queue().unwrap(),
            arena: Arena::new(Arc::clone(device.domain()), &options).unwrap(),
            block: device.geometry().block_bytes as usize,
        }
    }

    fn read(&mut self, lba: u64) -> Vec<u8> {
        let buffer = self.arena.try_buffer(self.block).unwrap();
        let done = self.queue.run(Request::read(Lba(lba), buffer, 0)).unwrap();
        done.result.unwrap();
        done.buffer.unwrap().to_vec()
    }

    fn write(&mut self, lba: u64, bytes: &[u8]) {
        let mut buffer = self.arena.try_buffer(self.block).unwrap();
        buffer.copy_from_slice(bytes);
        let done = self.queue.run(Request::write(Lba(lba), buffer, 0)).unwrap();
        done.result.unwrap();
    }
}

/// The blocks of a file, in order.
fn blocks_of(device: &Arc<dyn Device>, id: u64) -> Vec<u64> {
    let mut text = Vec::new();
    dump(device, &mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let begin = format!("#{id} file");
    let line = text
        .lines()
        .find(|line| line.trim_start().starts_with(&begin));
    let unit_blocks =
        UNIT.max(device.geometry().block_bytes.into()) / u64::from(device.geometry().block_bytes);
    let extents = line.unwrap().split(' ').filter_map(|word| {
        let (start, end) = word.split_once("..")?;
        let start: u64 = start.parse().ok()?;
        let end: u64 = end.parse().ok()?;
        Some(start * unit_blocks..end * unit_blocks)
    });
    extents.flatten().collect()
}

/// A volume with a file of `bytes` bytes that is written back.
fn with_file(device: &Arc<dyn Device>, bytes: &[u8]) -> (Volume, File, Vec<u64>) {
    let volume = fresh_with(device, true);
    volume.create_dir("/db").unwrap();
    write(&volume, "/db/table", bytes);
    volume.unmount().unwrap();
    drop(volume);
    let volume = mount(device);
    let file = volume.open("/db/table", &OPEN).unwrap();
    let blocks = blocks_of(device, file.status().unwrap().id);
    (volume, file, blocks)
}

fn read_many(file: &File, offset: u64, out: &mut [u8]) -> Result<usize, Error> {
    let mut parts = [ReadPart {
        offset,
        out,
        result: Ok(0),
    }];
    file.read_many(&mut parts);
    let [part] = parts;
    part.result
}

fn start_read(file: &File, offset: u64, len: usize) -> Result<Vec<u8>, Error> {
    let mut begun = file.start_read(offset, len)?;
    begun.wait().map(<[u8]>::to_vec)
}

/// That a block cannot be read in any way, and others can.
fn assert_bad(file: &File, expected: &[u8], payload: usize, bad: usize, place: &str) {
    let offset = (bad * payload) as u64;
    let mut out = vec![0; 10.min(expected.len() - bad * payload)];
    let errors = [
        file.read_at(offset, &mut out).unwrap_err(),
        file.read_at(0, &mut vec![0; expected.len()]).unwrap_err(),
        read_many(file, offset, &mut out).unwrap_err(),
        start_read(file, offset, out.len()).unwrap_err(),
    ];
    let bytes = format!("bytes {offset}..{}", offset + payload as u64);
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::Corruption, "{place}");
        let text = error.to_string();
        assert!(
            text.contains("/db/table") && text.contains(&bytes),
            "{place}: {text}"
        );
    }
    for (number, part) in expected.chunks(payload).enumerate() {
        if number != bad {
            let mut out = vec![0; part.len()];
            let offset = (number * payload) as u64;
            assert_eq!(
                file.read_at(offset, &mut out).unwrap(),
                out.len(),
                "{place}"
            );
            assert!(out == part, "{place}");
        }
    }
}

fn run(device: &Arc<dyn Device>, options: CheckOptions) -> Report {
    check(device, options, &mut |progress| {
        assert!(progress.done_bytes <= progress.total_bytes);
    })
    .unwrap()
}

#[test]
fn every_bit_that_is_flipped_is_found() {
    for block in [512, 4096] {
        let payload = block as usize - 8;
        let device = memory(block);
        let bytes = pattern(1, 2 * payload + payload / 2);
        let (_volume, file, blocks) = with_file(&device, &bytes);
        let mut raw = Raw::new(&device);
        for (number, &lba) in blocks[..3].iter().enumerate() {
            let good = raw.read(lba);
            for at in 0..good.len() {
                // Every bit of some bytes, one of the others.
                let bits = if at % 61 == 0 || at >= payload {
                    0..8
                } else {
                    at % 8..at % 8 + 1
                };
                for bit in bits {
                    let mut bad = good.clone();
                    bad[at] ^= 1 << bit;
                    raw.write(lba, &bad);
                    let mut out = [0; 1];
                    let error = file
                        .read_at((number * payload) as u64, &mut out)
                        .unwrap_err();
                    assert_eq!(error.kind(), ErrorKind::Corruption, "byte {at}, bit {bit}");
                }
            }
            raw.write(lba, &good);
            assert!(contents(&file) == bytes);
        }
    }
}

#[test]
fn a_damaged_block_costs_what_is_in_it_and_a_check_names_it() {
    for block in [512, 4096, 65_536] {
        let payload = block as usize - 8;
        let device = memory(block);
        let bytes = pattern(2, 20 * payload + 100);
        let (volume, file, blocks) = with_file(&device, &bytes);
        let mut raw = Raw::new(&device);
        for bad in [0, 7, 20] {
            let good = raw.read(blocks[bad]);
            let half = good.len() / 2;
            // Torn, zeros, anything.
            let torn = [&good[..half], &vec![0x11; half][..]].concat();
            for damage in [torn, vec![0; good.len()], pattern(9, good.len())] {
                raw.write(blocks[bad], &damage);
                assert_bad(&file, &bytes, payload, bad, &format!("{block}, {bad}"));
            }
            raw.write(blocks[bad], &good);
        }
        assert!(contents(&file) == bytes);
        // All else goes on.
        for bad in [3, 4, 9, 20] {
            raw.write(blocks[bad], &pattern(bad as u64, block as usize));
        }
        write(&volume, "/other", b"x");
        drop(file);
        volume.unmount().unwrap();
        drop(volume);
        for repair in [false, true] {
            let report = run(&device, CheckOptions { repair, ..READ });
            assert!(report.data_checksums && !report.is_sound());
            let [finding] = &report.findings[..] else {
                panic!("{:?}", report.findings);
            };
            let (severity, area) = (Severity::Loss, Area::Data);
            assert_eq!((finding.severity, finding.area), (severity, area));
            let text = format!(
                "/db/table: bytes {}..{}, {}..{}, {}..{} do not match their checksums",
                3 * payload,
                5 * payload,
                9 * payload,
                10 * payload,
                20 * payload,
                bytes.len()
            );
            assert_eq!(finding.text, text);
        }
        // A repair has left them.
        assert_eq!(raw.read(blocks[9]), pattern(9, block as usize));
        let without = CheckOptions::default();
        assert_eq!(run(&device, without).findings, []);
    }
}

#[test]
fn blocks_that_changed_places_are_found() {
    for block in [512, 4096] {
        let payload = block as usize - 8;
        let device = memory(block);
        // All blocks hold the same.
        let bytes = vec![7; 10 * payload];
        let (volume, file, blocks) = with_file(&device, &bytes);
        write(&volume, "/twin", &bytes);
        let twin = volume.open("/twin", &OPEN).unwrap();
        let id = twin.status().unwrap().id;
        drop(twin);
        volume.sync().unwrap();
        let mut raw = Raw::new(&device);
        let (first, second) = (raw.read(blocks[2]), raw.read(blocks[5]));
        raw.write(blocks[2], &second);
        assert_bad(&file, &bytes, payload, 2, "within the file");
        raw.write(blocks[5], &first);
        assert!(file.read_at(5 * payload as u64, &mut [0; 1]).is_err());
        raw.write(blocks[2], &first);
        raw.write(blocks[5], &second);
        assert!(contents(&file) == bytes);
        let others = blocks_of(&device, id);
        let other = raw.read(others[2]);
        raw.write(blocks[2], &other);
        assert_bad(&file, &bytes, payload, 2, "another file's");
        let error = file.read_at(2 * payload as u64, &mut [0; 1]).unwrap_err();
        assert!(error.to_string().contains(&format!("#{id}")), "{error}");
    }
}

#[test]
fn blocks_of_a_removed_file_are_found() {
    for block in [512, 4096] {
        let payload = block as usize - 8;
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(1 << 20, block).unwrap());
        let unit = pattern(4, 4096 / block as usize * payload);
        let volume = fresh_with(&device, true);
        // Names first: later they would take units for checkpoints.
        let paths: Vec<String> = (0..150).map(|number| format!("/{number}")).collect();
        paths.iter().for_each(|path| write(&volume, path, b""));
        write(&volume, "/removed", &unit);
        volume.sync().unwrap();
        let blocks = blocks_of(&device, volume.status("/removed").unwrap().id);
        let mut raw = Raw::new(&device);
        let old: Vec<_> = blocks.iter().map(|&lba| raw.read(lba)).collect();
        volume.remove("/removed").unwrap();
        volume.unmount().unwrap();
        drop(volume);
        let volume = mount(&device);
        // The same bytes again in so many files that one has the same unit.
        let is_same = |path: &&String| {
            write(&volume, path, &unit);
            volume.sync().unwrap();
            blocks_of(&device, volume.status(path).unwrap().id) == blocks
        };
        let path = paths.iter().find(is_same).expect("units are used again");
        let file = volume.open(path, &OPEN).unwrap();
        assert!(contents(&file) == unit);
        for (index, (&lba, old)) in blocks.iter().zip(&old).enumerate() {
            // The device has lost a write.
            let good = raw.read(lba);
            raw.write(lba, old);
            let error = file
                .read_at((index * payload) as u64, &mut [0; 1])
                .unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption);
            raw.write(lba, &good);
        }
        assert!(contents(&file) == unit);
    }
}

#[test]
fn blocks_of_an_earlier_volume_are_found() {
    for block in [512, 4096] {
        let payload = block as usize - 8;
        let device = memory(block);
        let bytes = pattern(4, 40 * payload);
        let (volume, file, blocks) = with_file(&device, &bytes);
        let mut raw = Raw::new(&device);
        let old = raw.read(blocks[3]);
        let id = file.status().unwrap().id;
        drop(file);
        drop(volume);
        let format = FormatOptions {
            data_checksums: true,
            ..FormatOptions::new([8; 16], Timestamp(1))
        };
        Volume::format(&device, &format).unwrap();
        let volume = mount(&device);
        volume.create_dir("/db").unwrap();
        write(&volume, "/db/table", &bytes);
        volume.sync().unwrap();
        let file = volume.open("/db/table", &OPEN).unwrap();
        assert_eq!(file.status().unwrap().id, id, "the same number");
        assert_eq!(blocks_of(&device, id), blocks, "the same units");
        raw.write(blocks[3], &old);
        assert_bad(&file, &bytes, payload, 3, "an earlier volume's");
    }
}

#[test]
fn what_needs_a_bad_block_is_refused_and_what_does_not_mends_it() {
    for block in [512, 4096] {
        let payload = block as usize - 8;
        let device = memory(block);
        let bytes = pattern(5, 10 * payload + 99);
        let (volume, file, blocks) = with_file(&device, &bytes);
        let mut raw = Raw::new(&device);
        let good = raw.read(blocks[10]);
        raw.write(blocks[10], &vec![3; block as usize]);
        let refusals = [
            file.append(b"more"),
            file.write_at(3, b"x"),
            file.truncate(5),
            file.reserve(1 << 20),
        ];
        for (number, refusal) in refusals.into_iter().enumerate() {
            let error = refusal.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Corruption, "{number}");
            assert!(error.to_string().contains("/db/table"), "{error}");
        }
        raw.write(blocks[10], &good);
        file.append(b"more").unwrap();
        // A part of a bad block cannot be written over, the whole can.
        raw.write(blocks[4], &vec![3; block as usize]);
        let error = file.write_at(4 * payload as u64 + 7, b"x").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let error = file.truncate(4 * payload as u64 + 7).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
        let new = pattern(6, 3 * payload);
        file.write_at(3 * payload as u64 + 11, &new).unwrap();
        file.sync().unwrap();
        let mut expected = [&bytes[..], b"more"].concat();
        expected[3 * payload + 11..][..new.len()].copy_from_slice(&new);
        assert!(contents(&file) == expected);
        drop(file);
        drop(volume);
        assert_eq!(run(&device, READ).findings, []);
        assert!(crate::read(&mount(&device), "/db/table") == expected);
    }
}

#[test]
fn a_damaged_block_where_carried_bytes_belong_costs_its_file() {
    let payload = 504;
    let original = MemoryDevice::new(BYTES, 512).unwrap();
    let original: Arc<MemoryDevice> = Arc::new(original);
    let device: Arc<dyn Device> = Arc::clone(&original) as _;
    let volume = fresh_with(&device, true);
    volume.create_dir("/db").unwrap();
    let bytes = pattern(7, 70_334);
    let mut open = Vec::new();
    for path in ["/db/table", "/db/other"] {
        let file = volume.open(path, &CREATE).unwrap();
        file.append(&bytes[..70_001]).unwrap();
        file.sync().unwrap();
        file.append(&bytes[70_001..]).unwrap();
        file.sync().unwrap();
        open.push(file);
    }
    // As a power cut leaves it: the end of both is in the journal.
    let image = original.image();
    let id = open[0].status().unwrap().id;
    let after_cut = || -> Arc<dyn Device> {
        let geometry = MemoryDevice::geometry_of(BYTES, 512);
        Arc::new(MemoryDevice::on(image.clone(), geometry).unwrap())
    };
    let bad = 70_001 / payload;
    let lba = blocks_of(&after_cut(), id)[bad];
    let damaged = || {
        let device = after_cut();
        Raw::new(&device).write(lba, &pattern(1, 512));
        device
    };
    let in_front = |file: &File| {
        let mut out = vec![0; bad * payload];
        file.read_at(0, &mut out).unwrap();
        assert!(out == bytes[..bad * payload]);
    };
    let check_mounted = |device: &Arc<dyn Device>, place: &str| {
        let volume = mount(device);
        assert!(crate::read(&volume, "/db/other") == bytes, "{place}");
        let file = volume.open("/db/table", &OPEN).unwrap();
        assert_eq!(file.size(), 70_334, "{place}");
        in_front(&file);
        let error = file.read_at(70_001, &mut [0; 1]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corruption, "{place}: {error}");
    };
    assert_eq!(run(&after_cut(), READ).findings, []);
    // For reading: what the journal has can be read.
    let device = damaged();
    let read_only = MountOptions {
        read_only: true,
        ..options()
    };
    let volume = Volume::mount(Arc::clone(&device), read_only).unwrap();
    let file = volume.open("/db/table", &OPEN).unwrap();
    let mut out = vec![0; 333];
    assert_eq!(file.read_at(70_001, &mut out).unwrap(), 333);
    assert!(out == bytes[70_001..]);
    let error = file.read_at(70_000, &mut out).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corruption, "{error}");
    in_front(&file);
    drop(file);
    drop(volume);
    // For writing, and after a repair that something else needs.
    check_mounted(&device, "mounted");
    let device = damaged();
    let last = BYTES / 512 - 8;
    Raw::new(&device).write(last, &[0; 512]);
    let report = run(
        &device,
        CheckOptions {
            repair: true,
            ..READ
        },
    );
    let left = report.left.unwrap();
    let text = left.iter().map(ToString::to_string).collect::<String>();
    assert!(left.iter().all(|it| it.area == Area::Data), "{text}");
    assert!(
        text.contains("/db/table") && text.contains("stays as it is"),
        "{text}"
    );
    assert!(!text.contains("/db/other"), "{text}");
    check_mounted(&device, "repaired");
}

/// A device that garbles a read now and then, as one does that reads a block while it is written.
#[derive(Debug)]
struct Tearing {
    device: MemoryDevice,
    tears: Arc<Tears>,
}

#[derive(Debug, Default)]
struct Tears {
    is_next: AtomicBool,
    done: AtomicUsize,
}

#[derive(Debug)]
struct TearingQueue {
    queue: Box<dyn Queue>,
    tears: Arc<Tears>,
}

impl TearingQueue {
    fn torn(&self, mut completion: Completion) -> Completion {
        if let Some(buffer) = &mut completion.buffer {
            if self.tears.is_next.swap(false, Ordering::Relaxed) {
                self.tears.done.fetch_add(1, Ordering::Relaxed);
                let half = buffer.len() / 2;
                buffer[half..].fill(0x77);
            }
        }
        completion
    }
}

impl Queue for TearingQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        self.queue.submit(request)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.queue.poll().map(|completion| self.torn(completion))
    }

    fn wait(&mut self) -> Option<Completion> {
        self.queue.wait().map(|completion| self.torn(completion))
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        let is_read = request.operation == Operation::Read;
        let completion = self.queue.run(request)?;
        if is_read {
            return Ok(self.torn(completion));
        }
        Ok(completion)
    }
}

impl Device for Tearing {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn name(&self) -> &'static str {
        "tearing"
    }

    fn domain(&self) -> &Arc<dyn Domain> {
        self.device.domain()
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        Ok(Box::new(TearingQueue {
            queue: self.device.queue()?,
            tears: Arc::clone(&self.tears),
        }))
    }
}

#[test]
fn a_block_that_is_read_while_it_is_written_is_read_again() {
    let tears = Arc::new(Tears::default());
    let device: Arc<dyn Device> = Arc::new(Tearing {
        device: MemoryDevice::new(BYTES, 512).unwrap(),
        tears: Arc::clone(&tears),
    });
    let volume = fresh_with(&device, true);
    let bytes = pattern(1, 100_000);
    write(&volume, "a", &bytes);
    drop(volume);
    let volume = mount(&device);
    let file = volume.open("a", &OPEN).unwrap();
    for offset in (0..90_000).step_by(7001) {
        let expected = &bytes[offset..offset + 6000];
        let offset = offset as u64;
        let tear = || tears.is_next.store(true, Ordering::Relaxed);
        let mut out = vec![0; 6000];
        tear();
        file.read_at(offset, &mut out).unwrap();
        assert!(out == expected);
        out.fill(0);
        tear();
        read_many(&file, offset, &mut out).unwrap();
        assert!(out == expected);
        tear();
        assert!(start_read(&file, offset, 6000).unwrap() == expected);
    }
    assert_eq!(tears.done.load(Ordering::Relaxed), 3 * 13);
}

/// What a device of one block size holds, on one of another.
fn moved(from: &Arc<dyn Device>, geometry: Geometry) -> Arc<dyn Device> {
    let to: Arc<dyn Device> = Arc::new(MemoryDevice::with_geometry(geometry).unwrap());
    let (mut source, mut target) = (Raw::new(from), Raw::new(&to));
    for lba in 0..from.geometry().blocks {
        let bytes = source.read(lba);
        if bytes.iter().all(|byte| *byte == 0) {
            continue;
        }
        let parts = bytes.chunks(target.block).collect::<Vec<_>>();
        for (index, part) in (0..).zip(&parts) {
            target.write(lba * parts.len() as u64 + index, part);
        }
    }
    to
}

#[test]
fn a_device_that_tears_blocks_is_for_reading_only() {
    let device = memory(4096);
    let bytes = pattern(3, 50_000);
    let (volume, file, _) = with_file(&device, &bytes);
    drop(file);
    drop(volume);
    let mut geometry = MemoryDevice::geometry_of(BYTES, 512);
    geometry.atomic_blocks = 1;
    let small = moved(&device, geometry.clone());
    let error = Volume::mount(Arc::clone(&small), options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    let read_only = MountOptions {
        read_only: true,
        ..options()
    };
    let volume = Volume::mount(Arc::clone(&small), read_only).unwrap();
    assert!(crate::read(&volume, "/db/table") == bytes);
    assert_eq!(run(&small, READ).findings, []);
    Raw::new(&small).write(BYTES / 512 - 8, &[0; 512]);
    let repair = CheckOptions {
        repair: true,
        ..READ
    };
    let error = check(&small, repair, &mut |_| {}).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    // One that writes eight blocks as a whole is as good as one with blocks of 4 KiB.
    geometry.atomic_blocks = 8;
    let small = moved(&device, geometry);
    let volume = mount(&small);
    let file = volume.open("/db/table", &CREATE).unwrap();
    file.append(b"more").unwrap();
    file.sync().unwrap();
    assert!(contents(&file) == [&bytes[..], b"more"].concat());
    drop(file);
    drop(volume);
    assert_eq!(run(&small, READ).findings, []);
}
