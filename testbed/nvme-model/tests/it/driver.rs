//! The driver on a served controller whose faults were said in words: from end to end, as `--fault` has them.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};
use millrace_nvme::{
    CommandError, Condition, Controller, Lba, Options, QueueOptions, Request, SystemHost, Waiting,
};
use millrace_nvme_model as model;
use millrace_pci::vfio_user;

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

/// Reads at a time, of as many that a test gives.
const DEPTH: u16 = 8;
const READS: u64 = 32;

/// Longer than anything takes that is not lost.
const PATIENCE: Duration = Duration::from_secs(30);

/// What the driver came to.
#[derive(Debug)]
struct Run {
    results: Vec<Result<(), CommandError>>,
    condition: Condition,
    resets: u64,
}

/// Opens the controller behind a socket, and reads blocks from it. A read that takes longer than `patience` is
/// missed.
fn drive(socket: &Path, patience: Duration) -> Outcome<Run> {
    let function = vfio_user::connect(socket)?;
    let host = Arc::new(SystemHost::new(Instant::now()));
    let options = Options {
        command_timeout: patience,
        ..Options::default()
    };
    let controller = Controller::open(function, host, options)?;
    let namespace = controller.namespace(1)?;
    let mut pair = controller.queue_pair(QueueOptions {
        depth: DEPTH,
        waiting: Waiting::Poll,
    })?;
    let class = SizeClass {
        size: 4096,
        count: u32::from(DEPTH),
    };
    let memory = ArenaOptions {
        classes: vec![class],
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    let arena = Arena::new(Arc::clone(controller.domain()), &memory)?;
    let mut results = Vec::new();
    for first in (0..READS).step_by(usize::from(DEPTH)) {
        for block in first..first + u64::from(DEPTH) {
            let mut buffer = arena.try_buffer(4096)?;
            buffer.fill(0xff);
            let request = Request::read(Lba(block), buffer, block);
            if pair.submit(&namespace, request).is_err() {
                break;
            }
        }
        while pair.requests_in_flight() > 0 {
            pair.wait(Duration::from_secs(1), |ended| {
                let buffer = ended.data.and_then(millrace_nvme::Data::into_buffer);
                if ended.result.is_ok() {
                    let zeros = buffer.is_some_and(|buffer| buffer.iter().all(|byte| *byte == 0));
                    assert!(zeros, "block {} was read", ended.token);
                }
                results.push(ended.result);
            });
        }
    }
    Ok(Run {
        results,
        condition: controller.condition(),
        resets: controller.resets(),
    })
}

/// Drives a controller with a fault; nothing that the driver did may be a breach.
fn run(words: &str, patience: Duration) -> Outcome<Run> {
    let mut options = model::Options::default();
    options.faults.add(words)?;
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let service = model::Service::bind(options, &socket)?;
    let controller = service.controller();
    let stepper = model::Stepper::new(controller.clone());
    let server = thread::spawn(move || service.serve_client());
    let run = drive(&socket, patience);
    let served = server.join();
    drop(stepper);
    served.map_err(|_| "the server panicked")??;
    assert_eq!(controller.violations(), [], "{words}");
    assert_eq!(controller.dma_faults(), [], "{words}");
    run
}

#[test]
fn faults_that_the_driver_gets_over() -> Outcome {
    for (words, is_reset) in [
        ("read@3=fail:006", false),
        ("io=reorder:50", false),
        ("read@1/8=delay:200", false),
        ("read@2=fatal", true),
        ("read@5=wrong-id", true),
        ("read@5=head-beyond", true),
    ] {
        let Run {
            results,
            condition,
            resets,
        } = run(words, PATIENCE)?;
        assert_eq!(results.len() as u64, READS, "{words}");
        assert!(results.iter().all(Result::is_ok), "{words}: {results:?}");
        assert_eq!(condition, Condition::Ready);
        assert!(resets > 0 || !is_reset, "{words}");
    }
    // Completions that never come, or are written over. Whether what is missed is aborted, or the controller
    // reset, is left to chance.
    for words in ["read@4=lose", "read@9=garbage", "read@9=overwrite"] {
        let missed = run(words, Duration::from_millis(300))?;
        let is_well = missed.results.iter().all(Result::is_ok);
        assert!(is_well, "{words}: {missed:?}");
    }
    Ok(())
}

#[test]
fn faults_that_the_driver_tells() -> Outcome {
    let failed = run("read@3=fail:4281", PATIENCE)?;
    let wrong: Vec<_> = failed.results.iter().filter(|one| one.is_err()).collect();
    let [Err(CommandError::Status(status))] = wrong[..] else {
        return Err(format!("{failed:?}").into());
    };
    assert_eq!(status.code(), 0x81);

    let removed = run("read@3=remove", PATIENCE)?;
    assert_eq!(removed.condition, Condition::Gone);
    assert_eq!(removed.results.len(), usize::from(DEPTH));
    let gone = Err(CommandError::Gone);
    assert!(removed.results.contains(&gone));
    Ok(())
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace-nvme-model"));
    command.args(arguments);
    command
}

#[test]
fn the_command_serves_faults() -> Outcome {
    let folder = tempfile::tempdir()?;
    let socket = folder.path().join("socket");
    let fault = ["--fault", "read@3=fail:4281"];
    let mut server = command(&["--once", "--size", "1M", "--seed", "5", fault[0], fault[1]])
        .arg("--socket")
        .arg(&socket)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    let output = server.stdout.take().ok_or("it has no output")?;
    BufReader::new(output).read_line(&mut line)?;
    assert!(line.starts_with("serving"), "{line}");
    let run = drive(&socket, PATIENCE)?;
    assert_eq!(run.results.iter().filter(|one| one.is_err()).count(), 1);
    let mut said = String::new();
    let mut errors = server.stderr.take().ok_or("it has no errors")?;
    errors.read_to_string(&mut said)?;
    assert!(server.wait()?.success());
    assert_eq!(said, "", "no breach was found");
    Ok(())
}

#[test]
fn the_command_says_which_faults_there_are() -> Outcome {
    let output = command(&["--help"]).output()?;
    assert!(output.status.success());
    let said = String::from_utf8(output.stdout)?;
    for word in ["--fault", "--seed", "never-disabled", "read@3=fail:281"] {
        assert!(said.contains(word), "{word} in {said}");
    }
    let output = command(&["--fault", "reads=lose"]).output()?;
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains("\"reads=lose\" is no fault"), "{said}");
    let size = ["--socket", "/nonexistent/socket", "--size", "9000000000G"];
    let output = command(&size).output()?;
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr)?;
    assert!(said.contains("such a controller cannot be"), "{said}");
    Ok(())
}
