//! TRIM of free units, and of no others.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;

use millrace_blobfs::{CheckOptions, ErrorKind, MountOptions, Volume, check, extents};
use millrace_block::{Deallocation, Device, Geometry, MemoryDevice};
use millrace_fixtures::count;
use millrace_power_cut::{Kind, PowerCut, Survivors};

use crate::support::{mount, options, pattern};
use crate::{fresh, read, write};

const FILES: u64 = 12;

/// A disk with a cache, on which forgotten blocks hold anything.
fn geometry(bytes: u64) -> Geometry {
    let mut geometry = MemoryDevice::geometry_of(bytes, 512);
    geometry.volatile_cache = true;
    geometry.write_through = false;
    geometry.deallocated_reads_zero = false;
    geometry
}

fn name(number: u64) -> String {
    format!("file {number}")
}

fn contents(number: u64) -> Vec<u8> {
    pattern(
        number,
        30_000 + 7_000 * usize::try_from(number).expect("few files"),
    )
}

fn trim(volume: &Volume) -> u64 {
    let trimmed = volume.trim(&mut |done, all| {
        assert!(done <= all);
        ControlFlow::Continue(())
    });
    trimmed.expect("the device is good")
}

#[test]
fn all_that_is_free_is_forgotten_and_nothing_that_is_not() {
    let recorder = PowerCut::new(geometry(16 << 20)).expect("a legal geometry");
    let device: Arc<dyn Device> = Arc::clone(&recorder) as _;
    let volume = fresh(&device);
    for number in 0..FILES {
        write(&volume, &name(number), &contents(number));
    }
    volume.sync().expect("the device is good");
    for number in (0..FILES).step_by(2) {
        volume.remove(&name(number)).expect("it is there");
    }
    let before = recorder.counters();
    let trimmed = trim(&volume);
    let deallocated = recorder.counters().since(&before).of(Kind::Deallocate);
    // What was deleted is forgotten by the checkpoint before, and then once more with all else.
    assert!(deallocated.bytes >= trimmed, "{deallocated:?}");
    assert_eq!(trimmed, volume.space().free_bytes);
    for number in (1..FILES).step_by(2) {
        assert!(read(&volume, &name(number)) == contents(number), "{number}");
    }
    write(&volume, "later", &contents(0));
    volume.unmount().expect("the device is good");
    drop(volume);
    let volume = mount(&device);
    assert!(read(&volume, "later") == contents(0));
    assert_eq!(trim(&volume), volume.space().free_bytes);
    volume.unmount().expect("the device is good");
    let report = check(&device, CheckOptions::default(), &mut |_| {}).expect("it is a volume");
    assert_eq!(report.findings, []);
}

#[test]
fn where_files_are_is_told() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, 512).expect("legal sizes"));
    let volume = fresh(&device);
    write(&volume, "file", &contents(3));
    let status = volume.status("file").expect("it is there");
    volume.unmount().expect("the device is good");
    drop(volume);
    let all = extents(&device).expect("it is a volume");
    let runs = &all[&status.id];
    let bytes: u64 = runs.iter().map(|run| run.end - run.start).sum();
    assert_eq!(bytes, status.allocated_bytes);
    let mut queue = device.queue().expect("a queue");
    let arena = millrace_memory::Arena::new(
        Arc::clone(device.domain()),
        &millrace_memory::ArenaOptions {
            locked: false,
            ..millrace_memory::ArenaOptions::default()
        },
    )
    .expect("there is memory");
    let buffer = arena.try_buffer(512).expect("free");
    let lba = millrace_block::Lba(runs[0].start / 512);
    let read = queue.run(millrace_block::Request::read(lba, buffer, 0));
    let buffer = read.expect("it is taken").buffer.expect("it comes back");
    assert!(buffer[..] == contents(3)[..512]);
}

#[test]
fn a_trim_ends_when_it_is_told_to_and_is_refused_where_it_makes_no_sense() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 << 20, 512).expect("legal sizes"));
    let volume = fresh(&device);
    let free = volume.space().free_bytes;
    let mut calls = 0;
    let trimmed = volume.trim(&mut |_, _| {
        calls += 1;
        match calls {
            3 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    });
    let trimmed = trimmed.expect("the device is good");
    assert!(trimmed > 0 && trimmed < free, "{trimmed} of {free}");
    assert_eq!(volume.space().free_bytes, free);
    drop(volume);
    let reading = MountOptions {
        read_only: true,
        ..options()
    };
    let volume = Volume::mount(device, reading).expect("it is a volume");
    let refused = volume.trim(&mut |_, _| ControlFlow::Continue(()));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::ReadOnly);

    let mut geometry = geometry(16 << 20);
    geometry.deallocation = Deallocation::None;
    let device = MemoryDevice::with_geometry(geometry).expect("a legal geometry");
    let volume = fresh(&(Arc::new(device) as _));
    let refused = volume.trim(&mut |_, _| ControlFlow::Continue(()));
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[test]
fn files_that_are_written_meanwhile_keep_what_they_hold() {
    let device: Arc<dyn Device> =
        Arc::new(MemoryDevice::with_geometry(geometry(32 << 20)).expect("a legal geometry"));
    let volume = fresh(&device);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let volume = &volume;
                scope.spawn(move || {
                    for round in 0..40 {
                        let name = format!("file of {writer}");
                        write(volume, &name, &contents(round % FILES));
                        volume.sync().expect("the device is good");
                        assert!(read(volume, &name) == contents(round % FILES), "{round}");
                        volume.remove(&name).expect("it is there");
                    }
                })
            })
            .collect();
        while !writers.iter().all(thread::ScopedJoinHandle::is_finished) {
            trim(&volume);
        }
    });
    volume.unmount().expect("the device is good");
    drop(volume);
    let report = check(&device, CheckOptions::default(), &mut |_| {}).expect("it is a volume");
    assert_eq!(report.findings, []);
}

/// A file, the events after it was synced, and before its removal.
struct Life {
    number: u64,
    from: usize,
    until: usize,
}

#[test]
fn a_power_cut_during_a_trim_costs_nothing() {
    let recorder = PowerCut::new(geometry(4 << 20)).expect("a legal geometry");
    let device: Arc<dyn Device> = Arc::clone(&recorder) as _;
    let volume = fresh(&device);
    recorder.settle();
    let mut lives: Vec<Life> = Vec::new();
    for number in 0..FILES {
        write(&volume, &name(number), &contents(number));
        // The data too, as a file's sync would.
        let file = volume
            .open(&name(number), &crate::OPEN)
            .expect("it is there");
        file.sync().expect("the device is good");
        drop(file);
        lives.push(Life {
            number,
            from: recorder.events(),
            until: usize::MAX,
        });
        if number % 3 == 2 {
            let victim = &mut lives[usize::try_from(number - 1).expect("few files")];
            victim.until = recorder.events();
            volume.remove(&name(victim.number)).expect("it is there");
            trim(&volume);
        }
    }
    drop(volume);
    let mut cursor = recorder.cursor();
    let mut images = 0;
    // At one event in three, and at all where seeds are named from outside.
    let stride = count(3, 1);
    while cursor.advance() {
        let point = cursor.point();
        if point % stride != 0 {
            continue;
        }
        for survivors in Survivors::ALL {
            let case = format!("point {point}, {survivors:?}");
            let disk: Arc<dyn Device> = Arc::new(cursor.disk(survivors, point as u64));
            let report = check(&disk, CheckOptions::default(), &mut |_| {}).expect(&case);
            assert!(report.is_sound(), "{case}: {:?}", report.findings);
            let volume = mount(&disk);
            for life in lives
                .iter()
                .filter(|it| it.from <= point && point < it.until)
            {
                assert!(
                    read(&volume, &name(life.number)) == contents(life.number),
                    "{case}: {}",
                    life.number
                );
            }
            images += 1;
        }
    }
    assert!(images * stride > 500, "{images}");
}

#[test]
fn a_trim_ends_when_the_volume_is_unmounted() {
    let device = PowerCut::new(MemoryDevice::geometry_of(64 << 20, 512)).unwrap();
    let device: Arc<dyn Device> = device;
    let volume = fresh(&device);
    let mut steps = 0;
    let result = volume.trim(&mut |_, _| {
        steps += 1;
        if steps == 2 {
            volume.unmount().unwrap();
        }
        ControlFlow::Continue(())
    });
    assert_eq!(result.unwrap_err().kind(), ErrorKind::ReadOnly);
    assert_eq!(steps, 2);
}
