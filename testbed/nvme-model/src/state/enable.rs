//! From CC.EN to CSTS.RDY and back (base specification 1.4, sections 3.1.5, 3.1.6, 7.3 and 7.6).

use std::ops::Range;

use crate::registers::{self, Store};
use crate::violation::Rule;

use super::State;
use super::completion_queue::CompletionQueue;
use super::submission_queue::SubmissionQueue;

/// Where the controller is between off and ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Off,
    Starting { due: u64 },
    Ready,
    Stopping { due: u64 },
}

/// Where a shutdown is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shutdown {
    None,
    Occurring { due: u64 },
    Complete,
}

/// AQA, ASQ and ACQ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AdminQueues {
    attributes: u32,
    submission: u64,
    completion: u64,
}

const ENABLE: u32 = 1;
const SHUTDOWN: u32 = 3 << 14;
const ENTRY_SIZES: u32 = 0xff << 16;
const RESERVED: u32 = 0xff00_000e;

/// Commands that were fetched before a fatal status may run in so many steps after it.
const FATAL_STEPS: u64 = 64;

/// log2 of a submission and a completion queue entry's size.
pub(super) const SUBMISSION_SHIFT: u32 = 6;
pub(super) const COMPLETION_SHIFT: u32 = 4;

impl State {
    /// CC was written.
    pub(super) fn configure(&mut self, value: u32) {
        let before = self.configuration;
        self.configuration = value;
        if value & RESERVED != 0 {
            self.violate(Rule::ReservedField, format!("CC {value:#x}"));
        }
        let was_on = before & ENABLE != 0;
        let is_on = value & ENABLE != 0;
        match (was_on, is_on) {
            (false, true) => self.enable(value),
            (true, false) => self.disable(),
            (true, true) => self.change(before, value),
            (false, false) => {}
        }
        let wants_shutdown = value & SHUTDOWN != 0;
        if wants_shutdown && before & SHUTDOWN == 0 {
            self.shutdown = Shutdown::Occurring {
                due: self.steps + self.options.ready_steps,
            };
        }
        self.publish();
    }

    fn change(&mut self, before: u32, value: u32) {
        let mut fixed = !(ENABLE | SHUTDOWN);
        if self.submission_ids.len() <= 1 && self.completion_ids.len() <= 1 {
            fixed &= !ENTRY_SIZES;
        }
        if (before ^ value) & fixed != 0 {
            let detail = format!("CC from {before:#x} to {value:#x}");
            self.violate(Rule::ChangedWhileEnabled, detail);
        }
    }

    fn enable(&mut self, value: u32) {
        if self.phase != Phase::Off {
            let detail = "CC.EN set before CSTS.RDY was cleared".to_owned();
            self.violate(Rule::EnabledTooEarly, detail);
        }
        self.forget_queues();
        self.shutdown = Shutdown::None;
        self.fatal = false;
        if let Some(wrong) = self.wrong_configuration(value) {
            self.violate(wrong.0, wrong.1);
            self.fail_fatally();
            return;
        }
        self.page_shift = 12 + (value >> 7 & 0xf);
        self.phase = Phase::Starting {
            due: self.steps + self.options.ready_steps,
        };
    }

    /// What is wrong with CC and the admin queues, if anything is.
    fn wrong_configuration(&self, value: u32) -> Option<(Rule, String)> {
        let page = value >> 7 & 0xf;
        if page < u32::from(self.options.page_min) || page > u32::from(self.options.page_max) {
            return Some((Rule::Configuration, format!("CC.MPS {page}")));
        }
        if value >> 4 & 7 != 0 || value >> 11 & 7 != 0 {
            let detail = format!("CC.CSS or CC.AMS in {value:#x}");
            return Some((Rule::Configuration, detail));
        }
        let attributes = self.admin.attributes;
        let (submission, completion) = (attributes & 0xfff, attributes >> 16 & 0xfff);
        if submission == 0 || completion == 0 {
            return Some((Rule::QueueSize, format!("AQA {attributes:#x}")));
        }
        let page_mask = (1_u64 << (12 + page)) - 1;
        if self.admin.submission & page_mask != 0 || self.admin.completion & page_mask != 0 {
            let detail = format!(
                "ASQ {:#x}, ACQ {:#x} with CC.MPS {page}",
                self.admin.submission, self.admin.completion
            );
            return Some((Rule::QueueAlignment, detail));
        }
        None
    }

    fn disable(&mut self) {
        // A host cannot wait without end for one that never gets ready.
        let is_excused = self.plan.faults.never_ready;
        if matches!(self.phase, Phase::Starting { .. }) && !is_excused {
            let detail = "CC.EN cleared before CSTS.RDY was set".to_owned();
            self.violate(Rule::EnabledTooEarly, detail);
        }
        self.phase = match self.phase {
            Phase::Ready => {
                self.close_doorbells();
                self.hurry(self.options.ready_steps);
                Phase::Stopping {
                    due: self.steps + self.options.ready_steps,
                }
            }
            Phase::Stopping { due } => Phase::Stopping { due },
            Phase::Off | Phase::Starting { .. } => {
                self.forget_queues();
                self.fatal = false;
                self.shutdown = Shutdown::None;
                Phase::Off
            }
        };
    }

    /// Where the admin queues lie that the controller is about to use.
    pub(super) fn admin_rings(&self) -> [Range<u64>; 2] {
        let AdminQueues {
            attributes,
            submission,
            completion,
        } = self.admin;
        let entries = |count: u32| u64::from(count & 0xfff) + 1;
        [
            submission..submission.saturating_add(entries(attributes) << SUBMISSION_SHIFT),
            completion..completion.saturating_add(entries(attributes >> 16) << COMPLETION_SHIFT),
        ]
    }

    /// An admin queue register was written.
    pub(super) fn set_admin(&mut self, store: Store) {
        let Store { offset, value } = store;
        if self.configuration & ENABLE != 0 {
            let detail = format!("{value:#x} at {offset:#x}");
            self.violate(Rule::ChangedWhileEnabled, detail);
        }
        let replace_low = |old: u64| old >> 32 << 32 | u64::from(value & !0xfff);
        let replace_high = |old: u64| old & 0xffff_ffff | u64::from(value) << 32;
        let is_low_base =
            offset == registers::ADMIN_SUBMISSION || offset == registers::ADMIN_COMPLETION;
        if is_low_base && value & 0xfff != 0 {
            let detail = format!("{value:#x} at {offset:#x}");
            self.violate(Rule::QueueAlignment, detail);
        }
        match offset {
            registers::ADMIN_ATTRIBUTES => {
                if value & 0xf000_f000 != 0 {
                    self.violate(Rule::ReservedField, format!("AQA {value:#x}"));
                }
                self.admin.attributes = value;
            }
            registers::ADMIN_SUBMISSION => {
                self.admin.submission = replace_low(self.admin.submission);
            }
            0x2c => self.admin.submission = replace_high(self.admin.submission),
            registers::ADMIN_COMPLETION => {
                self.admin.completion = replace_low(self.admin.completion);
            }
            _ => self.admin.completion = replace_high(self.admin.completion),
        }
    }

    /// Goes on with what takes steps.
    #[inline]
    pub(super) fn advance(&mut self) -> usize {
        if self.phase == Phase::Ready && self.shutdown == Shutdown::None {
            return 0;
        }
        self.advance_slowly()
    }

    fn advance_slowly(&mut self) -> usize {
        let mut done = 0;
        match self.phase {
            Phase::Starting { due } if self.steps >= due && !self.plan.faults.never_ready => {
                self.start();
                done += 1;
            }
            Phase::Stopping { due } if self.steps >= due && !self.plan.faults.never_disabled => {
                self.forget_queues();
                self.phase = Phase::Off;
                self.fatal = false;
                self.shutdown = Shutdown::None;
                done += 1;
            }
            _ => {}
        }
        match self.shutdown {
            Shutdown::Occurring { due }
                if self.steps >= due && !self.plan.faults.never_shut_down =>
            {
                // Normal; after an abrupt one the cache is written back too, which the host may not rely on.
                for namespace in &mut self.namespaces {
                    namespace.medium.flush();
                }
                self.logs.shut_down();
                self.shutdown = Shutdown::Complete;
                done += 1;
            }
            _ => {}
        }
        if done > 0 {
            self.publish();
        }
        done
    }

    fn start(&mut self) {
        let AdminQueues {
            attributes,
            submission,
            completion,
        } = self.admin;
        self.add_completion(CompletionQueue::new(
            0,
            completion,
            (attributes >> 16 & 0xfff) + 1,
            Some(0),
        ));
        self.add_submission(SubmissionQueue::new(
            0,
            submission,
            (attributes & 0xfff) + 1,
            0,
        ));
        self.phase = Phase::Ready;
        self.counters.enables += 1;
    }

    /// All that a controller reset takes away.
    pub(super) fn forget_queues(&mut self) {
        self.submission.iter_mut().for_each(|queue| *queue = None);
        self.completion.iter_mut().for_each(|queue| *queue = None);
        self.submission_ids.clear();
        self.completion_ids.clear();
        self.held.clear();
        self.lost.clear();
        self.shadow = None;
        self.events = super::Events::default();
        self.features = super::Features::new(&self.options);
        self.registers.doorbells.clear();
    }

    /// Sets CSTS.CFS; nothing works until the host resets the controller, which may use memory till then.
    pub(super) fn fail_fatally(&mut self) {
        self.fatal = true;
        self.hurry(FATAL_STEPS);
        self.publish();
    }

    /// Makes CSTS what the state says.
    fn publish(&self) {
        let mut status = 0;
        if matches!(self.phase, Phase::Ready | Phase::Stopping { .. }) {
            status |= registers::READY;
        }
        if self.fatal {
            status |= registers::FATAL;
        }
        match self.shutdown {
            Shutdown::None => {}
            Shutdown::Occurring { .. } => status |= registers::SHUTDOWN_OCCURRING,
            Shutdown::Complete => status |= registers::SHUTDOWN_COMPLETE,
        }
        self.registers.set_status(status);
    }
}
