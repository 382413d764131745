//! Where the bytes of an open file lie.

use std::borrow::Cow;

use crate::Result;
use crate::format::{DataLayout, Extent, InodeId, Layout, Seal, VolumeKey};
use crate::lanes::{Lanes, Piece};

/// Where a byte of a file lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its block on the device.
    pub(crate) lba: u64,
    /// Bytes of the file before it there.
    pub(crate) skip: usize,
    /// Bytes of the file from it on that follow each other on the device.
    pub(crate) run: u64,
    /// Seals this block and those behind it, on a volume with checksums of data.
    pub(crate) seal: Option<Seal>,
}

impl Place {
    /// These bytes of the file from here on.
    pub(crate) const fn piece<'b>(&self, out: &'b mut [u8]) -> Piece<'b> {
        Piece {
            lba: self.lba,
            skip: self.skip,
            out,
            seal: self.seal,
        }
    }

    /// Reads what the file has in the block that follows `index` blocks after this one.
    pub(crate) fn read_block(&self, lanes: &Lanes, index: usize, out: &mut [u8]) -> Result<()> {
        let mut piece = [Piece {
            lba: self.lba + index as u64,
            skip: 0,
            out,
            seal: self.seal.map(|seal| seal.after(index)),
        }];
        lanes.with(|lane| lane.read(&mut piece))
    }

    /// Bytes of the file that begin the block, as the device is to have them: whole blocks.
    pub(crate) fn blocks<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &self.seal {
            None => Cow::Borrowed(bytes),
            Some(seal) => Cow::Owned(seal.closed(bytes)),
        }
    }
}

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

    /// Where the byte at `offset` of file `id` lies, whose map this is.
    #[inline]
    pub(crate) fn place(
        &self,
        data: DataLayout,
        key: VolumeKey,
        id: InodeId,
        offset: u64,
    ) -> Option<Place> {
        let (lba, skip, run) = self.find(data, offset)?;
        Some(Place {
            lba,
            skip,
            run,
            seal: Seal::at(data, key, id, offset),
        })
    }

    /// The same without the seal: the block, the bytes before, and the bytes that follow each other.
    #[inline]
    pub(crate) fn find(&self, data: DataLayout, offset: u64) -> Option<(u64, usize, u64)> {
        let (number, skip) = data.block_of(offset);
        let (unit, within) = data.unit_of(number);
        let (device_unit, units) = self.locate(unit)?;
        let blocks = data.first_block(units) - within;
        let run = data.offset_of(blocks) - skip as u64;
        Some((data.first_block(device_unit) + within, skip, run))
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
