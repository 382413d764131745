//! A namespace of the controller in software.

use std::sync::Arc;
use std::thread;
use std::time::Instant;

use millrace_block::{
    Deallocation, Device, ErrorKind, Lba, NvmeDevice, NvmeOptions, OpenOptions, Operation, Queue,
    Request, Result, Spec, conformance,
};
use millrace_fixtures::block::{arena, filled};
use millrace_nvme::{Options, SystemHost, Waiting};
use millrace_nvme_model as model;

const BYTES: u64 = 8 << 20;

/// A model that a thread steps, and the device on it.
struct Fixture {
    device: Arc<dyn Device>,
    model: model::Controller,
    /// Ends last.
    _stepper: model::Stepper,
}

fn namespace(block_size: u32) -> model::NamespaceOptions {
    model::NamespaceOptions {
        block_size,
        blocks: BYTES / u64::from(block_size),
        ..model::NamespaceOptions::default()
    }
}

fn of_512() -> model::Options {
    model::Options {
        namespaces: vec![namespace(512)],
        ..model::Options::default()
    }
}

fn open(
    model: &model::Controller,
    namespace: Option<u32>,
    options: NvmeOptions,
) -> Result<NvmeDevice> {
    let host = Arc::new(SystemHost::new(Instant::now()));
    NvmeDevice::new("nvme:model", model.function(), namespace, host, options)
}

impl Fixture {
    fn new(model: model::Options, options: NvmeOptions) -> Self {
        let model = model::Controller::new(model).expect("a sound model");
        let stepper = model::Stepper::new(model.clone());
        let device = open(&model, None, options).expect("the model is a device");
        Self {
            device: Arc::new(device),
            model,
            _stepper: stepper,
        }
    }

    fn check_records(&self) {
        assert_eq!(self.model.violations(), []);
        assert_eq!(self.model.dma_faults(), []);
    }
}

fn polling() -> NvmeOptions {
    NvmeOptions {
        waiting: Some(Waiting::Poll),
        queue_depth: 16,
        trust_fua: true,
        driver: Options {
            interrupts: false,
            ..Options::default()
        },
    }
}

/// As for a controller that ignores the FUA bit.
fn mistrusting() -> NvmeOptions {
    NvmeOptions {
        trust_fua: false,
        ..polling()
    }
}

#[test]
fn a_namespace_does_what_devices_do() {
    let hybrid = NvmeOptions {
        queue_depth: 16,
        ..NvmeOptions::default()
    };
    for (name, model, options) in [
        ("blocks of 512, polled", of_512(), polling()),
        (
            "blocks of 4096, with interrupts",
            model::Options {
                namespaces: vec![namespace(4096)],
                queues: 3,
                ..model::Options::default()
            },
            hybrid.clone(),
        ),
        (
            "one queue pair",
            model::Options {
                queues: 1,
                ..of_512()
            },
            hybrid.clone(),
        ),
        (
            "two queue pairs, short transfers",
            model::Options {
                queues: 2,
                transfer_max: 1,
                ..of_512()
            },
            polling(),
        ),
        (
            "two queue pairs, flushed",
            model::Options {
                queues: 2,
                ..of_512()
            },
            mistrusting(),
        ),
        (
            "fewer vectors than queues",
            model::Options {
                queues: 8,
                vectors: 3,
                ..of_512()
            },
            hybrid,
        ),
    ] {
        println!("{name}");
        let fixture = Fixture::new(model, options);
        conformance::all(&fixture.device, 0..3);
        fixture.check_records();
    }
}

#[test]
fn the_geometry_is_what_the_controller_says() {
    let fixture = Fixture::new(
        model::Options {
            queues: 4,
            ..of_512()
        },
        polling(),
    );
    let geometry = fixture.device.geometry();
    assert_eq!((geometry.block_bytes, geometry.bytes()), (512, BYTES));
    assert!(geometry.volatile_cache && geometry.write_through);
    assert_eq!((geometry.queues_max, geometry.queue_depth), (3, 16));
    assert_eq!(geometry.deallocation, Deallocation::Cheap);
    assert_eq!(geometry.atomic_blocks, 1);
    assert_eq!(fixture.device.name(), "nvme:model");

    let fixture = Fixture::new(of_512(), mistrusting());
    let geometry = fixture.device.geometry();
    assert!(geometry.volatile_cache && !geometry.write_through);

    let mut lasting = of_512();
    lasting.volatile_cache = false;
    lasting.commands.dataset_management = false;
    lasting.queue_entries_max = 8;
    lasting.transfer_max = 0;
    lasting.atomic_write = 4096;
    lasting.atomic_write_power_fail = 4096;
    let fixture = Fixture::new(lasting, polling());
    let geometry = fixture.device.geometry();
    assert!(!geometry.volatile_cache);
    assert_eq!(geometry.deallocation, Deallocation::None);
    assert!(geometry.queue_depth < 8);
    // As long as the longest request.
    assert_eq!(geometry.atomic_blocks, 2048);
}

#[test]
fn namespaces_and_controllers_that_are_none_are_refused() {
    let options = model::Options {
        namespaces: vec![namespace(512), namespace(4096)],
        ..model::Options::default()
    };
    let model = model::Controller::new(options).expect("a sound model");
    let _stepper = model::Stepper::new(model.clone());
    let kind = |id| {
        let opened = open(&model, Some(id), polling());
        opened.err().map(|error| error.kind())
    };
    assert_eq!(kind(3), Some(ErrorKind::NotFound));
    let host = || Arc::new(SystemHost::new(Instant::now()));
    let function = model.function();
    let device = NvmeDevice::new("one", Arc::clone(&function), Some(2), host(), polling());
    let device = device.expect("a namespace");
    assert_eq!(device.geometry().block_bytes, 4096);
    let again = NvmeDevice::new("two", function, Some(1), host(), polling());
    assert_eq!(again.expect_err("it is in use").kind(), ErrorKind::InUse);
}

#[test]
fn what_is_flushed_or_written_through_survives_a_power_cut() {
    let mut lost = 0;
    for seed in 0..20 {
        let fixture = Fixture::new(model::Options { seed, ..of_512() }, polling());
        let arena = arena(&*fixture.device);
        let mut queue = fixture.device.queue().expect("a queue");
        let mut run = |request| {
            let completion = queue.run(request).expect("it makes sense");
            completion.result.expect("the model works");
        };
        for lba in 0..16 {
            run(Request::write(Lba(lba), filled(&arena, 512, 1), 0));
        }
        run(Request::flush(0));
        for lba in 16..32 {
            run(Request::write_through(Lba(lba), filled(&arena, 512, 2), 0));
        }
        for lba in 32..48 {
            run(Request::write(Lba(lba), filled(&arena, 512, 3), 0));
        }
        fixture.model.power_cut();
        for lba in 0..48 {
            let byte = fixture.model.peek(1, lba).expect("a block")[0];
            match lba {
                0..16 => assert_eq!(byte, 1, "block {lba}, seed {seed}"),
                16..32 => assert_eq!(byte, 2, "block {lba}, seed {seed}"),
                _ => lost += usize::from(byte != 3),
            }
        }
    }
    assert!(lost > 0, "the model loses what was not flushed");
}

#[test]
fn errors_of_commands_and_of_the_controller_are_told_apart() {
    let fixture = Fixture::new(of_512(), polling());
    let arena = arena(&*fixture.device);
    let mut queue = fixture.device.queue().expect("a queue");
    fixture.model.set_faults(model::Faults {
        rules: vec![model::FaultRule {
            target: model::Target::Io,
            when: model::When::Always,
            fault: model::Fault::Fail(model::Status::READ_ERROR),
        }],
        ..model::Faults::default()
    });
    let read = || Request::read(Lba(3), filled(&arena, 512, 0), 5);
    let completion = queue.run(read()).expect("it makes sense");
    assert_eq!(completion.token, 5);
    assert!(completion.buffer.is_some());
    let error = completion.result.expect_err("told to fail");
    assert_eq!(error.kind(), ErrorKind::Medium);
    let source = std::error::Error::source(&error).expect("it has a cause");
    assert!(
        source.to_string().contains("unrecovered read error"),
        "{source}"
    );

    fixture.model.set_faults(model::Faults::default());
    fixture.model.remove();
    let gone = match queue.run(read()) {
        Ok(completion) => completion.result.expect_err("it is gone"),
        Err(refused) => refused.error,
    };
    assert_eq!(gone.kind(), ErrorKind::Device);
    let refused = queue.submit(read()).expect_err("it is gone");
    assert_eq!(
        (refused.error.kind(), refused.request.token),
        (ErrorKind::Device, 5)
    );
    assert_eq!(refused.request.operation, Operation::Read);
    drop(queue);
}

#[test]
fn a_mistrusted_controller_is_flushed_after_writes_that_go_through() {
    for queues in [1, 4] {
        let model = model::Options { queues, ..of_512() };
        let fixture = Fixture::new(model, mistrusting());
        let arena = arena(&*fixture.device);
        let mut queue = fixture.device.queue().expect("a queue");
        let depth = fixture.device.geometry().queue_depth as u64;
        for lba in 0..depth {
            let blocks = usize::try_from(lba % 3 + 1).expect("a few");
            let buffer = filled(&arena, blocks * 512, 1);
            // All of one token: the queue must not tell requests apart by it.
            let request = match lba % 2 {
                0 => Request::write(Lba(lba * 4), buffer, 7),
                _ => Request::write_through(Lba(lba * 4), buffer, 7),
            };
            queue.submit(request).expect("there is room");
        }
        let beyond = Request::write_through(Lba(9), filled(&arena, 512, 1), 8);
        let refused = queue.submit(beyond).expect_err("it is full");
        assert_eq!(refused.error.kind(), ErrorKind::Full);
        assert_eq!(refused.request.operation, Operation::WriteThrough);
        assert_eq!(refused.request.token, 8);
        let mut blocks = 0;
        while let Some(completion) = queue.wait() {
            completion.result.expect("the model works");
            assert_eq!(completion.token, 7);
            blocks += completion.buffer.expect("a write has one").len() / 512;
        }
        let expected: u64 = (0..depth).map(|lba| lba % 3 + 1).sum();
        assert_eq!((blocks as u64, queue.in_flight()), (expected, 0));
        assert_eq!(fixture.model.counters().flushes, depth / 2);

        // What was written before is on the medium too: the bit alone would leave it in the cache.
        for lba in 0..3 {
            let written = queue.run(Request::write(Lba(lba), filled(&arena, 512, 2), 0));
            written.expect("it makes sense").result.expect("it works");
        }
        assert_ne!(fixture.model.unflushed(1).expect("a namespace"), 0);
        let through = Request::write_through(Lba(3), filled(&arena, 512, 2), 0);
        let through = queue.run(through).expect("it makes sense");
        through.result.expect("it works");
        assert_eq!(fixture.model.unflushed(1).expect("a namespace"), 0);

        let flushes = fixture.model.counters().flushes;
        fixture.model.set_faults(model::Faults {
            rules: vec![model::FaultRule {
                target: model::Target::Io,
                when: model::When::Always,
                fault: model::Fault::Fail(model::Status::READ_ERROR),
            }],
            ..model::Faults::default()
        });
        let failed = queue.run(Request::write_through(Lba(3), filled(&arena, 512, 3), 6));
        let failed = failed.expect("it makes sense");
        assert!(failed.result.is_err() && failed.buffer.is_some());
        assert_eq!(failed.token, 6);
        assert_eq!(fixture.model.counters().flushes, flushes);
        fixture.check_records();
    }
}

#[test]
fn pairs_of_dropped_queues_are_used_again() {
    let fixture = Fixture::new(
        model::Options {
            queues: 3,
            ..of_512()
        },
        polling(),
    );
    let made = || fixture.model.counters().commands;
    let queues = || -> Vec<Box<dyn Queue>> {
        (0..6)
            .map(|_| fixture.device.queue().expect("a queue"))
            .collect()
    };
    drop(queues());
    let before = made();
    for _ in 0..5 {
        drop(queues());
    }
    assert_eq!(made(), before, "no queue is made anew");
}

#[test]
fn a_controller_of_another_process_is_opened_by_its_name() {
    let folder = tempfile::tempdir().expect("a folder can be made");
    let socket = folder.path().join("controller");
    let service = model::Service::bind(of_512(), &socket).expect("a new socket");
    let stepper = model::Stepper::new(service.controller());
    let served = thread::spawn(move || service.serve_client());
    let spec: Spec = format!("vfio-user:{}/1", socket.display())
        .parse()
        .expect("a device");
    let device = spec
        .open(&OpenOptions::new(Instant::now()))
        .expect("it is served");
    assert_eq!(device.name(), spec.to_string());
    conformance::all(&device, 0..1);
    drop(device);
    served
        .join()
        .expect("no panic")
        .expect("the client has gone");
    drop(stepper);
}
