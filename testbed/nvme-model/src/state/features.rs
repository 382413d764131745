//! Features (base specification 1.4, section 5.21) and the doorbell buffer (section 5.7).

use std::ops::Range;

use crate::command::{Command, dwords};
use crate::host::Table;
use crate::options::Options;
use crate::status::Status;
use crate::violation::Rule;

use super::State;
use super::failure::{Failure, Outcome};

const ARBITRATION: u8 = 0x01;
const POWER_MANAGEMENT: u8 = 0x02;
const TEMPERATURE_THRESHOLD: u8 = 0x04;
const ERROR_RECOVERY: u8 = 0x05;
const VOLATILE_WRITE_CACHE: u8 = 0x06;
const NUMBER_OF_QUEUES: u8 = 0x07;
const INTERRUPT_COALESCING: u8 = 0x08;
const INTERRUPT_VECTOR: u8 = 0x09;
const WRITE_ATOMICITY: u8 = 0x0a;
const EVENT_CONFIGURATION: u8 = 0x0b;
const TIMESTAMP: u8 = 0x0e;

/// Warnings, namespace notices and firmware notices in feature 0Bh.
const EVENTS_KNOWN: u32 = 0x3ff;

/// Where doorbells and event indices lie in memory (section 5.7 and 7.13).
#[derive(Clone, Copy, Debug)]
pub(super) struct ShadowBuffers {
    doorbells: u64,
    event_indices: u64,
    stride: u64,
}

impl ShadowBuffers {
    pub(super) const fn doorbell(self, index: usize) -> u64 {
        self.doorbells + index as u64 * self.stride
    }

    /// Both buffers, as far as they are used for so many doorbells.
    pub(super) fn buffers(self, doorbells: usize) -> [Range<u64>; 2] {
        let size = doorbells as u64 * self.stride;
        [self.doorbells, self.event_indices].map(|first| first..first.saturating_add(size))
    }

    pub(super) const fn event_index(self, index: usize) -> u64 {
        self.event_indices + index as u64 * self.stride
    }
}

/// What the host has set.
#[derive(Debug)]
pub(super) struct Features {
    /// Submission and completion queues.
    queues: (u16, u16),
    cache: bool,
    /// Features that are kept and change nothing, by identifier.
    kept: [u32; 16],
    timestamp: [u8; 8],
}

impl Features {
    pub(super) fn new(options: &Options) -> Self {
        let mut kept = [0; 16];
        // Kelvin.
        kept[usize::from(TEMPERATURE_THRESHOLD)] = 343;
        Self {
            queues: (options.queues, options.queues),
            cache: options.volatile_cache,
            kept,
            timestamp: [0; 8],
        }
    }

    /// How many I/O submission and completion queues there may be.
    pub(super) const fn queues(&self) -> (u16, u16) {
        self.queues
    }

    #[inline]
    pub(super) const fn is_cache_on(&self) -> bool {
        self.cache
    }
}

impl State {
    pub(super) fn set_features(&mut self, command: &Command, host: &Table) -> Outcome<u32> {
        let feature = (command.dword(10) & 0xff) as u8;
        self.check_reserved(command, 10, 0x7fff_ff00);
        self.check_feature(command, feature);
        if command.dword(10) >> 31 != 0 {
            return Err(Failure::breach(
                Status::NOT_SAVEABLE,
                Rule::NotOffered,
                format!("feature {feature:#04x} is not saveable"),
            ));
        }
        let value = command.dword(11);
        match feature {
            NUMBER_OF_QUEUES => self.set_number_of_queues(value),
            VOLATILE_WRITE_CACHE if self.options.volatile_cache => {
                self.check_reserved(command, 11, !1);
                self.features.cache = value & 1 != 0;
                if !self.features.cache {
                    for namespace in &mut self.namespaces {
                        namespace.medium.flush();
                    }
                }
                Ok(0)
            }
            EVENT_CONFIGURATION => {
                self.check_reserved(command, 11, !EVENTS_KNOWN);
                self.events.configuration = value;
                Ok(0)
            }
            POWER_MANAGEMENT if value & 0x1f != 0 => Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::FieldValue,
                format!("power state {value:#x}"),
            )),
            ARBITRATION
            | POWER_MANAGEMENT
            | TEMPERATURE_THRESHOLD
            | ERROR_RECOVERY
            | INTERRUPT_COALESCING
            | INTERRUPT_VECTOR
            | WRITE_ATOMICITY => {
                self.features.kept[usize::from(feature)] = value;
                Ok(0)
            }
            TIMESTAMP => {
                self.locate(command, 8, true, host)?;
                let mut timestamp = [0; 8];
                self.receive(&mut timestamp, host)?;
                self.features.timestamp = timestamp;
                Ok(0)
            }
            _ => Err(unknown(feature)),
        }
    }

    /// No feature here belongs to a namespace, and one has data.
    fn check_feature(&mut self, command: &Command, feature: u8) {
        self.check_no_namespace(command);
        if feature != TIMESTAMP {
            self.check_unused(command, dwords::POINTER);
        }
    }

    /// Both counts are less by one than what they mean.
    fn set_number_of_queues(&mut self, value: u32) -> Outcome<u32> {
        let wanted = ((value & 0xffff) as u16, (value >> 16) as u16);
        if wanted.0 == u16::MAX || wanted.1 == u16::MAX {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::FieldValue,
                format!("number of queues {value:#x}"),
            ));
        }
        if self.submission_ids.len() > 1 || self.completion_ids.len() > 1 {
            return Err(Failure::breach(
                Status::SEQUENCE,
                Rule::Sequence,
                "number of queues set while there are I/O queues",
            ));
        }
        let most = self.options.queues;
        self.features.queues = ((wanted.0 + 1).min(most), (wanted.1 + 1).min(most));
        if self.plan.faults.features_random {
            return Ok(self.random_result());
        }
        Ok(self.number_of_queues())
    }

    fn number_of_queues(&self) -> u32 {
        let (submission, completion) = self.features.queues;
        u32::from(completion - 1) << 16 | u32::from(submission - 1)
    }

    fn random_result(&mut self) -> u32 {
        (self.plan.random().next() >> 32) as u32
    }

    pub(super) fn get_features(&mut self, command: &Command, host: &Table) -> Outcome<u32> {
        let feature = (command.dword(10) & 0xff) as u8;
        let select = command.dword(10) >> 8 & 7;
        self.check_reserved(command, 10, 0xffff_f800);
        self.check_feature(command, feature);
        if !matches!(feature, INTERRUPT_VECTOR | TEMPERATURE_THRESHOLD) {
            self.check_reserved(command, 11, u32::MAX);
        }
        if select != 0 {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::NotOffered,
                format!("select {select} of feature {feature:#04x}"),
            ));
        }
        if self.plan.faults.features_random {
            return Ok(self.random_result());
        }
        match feature {
            NUMBER_OF_QUEUES => Ok(self.number_of_queues()),
            VOLATILE_WRITE_CACHE if self.options.volatile_cache => {
                Ok(u32::from(self.features.cache))
            }
            EVENT_CONFIGURATION => Ok(self.events.configuration),
            INTERRUPT_VECTOR => Ok(command.dword(11) & 0xffff),
            ARBITRATION
            | POWER_MANAGEMENT
            | TEMPERATURE_THRESHOLD
            | ERROR_RECOVERY
            | INTERRUPT_COALESCING
            | WRITE_ATOMICITY => Ok(self.features.kept[usize::from(feature)]),
            TIMESTAMP => {
                self.locate(command, 8, true, host)?;
                self.send(&self.features.timestamp, host)?;
                Ok(0)
            }
            _ => Err(unknown(feature)),
        }
    }

    pub(super) fn configure_doorbell_buffer(&mut self, command: &Command) -> Outcome<u32> {
        let (doorbells, event_indices) = (command.data_first(), command.data_second());
        let page_mask = (1_u64 << self.page_shift) - 1;
        if doorbells & page_mask != 0 || event_indices & page_mask != 0 {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::QueueAlignment,
                format!("doorbell buffers at {doorbells:#x} and {event_indices:#x}"),
            ));
        }
        self.shadow = Some(ShadowBuffers {
            doorbells,
            event_indices,
            stride: 4 << self.options.doorbell_stride,
        });
        Ok(0)
    }

    /// Entry sizes in CC, as powers of two: of submission and completion queues.
    pub(super) const fn configured_entry_sizes(&self) -> (u32, u32) {
        (
            self.configuration >> 16 & 0xf,
            self.configuration >> 20 & 0xf,
        )
    }
}

fn unknown(feature: u8) -> Box<Failure> {
    Failure::breach(
        Status::INVALID_FIELD,
        Rule::NotOffered,
        format!("feature {feature:#04x}"),
    )
}
