//! A controller that is whatever the input says, and a driver that does what the input says: shared by the
//! fuzz target `nvme_controller` and by the deterministic run in `tests/it/hostile_controllers.rs`.

mod input;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use input::Input;
use millrace_memory::{Arena, ArenaOptions, Buffer, Pages, SizeClass};
use millrace_nvme::{
    Completion, Controller, Data, Erase, Host, Lba, Namespace, Operation, Options, QueueOptions,
    QueuePair, Request, Waiting,
};
use millrace_nvme_model as model;

/// So long a step takes: so few steps make a time-out that many runs fit into a second.
const STEP_NS: u64 = 1_000_000;
/// More steps than any run needs: what waits longer waits for ever.
const STEPS_MAX: u64 = 3_000_000;
/// What is done with the controller at most.
const ACTIONS_MAX: usize = 200;

/// Steps the model when the driver waits.
#[derive(Debug)]
struct StepHost {
    model: model::Controller,
    steps: AtomicU64,
}

impl Host for StepHost {
    fn now(&self) -> Duration {
        Duration::from_nanos(self.steps.load(Ordering::Relaxed) * STEP_NS)
    }

    fn relax(&self, _: u32) {
        self.model.step();
        let steps = self.steps.fetch_add(1, Ordering::Relaxed);
        assert!(steps < STEPS_MAX, "the driver waits without end");
    }
}

/// Opens the controller that the input describes and uses it. Must not panic; each request that was accepted
/// ends once, and its memory comes back.
pub(crate) fn drive(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let options = input.model_options();
    let mut honest = is_honest(&options.faults);
    let Ok(model) = model::Controller::new(options) else {
        return;
    };
    let host = Arc::new(StepHost {
        model: model.clone(),
        steps: AtomicU64::new(0),
    });
    let driven = Options {
        command_timeout: Duration::from_millis(60),
        admin_timeout: Duration::from_millis(130),
        ..input.driver_options()
    };
    match Controller::open(model.function(), host, driven) {
        Ok(controller) => {
            if let Some(mut session) = Session::new(controller, &model, &mut input) {
                session.run(&mut input);
                session.finish();
                honest &= session.honest;
            }
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
    if honest {
        assert_eq!(
            model.dma_faults(),
            [],
            "memory that was not mapped was named"
        );
    }
}

/// Whether what is said and done lets the driver keep the controller from memory that is not mapped. One that
/// lies about sizes may reach beyond buffers that are shorter than it believes; one that says that a queue is
/// gone and keeps it looks at memory that was freed.
fn is_honest(faults: &model::Faults) -> bool {
    let forgets = |rule: &model::FaultRule| match rule.fault {
        model::Fault::Forget => true,
        model::Fault::Fail(status) => status.is_success(),
        _ => false,
    };
    faults.identify.is_empty()
        && faults.identify_random.is_none()
        && faults.capabilities_set == 0
        && faults.capabilities_clear == 0
        && !faults.rules.iter().any(forgets)
}

/// A controller in use.
struct Session<'a> {
    model: &'a model::Controller,
    controller: Arc<Controller>,
    namespace: Namespace,
    arena: Arena,
    queue: QueueOptions,
    pair: Option<QueuePair>,
    /// Tokens of requests that were accepted and have not ended, and whether they have data.
    requests_in_flight: HashMap<u64, bool>,
    token_next: u64,
    /// Whether the controller was honest all the time.
    honest: bool,
}

impl<'a> Session<'a> {
    fn new(
        controller: Arc<Controller>,
        model: &'a model::Controller,
        input: &mut Input<'_>,
    ) -> Option<Self> {
        let listed = controller.namespaces();
        let id = match input.below(16) {
            2 => listed.ok()?.first().copied()?,
            1 => input.word(),
            3 => 2,
            _ => 1,
        };
        let namespace = controller.namespace(id).ok()?;
        assert!((512..=1 << 16).contains(&namespace.block_size()));
        assert!(u64::from(namespace.block_size()) <= controller.transfer_max());
        let class = |size, count| SizeClass { size, count };
        let options = ArenaOptions {
            classes: vec![class(4096, 16), class(64 << 10, 4), class(256 << 10, 2)],
            pages: Pages::Base,
            node: None,
            locked: true,
        };
        let queue = QueueOptions {
            // Zero once in a while, which is refused.
            depth: (u16::from(input.byte()) + 1) % 34,
            waiting: Waiting::Poll,
        };
        let arena = Arena::new(Arc::clone(controller.domain()), &options);
        Some(Self {
            model,
            pair: controller.queue_pair(queue).ok(),
            namespace,
            arena: arena.expect("the model's address space has room"),
            queue,
            controller,
            requests_in_flight: HashMap::new(),
            token_next: 0,
            honest: true,
        })
    }

    fn run(&mut self, input: &mut Input<'_>) {
        for _ in 0..ACTIONS_MAX {
            if input.is_at_end() {
                return;
            }
            match input.below(20) {
                0..8 => self.submit(input),
                8..10 => self.poll(),
                10..12 => self.wait(),
                12 => {
                    for _ in 0..input.byte() {
                        self.model.step();
                    }
                }
                13 => self.administer(input),
                14 => drop(self.controller.reset()),
                15 => {
                    let faults = input.faults();
                    self.honest &= is_honest(&faults);
                    self.model.set_faults(faults);
                }
                16 => self.upset(input),
                17 => {
                    self.pair = None;
                    self.requests_in_flight.clear();
                    self.pair = self.controller.queue_pair(self.queue).ok();
                }
                18 => {
                    if let Some(pair) = &mut self.pair {
                        pair.ring();
                    }
                }
                _ => {
                    if let Ok(namespace) = self.controller.namespace(self.namespace.id()) {
                        self.namespace = namespace;
                    }
                }
            }
        }
    }

    fn submit(&mut self, input: &mut Input<'_>) {
        let Some(request) = self.request(input) else {
            return;
        };
        let (token, has_data) = (request.token, request.data.is_some());
        if let Some(pair) = &mut self.pair {
            let depth = pair.depth();
            match pair.submit(&self.namespace, request) {
                Ok(()) => assert_eq!(self.requests_in_flight.insert(token, has_data), None),
                Err(refused) => assert_eq!(refused.request.token, token),
            }
            assert!(
                pair.requests_in_flight() <= depth
                    && pair.requests_in_flight() == self.requests_in_flight.len()
            );
        }
    }

    fn request(&mut self, input: &mut Input<'_>) -> Option<Request> {
        let operation = match input.below(10) {
            0..3 => Operation::Read,
            3..6 => Operation::Write {
                fua: input.below(2) == 0,
            },
            6 => Operation::Compare,
            7 => Operation::Flush,
            8 => Operation::WriteZeroes {
                fua: input.below(2) == 0,
                deallocate: input.below(2) == 0,
            },
            _ => Operation::Deallocate,
        };
        let has_data = matches!(
            operation,
            Operation::Read | Operation::Write { .. } | Operation::Compare
        );
        let lba = match input.below(16) {
            1 => input.long(),
            2 => self
                .namespace
                .blocks()
                .wrapping_sub(u64::from(input.byte())),
            _ => u64::from(input.below(48)),
        };
        self.token_next += 1;
        Some(Request {
            operation,
            lba: Lba(lba),
            blocks: match input.below(4) {
                1 => u64::from(input.word()),
                _ => 1 + u64::from(input.below(16)),
            },
            data: if has_data {
                Some(self.data(input)?)
            } else {
                None
            },
            token: self.token_next,
        })
    }

    fn data(&self, input: &mut Input<'_>) -> Option<Data> {
        let block = usize::try_from(self.namespace.block_size()).ok()?;
        let buffer = |input: &mut Input<'_>| {
            let len = match input.below(16) {
                1 => usize::try_from(input.word() >> 14).ok()?,
                2 => block << input.below(7),
                _ => block * (1 + usize::from(input.below(16))),
            };
            self.arena.try_buffer(len).ok()
        };
        if input.below(4) != 1 {
            return buffer(input).map(Data::One);
        }
        let count = input.below(6);
        let buffers: Option<Vec<Buffer>> = (0..count).map(|_| buffer(input)).collect();
        buffers.map(Data::Many)
    }

    fn poll(&mut self) {
        let requests_in_flight = &mut self.requests_in_flight;
        if let Some(pair) = &mut self.pair {
            pair.poll(|completion| ended(requests_in_flight, &completion));
        }
    }

    fn wait(&mut self) {
        let requests_in_flight = &mut self.requests_in_flight;
        if let Some(pair) = &mut self.pair {
            pair.wait(Duration::from_millis(20), |completion| {
                ended(requests_in_flight, &completion);
            });
        }
    }

    fn administer(&self, input: &mut Input<'_>) {
        let controller = &self.controller;
        match input.below(7) {
            0 => drop(controller.namespaces()),
            1 => drop(controller.health()),
            2 => drop(controller.errors(usize::from(input.byte()))),
            3 => drop(controller.take_events()),
            4 => drop(controller.is_cache_used()),
            5 => drop(controller.set_cache_used(input.below(2) == 0)),
            _ => {
                let format = usize::from(input.byte());
                let id = self.namespace.id();
                drop(controller.format(id, format, Erase::No, Duration::from_millis(50)));
            }
        }
    }

    fn upset(&self, input: &mut Input<'_>) {
        match input.below(5) {
            0 => self.model.remove(),
            1 => self.model.insert(),
            2 => self.model.power_cut(),
            3 => self.model.raise_event(model::Event::Temperature),
            _ => self.model.raise_event(model::Event::NamespaceChanged(1)),
        }
    }

    /// All that is under way ends, whatever the controller does.
    fn finish(&mut self) {
        let mut rounds = 0;
        while self
            .pair
            .as_ref()
            .is_some_and(|pair| pair.requests_in_flight() > 0)
        {
            self.wait();
            rounds += 1;
            assert!(rounds < 10_000, "requests do not end: {:?}", self.pair);
        }
        assert!(
            self.requests_in_flight.is_empty(),
            "requests were forgotten"
        );
    }
}

fn ended(requests_in_flight: &mut HashMap<u64, bool>, completion: &Completion) {
    let token = completion.token;
    let had_data = requests_in_flight.remove(&token);
    // The model's function can always be reset, so no memory has to be given up.
    assert_eq!(
        had_data,
        Some(completion.data.is_some()),
        "request {token} ended twice, or without its data: {:?}",
        completion.result
    );
}
