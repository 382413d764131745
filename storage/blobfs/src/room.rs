//! Units held for checkpoints, so that none ever meets a full device.
//!
//! For each of the two copies:
//!
//! ```text
//! current    what the superblocks name
//! written    where the checkpoint that is under way goes
//! spare      the rest
//! ```
//!
//! What makes the next checkpoint larger asks first ([`Room::grow`]), and is refused when there is no room for it:
//! the creation of a name, or a further extent of a file. What only happens later because of that, such as a
//! transaction that tells of the extent, needs no more.
//!
//! # Invariants
//! 1. A copy's units are at least twice as many as the next image can need: the current one stays until the next is
//!    named, and then is where the one after that goes.
//! 2. They are in few extents, as a superblock has no room for many.

use std::sync::{Mutex, MutexGuard};

use crate::allocator::{Allocator, Part};
use crate::format::checkpoint_image::PAGE_BYTES;
use crate::format::superblock::CHECKPOINT_EXTENTS_MAX;
use crate::format::{Extent, Layout};

/// A copy has no more extents than these, beside a few by which some are cut.
const EXTENTS_MAX: usize = CHECKPOINT_EXTENTS_MAX * 3 / 4;
/// Bytes of records in a page at least, as the longest record can leave so much of it empty.
const PAGE_RECORDS_MIN: u64 = PAGE_BYTES as u64 - 32 - 300;
/// When names come and go without making an image larger, one page of so many may become two.
const PAGES_A_FURTHER: u64 = 12;
/// An image can be larger by so many bytes for each extent of a file.
pub(crate) const EXTENT_GROWTH: u64 = 12;

/// By how many bytes an image can be larger when there is a further name.
pub(crate) const fn name_growth(name: &str) -> u64 {
    64 + name.len() as u64
}

/// Extents of one copy, in the order of their places.
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
    /// Bytes of records that the next one has beside, at most.
    growth: u64,
}

/// Units held for checkpoints.
#[derive(Debug)]
pub(crate) struct Room {
    layout: Layout,
    inner: Mutex<Inner>,
}

impl Room {
    /// Only what the superblocks name, an image of so many bytes.
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

    /// Bytes of the last image.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.lock().image_bytes
    }

    /// Units of both copies.
    pub(crate) fn units(&self) -> u64 {
        self.lock().copies.iter().map(Held::units).sum()
    }

    /// Makes sure that the next checkpoint may be larger by so many bytes. False if it may not.
    pub(crate) fn grow(&self, allocator: &Allocator, bytes: u64) -> bool {
        let mut inner = self.lock();
        let growth = inner.growth.saturating_add(bytes);
        let wanted = self.wanted(inner.image_bytes, growth);
        for (held, part) in inner.copies.iter_mut().zip([Part::Front, Part::Middle]) {
            let missing = wanted.saturating_sub(held.units());
            if missing > 0 && !held.take(allocator, missing, wanted / 8, part) {
                return false;
            }
        }
        inner.growth = growth;
        true
    }

    /// The next image has so many bytes. False if there is no room for it.
    pub(crate) fn expect(&self, allocator: &Allocator, image_bytes: u64) -> bool {
        self.lock().image_bytes = image_bytes;
        self.grow(allocator, 0)
    }

    /// What was asked for with [`Room::grow`] does not come.
    pub(crate) fn shrink(&self, bytes: u64) {
        let mut inner = self.lock();
        inner.growth = inner.growth.saturating_sub(bytes);
    }

    /// Where the two copies of an image of so many bytes go. The one after it will be larger by `growth` bytes at
    /// least. None if there is no room, which can only be if [`Room::grow`] was not asked or did refuse.
    pub(crate) fn begin(
        &self,
        allocator: &Allocator,
        image_bytes: u64,
        growth: u64,
    ) -> Option<[Vec<Extent>; 2]> {
        let mut inner = self.lock();
        let units = self.layout.units_of(image_bytes);
        (inner.image_bytes, inner.growth) = (image_bytes, growth);
        for (held, part) in inner.copies.iter_mut().zip([Part::Front, Part::Middle]) {
            let missing = units.saturating_sub(units_in(&held.spare));
            if missing > 0 && !held.take(allocator, missing, 0, part) {
                return None;
            }
            held.written = cut_out(&mut held.spare, units);
        }
        Some(inner.copies.each_ref().map(|held| held.written.clone()))
    }

    /// The superblocks name the checkpoint that was begun.
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
            allocator.give_back(&cut_off(&mut held.spare, surplus));
        }
    }

    /// Units of a copy for an image that has grown by so many bytes, however its records fall into pages, and for the
    /// one before it.
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
    fn take(&mut self, allocator: &Allocator, need: u64, good: u64, part: Part) -> bool {
        let most = EXTENTS_MAX.saturating_sub(self.extents());
        let taken = allocator
            .take_few(need.max(good), most, part)
            .or_else(|| allocator.take_few(need, most, part));
        let is_taken = taken.is_some();
        self.spare.extend(taken.unwrap_or_default());
        is_taken
    }
}

fn units_in(extents: &[Extent]) -> u64 {
    extents.iter().map(|extent| u64::from(extent.units)).sum()
}

/// Takes so many units, in few extents.
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

/// Takes so many units, the shortest extents first.
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
