//! `cargo bench -p millrace-nvme --bench instructions`: instructions that the driver takes for a read of 4 KiB,
//! counted by callgrind.
//!
//! The program runs itself under valgrind. The model of a controller is stepped on the same thread between the
//! two counted sections: submitting, and taking completions. No poll is empty. What the model's doorbell takes
//! is counted with the driver, as is taking a buffer's ownership and giving it back.

use std::collections::HashMap;
use std::env;
use std::error::Error;
use std::fs;
use std::hint::black_box;
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::{Duration, Instant};

use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};
use millrace_nvme::{
    Controller, Data, Host, Lba, Namespace, Options, QueueOptions, QueuePair, Request, Waiting,
};
use millrace_nvme_model as model;

/// Reads that are counted.
const READS: u64 = 12_800;
const DEPTHS: [u16; 3] = [1, 32, 128];
/// Says to a child that it is the one to be counted, and how deep.
const CHILD: &str = "MILLRACE_NVME_INSTRUCTIONS";

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Steps the model while the driver sets up.
#[derive(Debug)]
struct Stepping {
    model: model::Controller,
    start: Instant,
}

impl Host for Stepping {
    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    fn relax(&self, _: u32) {
        self.model.step();
    }
}

/// Counted.
#[inline(never)]
fn counted_submit(pair: &mut QueuePair, namespace: &Namespace, buffers: &mut Vec<Data>) {
    let mut lba = 0;
    while let Some(buffer) = buffers.pop() {
        let request = Request::read(Lba(lba), buffer, lba);
        assert!(pair.submit(namespace, request).is_ok(), "there is room");
        lba += 1;
    }
    pair.ring();
}

/// Counted.
#[inline(never)]
fn counted_complete(pair: &mut QueuePair, buffers: &mut Vec<Data>) -> usize {
    pair.poll(|completion| {
        black_box(completion.result.is_ok());
        if let Some(data) = completion.data {
            buffers.push(data);
        }
    })
}

fn run_counted(depth: u16) -> Outcome<()> {
    let model = model::Controller::new(model::Options {
        namespaces: vec![model::NamespaceOptions {
            block_size: 4096,
            blocks: 4096,
            ..model::NamespaceOptions::default()
        }],
        no_data: true,
        mapped_doorbells: true,
        burst: usize::from(depth),
        ..model::Options::default()
    })?;
    let host = Arc::new(Stepping {
        model: model.clone(),
        start: Instant::now(),
    });
    let controller = Controller::open(model.function(), host, Options::default())?;
    let namespace = controller.namespace(1)?;
    let arena = Arena::new(
        Arc::clone(controller.domain()),
        &ArenaOptions {
            classes: vec![SizeClass {
                size: 4096,
                count: u32::from(depth),
            }],
            pages: Pages::Base,
            node: None,
            locked: true,
        },
    )?;
    let mut pair = controller.queue_pair(QueueOptions {
        depth,
        waiting: Waiting::Poll,
    })?;
    let mut buffers = (0..depth)
        .map(|_| arena.try_buffer(4096).map(Data::from))
        .collect::<Result<Vec<_>, _>>()?;
    for _ in 0..READS / u64::from(depth) {
        counted_submit(&mut pair, &namespace, &mut buffers);
        while pair.under_way() > 0 {
            let completed = model.counters().completions;
            while model.counters().completions - completed < pair.under_way() as u64 {
                model.step();
            }
            counted_complete(&mut pair, &mut buffers);
        }
    }
    assert_eq!(model.violations(), []);
    Ok(())
}

/// Instructions that callgrind collected in `function`: in the driver, and in the loop around it.
fn collected(depth: u16, function: &str) -> Outcome<(u64, u64)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--toggle-collect=*::{function}"))
        .arg(env::current_exe()?)
        .env(CHILD, depth.to_string())
        .output()
        .map_err(|error| format!("valgrind cannot be started (is it installed?): {error}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the counted run failed:\n{log}").into());
    }
    sum(&fs::read_to_string(file)?)
}

/// Adds up the costs of functions in callgrind's output (its manual, "Callgrind Format Specification"): those
/// of the driver's crates, and others. A name stands once, with a number, and afterwards the number alone.
fn sum(profile: &str) -> Outcome<(u64, u64)> {
    let mut is_driver = HashMap::new();
    let (mut driver, mut others) = (0, 0);
    let mut current = false;
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        let called = line.strip_prefix("cfn=");
        if let Some(name) = called.or_else(|| line.strip_prefix("fn=")) {
            let (number, name) = name.split_once(' ').unwrap_or((name, ""));
            if !name.is_empty() {
                is_driver.insert(number.to_owned(), name.contains("millrace_"));
            }
            if called.is_none() {
                current = is_driver.get(number).copied().unwrap_or(false);
            }
        } else if line.starts_with("calls=") {
            // The cost of the callee, which is counted where it is.
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).ok_or("a line without a cost")?;
            let cost: u64 = cost.parse()?;
            if current {
                driver += cost;
            } else {
                others += cost;
            }
        }
    }
    Ok((driver, others))
}

fn compare() -> Outcome<()> {
    println!(
        "instructions a read of 4 KiB, {READS} reads a depth; the target is 300 in the driver"
    );
    println!(
        "{:>5}  {:>8}  {:>8}  {:>8}  {:>13}",
        "depth", "submit", "complete", "driver", "caller's loop"
    );
    for depth in DEPTHS {
        let (submit, around_submit) = collected(depth, "counted_submit")?;
        let (complete, around_complete) = collected(depth, "counted_complete")?;
        let each = |count: u64| count.div_ceil(READS);
        println!(
            "{depth:>5}  {:>8}  {:>8}  {:>8}  {:>13}",
            each(submit),
            each(complete),
            each(submit + complete),
            each(around_submit + around_complete),
        );
    }
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match env::var(CHILD).ok().and_then(|depth| depth.parse().ok()) {
        Some(depth) => run_counted(depth),
        None => compare(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
