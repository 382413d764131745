//! What was asked of a device, in order.

use std::ops::Range;
use std::sync::Arc;

use millrace_block::{Geometry, Image};

use crate::Kind;

/// A moment: they are counted from one device's first on. Zero is before all.
pub(crate) type Moment = u64;

/// A moment that has not come.
pub(crate) const NEVER: Moment = Moment::MAX;

/// What blocks were to hold.
#[derive(Clone, Debug)]
pub(crate) enum Content {
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// Zeros.
    Zeros,
    /// Anything: they were deallocated.
    Anything,
}

/// A request that was recorded: a flush, or one that changes blocks.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: Kind,
    /// None for a flush.
    pub(crate) blocks: Range<u64>,
    pub(crate) content: Content,
    pub(crate) submitted: Moment,
    /// When reads began to see it.
    pub(crate) applied: Moment,
    /// When its completion was taken.
    pub(crate) completed: Moment,
    pub(crate) failed: bool,
}

/// Something that was recorded. What a disk may hold changes with these alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request was submitted.
    Submitted {
        /// Its number: they are counted from zero on, as they are submitted.
        request: usize,
        /// Its kind.
        kind: Kind,
        /// The blocks that it changes; none for a flush.
        blocks: Range<u64>,
    },
    /// The completion of a request was taken.
    Completed {
        /// Its number.
        request: usize,
        /// Its kind.
        kind: Kind,
        /// Whether it failed.
        failed: bool,
    },
}

/// A recorded event in short.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Submitted(usize),
    Completed(usize),
}

/// All that was asked of a device since its record began.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) geometry: Geometry,
    /// What was on the medium when it began.
    pub(crate) start: Image,
    pub(crate) asked: Vec<Asked>,
    pub(crate) steps: Vec<Step>,
}

impl Record {
    pub(crate) const fn new(geometry: Geometry, start: Image) -> Self {
        Self {
            geometry,
            start,
            asked: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Writes down a request that was submitted; its number.
    pub(crate) fn submitted(&mut self, asked: Asked) -> usize {
        let number = self.asked.len();
        self.asked.push(asked);
        self.steps.push(Step::Submitted(number));
        number
    }

    /// Writes down that a request's completion was taken.
    pub(crate) fn completed(&mut self, number: usize, now: Moment) {
        self.asked[number].completed = now;
        self.steps.push(Step::Completed(number));
    }

    /// The event before a point.
    pub(crate) fn event(&self, step: Step) -> Event {
        match step {
            Step::Submitted(request) => Event::Submitted {
                request,
                kind: self.asked[request].kind,
                blocks: self.asked[request].blocks.clone(),
            },
            Step::Completed(request) => Event::Completed {
                request,
                kind: self.asked[request].kind,
                failed: self.asked[request].failed,
            },
        }
    }
}

impl Asked {
    /// Whether the completion of this was taken before that was submitted.
    pub(crate) const fn is_before(&self, that: &Self) -> bool {
        self.completed < that.submitted
    }

    /// Whether both are about a block.
    pub(crate) const fn meets(&self, that: &Self) -> bool {
        self.blocks.start < that.blocks.end && that.blocks.start < self.blocks.end
    }

    /// Whether this is about all blocks that that is about.
    pub(crate) const fn covers(&self, that: &Self) -> bool {
        self.blocks.start <= that.blocks.start && that.blocks.end <= self.blocks.end
    }
}
