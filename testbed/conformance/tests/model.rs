//! The whole run against our own controller, which runs on a thread of its own.

use std::sync::Arc;
use std::time::Instant;

use millrace_conformance::{Report, Settings, run};
use millrace_nvme::{Host, SystemHost};
use millrace_nvme_model::{Controller, NamespaceOptions, Options, Rule, SglSupport, Stepper};

fn run_against(options: Options, operations: u32) -> Result<Report, Box<dyn std::error::Error>> {
    let controller = Controller::new(options)?;
    let stepper = Stepper::new(controller.clone());
    let host: Arc<dyn Host> = Arc::new(SystemHost::new(Instant::now()));
    let settings = Settings {
        operations,
        ..Settings::default()
    };
    let outcome = run(&controller.function(), &host, settings, &mut |line| {
        println!("{line}")
    });
    drop(stepper);
    let report = outcome?;
    let violations = controller.violations();
    // A thread may ring its queue while another one resets the controller: nothing comes of it.
    let others = violations
        .iter()
        .filter(|violation| violation.rule != Rule::DoorbellWithoutQueue);
    assert_eq!(others.count(), 0, "{violations:?}");
    assert_eq!(controller.dma_faults(), []);
    Ok(report)
}

fn namespace(block_size: u32, mebibytes: u64) -> NamespaceOptions {
    NamespaceOptions {
        block_size,
        blocks: (mebibytes << 20) / u64::from(block_size),
        ..NamespaceOptions::default()
    }
}

#[test]
fn a_controller_with_everything_conforms() -> Result<(), Box<dyn std::error::Error>> {
    let report = run_against(
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
        },
        2_000,
    )?;
    assert_eq!(report.namespaces, 2);
    assert!(report.reads > 500 && report.writes > 1000, "{report}");
    Ok(())
}

#[test]
fn a_controller_with_large_pages_and_wide_doorbells_conforms()
-> Result<(), Box<dyn std::error::Error>> {
    let report = run_against(
        Options {
            namespaces: vec![namespace(4096, 64)],
            doorbell_stride: 3,
            transfer_max: 0,
            queue_entries_max: 17,
            volatile_cache: false,
            ..Options::default()
        },
        500,
    )?;
    assert_eq!(report.namespaces, 1);
    Ok(())
}
