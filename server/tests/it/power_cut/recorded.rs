//! A history of commands on a device that records.

use std::sync::Arc;

use millrace_block::{Geometry, MemoryDevice};
use millrace_engine::{CommitSeq, Engine as _};
use millrace_power_cut::{Options, Order, PowerCut};

use super::stack;
use crate::history::recording::Recording;
use crate::history::workload::history;

/// How many steps a history has.
const STEPS: usize = 90;
const DEVICE_BYTES: u64 = 64 << 20;

/// A disk with a cache, of one kind or another.
pub(crate) fn geometry(seed: u64) -> Geometry {
    let block_bytes = if seed % 4 == 2 { 4096 } else { 512 };
    let mut geometry = MemoryDevice::geometry_of(DEVICE_BYTES, block_bytes);
    geometry.volatile_cache = true;
    geometry.write_through = seed % 2 == 1;
    geometry.deallocated_reads_zero = seed % 3 != 1;
    geometry
}

/// When commands are acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Acknowledged {
    WhenDurable,
    /// Before the device is asked to put them on its medium, which is wrong.
    TooEarly,
}

/// A history, what the device was asked for meanwhile, and what was told when.
pub(crate) struct Recorded {
    pub(crate) seed: u64,
    pub(crate) when: Acknowledged,
    pub(crate) device: Arc<PowerCut>,
    pub(crate) recording: Recording,
    /// The number of events after each step, and the commit sequence number.
    ends: Vec<(usize, CommitSeq)>,
    /// The number of events when everything up to a commit sequence number was acknowledged, in order.
    acknowledged: Vec<(usize, CommitSeq)>,
}

impl Recorded {
    /// Records a history on an empty volume, from the first opening to the end of the closing. In every other one
    /// each command is acknowledged when it is durable, in the others every third.
    pub(crate) fn new(seed: u64, when: Acknowledged) -> Self {
        let order = match seed % 2 {
            0 => Order::AtOnce,
            _ => Order::Shuffled(seed),
        };
        let device = PowerCut::with_options(Options {
            geometry: geometry(seed),
            image: None,
            order,
        })
        .expect("a legal geometry");
        stack::format(&(Arc::clone(&device) as _));
        device.settle();
        let fixture = stack::open(Arc::clone(&device) as _, "recording");
        let (mut ends, mut acknowledged) = (Vec::new(), Vec::new());
        let steps_per_sync = if seed % 4 < 2 { 1 } else { 3 };
        let mut after_step = |last, durable: Option<CommitSeq>| {
            let events = device.events();
            // Where the step before has ended.
            let before = ends.last().map_or(0, |&(events, _)| events);
            ends.push((events, last));
            let told = match when {
                Acknowledged::WhenDurable => events,
                Acknowledged::TooEarly => before,
            };
            acknowledged.extend(durable.map(|commit_seq| (told, commit_seq)));
        };
        let steps = history(seed, STEPS);
        let recording = Recording::new(&fixture, steps, steps_per_sync, &mut after_step);
        let durable = fixture.engine.sync().expect("nothing fails");
        acknowledged.push((device.events(), durable));
        drop(fixture);
        Self {
            seed,
            when,
            device,
            recording,
            ends,
            acknowledged,
        }
    }

    /// What was acknowledged by then.
    pub(crate) fn durable_at(&self, point: usize) -> CommitSeq {
        let before = self
            .acknowledged
            .iter()
            .rfind(|(events, _)| *events <= point);
        before.map_or(CommitSeq::ZERO, |&(_, commit_seq)| commit_seq)
    }

    /// What had happened by then, and what the step under way was to make.
    pub(crate) fn last_at(&self, point: usize) -> CommitSeq {
        let after = self.ends.iter().find(|(events, _)| *events > point);
        let (_, commit_seq) = after.or(self.ends.last()).expect("a history has steps");
        *commit_seq
    }
}
