//! Units reserved for checkpoints, so that a checkpoint never runs out of space.
//!
//! For each of the two copies:
//!
//! ```text
//! current    extents that the superblocks name
//! written    extents of the checkpoint in progress
//! spare      the rest
//! ```
//!
//! An operation that makes the next checkpoint larger reserves first ([`CheckpointReservation::grow`]) and fails if the
//! volume is full: the creation of a name, or a further extent of a file. A later operation that follows from it, such
//! as the transaction that names the extent, needs no more.
//!
//! # Invariants
//! 1. A copy has at least twice the units that the next image can need: the current image stays until the superblocks
//!    name the next one, and its units serve the image after that.
//! 2. A copy consists of few extents, because a superblock holds at most `CHECKPOINT_EXTENTS_MAX`.

use std::sync::{Mutex, MutexGuard};

use crate::allocator::{Allocator, SearchStart};
use crate::format::checkpoint_image::PAGE_BYTES;
use crate::format::superblock::CHECKPOINT_EXTENTS_MAX;
use crate::format::{Extent, Layout};

/// Extents of a copy, at most; the rest of the superblock's table is left for extents that are split.
const EXTENTS_MAX: usize = CHECKPOINT_EXTENTS_MAX * 3 / 4;
/// Least number of bytes of records in a page: the longest record may leave the rest empty.
const PAGE_RECORDS_MIN: u64 = PAGE_BYTES as u64 - 32 - 300;
/// Pages of which one may split in two while names are added and removed at constant image size.
const PAGES_A_FURTHER: u64 = 12;
/// Bytes by which each further extent of a file can enlarge the image.
pub(crate) const EXTENT_GROWTH: u64 = 12;

/// Bytes by which a further name can enlarge the image.
pub(crate) const fn name_growth(name: &str) -> u64 {
    64 + name.len() as u64
}

/// Extents of one copy, in the order of their use.
#[derive(Debug, Default)]
struct Held {
    current: Vec<Extent>,
    written: Vec<Extent>,
    spare: Vec<Extent>,
}

#[derive(Debug)]
struct Inner {
    copies: [Held; 2],
    /// Bytes of the last image, in whole pages.
    image_bytes: u64,
    /// Bytes of records, at most, that the next image has in addition.
    growth: u64,
}

/// Reservation of units for the next checkpoint.
#[derive(Debug)]
pub(crate) struct CheckpointReservation {
    layout: Layout,
    inner: Mutex<Inner>,
}

impl CheckpointReservation {
    /// A reservation with only the extents that the superblocks name, for an image of `image_bytes`.
    pub(crate) fn new(layout: Layout, current: &[Vec<Extent>; 2], image_bytes: u64) -> Self {
        let copies = current.each_ref().map(|extents| Held {
            current: extents.clone(),
            ..Held::default()
        });
        let inner = Mutex::new(Inner {
            copies,
            image_bytes,
            growth: 0,
        });
        Self { layout, inner }
    }

    /// Bytes of the last image, in whole pages.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.lock().image_bytes
    }

    /// Number of units of both copies.
    pub(crate) fn units(&self) -> u64 {
        self.lock().copies.iter().map(Held::units).sum()
    }

    /// Reserves for a next checkpoint that is larger by `bytes`. False if the volume is full.
    pub(crate) fn grow(&self, allocator: &Allocator, bytes: u64) -> bool {
        let mut inner = self.lock();
        let growth = inner.growth.saturating_add(bytes);
        let wanted = self.wanted(inner.image_bytes, growth);
        for (held, start) in inner
            .copies
            .iter_mut()
            .zip([SearchStart::FirstGroup, SearchStart::MiddleGroup])
        {
            let missing = wanted.saturating_sub(held.units());
            if missing > 0 && !held.take(allocator, missing, wanted / 8, start) {
                return false;
            }
        }
        inner.growth = growth;
        true
    }

    /// Reserves for a next image of `image_bytes`. False if the volume is full.
    pub(crate) fn expect(&self, allocator: &Allocator, image_bytes: u64) -> bool {
        self.lock().image_bytes = image_bytes;
        self.grow(allocator, 0)
    }

    /// Takes back the effect of a [`CheckpointReservation::grow`] whose operation failed.
    pub(crate) fn shrink(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.growth = inner.growth.saturating_sub(bytes);
    }

    /// Extents for the two copies of an image of `image_bytes`. The image after it will be larger by at least `growth`
    /// bytes. None if the volume is full, which happens only after a [`CheckpointReservation::grow`] that failed or was
    /// left out.
    pub(crate) fn begin(
        &self,
        allocator: &Allocator,
        image_bytes: u64,
        growth: u64,
    ) -> Option<[Vec<Extent>; 2]> {
        let mut inner = self.lock();
        let units = self.layout.units_of(image_bytes);
        (inner.image_bytes, inner.growth) = (image_bytes, growth);
        for (held, start) in inner
            .copies
            .iter_mut()
            .zip([SearchStart::FirstGroup, SearchStart::MiddleGroup])
        {
            let missing = units.saturating_sub(units_in(&held.spare));
            if missing > 0 && !held.take(allocator, missing, 0, start) {
                return None;
            }
            held.written = cut_out(&mut held.spare, units);
        }
        Some(inner.copies.each_ref().map(|held| held.written.clone()))
    }

    /// Replaces the current extents by those of [`CheckpointReservation::begin`], which the superblocks name now.
    pub(crate) fn end(&self, allocator: &Allocator) {
        let mut inner = self.lock();
        let wanted = self.wanted(inner.image_bytes, inner.growth);
        for held in &mut inner.copies {
            let written = std::mem::take(&mut held.written);
            let old = std::mem::replace(&mut held.current, written);
            held.spare.extend(old);
            join(&self.layout, &mut held.spare);
            let surplus = held
                .units()
                .saturating_sub(wanted)
                .min(units_in(&held.spare));
            allocator.free_now(&cut_off(&mut held.spare, surplus));
        }
    }

    /// Units of a copy for an image that has grown by `growth` bytes, however its records fall into pages, and for the
    /// image before it.
    const fn wanted(&self, image_bytes: u64, growth: u64) -> u64 {
        let pages = image_bytes / PAGE_BYTES as u64 + growth.div_ceil(PAGE_RECORDS_MIN);
        let bytes = (pages + pages / PAGES_A_FURTHER) * PAGE_BYTES as u64;
        2 * (self.layout.units_of(bytes) + 1)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().expect("no holder of the lock panics")
    }
}

impl Held {
    fn units(&self) -> u64 {
        [&self.current, &self.written, &self.spare]
            .map(|extents| units_in(extents))
            .iter()
            .sum()
    }

    fn extents(&self) -> usize {
        self.current.len() + self.written.len() + self.spare.len()
    }

    /// Takes `need` units, or `good` if there are so many.
    fn take(&mut self, allocator: &Allocator, need: u64, good: u64, start: SearchStart) -> bool {
        let most = EXTENTS_MAX.saturating_sub(self.extents());
        let taken = allocator
            .take_few(need.max(good), most, start)
            .or_else(|| allocator.take_few(need, most, start));
        let is_taken = taken.is_some();
        self.spare.extend(taken.unwrap_or_default());
        is_taken
    }
}

fn units_in(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.units)).sum()
}

/// Takes `units` units in few extents.
fn cut_out(extents: &mut Vec<Extent>, units: u64) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.units);
    let mut taken = Vec::new();
    let mut left = u32::try_from(units).unwrap_or(u32::MAX);
    while left > 0 {
        // The shortest that is long enough, else the longest.
        let enough = extents.partition_point(|extent| extent.units < left);
        if let Some(extent) = extents.get_mut(enough) {
            taken.push(cut(extent, left));
            extents.retain(|extent| extent.units > 0);
            break;
        }
        let Some(extent) = extents.pop() else { break };
        left -= extent.units;
        taken.push(extent);
    }
    taken
}

/// Takes `units` units, the shortest extents first.
fn cut_off(extents: &mut Vec<Extent>, units: u64) -> Vec<Extent> {
    extents.sort_unstable_by_key(|extent| extent.units);
    let mut taken = Vec::new();
    let mut left = u32::try_from(units).unwrap_or(u32::MAX);
    for extent in extents.iter_mut() {
        if left == 0 {
            break;
        }
        let here = cut(extent, left.min(extent.units));
        left -= here.units;
        taken.push(here);
    }
    extents.retain(|extent| extent.units > 0);
    taken
}

/// Takes the last `units` units of an extent.
const fn cut(extent: &mut Extent, units: u32) -> Extent {
    extent.units -= units;
    Extent {
        start: extent.start + extent.units as u64,
        units,
    }
}

/// Sorts extents and joins those that follow each other in a group.
fn join(layout: &Layout, extents: &mut Vec<Extent>) {
    extents.sort_unstable();
    extents.dedup_by(|extent, before| {
        let joined = Extent {
            start: before.start,
            units: before.units.saturating_add(extent.units),
        };
        let follows = before.end() == extent.start && layout.holds(joined);
        if follows {
            *before = joined;
        }
        follows
    });
}
