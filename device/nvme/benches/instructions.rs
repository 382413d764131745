//! `cargo bench -p millrace-nvme --bench instructions`: instructions that the driver takes for a read of 4 KiB,
//! counted by callgrind.
//!
//! The program runs itself under valgrind. The model of a controller is stepped on the same thread between the
//! two counted sections: submitting, and taking completions. No poll is empty. What the model's doorbell takes
//! is counted with the driver, as is taking a buffer's ownership and giving it back, and whatever the driver calls:
//! all that happens in [`submit`], [`ring`] and [`poll`], which are not compiled into the loop around them as they
//! would be elsewhere. That loop, and what is done with a completion, is the caller's.
//!
//! It fails if the driver takes more than [`MOST`], so that a test run can demand that: the same program takes the same
//! instructions on every run.

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
    Completion, Controller, Data, Host, Lba, Namespace, Options, QueueOptions, QueuePair, Request,
    Waiting,
};
use millrace_nvme_model as model;

/// Reads that are counted.
const READS: u64 = 12_800;
const DEPTHS: [u16; 3] = [1, 32, 128];
/// The most instructions that the driver may take for one, at any depth.
const MOST: u64 = 300;
/// Says to a child that it is the one to be counted: how deep, and whether with shadow doorbells.
const CHILD: &str = "MILLRACE_NVME_INSTRUCTIONS";
/// How the functions are called whose instructions are the caller's.
const CALLER: &str = "instructions::counted_";

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

#[inline(never)]
fn submit(pair: &mut QueuePair, namespace: &Namespace, request: Request) -> bool {
    pair.submit(namespace, request).is_ok()
}

#[inline(never)]
fn ring(pair: &mut QueuePair) {
    pair.ring();
}

#[inline(never)]
fn poll(pair: &mut QueuePair, buffers: &mut Vec<Data>) -> usize {
    pair.poll(|completion| counted_done(completion, buffers))
}

#[inline(never)]
fn counted_submit(pair: &mut QueuePair, namespace: &Namespace, buffers: &mut Vec<Data>) {
    let mut lba = 0;
    while let Some(buffer) = buffers.pop() {
        let request = Request::read(Lba(lba), buffer, lba);
        assert!(submit(pair, namespace, request), "there is room");
        lba += 1;
    }
    ring(pair);
}

#[inline(never)]
fn counted_complete(pair: &mut QueuePair, buffers: &mut Vec<Data>) -> usize {
    poll(pair, buffers)
}

#[inline(never)]
fn counted_done(completion: Completion, buffers: &mut Vec<Data>) {
    black_box(completion.result.is_ok());
    if let Some(data) = completion.data {
        buffers.push(data);
    }
}

fn run_counted(depth: u16, shadows: bool) -> Outcome<()> {
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
    let options = Options {
        shadow_doorbells: shadows,
        ..Options::default()
    };
    let controller = Controller::open(model.function(), host, options)?;
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
        while pair.requests_in_flight() > 0 {
            let completed = model.counters().completions;
            while model.counters().completions - completed < pair.requests_in_flight() as u64 {
                model.step();
            }
            counted_complete(&mut pair, &mut buffers);
        }
    }
    assert_eq!(model.violations(), []);
    Ok(())
}

/// Instructions that callgrind collected in `function`: in the driver, and in the loop around it.
fn collected(child: &str, function: &str) -> Outcome<(u64, u64)> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("callgrind.out");
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no"])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(format!("--toggle-collect=*::{function}"))
        .arg(env::current_exe()?)
        .env(CHILD, child)
        .output()
        .map_err(|error| format!("valgrind cannot be started (is it installed?): {error}"))?;
    if !output.status.success() {
        let log = String::from_utf8_lossy(&output.stderr);
        return Err(format!("the counted run failed:\n{log}").into());
    }
    sum(&fs::read_to_string(file)?)
}

/// A name of callgrind's output: it stands once, with a number, and afterwards the number alone.
fn name<'a>(names: &mut HashMap<&'a str, &'a str>, text: &'a str) -> &'a str {
    let (number, name) = text.split_once(' ').unwrap_or((text, ""));
    if !name.is_empty() {
        names.insert(number, name);
    }
    names.get(number).copied().unwrap_or("")
}

/// Adds up the costs in callgrind's output (its manual, "Callgrind Format Specification"): the driver's, and those of
/// the loop around it.
fn sum(profile: &str) -> Outcome<(u64, u64)> {
    let mut functions = HashMap::new();
    let (mut driver, mut caller) = (0, 0);
    let mut function = "";
    let mut lines = profile.lines();
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("fn=") {
            function = name(&mut functions, text);
        } else if let Some(text) = line.strip_prefix("cfn=") {
            name(&mut functions, text);
        } else if line.starts_with("calls=") {
            // The cost of the callee, which is counted where it is.
            lines.next();
        } else if line.starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first)) {
            let cost = line.split(' ').nth(1).ok_or("a line without a cost")?;
            let cost: u64 = cost.parse()?;
            if function.contains(CALLER) {
                caller += cost;
            } else {
                driver += cost;
            }
        }
    }
    if driver == 0 || caller == 0 {
        return Err("callgrind has counted nothing: are the functions named otherwise?".into());
    }
    Ok((driver, caller))
}

fn compare() -> Outcome<()> {
    println!("instructions a read of 4 KiB, {READS} reads a row");
    println!(
        "{:>5}  {:>7}  {:>8}  {:>8}  {:>8}  {:>13}  {:>8}",
        "depth", "shadows", "submit", "complete", "driver", "caller's loop", "together"
    );
    let mut missed = Vec::new();
    for depth in DEPTHS {
        for shadows in [true, false] {
            let child = format!("{depth} {shadows}");
            let (submit, around_submit) = collected(&child, "counted_submit")?;
            let (complete, around_complete) = collected(&child, "counted_complete")?;
            let each = |count: u64| count.div_ceil(READS);
            let (driver, caller) = (submit + complete, around_submit + around_complete);
            println!(
                "{depth:>5}  {:>7}  {:>8}  {:>8}  {:>8}  {:>13}  {:>8}",
                if shadows { "yes" } else { "no" },
                each(submit),
                each(complete),
                each(driver),
                each(caller),
                each(driver + caller),
            );
            if each(driver) > MOST {
                missed.push(child);
            }
        }
    }
    if missed.is_empty() {
        Ok(())
    } else {
        Err(format!("more than {MOST} instructions at {}", missed.join(", ")).into())
    }
}

fn main() -> ExitCode {
    let child = env::var(CHILD).ok();
    let child = child.as_deref().and_then(|child| child.split_once(' '));
    let outcome = match child.map(|(depth, shadows)| (depth.parse(), shadows.parse())) {
        Some((Ok(depth), Ok(shadows))) => run_counted(depth, shadows),
        _ => compare(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
