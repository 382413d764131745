//! The binary's `nvme` commands on a controller that this process serves over vfio-user.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;

use millrace_nvme_model::{Options, Service, Stepper};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A controller that is served to one client after the other, until the test's process ends.
struct Served {
    socket: PathBuf,
    service: Arc<Service>,
    _stepper: Stepper,
    _folder: TempDir,
}

impl Served {
    fn new() -> Self {
        Self::with(Options::default())
    }

    fn with(options: Options) -> Self {
        let folder = TempDir::with_prefix("millrace-").expect("a temporary folder");
        let socket = folder.path().join("ctrl.sock");
        let service = Service::bind(options, &socket).expect("a new socket");
        let service = Arc::new(service);
        let stepper = Stepper::new(service.controller());
        let serving = Arc::clone(&service);
        // It waits for a client that never comes when the test has ended.
        thread::spawn(move || while serving.serve_client().is_ok() {});
        Self {
            socket,
            service,
            _stepper: stepper,
            _folder: folder,
        }
    }

    fn run(&self, command: &str, options: &str) -> Output {
        let spec = format!("vfio-user:{}", self.socket.display());
        millrace(&[&[command, &spec], &words(options)[..]].concat())
    }

    /// The JSON that a command prints.
    fn json(&self, command: &str, options: &str) -> Value {
        let output = self.run(command, &format!("{options} --json"));
        assert!(output.status.success(), "{}", error_of(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

fn words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

fn millrace(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_millrace"))
        .arg("nvme")
        .args(arguments)
        .output()
        .expect("the binary starts")
}

fn text_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn error_of(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn every_command_helps_with_examples() {
    for command in [
        "list", "bind", "unbind", "identify", "smart", "format", "bench",
    ] {
        let output = millrace(&[command, "--help"]);
        let text = text_of(&output);
        assert!(output.status.success(), "{command}");
        assert!(text.contains("Examples:\n  millrace nvme "), "{text}");
        assert!(text.contains("--json"), "{text}");
    }
}

#[test]
fn a_served_controller_is_identified_measured_and_formatted() {
    let served = Served::new();
    let output = served.run("identify", "");
    let text = text_of(&output);
    assert!(output.status.success(), "{}", error_of(&output));
    assert!(
        text.contains("(Millrace model controller, serial number MODEL0001)\n"),
        "{text}"
    );
    assert!(text.contains("\nNamespace 1\n"), "{text}");
    let identified = served.json("identify", "--namespace 1");
    assert_eq!(identified["namespaces"][0]["block_bytes"], json!(4096));

    let run = "--operations 500 --depth 4 --write --force --read-percent 50";
    let measured = served.json("bench", run);
    let count = |kind: &str| measured[kind]["operations"].as_u64().expect(kind);
    assert_eq!(count("reads") + count("writes"), 500);
    let health = served.json("smart", "--errors");
    assert_eq!(health["write_commands"], json!(count("writes")));

    let digest = || served.service.controller().digest(1).expect("a namespace");
    let written = digest();
    let output = served.run("format", "--namespace 1");
    assert_eq!(output.status.code(), Some(1));
    let error = error_of(&output);
    assert!(
        error.contains("all data would be lost of namespace 1"),
        "{error}"
    );
    assert!(error.ends_with("\n  help: --force does it\n"), "{error}");
    assert_eq!(digest(), written);
    let output = served.run("format", "--namespace 1 --force");
    assert!(output.status.success(), "{}", error_of(&output));
    assert_ne!(digest(), written);
    assert_eq!(served.service.controller().violations(), []);
    assert_eq!(served.service.controller().dma_faults(), []);
}

#[test]
fn threads_that_sleep_are_woken_by_interrupts() {
    let served = Served::new();
    let run = "--operations 300 --depth 2 --threads 2 --waiting interrupt";
    let measured = served.json("bench", run);
    assert_eq!(measured["reads"]["operations"], json!(300));
    assert_eq!(measured["workload"]["waiting"], json!("interrupt"));
}

#[test]
fn what_is_no_controller_is_told() {
    // A SATA controller.
    let served = Served::with(Options {
        class: 0x01_0601,
        ..Options::default()
    });
    for (command, options) in [
        ("identify", ""),
        ("smart", ""),
        ("format", "--namespace 1 --force"),
        ("bench", "--operations 1"),
    ] {
        let output = served.run(command, options);
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(1), "{command}: {error}");
        assert!(
            error.contains("not an NVMe controller: "),
            "{command}: {error}"
        );
        assert!(
            error.contains("has PCI class 0x010601, not 0x010802"),
            "{command}: {error}"
        );
        assert!(
            error.contains("\n  help: `millrace nvme list` lists"),
            "{command}: {error}"
        );
        assert_eq!(text_of(&output), "", "{command}");
    }
}

#[test]
fn failures_end_with_1_and_mistakes_with_2() {
    let rows = [
        (
            "identify vfio-user:/nonexistent.sock",
            1,
            "help: start the process",
        ),
        ("identify ffff:ff:1f.7", 1, "help: `millrace nvme list`"),
        ("bind ffff:ff:1f.7", 1, "help: `millrace nvme list`"),
        (
            "format ffff:ff:1f.7",
            1,
            "which namespace is to be formatted?",
        ),
        ("identify ffff:ff:1f.7/1 --namespace 2", 1, "which one?"),
        ("bench ffff:ff:1f.7 --read-percent 50", 1, "--write --force"),
        ("identify nvme0", 2, "`millrace nvme list`"),
        ("bench ffff:ff:1f.7 --block-size 5G", 2, "is not K or M"),
        ("bench ffff:ff:1f.7 --depth 0", 2, "1..=4095"),
        ("bench", 2, "<SPEC>"),
        (
            "format ffff:ff:1f.7/1 --force --timeout 0",
            2,
            "0 is not in 1..",
        ),
    ];
    for (line, code, expected) in rows {
        let output = millrace(&words(line));
        let error = error_of(&output);
        assert_eq!(output.status.code(), Some(code), "{line}: {error}");
        assert!(error.contains(expected), "{line}: {error}");
        assert_eq!(text_of(&output), "", "{line}");
    }
}
