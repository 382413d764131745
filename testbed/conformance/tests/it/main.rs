//! The whole run against our own controller, which runs on a thread of its own.

use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Instant;

use millrace_conformance::{Report, Settings, provoke_stray_read, run};
use millrace_nvme::{Host, SystemHost};
use millrace_nvme_model::{
    Controller, Fault, FaultRule, Faults, NamespaceOptions, Options, Rule, Service, SglSupport,
    Status, Stepper, Target, When,
};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

/// Looks at what the driver did against the rules when a phase has ended, and forgets it.
fn check_phase(controller: &Controller, phase: &str) {
    let violations = controller.violations();
    // A thread may ring a queue before it sees that another thread has reset the controller: harmless.
    let may_be_late = phase.contains("reset") || phase.contains("stray doorbells");
    let others = violations
        .iter()
        .filter(|violation| !(may_be_late && violation.rule == Rule::DoorbellWithoutQueue));
    assert_eq!(others.count(), 0, "{phase}: {violations:?}");
    assert_eq!(controller.dma_faults(), [], "{phase}");
    controller.clear_records();
}

fn run_against(options: Options, settings: &Settings) -> Outcome<Report> {
    let controller = Controller::new(options)?;
    let stepper = Stepper::new(controller.clone());
    let host: Arc<dyn Host> = Arc::new(SystemHost::new(Instant::now()));
    let outcome = run(&controller.function(), &host, settings, &mut |line| {
        println!("{line}");
        check_phase(&controller, line);
    });
    drop(stepper);
    let report = outcome?;
    check_phase(&controller, "the end");
    Ok(report)
}

fn namespace(block_size: u32, mebibytes: u64) -> NamespaceOptions {
    NamespaceOptions {
        block_size,
        blocks: (mebibytes << 20) / u64::from(block_size),
        ..NamespaceOptions::default()
    }
}

fn settings(operations: u32, expected: &[&str]) -> Outcome<Settings> {
    let mut settings = Settings {
        operations,
        ..Settings::default()
    };
    for word in expected {
        settings.expected.add(word)?;
    }
    Ok(settings)
}

fn with_everything() -> Options {
    Options {
        namespaces: vec![
            NamespaceOptions {
                optimal_boundary: 96,
                ..namespace(512, 64)
            },
            namespace(4096, 64),
        ],
        sgl: SglSupport::Any,
        ..Options::default()
    }
}

const EVERYTHING: [&str; 7] = [
    "features=compare,deallocate,reads-zero,sgl,shadow-doorbells,volatile-cache,write-zeroes",
    "namespaces=1:131072x512,2:16384x4096",
    "device-page=4096",
    "transfer=131072",
    "queue-pairs=16",
    "vectors=17",
    "function-reset=yes",
];

#[test]
fn a_controller_with_everything_conforms() -> Outcome<()> {
    let report = run_against(with_everything(), &settings(2_000, &EVERYTHING)?)?;
    assert_eq!(report.namespaces, 2);
    assert!(report.reads > 500 && report.writes > 1000, "{report}");
    // Each of 16 vectors, before and after a reset, before and after one of the function.
    assert_eq!((report.interrupts, report.events), (64, 2));
    Ok(())
}

#[test]
fn what_is_missing_is_found_out() -> Outcome<()> {
    let mut options = with_everything();
    options.commands.compare = false;
    let error = run_against(options, &settings(100, &EVERYTHING)?).expect_err("no compare");
    assert!(
        error.to_string().starts_with("features is deallocate,"),
        "{error}"
    );
    let options = Options {
        vectors: 1,
        ..with_everything()
    };
    let error = run_against(options, &settings(100, &[])?).expect_err("no interrupts");
    assert!(error.to_string().starts_with("interrupts yes:"), "{error}");
    Ok(())
}

#[test]
fn what_the_driver_mends_by_itself_is_found_out() -> Outcome<()> {
    let cases = [
        (
            Fault::Fail(Status::INTERNAL),
            "0 resets, 0 of them unasked, 0 aborts, 1 ",
        ),
        (Fault::WrongId, "1 resets, 1 of them unasked, 0 aborts, "),
        (
            Fault::CompleteTwice,
            "1 resets, 1 of them unasked, 0 aborts, ",
        ),
        (Fault::Fatal, "1 resets, 1 of them unasked, 0 aborts, "),
    ];
    for (fault, mended) in cases {
        let rule = FaultRule {
            target: Target::Io,
            when: When::Nth(30),
            fault,
        };
        let options = Options {
            faults: Faults {
                rules: vec![rule],
                ..Faults::default()
            },
            // With one the flush after a reset fails, as what was not flushed before may be lost.
            volatile_cache: false,
            ..with_everything()
        };
        let error = run_against(options, &settings(100, &[])?).expect_err("it was mended");
        assert!(error.to_string().contains(mended), "{fault:?}: {error}");
    }
    Ok(())
}

#[test]
fn a_controller_with_large_pages_and_wide_doorbells_conforms() -> Outcome<()> {
    let options = Options {
        namespaces: vec![namespace(4096, 64)],
        doorbell_stride: 3,
        page_min: 4,
        transfer_max: 0,
        queue_entries_max: 17,
        vectors: 1,
        volatile_cache: false,
        ..Options::default()
    };
    let settings = Settings {
        interrupts: false,
        ..settings(500, &["device-page=65536", "transfer=1048576", "vectors=1"])?
    };
    let report = run_against(options, &settings)?;
    assert_eq!((report.namespaces, report.interrupts), (1, 0));
    Ok(())
}

#[test]
fn a_stray_read_is_one() -> Outcome<()> {
    let controller = Controller::new(Options::default())?;
    let stepper = Stepper::new(controller.clone());
    let host = SystemHost::new(Instant::now());
    provoke_stray_read(&*controller.function(), &host, 0x3abc_d000)?;
    drop(stepper);
    let faults = controller.dma_faults();
    assert!(!faults.is_empty());
    Ok(())
}

#[test]
fn the_program_drives_what_another_process_serves() -> Outcome<()> {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let options = Options {
        namespaces: vec![namespace(4096, 64)],
        ..with_everything()
    };
    let service = Service::bind(options, &socket)?;
    let controller = service.controller();
    let stepper = Stepper::new(controller.clone());
    let server = thread::spawn(move || service.serve_client());
    let ran = Command::new(env!("CARGO_BIN_EXE_millrace-conformance"))
        .arg("--socket")
        .arg(&socket)
        .args(["--operations", "500", "--expect", "vectors=17"])
        .output()?;
    let said = String::from_utf8_lossy(&ran.stdout);
    println!("{said}");
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("conformance: passed: 1 namespaces"), "{said}");
    server.join().map_err(|_| "the server panicked")??;
    drop(stepper);
    // The program resets it by itself, and doorbells are seen late: which were rung when cannot be told here.
    let violations = controller.violations();
    let others = violations
        .iter()
        .filter(|violation| violation.rule != Rule::DoorbellWithoutQueue);
    assert_eq!(others.count(), 0, "{violations:?}");
    assert_eq!(controller.dma_faults(), []);
    Ok(())
}
