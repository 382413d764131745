//! The commands of `millrace nvme` on a controller model in this process.

use std::error::Error as _;
use std::sync::atomic::AtomicBool;

use super::command_line::parse;
use millrace_nvme::Options;
use millrace_nvme_model::{
    Controller, Fault, FaultRule, Faults, NamespaceOptions, Options as Model, Stepper, Target, When,
};
use millrace_tools::nvme::{Bench, BenchReport, Command, Device, IdentifyReport, SmartReport};
use millrace_tools::terminal::Report;
use millrace_tools::{ErrorKind, ToolError};
use rustix::event::{EventfdFlags, eventfd};
use serde_json::json;

/// A device on a model. The fields are dropped in their order: the model goes last.
struct Fixture {
    device: Device,
    model: Controller,
    _stepper: Stepper,
}

impl Fixture {
    fn new(options: Model) -> Self {
        let model = Controller::new(options).expect("there can be such a controller");
        let stepper = Stepper::new(model.clone());
        let name = "0000:01:00.0".to_owned();
        let device = Device::new(name, model.function(), Options::default());
        Self {
            device: device.expect("the model is a controller"),
            model,
            _stepper: stepper,
        }
    }

    fn bench(&self, options: &str) -> Result<BenchReport, ToolError> {
        let Command::Bench(options) = parse(&format!("bench 0000:01:00.0 {options}")) else {
            unreachable!("the command is bench");
        };
        let bench = Bench::new(&self.device, &options)?;
        bench.run(&AtomicBool::new(false), &mut |_| {})
    }

    fn format(&self, options: &str) -> Result<String, ToolError> {
        let Command::Format(options) = parse(&format!("format 0000:01:00.0/1 {options}")) else {
            unreachable!("the command is format");
        };
        let mut out = Vec::new();
        millrace_tools::nvme::format(&self.device, &options, &mut out)?;
        Ok(String::from_utf8(out).expect("text"))
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.model.violations(), []);
            assert_eq!(self.model.dma_faults(), []);
        }
    }
}

/// An error, its causes and its advice, as they are printed.
fn wording(error: &ToolError) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        text.push_str(": ");
        text.push_str(&inner.to_string());
        cause = inner.source();
    }
    for advice in error.advice() {
        text.push_str("\nhelp: ");
        text.push_str(advice);
    }
    text
}

#[test]
fn identify_describes_the_model() {
    let fixture = Fixture::new(Model::default());
    let report = IdentifyReport::new(&fixture.device, None).expect("the model answers");
    let expected = "\
0000:01:00.0 (Millrace model controller, serial number MODEL0001)
  firmware              1.0";
    assert!(report.text().starts_with(expected), "{}", report.text());
    let json = report.json();
    let namespace = &json["namespaces"][0];
    assert_eq!(namespace["size_bytes"], json!(64 << 20));
    assert_eq!(namespace["block_bytes"], json!(4096));
    assert_eq!(json["controller"]["volatile_write_cache_on"], json!(true));
    assert_eq!(json["controller"]["queue_pairs_max"], json!(16));
    assert_eq!(json["controller"]["doorbells_mapped"], json!(false));
}

#[test]
fn identify_says_whether_doorbells_are_mapped() {
    let fixture = Fixture::new(Model {
        mapped_doorbells: true,
        ..Model::default()
    });
    let report = IdentifyReport::new(&fixture.device, None).expect("the model answers");
    // The model has them mapped where pages are of 4 KiB.
    let expected = millrace_memory::base_page_size() == 4096;
    assert_eq!(report.doorbells_mapped, expected);
}

#[test]
fn identify_of_one_namespace_shows_no_other() {
    let namespaces = vec![NamespaceOptions::default(); 3];
    let fixture = Fixture::new(Model {
        namespaces,
        ..Model::default()
    });
    let ids = |namespace| {
        let report = IdentifyReport::new(&fixture.device, namespace)?;
        let ids = report.namespaces.iter().map(|namespace| namespace.id);
        Ok::<_, ToolError>(ids.collect::<Vec<_>>())
    };
    assert_eq!(ids(None).expect("all"), [1, 2, 3]);
    assert_eq!(ids(Some(2)).expect("one"), [2]);
    let error = wording(&ids(Some(4)).expect_err("there is none"));
    assert!(error.contains("no such namespace: namespace 4"), "{error}");
    assert!(error.contains("without --namespace lists"), "{error}");
}

#[test]
fn smart_counts_what_was_done() {
    let fixture = Fixture::new(Model::default());
    fixture.bench("--operations 1000 --depth 8").expect("a run");
    let report = SmartReport::new(&fixture.device, true).expect("the model answers");
    let json = report.json();
    assert_eq!(json["read_commands"], json!(1000));
    // 4,096,000 bytes, counted by the thousand of blocks of 512 bytes, rounded up.
    assert_eq!(json["data_read_bytes"], json!(8 * 512_000));
    assert_eq!(json["errors"], json!([]));
    assert!(
        report.text().ends_with("\nThe error log is empty.\n"),
        "{}",
        report.text()
    );
}

#[test]
fn format_refuses_unless_it_is_forced() {
    let fixture = Fixture::new(Model::default());
    fixture
        .bench("--write --force --operations 100")
        .expect("a run");
    let written = fixture.model.digest(1).expect("a namespace");
    let error = fixture.format("").expect_err("it was not forced");
    assert_eq!(error.kind(), ErrorKind::NotForced);
    let text = wording(&error);
    let expected = "0000:01:00.0 (Millrace model controller, serial number MODEL0001) was not formatted: \
                    all data would be lost of namespace 1: 67.10 MB (67,108,864 bytes), of which ";
    assert!(text.starts_with(expected), "{text}");
    assert!(text.ends_with("\nhelp: --force does it"), "{text}");
    assert_eq!(fixture.model.digest(1).expect("a namespace"), written);

    let text = fixture.format("--force").expect("it was forced");
    assert!(text.contains("namespace 1 was formatted in "), "{text}");
    let empty = Fixture::new(Model::default());
    let digest = |fixture: &Fixture| fixture.model.digest(1).expect("a namespace");
    assert_eq!(digest(&fixture), digest(&empty));
}

#[test]
fn format_refuses_what_the_device_cannot() {
    let fixture = Fixture::new(Model::default());
    let error = fixture
        .format("--force --format 40")
        .expect_err("there is no such");
    assert_eq!(error.kind(), ErrorKind::Usage);
    let text = wording(&error);
    assert!(text.contains("not 40\nhelp: 0: blocks of "), "{text}");

    let fixture = Fixture::new(Model {
        commands: millrace_nvme_model::Commands {
            format: false,
            ..Default::default()
        },
        ..Model::default()
    });
    let error = fixture
        .format("--force")
        .expect_err("it has no such command");
    assert!(
        error.to_string().ends_with("cannot be formatted"),
        "{error}"
    );
}

#[test]
fn bench_does_as_many_operations_as_it_is_told() {
    let namespaces = vec![NamespaceOptions::default(); 2];
    let fixture = Fixture::new(Model {
        namespaces,
        ..Model::default()
    });
    let rows = [
        ("--operations 1001 --threads 3 --depth 4", 1001, 0),
        (
            "--operations 500 --block-size 1M --pattern sequential --depth 2",
            500,
            0,
        ),
        ("--operations 300 --waiting interrupt --depth 2", 300, 0),
        ("--operations 300 --waiting hybrid --namespace 2", 300, 0),
        ("--operations 200 --write --force", 0, 200),
        ("--operations 200 --write --read-percent 100", 200, 0),
    ];
    for (options, reads, writes) in rows {
        let report = fixture.bench(options).expect(options);
        assert_eq!(
            (report.reads.len(), report.writes.len()),
            (reads, writes),
            "{options}"
        );
        assert!(!report.was_stopped);
    }
    let mixed = "--operations 1000 --read-percent 70 --write --force --seed 1";
    let (first, second) = (
        fixture.bench(mixed).expect("a run"),
        fixture.bench(mixed).expect("a run"),
    );
    assert_eq!(first.reads.len() + first.writes.len(), 1000);
    assert!(
        (600..800).contains(&first.reads.len()),
        "{}",
        first.reads.len()
    );
    assert_eq!(first.reads.len(), second.reads.len(), "the seed decides");
}

#[test]
fn bench_reports_rates_and_latencies() {
    let fixture = Fixture::new(Model::default());
    let report = fixture.bench("--operations 2000 --seed 7").expect("a run");
    let text = report.text();
    for expected in [
        "namespace 1\nrandom reads of 4 KiB, 32 in flight on 1 thread, polling, seed 7; ",
        "COUNT",
        "p99.99",
        "\nreads  2,000  ",
        "\nlatency of reads\n",
        " %  ###",
    ] {
        assert!(text.contains(expected), "{expected:?} in {text}");
    }
    assert!(!text.contains("writes"), "{text}");
    let json = report.json();
    assert_eq!(json["writes"], json!(null));
    assert_eq!(json["reads"]["operations"], json!(2000));
    let distribution = json["reads"]["distribution"].as_array().expect("a list");
    let counts = distribution
        .iter()
        .filter_map(|range| range["count"].as_u64());
    assert_eq!(counts.sum::<u64>(), 2000);
    let latency = |name: &str| json["reads"]["latency_ns"][name].as_u64().expect(name);
    assert!(latency("min") <= latency("p50") && latency("p50") <= latency("max"));
}

#[test]
fn bench_ends_when_it_is_told_to_stop() {
    let fixture = Fixture::new(Model::default());
    let Command::Bench(options) = parse("bench 0000:01:00.0 --seconds 100000") else {
        unreachable!("the command is bench");
    };
    let bench = Bench::new(&fixture.device, &options).expect("a run");
    let stop = AtomicBool::new(true);
    let report = bench.run(&stop, &mut |_| {}).expect("it ends in order");
    assert!(report.was_stopped && report.reads.is_empty());
    assert!(report.text().ends_with("Nothing was measured.\n"));
}

/// The kernel waits for the device: what was measured is told, and the device given back.
#[test]
fn bench_ends_when_the_kernel_wants_the_device() {
    let fixture = Fixture::new(Model::default());
    let Command::Bench(options) = parse("bench 0000:01:00.0 --seconds 100000 --threads 2") else {
        unreachable!("the command is bench");
    };
    let run = |wanted: bool| {
        let event =
            eventfd(u32::from(wanted), EventfdFlags::CLOEXEC).expect("a descriptor is left");
        let bench = Bench::new(&fixture.device, &options).expect("a run");
        let stop = AtomicBool::new(!wanted);
        bench.ended_by(event).run(&stop, &mut |_| {})
    };
    let report = run(true).expect("it ends in order");
    assert!(report.was_stopped && report.was_removed);
    assert!(
        report.text().contains("the kernel wants the device back"),
        "{}",
        report.text()
    );
    assert_eq!(report.json()["removed"], json!(true));
    let report = run(false).expect("it ends in order");
    assert!(report.was_stopped && !report.was_removed);
    assert!(!report.text().contains("kernel"), "{}", report.text());
}

#[test]
fn bench_writes_only_when_forced() {
    let fixture = Fixture::new(Model::default());
    let empty = fixture.model.digest(1).expect("a namespace");
    let rows = [
        ("--write", "what the writes hit would be lost, of 67.10 MB"),
        (
            "--read-percent 50",
            "the other 50 operations of 100 would be writes",
        ),
        ("--read-percent 50 --force", "--write --force allows them"),
        (
            "--read-percent 50 --write",
            "namespace 1: what the writes hit",
        ),
    ];
    for (options, expected) in rows {
        let error = fixture.bench(options).expect_err(options);
        assert_eq!(error.kind(), ErrorKind::NotForced, "{options}");
        let text = wording(&error);
        assert!(text.contains(expected), "{options}: {text}");
    }
    assert_eq!(fixture.model.digest(1).expect("a namespace"), empty);
}

#[test]
fn bench_refuses_numbers_that_do_not_suit_the_device() {
    let fixture = Fixture::new(Model {
        queues: 2,
        vectors: 2,
        ..Model::default()
    });
    let rows = [
        (
            "--block-size 512",
            ErrorKind::Usage,
            "use a multiple of 4096",
        ),
        (
            "--block-size 64M --threads 2",
            ErrorKind::Usage,
            "fewer --threads",
        ),
        ("--threads 3", ErrorKind::Device, "fewer --threads"),
        (
            "--threads 2 --waiting interrupt",
            ErrorKind::Device,
            "--waiting poll",
        ),
        ("--namespace 9", ErrorKind::Device, "lists the namespaces"),
    ];
    for (options, kind, expected) in rows {
        let error = fixture.bench(options).expect_err(options);
        let text = wording(&error);
        assert_eq!(error.kind(), kind, "{options}: {text}");
        assert!(text.contains(expected), "{options}: {text}");
    }
}

#[test]
fn an_operation_that_fails_ends_the_run() {
    // Unrecovered read error, not to be tried again.
    let status = millrace_nvme_model::Status(0x4281);
    let rule = FaultRule {
        target: Target::Io,
        when: When::Nth(500),
        fault: Fault::Fail(status),
    };
    let fixture = Fixture::new(Model {
        faults: Faults {
            rules: vec![rule],
            ..Faults::default()
        },
        ..Model::default()
    });
    let error = fixture
        .bench("--seconds 100000 --threads 2")
        .expect_err("a read fails");
    assert_eq!(error.kind(), ErrorKind::Device);
    let text = wording(&error);
    assert!(
        text.contains("an operation failed, the run was ended: read at block "),
        "{text}"
    );
    assert!(text.contains("unrecovered read error"), "{text}");
}
