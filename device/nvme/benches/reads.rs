//! `cargo bench -p millrace-nvme --bench reads`: random reads of 4 KiB, by the driver and by the kernel.
//!
//! The sides take turns within each round; a ratio is the median of the rounds' ratios, with the lowest and
//! the highest. A ratio is of nanoseconds a read: below one the first is the faster. Each side keeps as many
//! reads in flight as the depth says, and begins others in the place of those that ended.
//!
//! There is no device in the driver's figures: the controller is a model, which polls on another core, in
//! this process or, by vfio-user, in a child. So they are the cost of the driver, of the model and of moving
//! cache lines between the two; with two busy threads on fewer idle cores they also measure the scheduler.
//! `driver` has the queues in its own core's cache, which on another core's writing it has not: the
//! driver's share of the end-to-end time is the least that can be said of it.
//! Of the kernel's, NOP is the cost of the ring, the device of zeros that and 4 KiB written by the kernel, and the
//! file is a disk.
//!
//! Last comes the processor time of a thread that waits for a read that does not end, by ways of waiting.

mod sides;

use std::env;
use std::fs;
use std::path::Path;
use std::process::ExitCode;

use millrace_nvme::Waiting;
use sides::driver::{Alone, Idle, WithModel};
use sides::kernel::Uring;
use sides::served::{self, Served};
use sides::{Outcome, Side, Span};

const ROUNDS: usize = 7;
const DEPTHS: [u16; 3] = [1, 32, sides::DEPTH_MAX];
/// Block devices without a disk, where the kernel has them.
const NULL_DEVICES: [&str; 2] = ["/dev/nullb0", "/dev/ram0"];

/// What is divided by what.
const RATIOS: [(&str, &str); 8] = [
    (WithModel::COPIED, Uring::FILE),
    (WithModel::COPIED, Uring::ZERO),
    (WithModel::NAME, Uring::FILE),
    (WithModel::NAME, Uring::NOP),
    (Served::NAME, WithModel::NAME),
    (Served::NAME, Uring::NOP),
    (Alone::NAME, WithModel::NAME),
    (Alone::NAME, Served::NAME),
];

/// All sides that there can be here; says which cannot.
fn all_sides(folder: &Path) -> Outcome<Vec<Box<dyn Side>>> {
    let mut all: Vec<Box<dyn Side>> = vec![
        Box::new(WithModel::new(true)?),
        Box::new(WithModel::new(false)?),
        Box::new(Alone::new()?),
        Box::new(Served),
    ];
    let kernel = [
        (Uring::NOP, Uring::nop()),
        (Uring::ZERO, Uring::zero()),
        (Uring::FILE, Uring::file(folder)),
    ];
    for (name, side) in kernel {
        match side {
            Ok(side) => all.push(Box::new(side)),
            Err(error) => println!("{name} is left out, this machine does not let it: {error}"),
        }
    }
    let mut devices = 0;
    for path in NULL_DEVICES.map(Path::new) {
        if let Some(device) = Uring::device(path).ok().flatten() {
            devices += 1;
            all.push(Box::new(device));
        }
    }
    if devices == 0 {
        println!("none of {} can be read here", NULL_DEVICES.join(" "));
    }
    Ok(all)
}

fn spread(mut values: Vec<f64>, digits: usize) -> String {
    values.sort_unstable_by(f64::total_cmp);
    let (low, high) = (values[0], values[values.len() - 1]);
    let median = values[values.len() / 2];
    format!("{median:.digits$} ({low:.digits$}-{high:.digits$})")
}

fn print_machine(when: &str) {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    println!(
        "{when}: load average {}, {cores} cores, Linux {}",
        read("/proc/loadavg").trim_end(),
        read("/proc/sys/kernel/osrelease").trim_end()
    );
}

/// What was measured, by depth, side and round.
fn measure(all: &mut [Box<dyn Side>]) -> Outcome<Vec<Vec<Vec<Span>>>> {
    let mut figures = vec![vec![Vec::new(); all.len()]; DEPTHS.len()];
    for (depth, figures) in DEPTHS.into_iter().zip(&mut figures) {
        // One round more, which is not counted: a machine that was idle takes a second to get to its speed.
        for round in 0..=ROUNDS {
            for (side, figures) in all.iter_mut().zip(&mut *figures) {
                let span = side.run(depth)?;
                if round > 0 {
                    figures.push(span);
                }
            }
        }
    }
    Ok(figures)
}

fn print_figures(all: &[Box<dyn Side>], figures: &[Vec<Vec<Span>>]) {
    println!(
        "\n| what | ns a read, median (low-high) | reads/s, median (low-high) | reads that ended at once |"
    );
    println!("|---|---|---|---|");
    for (depth, figures) in DEPTHS.iter().zip(figures) {
        for (side, figures) in all.iter().zip(figures) {
            let column = |of: fn(Span) -> f64| figures.iter().copied().map(of).collect();
            println!(
                "| nvme/read-4k/{depth}/{} | {} | {} | {} |",
                side.name(),
                spread(column(Span::ns_a_read), 1),
                spread(column(|span| 1e9 / span.ns_a_read()), 0),
                spread(column(Span::reads_a_turn), 1)
            );
        }
    }
}

fn print_ratios(all: &[Box<dyn Side>], figures: &[Vec<Vec<Span>>]) {
    println!("\n| ratio of ns a read | median (low-high) |");
    println!("|---|---|");
    let find = |name| all.iter().position(|side| side.name() == name);
    for (depth, figures) in DEPTHS.iter().zip(figures) {
        for (own, peer) in RATIOS {
            let (Some(first), Some(second)) = (find(own), find(peer)) else {
                continue;
            };
            let pairs = figures[first].iter().zip(&figures[second]);
            let ratios = pairs
                .map(|(own, peer)| own.ns_a_read() / peer.ns_a_read())
                .collect();
            println!(
                "| nvme/read-4k/{depth}: {own} / {peer} | {} |",
                spread(ratios, 4)
            );
        }
    }
}

/// What share of a processor a thread takes while nothing completes.
fn print_idle() -> Outcome<()> {
    const WAITS: [(&str, Waiting); 3] = [
        ("poll", Waiting::Poll),
        ("hybrid", Waiting::Hybrid(4096)),
        ("interrupt", Waiting::Interrupt),
    ];
    let idle = Idle::new()?;
    let mut figures = WAITS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for ((_, waiting), figures) in WAITS.iter().zip(&mut figures) {
            figures.push(idle.run(*waiting)? * 100.0);
        }
    }
    println!("\n| waiting for a read that does not end | % of a processor, median (low-high) |");
    println!("|---|---|");
    for ((name, _), figures) in WAITS.iter().zip(figures) {
        println!("| nvme/idle/{name} | {} |", spread(figures, 3));
    }
    Ok(())
}

fn compare() -> Outcome<()> {
    print_machine("before");
    // Beside the build: on a disk, where folders for passing files may be in memory.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let mut all = all_sides(folder.path())?;
    for side in &all {
        println!("{}: {}", side.name(), side.medium());
    }
    let figures = measure(&mut all)?;
    print_figures(&all, &figures);
    print_ratios(&all, &figures);
    print_idle()?;
    println!();
    println!("`driver` / another is the driver's share of that one's time, at the least.");
    println!(
        "The driver's controller is a model without a device: only the file's figures have a disk in them."
    );
    print_machine("after");
    Ok(())
}

fn main() -> ExitCode {
    let outcome = match env::var_os(served::SOCKET) {
        Some(socket) => served::serve(Path::new(&socket)),
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
