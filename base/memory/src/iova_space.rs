//! Which device addresses are free.

use std::collections::BTreeMap;

use crate::{Error, ErrorKind, Iova, IovaRange, Result};

/// Hands out device addresses from the ranges that an IOMMU reports, the lowest that fit first.
///
/// All that it hands out begins at a multiple of the granule and is a multiple of it long. Address 0 is
/// never handed out: devices and people take it for none.
///
/// Takes time logarithmic in the number of what is handed out, and linear in the number of holes.
#[derive(Debug)]
pub struct IovaSpace {
    granule: u64,
    /// First to last address of what is free. No two of them touch.
    free: BTreeMap<u64, u64>,
    /// First to last address of what is handed out.
    taken: BTreeMap<u64, u64>,
}

impl IovaSpace {
    /// All of `ranges`, in pieces of `granule` bytes: the IOMMU's page size. The ranges may come in any
    /// order, touch, and overlap.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the granule is not a power of two or a range ends before it begins.
    pub fn new(ranges: Vec<IovaRange>, granule: u64) -> Result<Self> {
        if !granule.is_power_of_two() {
            let context = format!("device addresses in pieces of {granule} bytes");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let mut ranges = ranges;
        ranges.sort_unstable_by_key(|range| range.first);
        let mut space = Self {
            granule,
            free: BTreeMap::new(),
            taken: BTreeMap::new(),
        };
        for range in joined(&ranges)? {
            if let Some((first, last)) = space.whole_granules(range) {
                space.free.insert(first, last);
            }
        }
        Ok(space)
    }

    /// The granules that lie in a range, but for the one at 0.
    fn whole_granules(&self, range: IovaRange) -> Option<(u64, u64)> {
        let mask = self.granule - 1;
        let first = range.first.0.checked_next_multiple_of(self.granule)?;
        let first = first.max(self.granule);
        // The end may be 2^64, which has no number; what lies before it has.
        let last = match range.last.0 & mask == mask {
            true => range.last.0,
            false => (range.last.0 & !mask).checked_sub(1)?,
        };
        (first <= last).then_some((first, last))
    }

    /// Takes `size` bytes, rounded up to the granule, at a multiple of `align`.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if the size is 0 or the alignment is not a power of two;
    /// [`ErrorKind::NoAddresses`] if no hole is large enough.
    pub fn take(&mut self, size: u64, align: u64) -> Result<Iova> {
        if size == 0 || !align.is_power_of_two() {
            let context = format!("device addresses for {size} bytes at a multiple of {align}");
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let found = size
            .checked_next_multiple_of(self.granule)
            .and_then(|size| self.find(size, align.max(self.granule)));
        let Some((hole, first, last)) = found else {
            let context = format!("{size} bytes at a multiple of {align}");
            return Err(Error::new(ErrorKind::NoAddresses, context));
        };
        self.cut(hole, first, last);
        self.taken.insert(first, last);
        Ok(Iova(first))
    }

    /// The lowest hole that has room: where it begins, and the first and last address of the room.
    fn find(&self, size: u64, align: u64) -> Option<(u64, u64, u64)> {
        self.free.iter().find_map(|(hole, hole_last)| {
            let first = hole.checked_next_multiple_of(align)?;
            let last = first.checked_add(size - 1)?;
            (last <= *hole_last).then_some((*hole, first, last))
        })
    }

    /// Takes the addresses from `first` to `last` out of the hole.
    fn cut(&mut self, hole: u64, first: u64, last: u64) {
        let hole_last = self.free.remove(&hole).expect("the hole was found");
        if hole < first {
            self.free.insert(hole, first - 1);
        }
        if last < hole_last {
            self.free.insert(last + 1, hole_last);
        }
    }

    /// Gives back what [`IovaSpace::take`] returned this address for.
    ///
    /// # Errors
    /// [`ErrorKind::NotMapped`] if nothing that begins there is handed out.
    pub fn give(&mut self, iova: Iova) -> Result<()> {
        let (mut first, mut last) = self
            .taken
            .remove_entry(&iova.0)
            .ok_or_else(|| Error::new(ErrorKind::NotMapped, format!("device address {iova}")))?;
        let before = self.free.range(..first).next_back();
        if let Some((&hole, _)) = before.filter(|(_, hole_last)| **hole_last == first - 1) {
            self.free.remove(&hole);
            first = hole;
        }
        if let Some(hole_last) = last.checked_add(1).and_then(|next| self.free.remove(&next)) {
            last = hole_last;
        }
        self.free.insert(first, last);
        Ok(())
    }

    /// What is free, the lowest first; no two of the ranges touch.
    pub fn free(&self) -> impl Iterator<Item = IovaRange> {
        self.free.iter().map(|(first, last)| IovaRange {
            first: Iova(*first),
            last: Iova(*last),
        })
    }
}

/// Joins ranges, sorted by their first address, that touch or overlap.
fn joined(ranges: &[IovaRange]) -> Result<Vec<IovaRange>> {
    let mut joined: Vec<IovaRange> = Vec::with_capacity(ranges.len());
    for range in ranges {
        if range.last < range.first {
            let context = format!("device addresses from {} to {}", range.first, range.last);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        match joined.last_mut() {
            Some(before) if range.first.0 <= before.last.0.saturating_add(1) => {
                before.last = before.last.max(range.last);
            }
            _ => joined.push(*range),
        }
    }
    Ok(joined)
}
