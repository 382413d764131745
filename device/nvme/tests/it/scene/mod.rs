//! A model that a thread of its own steps, a host that counts, and a watchdog.

mod stepped;

pub(crate) use stepped::{MapHook, Stepped};

use std::io::Write;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use millrace_memory::{Arena, ArenaOptions, Buffer, Exhausted, Pages, SizeClass};
use millrace_nvme::{Controller, Host, Namespace, Options, SystemHost};
use millrace_nvme_model as model;

/// Anything that goes wrong in a test, on whatever thread.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// A test that runs longer has hung.
const LIMIT: Duration = Duration::from_secs(60);

/// Runs a test on a thread of its own, and ends the process if that hangs.
pub(crate) fn bounded(test: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let (ends, ended) = mpsc::channel::<()>();
    let running = thread::spawn(move || {
        // Dropped however the test ends.
        let _ends = ends;
        test()
    });
    if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
        let name = thread::current().name().unwrap_or("a test").to_owned();
        // Not by `eprintln`, which is kept back until the test ends.
        let _ = writeln!(std::io::stderr(), "{name} hangs after {LIMIT:?}");
        std::process::abort();
    }
    running.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// How often the driver asked its host for something.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// To let time pass while it polls.
    pub(crate) relaxed: u64,
    /// For the time.
    pub(crate) looked: u64,
}

/// The machine's clock and threads, counted.
#[derive(Debug)]
pub(crate) struct CountingHost {
    system: SystemHost,
    relaxed: AtomicU64,
    looked: AtomicU64,
}

impl CountingHost {
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            relaxed: self.relaxed.load(Ordering::Relaxed),
            looked: self.looked.load(Ordering::Relaxed),
        }
    }
}

impl Host for CountingHost {
    fn now(&self) -> Duration {
        self.looked.fetch_add(1, Ordering::Relaxed);
        self.system.now()
    }

    fn relax(&self, round: u32) {
        self.relaxed.fetch_add(1, Ordering::Relaxed);
        self.system.relax(round);
    }
}

/// A controller in use. Its parts are dropped in this order: the model is stepped until the last.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) namespace: Namespace,
    pub(crate) controller: Arc<Controller>,
    pub(crate) host: Arc<CountingHost>,
    pub(crate) model: model::Controller,
    _stepper: model::Stepper,
}

impl Scene {
    /// A model with one namespace of 4,096 blocks of 512 bytes, opened.
    pub(crate) fn new(
        options: model::Options,
        driven: Options,
    ) -> Result<Self, Box<dyn std::error::Error + Send + Sync>> {
        let model = model::Controller::new(model::Options {
            namespaces: vec![blocks_of_512()],
            ..options
        })?;
        let stepper = model::Stepper::new(model.clone());
        let host = Arc::new(CountingHost {
            system: SystemHost::new(Instant::now()),
            relaxed: AtomicU64::new(0),
            looked: AtomicU64::new(0),
        });
        let shared: Arc<dyn Host> = Arc::<CountingHost>::clone(&host);
        let controller = Controller::open(model.function(), shared, driven)?;
        Ok(Self {
            namespace: controller.namespace(1)?,
            controller,
            host,
            model,
            _stepper: stepper,
        })
    }

    /// Nothing against the rules was done, but that a queue may be rung while another thread takes it away.
    pub(crate) fn check_records(&self) -> Outcome {
        let violations = self.model.violations();
        let others = violations
            .iter()
            .filter(|violation| violation.rule != model::Rule::DoorbellWithoutQueue);
        assert_eq!(others.count(), 0, "{violations:?}");
        assert_eq!(self.model.dma_faults(), []);
        Ok(())
    }
}

fn blocks_of_512() -> model::NamespaceOptions {
    model::NamespaceOptions {
        block_size: 512,
        blocks: 4096,
        ..model::NamespaceOptions::default()
    }
}

/// An arena with so many buffers of 8 KiB and a few of 512 bytes.
pub(crate) fn small_arena(
    controller: &Controller,
    count: u32,
) -> Result<Arena, millrace_memory::Error> {
    let options = ArenaOptions {
        classes: vec![
            SizeClass {
                size: 512,
                count: 16,
            },
            SizeClass { size: 8192, count },
        ],
        pages: Pages::Base,
        node: None,
        locked: true,
    };
    Arena::new(Arc::clone(controller.domain()), &options)
}

/// A buffer with a byte throughout.
pub(crate) fn filled(arena: &Arena, len: usize, byte: u8) -> Result<Buffer, Exhausted> {
    let mut buffer = arena.try_buffer(len)?;
    buffer.fill(byte);
    Ok(buffer)
}
