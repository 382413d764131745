//! Allocation of units, in memory only.
//!
//! A mount computes the free units from the metadata. A unit is in one of three states:
//!
//! ```text
//! free --take--> held --free_after(n)--> pending free until transaction n is on the medium --> free
//!                held --free_now--> free        (no transaction ever named it)
//! ```
//!
//! # Invariants
//! 1. Every unit of the groups is in exactly one state.
//! 2. A unit that is pending free is not handed out: until the transaction that freed it is on the medium, a power
//!    cut restores the file that holds it.
//! 3. A unit that has left the pending list and is not free yet, because the device deallocates it, still counts as
//!    pending free.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};

use crate::format::{Extent, Layout};

/// The free units of one group.
#[derive(Debug, Default)]
struct Group {
    /// Start and length of each run; no two touch.
    free: BTreeMap<u64, u64>,
    units: u64,
}

impl Group {
    fn insert(&mut self, start: u64, units: u64) {
        let (mut start, mut len) = (start, units);
        if let Some((&before, &before_len)) = self.free.range(..start).next_back() {
            assert!(before + before_len <= start, "a unit is freed twice");
            if before + before_len == start {
                self.free.remove(&before);
                start = before;
                len += before_len;
            }
        }
        if let Some((&after, &after_len)) = self.free.range(start..).next() {
            assert!(start + len <= after, "a unit is freed twice");
            if start + len == after {
                self.free.remove(&after);
                len += after_len;
            }
        }
        self.free.insert(start, len);
        self.units += units;
    }

    /// Takes `range`, which lies in one run.
    fn remove(&mut self, range: Range<u64>) -> bool {
        let Some((&start, &len)) = self.free.range(..=range.start).next_back() else {
            return false;
        };
        if start + len < range.end {
            return false;
        }
        self.free.remove(&start);
        if start < range.start {
            self.free.insert(start, range.start - start);
        }
        if range.end < start + len {
            self.free.insert(range.end, start + len - range.end);
        }
        self.units -= range.end - range.start;
        true
    }

    /// Units from `goal` to the end of the free run that holds it.
    fn run_at(&self, goal: u64) -> Option<u64> {
        let (&start, &len) = self.free.range(..=goal).next_back()?;
        (goal < start + len).then(|| start + len - goal)
    }

    /// First free run at or after `from`, cut at its front to begin at `from` at the earliest.
    fn run_from(&self, from: u64) -> Option<(u64, u64)> {
        let behind = || self.free.range(from..).next();
        let here = self.run_at(from).map(|len| (from, len));
        here.or_else(|| behind().map(|(&start, &len)| (start, len)))
    }

    /// The first run of at least `want` units.
    fn first_of(&self, want: u64) -> Option<(u64, u64)> {
        let mut runs = self.free.iter().map(|(&start, &len)| (start, len));
        runs.find(|&(_, len)| len >= want)
    }

    fn longest(&self) -> Option<(u64, u64)> {
        let runs = self.free.iter().map(|(&start, &len)| (start, len));
        runs.max_by_key(|&(_, len)| len)
    }
}

/// Group in which an allocation looks first.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SearchStart {
    /// The first group.
    FirstGroup,
    /// The group in the middle of the volume.
    MiddleGroup,
}

/// Allocator of units. Thread-safe: one lock a group.
#[derive(Debug)]
pub(crate) struct Allocator {
    layout: Layout,
    groups: Box<[Mutex<Group>]>,
    /// Free units of all groups together.
    free: AtomicU64,
    pending_free: Mutex<VecDeque<(u64, Extent)>>,
    pending_free_units: AtomicU64,
    /// Group, modulo the number of groups, in which the next new file begins.
    next_group: AtomicU64,
}

impl Allocator {
    /// An allocator with all units of all groups free.
    pub(crate) fn new(layout: &Layout) -> Self {
        let groups: Box<[_]> = layout
            .groups()
            .map(|range| {
                let mut group = Group::default();
                group.insert(range.start, range.end - range.start);
                Mutex::new(group)
            })
            .collect();
        let free = layout.groups().map(|range| range.end - range.start).sum();
        Self {
            layout: *layout,
            groups,
            free: AtomicU64::new(free),
            pending_free: Mutex::default(),
            pending_free_units: AtomicU64::new(0),
            next_group: AtomicU64::new(0),
        }
    }

    /// Takes the units of an extent that the metadata names. False if one of them is taken or lies outside of the
    /// groups.
    pub(crate) fn hold(&self, extent: Extent) -> bool {
        let end = extent.start + u64::from(extent.units);
        let Some(group) = self.group_index(extent.start) else {
            return false;
        };
        let taken = self.lock(group).remove(extent.start..end);
        if taken {
            self.free
                .fetch_sub(u64::from(extent.units), Ordering::Relaxed);
        }
        taken
    }

    /// Number of free units.
    pub(crate) fn free_units(&self) -> u64 {
        self.free.load(Ordering::Relaxed)
    }

    /// Number of units that become free when a transaction reaches the medium.
    pub(crate) fn pending_free_units(&self) -> u64 {
        self.pending_free_units.load(Ordering::Relaxed)
    }

    /// Units for a file: up to `want` in one run, at `goal` if that is free; none if fewer than `need` are free.
    pub(crate) fn take(&self, goal: Option<u64>, need: u64, want: u64) -> Option<Extent> {
        let free = self.free_units();
        if free < need || need == 0 {
            return None;
        }
        // The last free units go to requests that cannot do with fewer.
        self.take_run(goal, want.min(need.max(free / 16)))
    }

    /// `units` units in as few extents as possible, first in the groups from `start` on if that costs no further
    /// extents; none if that takes more than `extents_max` extents.
    pub(crate) fn take_few(
        &self,
        units: u64,
        extents_max: usize,
        start: SearchStart,
    ) -> Option<Vec<Extent>> {
        let first = match start {
            SearchStart::FirstGroup => 0,
            SearchStart::MiddleGroup => self.groups.len() / 2,
        };
        let mut extents = Vec::new();
        let mut left = units;
        while left > 0 {
            let fits = extents.len() < extents_max;
            let Some(extent) = fits.then(|| self.take_longest(first, left)).flatten() else {
                self.free_now(&extents);
                return None;
            };
            left -= u64::from(extent.units);
            extents.push(extent);
        }
        Some(extents)
    }

    /// A run of `want` units, else the longest there is.
    fn take_longest(&self, first: usize, want: u64) -> Option<Extent> {
        let want = want.min(u64::from(u32::MAX));
        let (mut where_longest, mut len_longest) = (first, 0);
        for index in (first..self.groups.len()).chain(0..first) {
            let mut group = self.lock(index);
            if let Some((start, _)) = group.first_of(want) {
                return Some(self.take_from(&mut group, start, want));
            }
            let len = group.longest().map_or(0, |(_, len)| len);
            if len > len_longest {
                (where_longest, len_longest) = (index, len);
            }
        }
        // Another thread may have taken units of that run meanwhile.
        let mut group = self.lock(where_longest);
        let (start, len) = group.longest()?;
        Some(self.take_from(&mut group, start, len.min(want)))
    }

    /// First unit of the group in which a new file begins; consecutive files begin in different groups.
    pub(crate) fn new_goal(&self) -> u64 {
        let index = self.next_group.fetch_add(1, Ordering::Relaxed) % self.groups.len() as u64;
        let mut groups = self.layout.groups();
        groups
            .nth(usize::try_from(index).unwrap_or(0))
            .map_or(0, |range| range.start)
    }

    fn take_run(&self, goal: Option<u64>, want: u64) -> Option<Extent> {
        let want = want.min(u64::from(u32::MAX));
        let first = goal
            .and_then(|goal| self.group_index(goal))
            .unwrap_or_default();
        if let Some(goal) = goal {
            let mut group = self.lock(first);
            if let Some(len) = group.run_at(goal) {
                let taken = len.min(want);
                return Some(self.take_from(&mut group, goal, taken));
            }
        }
        let order = || (first..self.groups.len()).chain(0..first);
        for index in order() {
            let mut group = self.lock(index);
            if let Some((start, _)) = group.first_of(want) {
                return Some(self.take_from(&mut group, start, want));
            }
        }
        // No run is long enough: the longest of the first group that has any worth taking, else of any.
        for least in [want.div_ceil(4), 1] {
            for index in order() {
                let mut group = self.lock(index);
                if let Some((start, len)) = group.longest().filter(|&(_, len)| len >= least) {
                    return Some(self.take_from(&mut group, start, len.min(want)));
                }
            }
        }
        None
    }

    fn take_from(&self, group: &mut Group, start: u64, units: u64) -> Extent {
        assert!(group.remove(start..start + units), "the run is free");
        self.free.fetch_sub(units, Ordering::Relaxed);
        let units = u32::try_from(units).expect("a run is asked for with at most 2^32 - 1 units");
        Extent { start, units }
    }

    /// Frees units that no transaction names, at once.
    pub(crate) fn free_now(&self, extents: &[Extent]) {
        for extent in extents {
            let index = self
                .group_index(extent.start)
                .expect("held units lie in a group");
            self.lock(index)
                .insert(extent.start, u64::from(extent.units));
            self.free
                .fetch_add(u64::from(extent.units), Ordering::Relaxed);
        }
    }

    /// Frees units when transaction `sequence`, which no longer names them, is on the medium.
    pub(crate) fn free_after(&self, sequence: u64, extents: &[Extent]) {
        if extents.is_empty() {
            return;
        }
        let mut pending_free = self
            .pending_free
            .lock()
            .expect("no holder of the lock panics");
        for extent in extents {
            self.pending_free_units
                .fetch_add(u64::from(extent.units), Ordering::Relaxed);
            pending_free.push_back((sequence, *extent));
        }
    }

    /// Removes from the pending list what transactions up to `durable` freed. The caller must pass it to
    /// [`Allocator::free_reclaimed`].
    pub(crate) fn take_durably_freed(&self, durable: u64) -> Vec<Extent> {
        let mut pending_free = self
            .pending_free
            .lock()
            .expect("no holder of the lock panics");
        let mut reclaimed = Vec::new();
        // Releases come from several threads: their order is nearly, not wholly, that of their numbers.
        pending_free.retain(|&(sequence, extent)| {
            if sequence <= durable {
                reclaimed.push(extent);
            }
            sequence > durable
        });
        reclaimed
    }

    /// Takes the first free run at or after `from`, of at most `most` units, for deallocation on the device (invariant
    /// 3). The caller must pass it to [`Allocator::free_reclaimed`].
    pub(crate) fn take_next(&self, from: u64, most: u64) -> Option<Extent> {
        let most = most.min(u64::from(u32::MAX));
        for (index, range) in self.layout.groups().enumerate() {
            if range.end <= from {
                continue;
            }
            let mut group = self.lock(index);
            if let Some((start, len)) = group.run_from(from) {
                let units = len.min(most);
                self.pending_free_units.fetch_add(units, Ordering::Relaxed);
                return Some(self.take_from(&mut group, start, units));
            }
        }
        None
    }

    /// Frees units that [`Allocator::take_durably_freed`] or [`Allocator::take_next`] returned.
    pub(crate) fn free_reclaimed(&self, reclaimed: &[Extent]) {
        self.free_now(reclaimed);
        let units: u64 = reclaimed.iter().map(|extent| u64::from(extent.units)).sum();
        self.pending_free_units.fetch_sub(units, Ordering::Relaxed);
    }

    fn group_index(&self, unit: u64) -> Option<usize> {
        let index = usize::try_from(self.layout.group_of(unit)?).ok()?;
        (index < self.groups.len()).then_some(index)
    }

    fn lock(&self, index: usize) -> MutexGuard<'_, Group> {
        self.groups[index]
            .lock()
            .expect("no holder of the lock panics")
    }
}
