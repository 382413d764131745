//! A point of a record, and what a disk could hold if the power went there.

use std::sync::Arc;

use millrace_block::{Geometry, Image, MemoryDevice};

use crate::block_set::BlockSet;
use crate::materialise::Survivors;
use crate::record::{Asked, Content, Record, Step};
use crate::{Event, Kind};

/// A request that the medium may or may not hold, or that is not yet part of the durable image.
#[derive(Clone, Debug)]
pub(crate) struct Listed {
    /// In the record.
    pub(crate) number: usize,
    pub(crate) durable: bool,
    /// Whether its completion was taken.
    completed: bool,
    /// Whether no flush helps any more: it failed, or a flush did.
    doomed: bool,
    /// Whether its blocks hold anything, as it has failed.
    pub(crate) spoiled: bool,
}

/// Moves over the events of a record. At point `n` the power goes after the first `n` events.
///
/// # Invariants
/// 1. Of two durable requests with a block in common, none or the later one is listed, or both.
/// 2. The durable image has a durable request only if no listed request with a block in common may come
///    before it: whatever comes of the listed ones is written over that image.
#[derive(Clone, Debug)]
pub struct Cursor {
    record: Arc<Record>,
    point: usize,
    pub(crate) durable: Image,
    /// Deallocated blocks of the durable image that hold anything.
    pub(crate) anything: BlockSet,
    /// In the order of submission.
    pub(crate) listed: Vec<Listed>,
}

impl Cursor {
    pub(crate) fn new(record: Arc<Record>) -> Self {
        Self {
            durable: record.start.clone(),
            record,
            point: 0,
            anything: BlockSet::default(),
            listed: Vec::new(),
        }
    }

    /// Geometry of the device that was recorded.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.record.geometry
    }

    /// Position in the record: the number of events before it, from 0 to [`Cursor::events`].
    #[must_use]
    pub const fn point(&self) -> usize {
        self.point
    }

    /// How many events the record has: the last point.
    #[must_use]
    pub fn events(&self) -> usize {
        self.record.steps.len()
    }

    /// The event that has happened last; none at point zero.
    #[must_use]
    pub fn event(&self) -> Option<Event> {
        let last = self.point.checked_sub(1)?;
        Some(self.record.event(self.record.steps[last]))
    }

    /// How many requests may or may not be on the medium. If there are none all images are the same, but for
    /// blocks that hold anything.
    #[must_use]
    pub fn loose(&self) -> usize {
        self.listed.iter().filter(|listed| !listed.durable).count()
    }

    /// Lets the next event happen; false if there is none.
    pub fn advance(&mut self) -> bool {
        let Some(step) = self.record.steps.get(self.point).copied() else {
            return false;
        };
        self.point += 1;
        match step {
            Step::Submitted(number) => {
                if self.record.asked[number].kind.changes() {
                    self.listed.push(Listed {
                        number,
                        durable: false,
                        completed: false,
                        doomed: false,
                        spoiled: false,
                    });
                }
            }
            Step::Completed(number) => self.complete(number),
        }
        true
    }

    /// Moves to a later point.
    ///
    /// # Panics
    /// If it is behind the cursor or beyond the last one.
    pub fn advance_to(&mut self, point: usize) {
        let ahead = self.point <= point && point <= self.events();
        assert!(
            ahead,
            "from point {} to {point} of {}",
            self.point,
            self.events()
        );
        while self.point < point {
            self.advance();
        }
    }

    /// A content that a disk could have if the power went here: the same seed gives the same.
    #[must_use]
    pub fn image(&self, survivors: Survivors, seed: u64) -> Image {
        crate::materialise::image(self, survivors, seed)
    }

    /// A disk with such a content.
    #[must_use]
    pub fn disk(&self, survivors: Survivors, seed: u64) -> MemoryDevice {
        let disk = MemoryDevice::on(self.image(survivors, seed), self.geometry().clone());
        disk.expect("an image is of the size that the geometry says")
    }

    pub(crate) fn asked(&self, listed: &Listed) -> &Asked {
        &self.record.asked[listed.number]
    }

    /// Whether this comes before that if both are written. Of two that have no block in common it does not
    /// matter.
    pub(crate) fn is_before(&self, this: &Listed, that: &Listed) -> bool {
        let (one, other) = (self.asked(this), self.asked(that));
        match (this.durable, that.durable) {
            (false, false) => false,
            (true, true) => one.applied < other.applied,
            _ => one.is_before(other),
        }
    }

    fn complete(&mut self, number: usize) {
        let record = Arc::clone(&self.record);
        let asked = &record.asked[number];
        if asked.kind == Kind::Flush {
            for listed in &mut self.listed {
                let covered = record.asked[listed.number].is_before(asked);
                listed.doomed |= asked.failed && listed.completed;
                listed.durable |= !asked.failed && covered && !listed.doomed;
            }
        } else {
            let through = asked.kind == Kind::WriteThrough || !record.geometry.volatile_cache;
            let found = self
                .listed
                .iter_mut()
                .rfind(|listed| listed.number == number);
            let listed = found.expect("what was submitted is listed until it has completed");
            listed.completed = true;
            listed.doomed = asked.failed;
            listed.spoiled = asked.failed;
            listed.durable = through && !asked.failed;
        }
        if self.listed.iter().any(|listed| listed.durable) {
            self.settle(&record);
        }
    }

    /// Moves durable requests into the durable image.
    fn settle(&mut self, record: &Record) {
        let all = std::mem::take(&mut self.listed);
        let (mut durable, mut loose): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|listed| listed.durable);
        // What is under a durable request as a whole is seen no more.
        loose.retain(|loose| {
            let hidden = |over: &Listed| {
                let (over, under) = (self.asked(over), self.asked(loose));
                under.is_before(over) && over.covers(under)
            };
            !durable.iter().any(hidden)
        });
        durable.sort_by_key(|listed| record.asked[listed.number].applied);
        let mut stay: Vec<Listed> = Vec::new();
        for listed in durable {
            let asked = &record.asked[listed.number];
            let may_come_before = |other: &Listed| {
                let meets = record.asked[other.number].meets(asked);
                meets && !self.is_before(&listed, other)
            };
            if stay.iter().chain(&loose).any(may_come_before) {
                stay.push(listed);
            } else {
                self.write_durably(asked);
            }
        }
        loose.append(&mut stay);
        loose.sort_by_key(|listed| listed.number);
        self.listed = loose;
    }

    fn write_durably(&mut self, asked: &Asked) {
        let shift = self.record.geometry.block_shift();
        let offset = asked.blocks.start << shift;
        let len = (asked.blocks.end - asked.blocks.start) << shift;
        match &asked.content {
            Content::Bytes(bytes) => self.durable.write(offset, bytes),
            Content::Zeros => self.durable.zero(offset, len),
            Content::Anything => {
                self.anything.insert(asked.blocks.clone());
                return;
            }
        }
        self.anything.remove(&asked.blocks);
    }
}
