//! Many threads on one volume.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex};
use std::thread;

use millrace_blobfs::{ErrorKind, File, PendingRead, Volume};
use millrace_block::{
    Completion, Device, Geometry, MemoryDevice, Operation, Queue, Refused, Request,
    Result as DeviceResult,
};
use millrace_memory::Domain;
use millrace_power_cut::{Options, Order, PowerCut};

use crate::full::check_space;
use crate::support::{Rng, fresh_with, mount, pattern};
use crate::{CREATE, OPEN, contents, data_checksums, fresh, read, write};

/// A device with few queues, on which requests change places.
fn shuffled(bytes: u64, seed: u64) -> Arc<dyn Device> {
    let mut geometry = MemoryDevice::geometry_of(bytes, 512);
    geometry.volatile_cache = true;
    geometry.write_through = seed % 2 == 0;
    geometry.queues_max = 2;
    let options = Options {
        geometry,
        image: None,
        order: Order::Shuffled(seed),
    };
    PowerCut::with_options(options).unwrap()
}

/// What a thread does with files that are its own.
fn work(volume: &Volume, thread: u64, steps: usize) -> BTreeMap<String, Vec<u8>> {
    let mut rng = Rng::new(thread);
    let mut model: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    volume.create_dir(&format!("t{thread}")).unwrap();
    let log = volume.open("log", &CREATE).unwrap();
    for step in 0..steps {
        let path = format!("t{thread}/{}", rng.below(4));
        let other = format!("t{thread}/{}", rng.below(4));
        match rng.below(8) {
            0..=2 => {
                let bytes = pattern(rng.next(), rng.below(30_000));
                write(volume, &path, &bytes);
                model.entry(path).or_default().extend(bytes);
            }
            3 => {
                let file = volume.open(&path, &CREATE).unwrap();
                model.entry(path).or_default();
                file.sync().unwrap();
            }
            4 if model.contains_key(&path) => {
                volume.rename(&path, &other).unwrap();
                let bytes = model.remove(&path).unwrap();
                model.insert(other, bytes);
            }
            5 if model.contains_key(&path) => {
                volume.remove(&path).unwrap();
                model.remove(&path);
            }
            6 => volume.sync().unwrap(),
            _ => {
                if let Some(bytes) = model.get(&path) {
                    assert!(
                        read(volume, &path) == *bytes,
                        "thread {thread}, step {step}"
                    );
                }
            }
        }
        // Everybody writes to this one.
        let mut entry = [0; 16];
        entry[..8].copy_from_slice(&thread.to_le_bytes());
        entry[8..].copy_from_slice(&(step as u64).to_le_bytes());
        log.append(&entry).unwrap();
        if step % 16 == 0 {
            log.sync().unwrap();
        }
    }
    model
}

/// Has threads work, then looks at what is there.
fn work_of_many(
    device: &Arc<dyn Device>,
    data_checksums: bool,
    threads: u64,
    steps: usize,
    place: &str,
) {
    let volume = fresh_with(device, data_checksums);
    let models: Vec<_> = thread::scope(|scope| {
        let volume = &volume;
        let start = |thread| scope.spawn(move || work(volume, thread, steps));
        let handles: Vec<_> = (0..threads).map(start).collect();
        handles
            .into_iter()
            .map(|handle| handle.join().unwrap())
            .collect()
    });
    let check = |volume: &Volume| {
        for (thread, model) in models.iter().enumerate() {
            let names = volume.read_dir(&format!("t{thread}")).unwrap();
            let names: Vec<_> = names
                .into_iter()
                .map(|entry| format!("t{thread}/{}", entry.name))
                .collect();
            assert_eq!(names, model.keys().cloned().collect::<Vec<_>>(), "{place}");
            for (path, bytes) in model {
                assert!(read(volume, path) == *bytes, "{place}: {path}");
            }
        }
        let log = read(volume, "log");
        let mut next = vec![0; models.len()];
        for entry in log.chunks(16) {
            let number = |bytes: &[u8]| {
                usize::try_from(u64::from_le_bytes(bytes.try_into().unwrap())).unwrap()
            };
            let (thread, step) = (number(&entry[..8]), number(&entry[8..]));
            assert_eq!(next[thread], step, "{place}");
            next[thread] += 1;
        }
        assert!(
            next.iter().all(|&count| count == steps),
            "{place}: {next:?}"
        );
    };
    check(&volume);
    check_space(&volume, device, place);
    volume.unmount().unwrap();
    check(&volume);
    drop(volume);
    let volume = mount(device);
    check(&volume);
    check_space(&volume, device, place);
}

#[test]
fn threads_do_not_disturb_each_other() {
    for seed in 0..4 {
        let place = format!("seed {seed}");
        work_of_many(
            &shuffled(128 << 20, seed),
            data_checksums(seed),
            12,
            60,
            &place,
        );
    }
    for data_checksums in [false, true] {
        let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(128 << 20, 4096).unwrap());
        work_of_many(&device, data_checksums, 8, 300, "memory");
    }
}

#[test]
fn there_may_be_more_threads_than_lanes() {
    for seed in [6, 7] {
        let data_checksums = data_checksums(seed);
        work_of_many(
            &shuffled(256 << 20, seed),
            data_checksums,
            300,
            6,
            "300 threads",
        );
    }
}

/// A device whose writes wait while the gate is shut.
#[derive(Debug)]
struct Gated {
    device: MemoryDevice,
    gate: Arc<Gate>,
}

#[derive(Debug, Default)]
struct Gate {
    is_shut: Mutex<bool>,
    changed: Condvar,
    waiting: AtomicUsize,
}

impl Gate {
    fn set(&self, is_shut: bool) {
        *self.is_shut.lock().unwrap() = is_shut;
        self.changed.notify_all();
    }

    fn pass(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let shut = self.is_shut.lock().unwrap();
        drop(self.changed.wait_while(shut, |is_shut| *is_shut).unwrap());
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

#[derive(Debug)]
struct GatedQueue {
    queue: Box<dyn Queue>,
    gate: Arc<Gate>,
}

impl Queue for GatedQueue {
    fn submit(&mut self, request: Request) -> Result<(), Refused> {
        self.queue.submit(request)
    }

    fn poll(&mut self) -> Option<Completion> {
        self.queue.poll()
    }

    fn wait(&mut self) -> Option<Completion> {
        self.queue.wait()
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight()
    }

    fn run(&mut self, request: Request) -> Result<Completion, Refused> {
        if request.operation != Operation::Read {
            self.gate.pass();
        }
        self.queue.run(request)
    }
}

impl Device for Gated {
    fn geometry(&self) -> &Geometry {
        self.device.geometry()
    }

    fn name(&self) -> &'static str {
        "gated"
    }

    fn domain(&self) -> &Arc<dyn Domain> {
        self.device.domain()
    }

    fn queue(&self) -> DeviceResult<Box<dyn Queue>> {
        Ok(Box::new(GatedQueue {
            queue: self.device.queue()?,
            gate: Arc::clone(&self.gate),
        }))
    }
}

#[test]
fn who_arrives_during_a_transaction_shares_the_next() {
    const THREADS: usize = 16;
    let gate = Arc::new(Gate::default());
    let device: Arc<dyn Device> = Arc::new(Gated {
        device: MemoryDevice::new(16 << 20, 512).unwrap(),
        gate: Arc::clone(&gate),
    });
    let volume = fresh(&device);
    let files: Vec<_> = (0..THREADS)
        .map(|number| volume.open(&format!("{number}"), &CREATE).unwrap())
        .collect();
    volume.sync().unwrap();
    for round in 1..=20 {
        let before = volume.counters();
        gate.set(true);
        let recorded = Barrier::new(THREADS);
        thread::scope(|scope| {
            let (volume, gate, recorded) = (&volume, &gate, &recorded);
            let leader = scope.spawn(move || {
                volume.create_dir(&format!("leader{round}")).unwrap();
                volume.sync().unwrap();
            });
            // The leader's transaction is under way.
            while gate.waiting.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
            for (number, file) in files.iter().enumerate() {
                scope.spawn(move || {
                    file.append(b"a few bytes").unwrap();
                    volume.create_dir(&format!("{round}-{number}")).unwrap();
                    recorded.wait();
                    gate.set(false);
                    volume.sync().unwrap();
                });
            }
            leader.join().unwrap();
        });
        let after = volume.counters();
        let (syncs, transactions) = (
            after.syncs - before.syncs,
            after.transactions - before.transactions,
        );
        assert_eq!(
            (syncs, transactions),
            (1 + THREADS as u64, 2),
            "round {round}"
        );
    }
}

#[test]
fn reads_that_one_thread_begins_are_ended_by_others() {
    for data_checksums in [false, true] {
        begin_and_end_reads(data_checksums);
    }
}

fn begin_and_end_reads(data_checksums: bool) {
    let device = shuffled(64 << 20, 3);
    let volume = fresh_with(&device, data_checksums);
    let bytes = pattern(1, 4 << 20);
    write(&volume, "a", &bytes);
    let file = volume.open("a", &OPEN).unwrap();
    let begun: Mutex<Vec<(usize, usize, PendingRead)>> = Mutex::new(Vec::new());
    thread::scope(|scope| {
        let (file, begun, bytes) = (&file, &begun, &bytes);
        for thread in 0..6 {
            scope.spawn(move || {
                let mut rng = Rng::new(thread);
                for step in 0..400 {
                    if rng.below(2) == 0 {
                        let (at, len) = (rng.below(4 << 20), rng.below(20_000));
                        let read = file.start_read(at as u64, len).unwrap();
                        begun.lock().unwrap().push((at, len, read));
                        continue;
                    }
                    let mut all = begun.lock().unwrap();
                    if all.is_empty() {
                        continue;
                    }
                    let index = rng.below(all.len());
                    let (at, len, mut read) = all.swap_remove(index);
                    drop(all);
                    let expected = &bytes[at..bytes.len().min(at + len)];
                    match rng.below(3) {
                        0 => drop(read),
                        1 => assert!(
                            read.wait().unwrap() == expected,
                            "thread {thread}, step {step}"
                        ),
                        _ => loop {
                            if let Some(result) = read.poll() {
                                assert!(
                                    result.unwrap() == expected,
                                    "thread {thread}, step {step}"
                                );
                                break;
                            }
                            thread::yield_now();
                        },
                    }
                }
            });
        }
    });
    drop(begun);
    drop(file);
    volume.unmount().unwrap();
}

#[test]
fn a_file_that_is_closed_opened_and_removed_at_once_leaves_nothing() {
    for seed in 0..3 {
        let device = shuffled(32 << 20, seed);
        let volume = fresh_with(&device, data_checksums(seed));
        thread::scope(|scope| {
            let volume = &volume;
            for thread in 0..6 {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 100 + thread);
                    for _ in 0..150 {
                        let path = format!("{}", rng.below(2));
                        if thread < 2 {
                            let removed = volume.remove(&path);
                            let is_usual = |kind| matches!(kind, ErrorKind::NotFound);
                            assert!(
                                removed.is_ok()
                                    || removed.is_err_and(|error| is_usual(error.kind()))
                            );
                            continue;
                        }
                        let file = volume.open(&path, &CREATE).unwrap();
                        // All threads that append to this file append this byte.
                        let byte = u8::try_from(file.status().map_or(0, |status| status.id % 251))
                            .unwrap();
                        if byte > 0 {
                            file.append(&vec![byte; 1 + rng.below(9000)]).unwrap();
                        }
                        if rng.below(4) == 0 {
                            file.sync().unwrap();
                        }
                    }
                });
            }
        });
        let place = format!("seed {seed}");
        let check = |volume: &Volume| {
            for entry in volume.read_dir("/").unwrap() {
                let bytes = read(volume, &entry.name);
                assert!(
                    bytes.iter().all(|&byte| u64::from(byte) == entry.id % 251),
                    "{place}"
                );
            }
        };
        check(&volume);
        volume.sync().unwrap();
        check_space(&volume, &device, &place);
        drop(volume);
        let volume = mount(&device);
        check(&volume);
        check_space(&volume, &device, &place);
    }
}

#[test]
fn threads_that_fill_a_volume_are_all_refused_and_nothing_else_fails() {
    for seed in 0..4 {
        let device = shuffled(2 << 20, seed);
        let volume = fresh_with(&device, data_checksums(seed));
        thread::scope(|scope| {
            let volume = &volume;
            for thread in 0..8 {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 100 + thread);
                    let path = format!("{thread}");
                    let mut refused = 0;
                    while refused < 20 {
                        let done = match rng.below(6) {
                            0 => volume.remove(&path),
                            1 => volume.create_dir(&format!("{thread}d{refused}{}", rng.next())),
                            _ => volume.open(&path, &CREATE).and_then(|file| {
                                file.append(&pattern(thread, rng.below(60_000)))?;
                                file.sync()
                            }),
                        };
                        match done {
                            Ok(()) => {}
                            Err(error) if error.kind() == ErrorKind::NoSpace => refused += 1,
                            Err(error) if error.kind() == ErrorKind::NotFound => {}
                            Err(error) => panic!("seed {seed}, thread {thread}: {error:?}"),
                        }
                    }
                });
            }
        });
        volume.sync().unwrap();
        check_space(&volume, &device, "full");
        volume.unmount().unwrap();
        drop(volume);
        check_space(&mount(&device), &device, "full");
    }
}

/// The byte that a file has at this offset, whenever it has one there.
fn byte_at(offset: u64, of: u64) -> u8 {
    u8::try_from((offset / 7 + offset * of) % 251).unwrap()
}

fn bytes_at(range: std::ops::Range<u64>, of: u64) -> Vec<u8> {
    range.map(|offset| byte_at(offset, of)).collect()
}

/// Appends or cuts; the bytes are always the same.
fn change(file: &File, rng: &mut Rng, of: u64) {
    let size = file.size();
    if size > 400_000 || rng.below(3) == 0 {
        file.truncate(rng.next() % (size + 1)).unwrap();
    } else {
        let len = rng.below(90_000) as u64;
        file.append(&bytes_at(size..size + len, of)).unwrap();
    }
    match rng.below(6) {
        0 => file.sync().unwrap(),
        1 => file.write_behind().unwrap(),
        _ => {}
    }
}

#[test]
fn readers_of_a_file_that_is_cut_see_no_other_files_bytes() {
    for seed in 0..4 {
        let device = shuffled(8 << 20, seed);
        let volume = fresh_with(&device, data_checksums(seed));
        let files = [1, 2].map(|of| (of, volume.open(&format!("{of}"), &CREATE).unwrap()));
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            let is_over = &is_over;
            let writers = files.each_ref().map(|(of, file)| {
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + of);
                    for _ in 0..200 {
                        change(file, &mut rng, *of);
                    }
                })
            });
            for reader in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    let mut rng = Rng::new(seed * 10 + reader + 5);
                    while !is_over.load(Ordering::Relaxed) {
                        let (of, file) = &files[rng.below(2)];
                        let at = rng.next() % (file.size() + 1);
                        let mut out = vec![0; rng.below(30_000)];
                        let read = if rng.below(2) == 0 {
                            file.read_at(at, &mut out).unwrap()
                        } else {
                            let mut begun = file.start_read(at, out.len()).unwrap();
                            let bytes = begun.wait().unwrap();
                            out[..bytes.len()].copy_from_slice(bytes);
                            bytes.len()
                        };
                        let expected = bytes_at(at..at + read as u64, *of);
                        assert!(
                            out[..read] == expected,
                            "seed {seed}: {read} bytes at {at} of {of}"
                        );
                    }
                });
            }
            for writer in writers {
                writer.join().unwrap();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        for (of, file) in &files {
            assert!(contents(file) == bytes_at(0..file.size(), *of));
        }
    }
}
