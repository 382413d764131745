//! `millrace nvme bench`: how many operations a namespace does, and how long each takes.
//!
//! Each thread has a queue pair and buffers of its own and keeps as many operations in flight as its options say.
//! An operation's latency is from its submission to the poll that saw its completion. The first operation
//! that fails ends the run: a rate with errors in it means nothing. So does the kernel when it wants the device
//! back, which it gets when the command has ended.

mod addresses;
mod progress;
mod report;
mod worker;

use std::error::Error as StdError;
use std::io::{self, IsTerminal, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use millrace_nvme::{Namespace, Options, Waiting};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use signal_hook::consts::SIGINT;

use self::addresses::{Addresses, Random};
use self::progress::ProgressLine;
pub use self::report::{BenchReport, Workload};
use self::worker::{Outcome, Tally, Worker};
use super::{BenchOptions, Device, Pattern, WaitingChoice};
use crate::{ErrorKind, ToolError};

/// Default duration of a run.
const SECONDS: u64 = 10;
/// Rounds of polling before a thread sleeps at most, with `--waiting hybrid`.
const HYBRID_ROUNDS_MAX: u32 = 4096;
/// Interval of the progress output.
const TIME_BETWEEN_REPORTS: Duration = Duration::from_millis(250);

/// State of a run in progress, as passed to the caller's progress function.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Time since the start of the run.
    pub elapsed: Duration,
    /// Operations that all threads have completed.
    pub operations: u64,
    /// Operations that were sent and have not completed.
    pub under_way: u64,
}

/// A run that can begin: queues and buffers are there.
#[derive(Debug)]
pub struct Bench {
    name: String,
    title: String,
    workload: Workload,
    namespace: Namespace,
    limits: Limits,
    workers: Vec<Worker>,
    /// Signalled when the device is wanted back.
    removal: Option<OwnedFd>,
}

/// When a run ends.
#[derive(Clone, Copy, Debug)]
struct Limits {
    time: Option<Duration>,
    operations: Option<u64>,
}

/// The command.
pub(super) fn run(options: &BenchOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let driver = Options {
        queue_pairs_max: options.threads,
        interrupts: options.waiting != WaitingChoice::Poll,
        ..Options::default()
    };
    check_writes(options)?;
    options.spec.namespace_or(options.namespace)?;
    let (removal, watched) = removal()?;
    let device = Device::open_with(&options.spec, driver, Some(removal))?;
    let bench = Bench::new(&device, options)?.ended_by(watched);
    let stop = stop_on_signal()?;
    let mut line = ProgressLine::new(bench.limits, options.block_size.0);
    let is_watched = io::stderr().is_terminal();
    let report = bench.run(&stop, &mut |progress| {
        if is_watched {
            line.draw(progress);
        }
    });
    if is_watched {
        line.clear();
    }
    crate::terminal::show(&report?, options.json, out)
}

/// An eventfd to signal when the device is wanted back, and the same to look at.
fn removal() -> Result<(OwnedFd, OwnedFd), ToolError> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let both = eventfd(0, flags)
        .map_err(io::Error::from)
        .and_then(|event| Ok((event.try_clone()?, event)));
    both.map_err(|source| {
        ToolError::new(ErrorKind::System, "an eventfd could not be had").caused_by(source)
    })
}

/// The first Ctrl-C ends the run in order, the second one at once.
fn stop_on_signal() -> Result<Arc<AtomicBool>, ToolError> {
    let stop = Arc::new(AtomicBool::new(false));
    let watch = |source| {
        ToolError::new(ErrorKind::System, "signals could not be watched").caused_by(source)
    };
    signal_hook::flag::register_conditional_shutdown(SIGINT, 128 + SIGINT, Arc::clone(&stop))
        .map_err(watch)?;
    signal_hook::flag::register(SIGINT, Arc::clone(&stop)).map_err(watch)?;
    Ok(stop)
}

/// Reads of 100 operations: all, unless writes were allowed.
fn read_percent(options: &BenchOptions) -> u8 {
    let default = if options.write { 0 } else { 100 };
    options.read_percent.unwrap_or(default)
}

/// Refuses writes that nobody has allowed.
fn check_writes(options: &BenchOptions) -> Result<(), ToolError> {
    let percent = read_percent(options);
    if percent < 100 && !options.write {
        let context = format!(
            "--read-percent {percent}: the other {} operations of 100 would be writes, which destroy data",
            100 - percent
        );
        return Err(ToolError::new(ErrorKind::NotForced, context)
            .advise("--write --force allows them; without --read-percent all are reads"));
    }
    Ok(())
}

impl Bench {
    /// Checks what is asked for and gets everything ready. Nothing is read or written yet.
    ///
    /// # Errors
    /// [`ErrorKind::NotForced`] if data would be lost without `--force`, [`ErrorKind::Usage`] if the
    /// numbers do not suit the namespace, [`ErrorKind::Device`] if there are no queues or no memory.
    pub fn new(device: &Device, options: &BenchOptions) -> Result<Self, ToolError> {
        check_writes(options)?;
        let id = options.spec.namespace_or(options.namespace)?;
        let namespace = device.namespace(id)?;
        let title = format!("{}, namespace {}", device.title(), namespace.id());
        if read_percent(options) < 100 && !options.force {
            let size = crate::terminal::quantity::bytes(namespace.size().into());
            let context = format!("{title}: what the writes hit would be lost, of {size} in all");
            return Err(ToolError::new(ErrorKind::NotForced, context)
                .advise("--force does it; without --write only reads are measured"));
        }
        let slots = slots(options, &namespace)?;
        let seed = match options.seed {
            Some(seed) => seed,
            None => getrandom::u64().map_err(|source| {
                ToolError::new(ErrorKind::System, "the system has no random numbers")
                    .caused_by(io::Error::from(source))
            })?,
        };
        let workload = Workload {
            namespace: namespace.id(),
            pattern: options.pattern,
            read_percent: read_percent(options),
            block_size: options.block_size,
            depth: usize::from(options.depth),
            threads: options.threads,
            waiting: options.waiting,
            seed,
        };
        let no_limit = options.seconds.is_none() && options.operations.is_none();
        let seconds = options.seconds.or(no_limit.then_some(SECONDS));
        let mut bench = Self {
            name: device.name().to_owned(),
            title,
            workload,
            namespace,
            limits: Limits {
                time: seconds.map(Duration::from_secs),
                operations: options.operations,
            },
            workers: Vec::new(),
            removal: None,
        };
        for thread in 0..options.threads {
            let worker = bench.worker(device, thread, slots)?;
            bench.workload.depth = bench.workload.depth.min(worker.depth());
            bench.workers.push(worker);
        }
        Ok(bench)
    }

    /// The same that ends as soon as this eventfd is signalled: the device is wanted back.
    #[must_use]
    pub fn ended_by(mut self, removal: OwnedFd) -> Self {
        self.removal = Some(removal);
        self
    }

    /// The worker of a thread, numbered from zero.
    fn worker(&self, device: &Device, thread: u16, slots: u64) -> Result<Worker, ToolError> {
        let workload = &self.workload;
        let (thread, threads) = (u64::from(thread), u64::from(workload.threads));
        let random = Random::new(workload.seed, thread);
        let addresses = match workload.pattern {
            Pattern::Random => Addresses::random(slots),
            Pattern::Sequential => Addresses::sequential(slots, thread, threads),
        };
        let operations = self.limits.operations.map_or(u64::MAX, |all| {
            // The first threads take what cannot be shared evenly.
            all / threads + u64::from(thread < all % threads)
        });
        let waiting = match workload.waiting {
            WaitingChoice::Poll => Waiting::Poll,
            WaitingChoice::Interrupt => Waiting::Interrupt,
            WaitingChoice::Hybrid => Waiting::Hybrid(HYBRID_ROUNDS_MAX),
        };
        Worker::new(
            device,
            &self.namespace,
            workload,
            waiting,
            addresses,
            random,
            worker::Limits {
                time: self.limits.time,
                operations,
            },
        )
    }

    /// Runs to the end, or until `stop` is set or the device is wanted back; tells `watch` now and then how far it is.
    ///
    /// # Errors
    /// [`ErrorKind::Device`] if an operation failed, [`ErrorKind::System`] if threads cannot be started.
    pub fn run(
        self,
        stop: &AtomicBool,
        watch: &mut dyn FnMut(Progress),
    ) -> Result<BenchReport, ToolError> {
        let tallies: Vec<Tally> = self.workers.iter().map(|_| Tally::default()).collect();
        let count = self.workers.len();
        let was_stopped = || stop.load(Ordering::Relaxed);
        let removal = self.removal.as_ref();
        let mut was_removed = false;
        let mut start = Instant::now();
        let outcomes = std::thread::scope(|scope| {
            let (ended, outcomes) = channel();
            let mut starters = Vec::with_capacity(count);
            for (index, (worker, tally)) in self.workers.into_iter().zip(&tallies).enumerate() {
                let (starter, started) = channel();
                starters.push(starter);
                let ended = ended.clone();
                std::thread::Builder::new()
                    .name(format!("bench-{index}"))
                    .spawn_scoped(scope, move || {
                        // Without a start another thread could not be started, and no thread receives.
                        if let Ok(start) = started.recv() {
                            let _ = ended.send(worker.run(start, stop, tally));
                        }
                    })
                    .map_err(|source| {
                        let context = format!("thread {index} could not be started");
                        ToolError::new(ErrorKind::System, context).caused_by(source)
                    })?;
            }
            start = Instant::now();
            for starter in starters {
                // A thread that is not there any more is missed when the outcomes are counted.
                let _ = starter.send(start);
            }
            drop(ended);
            let sum = |part: fn(&Tally) -> &AtomicU64| {
                let parts = tallies.iter().map(part);
                parts.map(|part| part.load(Ordering::Relaxed)).sum()
            };
            Ok(collect(&outcomes, || {
                if !was_removed && removal.is_some_and(is_signalled) {
                    was_removed = true;
                    stop.store(true, Ordering::Relaxed);
                }
                watch(Progress {
                    elapsed: start.elapsed(),
                    operations: sum(|tally| &tally.completed),
                    under_way: sum(|tally| &tally.under_way),
                });
            }))
        })?;
        assert_eq!(outcomes.len(), count, "no thread of a run panics");
        let mut report = BenchReport::new(self.name, self.title, self.workload);
        for outcome in outcomes {
            if let Some(failure) = outcome.failure {
                let context = format!("{}: an operation failed, the run was ended", report.title);
                let failure: Box<dyn StdError + Send + Sync> = failure;
                return Err(ToolError::new(ErrorKind::Device, context).caused_by(failure));
            }
            report.add(&outcome.reads, &outcome.writes);
            let took = outcome.end.saturating_duration_since(start);
            report.elapsed = report.elapsed.max(took);
        }
        report.was_stopped = was_stopped();
        report.was_removed = was_removed;
        Ok(report)
    }
}

/// Waits for the ends of all threads; looks around at the beginning and now and then.
fn collect(outcomes: &Receiver<Outcome>, mut look: impl FnMut()) -> Vec<Outcome> {
    let mut collected = Vec::new();
    look();
    loop {
        match outcomes.recv_timeout(TIME_BETWEEN_REPORTS) {
            Ok(outcome) => collected.push(outcome),
            Err(RecvTimeoutError::Disconnected) => return collected,
            Err(RecvTimeoutError::Timeout) => look(),
        }
    }
}

/// Whether an eventfd has been signalled since it was made. It is not taken back.
fn is_signalled(event: &OwnedFd) -> bool {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(event, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}

/// How many places of an operation's size the namespace has.
fn slots(options: &BenchOptions, namespace: &Namespace) -> Result<u64, ToolError> {
    let size = options.block_size;
    let block = namespace.block_size();
    let bytes = size.0 as u64;
    let usage = |context: String| ToolError::new(ErrorKind::Usage, context);
    if bytes % u64::from(block) != 0 {
        let context = format!(
            "--block-size {size}: namespace {} has blocks of {block} bytes",
            namespace.id()
        );
        return Err(usage(context).advise(format!("use a multiple of {block}")));
    }
    let slots = namespace.size() / bytes;
    let threads = options.threads;
    if slots < u64::from(threads) {
        let context = format!(
            "namespace {} has {slots} places of {size}, which is too few for {threads} threads",
            namespace.id()
        );
        return Err(usage(context).advise("use a smaller --block-size or fewer --threads"));
    }
    Ok(slots)
}
