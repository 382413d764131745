//! The driver on a model in this process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};
use millrace_nvme::{
    Controller, Data, Host, Lba, Namespace, Options, QueueOptions, QueuePair, Request, SystemHost,
    Waiting,
};
use millrace_nvme_model as model;
use millrace_pci::Function;

use super::{BLOCK, BLOCKS, DEPTH_MAX, Draws, Outcome, Side, Span, check, fill};

/// How often the clock is read for the price of reading it, each time for one of several means.
const CLOCK_READS: u32 = 2_000;
const CLOCK_MEANS: u32 = 50;

/// What the controller is like, in this process or another.
pub(crate) fn model_options(no_data: bool) -> model::Options {
    model::Options {
        namespaces: vec![model::NamespaceOptions {
            block_size: u32::try_from(BLOCK).expect("a small number"),
            blocks: BLOCKS,
            ..model::NamespaceOptions::default()
        }],
        no_data,
        mapped_doorbells: true,
        burst: 1024,
        volatile_cache: false,
        ..model::Options::default()
    }
}

/// Is the controller's processor until it is told to stop.
pub(crate) fn step_until(stop: &AtomicBool, model: &model::Controller) {
    let host = SystemHost::new(Instant::now());
    let mut idle: u32 = 0;
    while !stop.load(Ordering::Relaxed) {
        if model.step() > 0 {
            idle = 0;
        } else {
            host.relax(idle);
            idle = idle.saturating_add(1);
        }
    }
}

/// Tells when it is dropped, however that comes about.
#[derive(Debug)]
pub(crate) struct StopOnDrop<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Nothing against the rules was done, and no memory was reached that was not mapped.
pub(crate) fn check_records(model: &model::Controller) -> Outcome<()> {
    let (violations, faults) = (model.violations(), model.dma_faults());
    if violations.is_empty() && faults.is_empty() {
        return Ok(());
    }
    Err(format!("the driver broke the rules: {violations:?} {faults:?}").into())
}

/// A controller in use, and memory to read into.
#[derive(Debug)]
pub(crate) struct Driven {
    controller: Arc<Controller>,
    namespace: Namespace,
    arena: Arena,
}

impl Driven {
    pub(crate) fn open(function: Arc<dyn Function>, host: Arc<dyn Host>) -> Outcome<Self> {
        let controller = Controller::open(function, host, Options::default())?;
        let options = ArenaOptions {
            classes: vec![SizeClass {
                size: BLOCK,
                count: u32::from(DEPTH_MAX),
            }],
            pages: Pages::Base,
            node: None,
            locked: true,
        };
        Ok(Self {
            namespace: controller.namespace(1)?,
            arena: Arena::new(Arc::clone(controller.domain()), &options)?,
            controller,
        })
    }

    fn queue_pair(&self, depth: u16) -> Outcome<QueuePair> {
        let options = QueueOptions {
            depth,
            waiting: Waiting::Poll,
        };
        Ok(self.controller.queue_pair(options)?)
    }

    /// Writes every block.
    fn fill(&self) -> Outcome<()> {
        let mut pair = self.queue_pair(DEPTH_MAX)?;
        let mut written = 0;
        let mut count = |completion: millrace_nvme::Completion| {
            written += u64::from(completion.result.is_ok());
        };
        for block in 0..BLOCKS {
            if pair.is_full() {
                pair.wait(Duration::MAX, &mut count);
            }
            let mut buffer = self.arena.try_buffer(BLOCK)?;
            fill(block, &mut buffer);
            pair.submit(&self.namespace, Request::write(Lba(block), buffer, block))
                .map_err(|refused| refused.reason.to_string())?;
        }
        while pair.requests_in_flight() > 0 {
            pair.wait(Duration::MAX, &mut count);
        }
        if written == BLOCKS {
            return Ok(());
        }
        Err(format!("{written} of {BLOCKS} blocks could be written").into())
    }
}

/// Reads of random blocks, as many under way as the queue pair takes.
#[derive(Debug)]
pub(crate) struct Reads<'a> {
    pair: QueuePair,
    namespace: &'a Namespace,
    /// Memory that is read into next.
    ready: Vec<Data>,
    draws: Draws,
    host: SystemHost,
    /// Polls in a row that found nothing.
    idle: u32,
    failed: usize,
}

impl<'a> Reads<'a> {
    /// None is under way yet.
    pub(crate) fn new(driven: &'a Driven, depth: u16) -> Outcome<Self> {
        let buffers = (0..depth).map(|_| driven.arena.try_buffer(BLOCK).map(Data::from));
        Ok(Self {
            ready: buffers.collect::<Result<_, _>>()?,
            pair: driven.queue_pair(depth)?,
            namespace: &driven.namespace,
            draws: Draws::new(),
            host: SystemHost::new(Instant::now()),
            idle: 0,
            failed: 0,
        })
    }

    /// Begins a read into all memory that is ready. The controller hears of it by a ring or a poll.
    fn submit(&mut self) -> Outcome<()> {
        while let Some(data) = self.ready.pop() {
            let block = self.draws.next(BLOCKS);
            let request = Request::read(Lba(block), data, block);
            if let Err(refused) = self.pair.submit(self.namespace, request) {
                return Err(refused.reason.to_string().into());
            }
        }
        Ok(())
    }

    /// Takes what has ended; how many.
    fn poll(&mut self) -> usize {
        let (ready, failed) = (&mut self.ready, &mut self.failed);
        self.pair.poll(|completion| {
            *failed += usize::from(completion.result.is_err());
            ready.extend(completion.data);
        })
    }

    /// Takes what has ended and begins as many others.
    pub(crate) fn turn(&mut self) -> Outcome<usize> {
        let ended = self.poll();
        if ended == 0 {
            self.host.relax(self.idle);
            self.idle = self.idle.saturating_add(1);
            return Ok(0);
        }
        self.idle = 0;
        self.submit()?;
        Ok(ended)
    }

    /// Runs for a round.
    pub(crate) fn round(mut self, contents: bool) -> Outcome<Span> {
        self.submit()?;
        let span = Span::of_round(|| self.turn())?;
        self.end(contents)?;
        Ok(span)
    }

    /// Takes what is under way. Fails if a read has failed, or, if there are contents, read something else.
    fn end(mut self, contents: bool) -> Outcome<()> {
        let mut checked = Ok(());
        while self.pair.requests_in_flight() > 0 {
            let failed = &mut self.failed;
            self.pair.wait(Duration::MAX, |completion| {
                *failed += usize::from(completion.result.is_err());
                let buffer = completion.data.and_then(Data::into_buffer);
                if let Some(buffer) = buffer.filter(|_| contents && checked.is_ok()) {
                    checked = check(completion.token, &buffer);
                }
            });
        }
        checked?;
        match self.failed {
            0 => Ok(()),
            failed => Err(format!("{failed} reads failed").into()),
        }
    }
}

/// Steps the model while the driver waits for it, but not while it is measured.
#[derive(Debug)]
struct SteppingHost {
    model: model::Controller,
    clock: SystemHost,
}

impl Host for SteppingHost {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn relax(&self, _: u32) {
        self.model.step();
    }
}

/// The driver and a model in this process.
#[derive(Debug)]
struct InProcess {
    driven: Driven,
    model: model::Controller,
}

impl InProcess {
    fn new(no_data: bool) -> Outcome<Self> {
        let model = model::Controller::new(model_options(no_data))?;
        let host = Arc::new(SteppingHost {
            model: model.clone(),
            clock: SystemHost::new(Instant::now()),
        });
        Ok(Self {
            driven: Driven::open(model.function(), host)?,
            model,
        })
    }
}

/// The driver on one core, the controller on another.
#[derive(Debug)]
pub(crate) struct WithModel {
    own: InProcess,
    no_data: bool,
}

impl WithModel {
    pub(crate) const NAME: &str = "driver+model";
    pub(crate) const COPIED: &str = "driver+model-copied";

    pub(crate) fn new(no_data: bool) -> Outcome<Self> {
        let own = InProcess::new(no_data)?;
        if !no_data {
            own.driven.fill()?;
        }
        Ok(Self { own, no_data })
    }
}

impl Side for WithModel {
    fn name(&self) -> &str {
        if self.no_data {
            Self::NAME
        } else {
            Self::COPIED
        }
    }

    fn medium(&self) -> String {
        let data = if self.no_data {
            "no medium: completions without data"
        } else {
            "256 MiB of this process' memory, nothing durable"
        };
        format!("{data}; the controller is a thread")
    }

    fn run(&mut self, depth: u16) -> Outcome<Span> {
        let InProcess { driven, model } = &self.own;
        let reads = Reads::new(driven, depth)?;
        let stop = AtomicBool::new(false);
        let span = thread::scope(|scope| {
            scope.spawn(|| step_until(&stop, model));
            let _stop = StopOnDrop(&stop);
            reads.round(!self.no_data)
        })?;
        check_records(model)?;
        Ok(span)
    }
}

/// The driver's own part: what passes inside of its functions.
#[derive(Debug)]
pub(crate) struct Alone(InProcess);

impl Alone {
    pub(crate) const NAME: &str = "driver";

    pub(crate) fn new() -> Outcome<Self> {
        Ok(Self(InProcess::new(true)?))
    }
}

/// What reading the clock before and after something adds to its time, in nanoseconds: the lowest of several
/// means, as whatever else the machine does makes it dearer.
fn clock_price() -> f64 {
    let mean = || {
        let total: Duration = (0..CLOCK_READS).map(|_| Instant::now().elapsed()).sum();
        total.as_secs_f64() * 1e9 / f64::from(CLOCK_READS)
    };
    (0..CLOCK_MEANS).map(|_| mean()).fold(f64::MAX, f64::min)
}

impl Side for Alone {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn medium(&self) -> String {
        format!(
            "no medium; the model is stepped on the same thread and not counted; of each counted part, two a \
             batch, the clock's own {:.1} ns are taken off",
            clock_price()
        )
    }

    fn run(&mut self, depth: u16) -> Outcome<Span> {
        let InProcess { driven, model } = &self.0;
        let price = clock_price();
        let mut reads = Reads::new(driven, depth)?;
        let (mut counted, mut parts) = (Duration::ZERO, 0_u32);
        let span = Span::of_round(|| {
            let begun = Instant::now();
            reads.submit()?;
            reads.pair.ring();
            counted += begun.elapsed();
            let all = model.counters().completions + u64::from(depth);
            while model.counters().completions < all {
                model.step();
            }
            let begun = Instant::now();
            let ended = reads.poll();
            counted += begun.elapsed();
            parts += 2;
            Ok(ended)
        })?;
        reads.end(false)?;
        check_records(model)?;
        let price = Duration::from_secs_f64(price * f64::from(parts) / 1e9);
        Ok(Span {
            time: counted.saturating_sub(price),
            ..span
        })
    }
}

/// A thread that waits for a controller which stands still.
#[derive(Debug)]
pub(crate) struct Idle {
    driven: Driven,
    model: model::Controller,
    host: Arc<Standing>,
}

/// Steps the model while the driver waits for it, unless it is to stand still.
#[derive(Debug)]
struct Standing {
    model: model::Controller,
    clock: SystemHost,
    stands: AtomicBool,
}

impl Host for Standing {
    fn now(&self) -> Duration {
        self.clock.now()
    }

    fn relax(&self, round: u32) {
        if self.stands.load(Ordering::Relaxed) {
            self.clock.relax(round);
        } else {
            self.model.step();
        }
    }
}

/// Processor time of this thread.
fn thread_time() -> Outcome<Duration> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is this function's.
    if unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) } != 0 {
        return Err(std::io::Error::last_os_error().into());
    }
    Ok(Duration::new(
        time.tv_sec.try_into()?,
        time.tv_nsec.try_into()?,
    ))
}

impl Idle {
    /// How long it waits.
    const WAIT: Duration = Duration::from_millis(400);

    pub(crate) fn new() -> Outcome<Self> {
        let model = model::Controller::new(model_options(true))?;
        let host = Arc::new(Standing {
            model: model.clone(),
            clock: SystemHost::new(Instant::now()),
            stands: AtomicBool::new(false),
        });
        let shared: Arc<dyn Host> = Arc::<Standing>::clone(&host);
        Ok(Self {
            driven: Driven::open(model.function(), shared)?,
            model,
            host,
        })
    }

    /// The thread's share of a processor.
    pub(crate) fn run(&self, waiting: Waiting) -> Outcome<f64> {
        let options = QueueOptions { depth: 1, waiting };
        let mut pair = self.driven.controller.queue_pair(options)?;
        let request = Request::read(Lba(0), self.driven.arena.try_buffer(BLOCK)?, 0);
        pair.submit(&self.driven.namespace, request)
            .map_err(|refused| refused.reason.to_string())?;
        self.host.stands.store(true, Ordering::Relaxed);
        let (begun, before) = (Instant::now(), thread_time()?);
        let ended = pair.wait(Self::WAIT, |_| {});
        let (took, used) = (begun.elapsed(), thread_time()? - before);
        self.host.stands.store(false, Ordering::Relaxed);
        if ended > 0 {
            return Err("a controller that stands still has completed a read".into());
        }
        drop(pair);
        check_records(&self.model)?;
        Ok(used.as_secs_f64() / took.as_secs_f64())
    }
}
