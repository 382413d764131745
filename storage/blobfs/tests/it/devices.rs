//! Devices of all kinds: that move little at once, that take their time, whose blocks are small, that lie.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use millrace_blobfs::{ErrorKind, FormatOptions, MountOptions, Timestamp, Volume};
use millrace_block::{
    Completion, Device, Geometry, MemoryDevice, Queue, Refused, Request, Result as DeviceResult,
};
use millrace_fixtures::count;
use millrace_memory::Domain;
use millrace_power_cut::{Options, Order, PowerCut};

use crate::support::{fresh_with, mount, options, pattern};
use crate::{CREATE, OPEN, contents, fresh, read, write};

fn slow(bytes: u64, block: u32, seed: u64) -> Arc<PowerCut> {
    let options = Options {
        geometry: MemoryDevice::geometry_of(bytes, block),
        image: None,
        order: Order::Shuffled(seed),
    };
    PowerCut::with_options(options).expect("a good geometry")
}

#[test]
fn many_files_that_are_written_behind_leave_buffers_for_others() {
    let device: Arc<dyn Device> = slow(256 << 20, 4096, 1);
    let volume = fresh(&device);
    // Each has writes in flight that nobody asks about.
    let bytes = |number: usize| pattern(number as u64, 1_100_000 + 100_000 * (number % 10));
    let files: Vec<_> = (0..60)
        .map(|number| {
            let file = volume.open(&format!("{number}"), &CREATE).unwrap();
            file.append(&bytes(number)).unwrap();
            file
        })
        .collect();
    write(&volume, "another", &pattern(77, 600_000));
    assert!(read(&volume, "another") == pattern(77, 600_000));
    volume.sync().unwrap();
    for (number, file) in files.iter().enumerate() {
        file.sync().unwrap();
        assert!(contents(file) == bytes(number));
    }
}

#[test]
fn reads_that_were_begun_leave_buffers_for_others() {
    for data_checksums in [false, true] {
        begin_many_reads(data_checksums);
    }
}

fn begin_many_reads(data_checksums: bool) {
    let device: Arc<dyn Device> = slow(64 << 20, 512, 2);
    let volume = fresh_with(&device, data_checksums);
    let bytes = pattern(5, 8 << 20);
    write(&volume, "a", &bytes);
    let file = volume.open("a", &OPEN).unwrap();
    let begun: Vec<_> = (0..600)
        .map(|number| {
            let (at, len) = (number * 10_000, 1 + number * 1000 % 60_000);
            (at, len, file.start_read(at as u64, len).unwrap())
        })
        .collect();
    assert!(contents(&file) == bytes);
    write(&volume, "b", &bytes);
    volume.sync().unwrap();
    for (index, (at, len, mut read)) in begun.into_iter().enumerate() {
        // Every third is given up.
        if index % 3 != 0 {
            assert!(
                read.wait().unwrap() == &bytes[at..at + len],
                "{len} bytes at {at}"
            );
        }
    }
    assert!(read(&volume, "b") == bytes);
}

/// Files, names, and enough of them for checkpoints; then all of it again after a mount.
fn exercise(device: &Arc<dyn Device>, data_checksums: bool, place: &str) {
    let format = FormatOptions {
        journal_bytes: Some(1 << 20),
        data_checksums,
        ..FormatOptions::new([u8::from(data_checksums); 16], Timestamp(1))
    };
    Volume::format(device, &format).unwrap_or_else(|error| panic!("{place}: {error}"));
    let volume = mount(device);
    let bytes = |number: u64| pattern(number, 1 + 40_000 * usize::try_from(number % 40).unwrap());
    for number in 0..80 {
        let file = volume.open(&format!("{number}"), &CREATE).unwrap();
        for part in bytes(number).chunks(70_001) {
            file.append(part).unwrap();
            if number % 4 == 0 {
                file.sync().unwrap();
            }
        }
        volume.create_dir(&format!("d{number}")).unwrap();
    }
    let check = |volume: Volume| {
        for number in 0..80 {
            let is_right = read(&volume, &format!("{number}")) == bytes(number);
            assert!(is_right, "{place}: file {number}");
        }
    };
    check(volume);
    check(mount(device));
}

#[test]
fn a_device_may_move_little_at_once() {
    for (number, (block, transfer)) in [
        (512, 512),
        (512, 1536),
        (512, 12_288),
        (512, 69_632),
        (4096, 4096),
        (4096, 131_072),
        (65_536, 65_536),
    ]
    .into_iter()
    .enumerate()
    {
        // Either depth in turn, and both where seeds are named from outside.
        let in_turn = &[[1], [3]][number % 2][..];
        for &depth in count(in_turn, &[1, 3]) {
            let mut geometry = MemoryDevice::geometry_of(160 << 20, block);
            geometry.transfer_bytes_max = transfer;
            geometry.queue_depth = depth;
            let device: Arc<dyn Device> = Arc::new(MemoryDevice::with_geometry(geometry).unwrap());
            let place = format!("{transfer} of {block}, {depth} at once");
            exercise(&device, (depth == 1) != (transfer % 4096 == 0), &place);
        }
    }
}

#[test]
fn a_volume_may_have_larger_blocks_than_its_device() {
    let large = MemoryDevice::new(64 << 20, 4096).unwrap();
    let image = {
        let device: Arc<dyn Device> = Arc::new(large);
        let volume = fresh(&device);
        write(&volume, "a", &pattern(1, 100_000));
        let file = volume.open("a", &OPEN).unwrap();
        file.sync().unwrap();
        file.append(b"to the journal").unwrap();
        file.sync().unwrap();
        let copy = MemoryDevice::new(64 << 20, 4096).unwrap();
        copy_all(&device, &copy);
        // As a power cut would leave it.
        copy.image()
    };
    let geometry = MemoryDevice::geometry_of(64 << 20, 512);
    let small: Arc<dyn Device> = Arc::new(MemoryDevice::on(image, geometry).unwrap());
    let mut expected = pattern(1, 100_000);
    expected.extend_from_slice(b"to the journal");
    let volume = mount(&small);
    assert!(read(&volume, "a") == expected);
    write(&volume, "b", &pattern(2, 3_000_000));
    let many = (0..5000).map(|number| volume.create_dir(&format!("{number}")));
    many.collect::<Result<(), _>>().unwrap();
    drop(volume);
    let volume = mount(&small);
    assert!(read(&volume, "a") == expected);
    assert!(read(&volume, "b") == pattern(2, 3_000_000));
    let file = volume.open("b", &OPEN).unwrap();
    assert!(file.start_read(5000, 100).unwrap().wait().unwrap() == &pattern(2, 5100)[5000..]);
}

/// Copies what a device holds now.
fn copy_all(from: &Arc<dyn Device>, to: &MemoryDevice) {
    let options = millrace_memory::ArenaOptions {
        locked: false,
        ..millrace_memory::ArenaOptions::default()
    };
    let arena = millrace_memory::Arena::new(Arc::clone(from.domain()), &options).unwrap();
    let (mut source, mut target) = (from.queue().unwrap(), to.queue().unwrap());
    let step = 1 << 20;
    let blocks = step / u64::from(from.geometry().block_bytes);
    for part in 0..from.geometry().bytes() / step {
        let lba = millrace_block::Lba(part * blocks);
        let buffer = arena.try_buffer(usize::try_from(step).unwrap()).unwrap();
        let read = source.run(Request::read(lba, buffer, 0)).unwrap();
        let buffer = read.buffer.unwrap();
        target.run(Request::write(lba, buffer, 0)).unwrap();
    }
}

#[test]
fn a_device_with_larger_blocks_than_the_volume_is_refused() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, 512).unwrap());
    drop(fresh(&device));
    let copy = MemoryDevice::new(16 << 20, 512).unwrap();
    copy_all(&device, &copy);
    let geometry = MemoryDevice::geometry_of(16 << 20, 4096);
    let large: Arc<dyn Device> = Arc::new(MemoryDevice::on(copy.image(), geometry).unwrap());
    let error = Volume::mount(large, options()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
}

/// How a device lies about what it has read.
const LIES: [&str; 4] = ["nothing", "half", "no buffer", "no completion"];

/// A device that lies from some moment on.
#[derive(Debug)]
struct Liar {
    device: MemoryDevice,
    lie: Arc<AtomicU8>,
}

#[derive(Debug)]
struct LyingQueue {
    queue: Box<dyn Queue>,
    lie: Arc<AtomicU8>,
}

impl LyingQueue {
    fn lie(&self, completion: Completion) -> Option<Completion> {
        let mut completion = completion;
        match self.lie.load(Ordering::Relaxed) {
            1 => {
                if let Some(buffer) = &mut completion.buffer {
                    let half = buffer.len() / 2;
                    buffer.set_len(half).unwrap();
                }
            }
            2 => completion.buffer = None,
            3 => return None,
            _ => {}
        }
        Some(completion)
    }
}

impl Queue for LyingQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        self.queue.submit(request)
    }

    fn poll(&mut self) -> Option<Completion> {
        let completion = self.queue.poll()?;
        self.lie(completion)
    }

    fn wait(&mut self) -> Option<Completion> {
        let completion = self.queue.wait()?;
        self.lie(completion)
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        let completion = self.queue.run(request)?;
        let (token, result) = (completion.token, Ok(()));
        Ok(self.lie(completion).unwrap_or(Completion {
            token,
            result,
            buffer: None,
        }))
    }
}

impl Device for Liar {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn name(&self) -> &'static str {
        "liar"
    }

    fn domain(&self) -> &Arc<dyn Domain> {
        self.device.domain()
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        let queue = self.device.queue()?;
        let lie = Arc::clone(&self.lie);
        Ok(Box::new(LyingQueue { queue, lie }))
    }
}

#[test]
fn a_device_that_lies_costs_an_error_and_no_more() {
    let all = (0_u8..).zip(LIES);
    for (data_checksums, (number, name)) in all
        .clone()
        .map(|it| (false, it))
        .chain(all.map(|it| (true, it)))
    {
        let lie = Arc::new(AtomicU8::new(0));
        let device: Arc<dyn Device> = Arc::new(Liar {
            device: MemoryDevice::new(32 << 20, 512).unwrap(),
            lie: Arc::clone(&lie),
        });
        let volume = fresh_with(&device, data_checksums);
        let bytes = pattern(3, 3_000_000);
        write(&volume, "a", &bytes);
        let file = volume.open("a", &OPEN).unwrap();
        lie.store(number, Ordering::Relaxed);
        let mut out = vec![0; 600_000];
        let results = [
            file.read_at(1000, &mut out).map(|_| ()),
            file.start_read(1000, 100)
                .and_then(|mut read| read.wait().map(|_| ())),
            Volume::mount(Arc::clone(&device), options()).map(|_| ()),
        ];
        for (index, result) in results.into_iter().enumerate() {
            assert_eq!(result.is_ok(), number == 0, "{name}: {index}");
        }
        // Whatever comes of a write: an error or not, no panic and no waiting.
        let _ = file.append(&bytes).and_then(|()| file.sync());
        let _ = volume.create_dir("d").and_then(|()| volume.sync());
        lie.store(0, Ordering::Relaxed);
        assert_eq!(file.read_at(1000, &mut out).unwrap(), out.len(), "{name}");
        assert!(out == bytes[1000..][..out.len()], "{name}");
    }
}

#[test]
fn options_that_need_more_memory_than_there_is_are_refused() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, 512).unwrap());
    drop(fresh(&device));
    let greedy = MountOptions {
        arena_bytes: 1 << 50,
        ..options()
    };
    let error = Volume::mount(Arc::clone(&device), greedy).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Memory, "{error}");
}
