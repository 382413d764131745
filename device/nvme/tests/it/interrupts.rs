//! Interrupts arrive, and a sleeping thread uses no processor time. Sleeping queue pairs also poll at intervals, so that
//! only these tests detect a lost interrupt.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use millrace_memory::{Arena, ArenaOptions, Pages, SizeClass};
use millrace_nvme::{
    Controller, Host, Lba, Namespace, Options, QueueOptions, QueuePair, Request, SystemHost,
    Waiting,
};
use millrace_nvme_model as model;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

type Outcome = Result<(), Box<dyn std::error::Error>>;

const WAYS: [Waiting; 2] = [Waiting::Interrupt, Waiting::Hybrid(64)];

/// The machine's clock and threads, counted.
#[derive(Debug)]
struct CountingHost {
    system: SystemHost,
    relaxed: AtomicU64,
    looked: AtomicU64,
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
struct Scene {
    namespace: Namespace,
    arena: Arena,
    controller: Arc<Controller>,
    host: Arc<CountingHost>,
    model: model::Controller,
    _stepper: model::Stepper,
}

impl Scene {
    fn new() -> Result<Self, Box<dyn std::error::Error>> {
        let model = model::Controller::new(model::Options::default())?;
        let stepper = model::Stepper::new(model.clone());
        let host = Arc::new(CountingHost {
            system: SystemHost::new(Instant::now()),
            relaxed: AtomicU64::new(0),
            looked: AtomicU64::new(0),
        });
        let shared: Arc<dyn Host> = Arc::<CountingHost>::clone(&host);
        let controller = Controller::open(model.function(), shared, Options::default())?;
        let options = ArenaOptions {
            classes: vec![SizeClass {
                size: 4096,
                count: 4,
            }],
            pages: Pages::Base,
            node: None,
            locked: true,
        };
        Ok(Self {
            namespace: controller.namespace(1)?,
            arena: Arena::new(Arc::clone(controller.domain()), &options)?,
            controller,
            host,
            model,
            _stepper: stepper,
        })
    }

    fn pair(&self, waiting: Waiting) -> Result<QueuePair, millrace_nvme::Error> {
        let depth = 4;
        self.controller.queue_pair(QueueOptions { depth, waiting })
    }

    /// Sends a read and waits for its interrupt alone.
    fn read_until_interrupt(&self, pair: &mut QueuePair) -> Outcome {
        let read = Request::read(Lba(0), self.arena.try_buffer(4096)?, 0);
        pair.submit(&self.namespace, read)?;
        pair.ring();
        assert!(becomes_readable(pair)?, "no interrupt");
        Ok(())
    }
}

/// Whether the event becomes readable; a minute is for ever.
fn becomes_readable(pair: &QueuePair) -> Result<bool, Box<dyn std::error::Error>> {
    Ok(is_readable(event(pair)?, 60)?)
}

fn event(pair: &QueuePair) -> Result<BorrowedFd<'_>, &'static str> {
    pair.interrupt().ok_or("it has no interrupt")
}

fn is_readable(event: BorrowedFd<'_>, limit_s: i64) -> rustix::io::Result<bool> {
    let limit = Timespec {
        tv_sec: limit_s,
        tv_nsec: 0,
    };
    let mut watched = [PollFd::new(&event, PollFlags::IN)];
    Ok(poll(&mut watched, Some(&limit))? == 1)
}

#[test]
fn a_completion_interrupts() -> Outcome {
    let scene = Scene::new()?;
    for waiting in WAYS {
        let mut pair = scene.pair(waiting)?;
        let before = scene.model.counters().interrupts;
        for _ in 0..3 {
            scene.read_until_interrupt(&mut pair)?;
            assert_eq!(
                pair.wait(Duration::ZERO, |ended| assert_eq!(ended.result, Ok(()))),
                1
            );
        }
        assert!(scene.model.counters().interrupts >= before + 3);
    }
    Ok(())
}

#[test]
fn a_completion_interrupts_after_a_reset() -> Outcome {
    let scene = Scene::new()?;
    for waiting in WAYS {
        let mut pair = scene.pair(waiting)?;
        scene.controller.reset()?;
        // Makes the queue anew, and forgets what the event was signalled for before.
        assert_eq!(pair.wait(Duration::ZERO, |_| {}), 0);
        let before = scene.model.counters().interrupts;
        scene.read_until_interrupt(&mut pair)?;
        assert_eq!(
            pair.wait(Duration::ZERO, |ended| assert_eq!(ended.result, Ok(()))),
            1
        );
        assert!(scene.model.counters().interrupts > before);
    }
    Ok(())
}

/// With an event that stays readable a level-triggered event loop would never block.
#[test]
fn waiting_empties_the_event() -> Outcome {
    let scene = Scene::new()?;
    for waiting in WAYS {
        let mut pair = scene.pair(waiting)?;
        scene.read_until_interrupt(&mut pair)?;
        assert_eq!(pair.wait(Duration::ZERO, |_| {}), 1);
        assert!(!is_readable(event(&pair)?, 0)?, "what it told was taken");

        scene.read_until_interrupt(&mut pair)?;
        assert_eq!(pair.poll(|_| {}), 1);
        assert_eq!(pair.wait(Duration::ZERO, |_| {}), 0, "none is under way");
        assert!(!is_readable(event(&pair)?, 0)?, "what it told was taken");
    }
    Ok(())
}

/// Nothing comes for a while: it is slept through, but for a look ten times a second.
#[test]
fn who_sleeps_costs_nothing() -> Outcome {
    let scene = Scene::new()?;
    for (waiting, rounds_max) in WAYS.into_iter().zip([0, 64]) {
        let mut pair = scene.pair(waiting)?;
        scene.model.set_faults(model::Faults {
            rules: vec![model::FaultRule {
                target: model::Target::Io,
                when: model::When::Always,
                fault: model::Fault::Delay(u64::MAX / 2),
            }],
            ..model::Faults::default()
        });
        let read = Request::read(Lba(0), scene.arena.try_buffer(4096)?, 0);
        pair.submit(&scene.namespace, read)?;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let before = (count(&scene.host.relaxed), count(&scene.host.looked));
        assert_eq!(pair.wait(Duration::from_millis(250), |_| {}), 0);
        let relaxed = count(&scene.host.relaxed) - before.0;
        let looked = count(&scene.host.looked) - before.1;
        assert!(
            relaxed <= rounds_max,
            "{waiting:?}: {relaxed} rounds of polling"
        );
        // Three sleeps, with a few looks at the clock each.
        assert!(looked < 50, "{waiting:?}: {looked} looks at the clock");
        scene.model.set_faults(model::Faults::default());
    }
    Ok(())
}
