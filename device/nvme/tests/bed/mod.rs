//! A model of a controller that is stepped by the driver's own waiting, with a clock that the steps move: the
//! same seed gives the same run.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass};
use millrace_nvme::{
    Completion, Controller, Host, Namespace, Options, QueueOptions, QueuePair, Request, Waiting,
};
use millrace_nvme_model as model;

/// So long a step takes.
const STEP: Duration = Duration::from_micros(100);
/// No run of a test takes longer, by the clock of its steps.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Anything that goes wrong in a test.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;

/// Steps the model when the driver waits.
pub(crate) struct StepHost {
    model: model::Controller,
    time_ns: AtomicU64,
}

impl Host for StepHost {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.time_ns.load(Ordering::Relaxed))
    }

    fn relax(&self, _: u32) {
        self.model.step();
        let step = u64::try_from(STEP.as_nanos()).expect("a step is short");
        self.time_ns.fetch_add(step, Ordering::Relaxed);
    }
}

impl fmt::Debug for StepHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepHost").finish_non_exhaustive()
    }
}

/// A model and its host.
pub(crate) struct Bed {
    pub(crate) model: model::Controller,
    pub(crate) host: Arc<StepHost>,
}

impl Bed {
    pub(crate) fn new(options: model::Options) -> Result<Self, model::Error> {
        let model = model::Controller::new(options)?;
        let host = Arc::new(StepHost {
            model: model.clone(),
            time_ns: AtomicU64::new(0),
        });
        Ok(Self { model, host })
    }

    pub(crate) fn open(&self, options: Options) -> Result<Arc<Controller>, millrace_nvme::Error> {
        let host: Arc<dyn Host> = Arc::<StepHost>::clone(&self.host);
        Controller::open(self.model.function(), host, options)
    }
}

/// Options with short times, so that what takes too long is soon seen.
pub(crate) fn quick() -> Options {
    Options {
        command_timeout: Duration::from_millis(200),
        admin_timeout: Duration::from_millis(500),
        interrupts: false,
        ..Options::default()
    }
}

pub(crate) fn polled(
    controller: &Arc<Controller>,
    depth: u16,
) -> Result<QueuePair, millrace_nvme::Error> {
    controller.queue_pair(QueueOptions {
        depth,
        waiting: Waiting::Poll,
    })
}

pub(crate) fn arena(controller: &Controller) -> Result<Arena, millrace_memory::Error> {
    let class = |size, count| SizeClass { size, count };
    let options = ArenaOptions {
        classes: vec![
            class(512, 64),
            class(4096, 64),
            class(64 << 10, 16),
            class(1 << 20, 4),
        ],
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    Arena::new(Arc::clone(controller.domain()), &options)
}

/// A buffer with a byte throughout.
pub(crate) fn filled(
    arena: &Arena,
    len: usize,
    byte: u8,
) -> Result<Buffer, millrace_memory::Exhausted> {
    let mut buffer = arena.try_buffer(len)?;
    buffer.fill(byte);
    Ok(buffer)
}

/// Does one request and waits for it.
pub(crate) fn single(
    pair: &mut QueuePair,
    namespace: &Namespace,
    request: Request,
) -> Result<Completion, Box<dyn std::error::Error>> {
    pair.submit(namespace, request)?;
    let mut ended = Vec::new();
    pair.wait(PATIENCE, |completion| ended.push(completion));
    Ok(ended.pop().ok_or("the request never ended")?)
}
