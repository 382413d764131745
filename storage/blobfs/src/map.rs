//! Where the bytes of an open file lie.

use crate::format::{Extent, Layout};

/// The extents of a file in order, without holes. May reach beyond the file's end.
#[derive(Debug, Default)]
pub(crate) struct Map {
    extents: Vec<Extent>,
    /// For each extent the units of the file up to its end.
    ends: Vec<u64>,
}

impl Map {
    pub(crate) fn new(extents: &[Extent]) -> Self {
        let mut end = 0;
        let ends = extents.iter().map(|extent| {
            end += u64::from(extent.units);
            end
        });
        Self {
            ends: ends.collect(),
            extents: extents.to_vec(),
        }
    }

    /// Units in all.
    pub(crate) fn units(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// How many extents it has.
    pub(crate) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// The unit behind the last, where growing costs no extent.
    pub(crate) fn goal(&self) -> Option<u64> {
        self.extents.last().map(Extent::end)
    }

    /// Adds units at the end.
    pub(crate) fn push(&mut self, extent: Extent, layout: &Layout) {
        let end = self.units() + u64::from(extent.units);
        let group = layout.group_of(extent.start);
        if let (Some(last), Some(last_end)) = (self.extents.last_mut(), self.ends.last_mut()) {
            let units = last.units.checked_add(extent.units);
            if let Some(units) =
                units.filter(|_| last.end() == extent.start && layout.group_of(last.start) == group)
            {
                last.units = units;
                *last_end = end;
                return;
            }
        }
        self.extents.push(extent);
        self.ends.push(end);
    }

    /// Where unit `index` of the file lies, and how many units from there on follow each other.
    pub(crate) fn locate(&self, index: u64) -> Option<(u64, u64)> {
        let at = self.ends.partition_point(|&end| end <= index);
        let extent = self.extents.get(at)?;
        let left = self.ends[at] - index;
        Some((extent.end() - left, left))
    }

    /// The extents of units `from` to `to` of the file.
    pub(crate) fn slice(&self, from: u64, to: u64) -> Vec<Extent> {
        let mut extents = Vec::new();
        let mut index = from;
        while index < to {
            let Some((start, run)) = self.locate(index) else {
                break;
            };
            let units = run.min(to - index);
            let fits = u32::try_from(units).expect("an extent has fewer than 2^32 units");
            extents.push(Extent { start, units: fits });
            index += units;
        }
        extents
    }

    /// Cuts off what lies behind the first `units` units; returns it.
    pub(crate) fn truncate(&mut self, units: u64) -> Vec<Extent> {
        let cut = self.slice(units, self.units());
        let kept = self.slice(0, units);
        if !cut.is_empty() {
            *self = Self::new(&kept);
        }
        cut
    }
}
