//! The controller itself: what a step does.
//!
//! Everything here runs under one lock, in a step. The host's threads reach only
//! [`Registers`], [`Lines`] and the table of mappings.

mod admin;
mod completion_queue;
mod enable;
mod events;
mod execute;
mod failure;
mod features;
mod identify;
mod io;
mod log_pages;
mod queues;
mod submission_queue;
mod transfer;
mod unmapping;
mod wind_down;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::command::Command;
use crate::faults::FaultPlan;
use crate::host::{DmaFault, Table};
use crate::lines::Lines;
use crate::medium::Medium;
use crate::options::{NamespaceOptions, Options};
use crate::random::Random;
use crate::registers::{self, Registers, Store};
use crate::violation::{Rule, Violation};

pub use self::events::Event;

use self::completion_queue::CompletionQueue;
use self::enable::Phase;
use self::events::Events;
use self::failure::Failure;
use self::features::Features;
use self::log_pages::Logs;
use self::submission_queue::SubmissionQueue;
use self::transfer::Segment;

/// What was counted since the controller was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// Commands that were fetched from submission queues.
    pub commands: u64,
    /// Completions that were written, hostile ones included.
    pub completions: u64,
    /// Read commands that began to execute, with those that then failed.
    pub reads: u64,
    /// Write commands that began to execute, with those that then failed.
    pub writes: u64,
    /// Flush commands that began to execute, with those that then failed.
    pub flushes: u64,
    /// Reads and writes that crossed the optimal boundary.
    pub boundary_crossings: u64,
    /// Times that a queue had to wait as its completion queue was full.
    pub stalls: u64,
    /// Times that an interrupt was signalled.
    pub interrupts: u64,
    /// Doorbell values that were taken; several writes of a doorbell before a poll count once.
    pub doorbells: u64,
    /// Times that the controller became ready.
    pub enables: u64,
}

/// A namespace with its present format.
#[derive(Debug)]
struct Namespace {
    options: NamespaceOptions,
    /// Bytes over all, whatever the format.
    bytes: u64,
    medium: Medium,
}

/// A command that was fetched and is not completed yet.
#[derive(Debug)]
struct Held {
    due: u64,
    queue: u16,
    command: Command,
}

/// A command that was fetched and will not be completed, unless it is aborted.
#[derive(Debug)]
struct Lost {
    /// When it is carried out in spite of that, if it is.
    due: Option<u64>,
    queue: u16,
    command: Command,
}

/// The controller.
#[derive(Debug)]
pub(crate) struct State {
    options: Options,
    registers: Arc<Registers>,
    lines: Arc<Lines>,
    steps: u64,
    phase: Phase,
    shutdown: enable::Shutdown,
    fatal: bool,
    configuration: u32,
    admin: enable::AdminQueues,
    page_shift: u32,
    submission: Vec<Option<SubmissionQueue>>,
    completion: Vec<Option<CompletionQueue>>,
    /// Which of them exist; the admin queues come first.
    submission_ids: Vec<u16>,
    completion_ids: Vec<u16>,
    held: Vec<Held>,
    lost: Vec<Lost>,
    /// The segments of the transfer under way, kept for its memory.
    segments: Vec<Segment>,
    /// Where the lists lie that name them.
    lists: Vec<Segment>,
    shadow: Option<features::ShadowBuffers>,
    events: Events,
    features: Features,
    logs: Logs,
    namespaces: Vec<Namespace>,
    plan: FaultPlan,
    cut_random: Random,
    violations: VecDeque<Violation>,
    dma_faults: VecDeque<DmaFault>,
    counters: Counters,
}

/// In one of so many steps doorbells are looked at that have no queue.
const STRAY_STEPS: u64 = 256;

/// More breaches than this tell nothing new.
const RECORDS_MAX: usize = 1000;

impl State {
    pub(crate) fn new(options: Options, registers: Arc<Registers>, lines: Arc<Lines>) -> Self {
        let queues = usize::from(options.queues) + 1;
        let cache = options.cache_bytes;
        let namespaces = options
            .namespaces
            .iter()
            .map(|namespace| Namespace {
                bytes: namespace.blocks * u64::from(namespace.block_size),
                medium: Medium::new(
                    namespace.block_size,
                    namespace.blocks,
                    namespace.blank(),
                    cache,
                ),
                options: namespace.clone(),
            })
            .collect();
        Self {
            plan: FaultPlan::new(options.faults.clone(), options.seed),
            cut_random: Random::new(options.seed, 3),
            features: Features::new(&options),
            logs: Logs::default(),
            registers,
            lines,
            steps: 0,
            phase: Phase::Off,
            shutdown: enable::Shutdown::None,
            fatal: false,
            configuration: 0,
            admin: enable::AdminQueues::default(),
            page_shift: 12,
            submission: (0..queues).map(|_| None).collect(),
            completion: (0..queues).map(|_| None).collect(),
            submission_ids: Vec::new(),
            completion_ids: Vec::new(),
            held: Vec::new(),
            lost: Vec::new(),
            segments: Vec::new(),
            lists: Vec::new(),
            shadow: None,
            events: Events::default(),
            namespaces,
            violations: VecDeque::new(),
            dma_faults: VecDeque::new(),
            counters: Counters::default(),
            options,
        }
    }

    /// Does some work; returns how many things it did.
    pub(crate) fn step(&mut self, host: &Table, bus_master: bool) -> usize {
        self.steps += 1;
        self.scheduled_faults();
        if self.registers.is_removed() {
            return 0;
        }
        let mut done = 0;
        for store in self.registers.take() {
            self.apply(store);
            done += 1;
        }
        if self.steps % STRAY_STEPS == 0 {
            self.look_for_stray_doorbells();
        }
        done += self.advance();
        if self.phase != Phase::Ready || self.fatal || self.shutdown != enable::Shutdown::None {
            return done + self.wind_down(host, bus_master);
        }
        done += self.poll_queues(host, bus_master);
        done
    }

    fn scheduled_faults(&mut self) {
        let faults = &self.plan.faults;
        let now = Some(self.steps);
        let (remove, fatal, reset) = (
            faults.remove_at == now,
            faults.fatal_at == now,
            faults.reset_at == now,
        );
        if remove {
            self.registers.set_removed(true);
        }
        if fatal {
            self.fail_fatally();
        }
        if reset {
            self.reset_function();
        }
    }

    fn apply(&mut self, store: Store) {
        match store.offset {
            registers::CONFIGURATION => self.configure(store.value),
            registers::ADMIN_ATTRIBUTES
            | registers::ADMIN_SUBMISSION
            | 0x2c
            | registers::ADMIN_COMPLETION
            | 0x34 => self.set_admin(store),
            registers::INTERRUPT_MASK_SET | registers::INTERRUPT_MASK_CLEAR => {}
            offset if offset >= self.options.vector_table() => {}
            offset if offset >= registers::DOORBELLS => self.stray_doorbell(store),
            offset => {
                let detail = format!("store of {:#x} at {offset:#x}", store.value);
                self.violate(Rule::RegisterAccess, detail);
            }
        }
    }

    fn look_for_stray_doorbells(&mut self) {
        while let Some(index) = self.registers.doorbells.stray() {
            let detail = format!("doorbell {index}");
            self.violate(Rule::DoorbellWithoutQueue, detail);
            self.events.raise(Event::InvalidDoorbellRegister);
        }
    }

    /// A doorbell was rung that has no queue behind it.
    fn stray_doorbell(&mut self, store: Store) {
        let detail = format!("{:#x} to the doorbell at {:#x}", store.value, store.offset);
        self.violate(Rule::DoorbellWithoutQueue, detail);
        self.events.raise(Event::InvalidDoorbellRegister);
    }

    pub(crate) fn violate(&mut self, rule: Rule, detail: String) {
        if self.violations.len() < RECORDS_MAX {
            self.violations.push_back(Violation {
                rule,
                step: self.steps,
                detail,
            });
        }
    }

    /// Keeps what a failure says beside its status.
    fn record(&mut self, failure: &Failure, context: &str) {
        if let Some(fault) = failure.dma {
            self.record_dma(fault);
        }
        if let Some((rule, detail)) = &failure.breach {
            self.violate(*rule, format!("{context}: {detail}"));
        }
    }

    fn record_dma(&mut self, fault: DmaFault) {
        if self.dma_faults.len() < RECORDS_MAX {
            self.dma_faults.push_back(fault);
        }
    }

    pub(crate) fn violations(&self) -> Vec<Violation> {
        self.violations.iter().cloned().collect()
    }

    pub(crate) fn clear_records(&mut self) {
        self.violations.clear();
        self.dma_faults.clear();
    }

    pub(crate) fn dma_faults(&self) -> Vec<DmaFault> {
        self.dma_faults.iter().copied().collect()
    }

    pub(crate) const fn counters(&self) -> Counters {
        self.counters
    }

    pub(crate) const fn steps(&self) -> u64 {
        self.steps
    }

    pub(crate) fn set_faults(&mut self, faults: crate::faults::Faults) {
        self.plan.replace(faults);
    }

    pub(crate) fn raise(&mut self, event: Event) {
        if let Event::NamespaceChanged(namespace) = event {
            self.logs.changed(namespace);
        }
        self.events.raise(event);
    }

    /// A namespace by its identifier.
    fn namespace(&self, id: u32) -> Option<&Namespace> {
        let index = usize::try_from(id).ok()?.checked_sub(1)?;
        self.namespaces.get(index)
    }

    pub(crate) fn medium(&self, namespace: u32) -> Option<&Medium> {
        self.namespace(namespace).map(|found| &found.medium)
    }

    /// Loses what a power cut may lose, and forgets all else but the media.
    pub(crate) fn cut_power(&mut self) {
        for namespace in &mut self.namespaces {
            let (_, atomic) = self.options.atomic_units(&namespace.options);
            namespace
                .medium
                .cut(&mut self.cut_random, u64::from(atomic));
        }
        self.reset_function();
        self.admin = enable::AdminQueues::default();
        self.logs.power_cycled();
    }

    /// As a function-level reset leaves it: registers as after power-on, the cache as it was.
    pub(crate) fn reset_function(&mut self) {
        self.forget_queues();
        self.phase = Phase::Off;
        self.shutdown = enable::Shutdown::None;
        self.fatal = false;
        self.configuration = 0;
        self.admin = enable::AdminQueues::default();
        self.registers.clear();
    }
}
