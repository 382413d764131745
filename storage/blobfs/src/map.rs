//! Mapping of file offsets to blocks of the device.

use std::borrow::Cow;

use crate::Result;
use crate::format::{BlockTrailer, DataLayout, Extent, InodeId, Layout, VolumeKey};
use crate::io_context::{IoContexts, Piece};

/// Device block of a byte of a file, and the bytes that follow it contiguously.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockMapping {
    /// Block of the device, in blocks of the volume.
    pub(crate) lba: u64,
    /// Bytes of the file in that block before the byte.
    pub(crate) skip: usize,
    /// Bytes of the file, from the byte on, that are contiguous on the device.
    pub(crate) run: u64,
    /// Trailer of this block and the blocks after it, on a volume with data checksums.
    pub(crate) trailer: Option<BlockTrailer>,
}

impl BlockMapping {
    /// A transfer of `out.len()` bytes of the file from here on.
    pub(crate) const fn piece<'b>(&self, out: &'b mut [u8]) -> Piece<'b> {
        Piece {
            lba: self.lba,
            skip: self.skip,
            out,
            trailer: self.trailer,
        }
    }

    /// Reads the file's bytes in the block that is `index` blocks after this one.
    pub(crate) fn read_block(
        &self,
        io_contexts: &IoContexts,
        index: usize,
        out: &mut [u8],
    ) -> Result<()> {
        let mut piece = [Piece {
            lba: self.lba + index as u64,
            skip: 0,
            out,
            trailer: self.trailer.map(|trailer| trailer.after(index)),
        }];
        io_contexts.with(|io| io.read(&mut piece))
    }

    /// Whole blocks, as the device stores them, of bytes that begin at a block's start.
    pub(crate) fn encode_blocks<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &self.trailer {
            None => Cow::Borrowed(bytes),
            Some(trailer) => Cow::Owned(trailer.encode_blocks(bytes)),
        }
    }
}

/// Extents of a file in order, without holes. They may reach beyond the file's end.
#[derive(Debug, Default)]
pub(crate) struct Map {
    extents: Vec<Extent>,
    /// For each extent, the units of the file up to its end.
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

    /// Number of units of all extents.
    pub(crate) fn units(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// Number of extents of the file.
    pub(crate) fn extents(&self) -> usize {
        self.extents.len()
    }

    /// The unit after the last one: growing the file there needs no further extent.
    pub(crate) fn goal(&self) -> Option<u64> {
        self.extents.last().map(Extent::end)
    }

    /// Appends units, joined to the last extent if contiguous in one group.
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

    /// Unit of the device that holds unit `index` of the file, and the number of contiguous units from there on.
    pub(crate) fn locate(&self, index: u64) -> Option<(u64, u64)> {
        let at = self.ends.partition_point(|&end| end <= index);
        let extent = self.extents.get(at)?;
        let left = self.ends[at] - index;
        Some((extent.end() - left, left))
    }

    /// Mapping of the byte at `offset` of file `id`, the file of this map.
    #[inline]
    pub(crate) fn mapping(
        &self,
        data: DataLayout,
        key: VolumeKey,
        id: InodeId,
        offset: u64,
    ) -> Option<BlockMapping> {
        let (lba, skip, run) = self.find(data, offset)?;
        Some(BlockMapping {
            lba,
            skip,
            run,
            trailer: BlockTrailer::at(data, key, id, offset),
        })
    }

    /// The mapping without its trailer: block, bytes before, contiguous bytes.
    #[inline]
    pub(crate) fn find(&self, data: DataLayout, offset: u64) -> Option<(u64, usize, u64)> {
        let (number, skip) = data.block_of(offset);
        let (unit, within) = data.unit_of(number);
        let (device_unit, units) = self.locate(unit)?;
        let blocks = data.first_block(units) - within;
        let run = data.offset_of(blocks) - skip as u64;
        Some((data.first_block(device_unit) + within, skip, run))
    }

    /// Extents of the file's units `from..to`.
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

    /// Cuts the map to `units` units; returns the extents cut off.
    pub(crate) fn truncate(&mut self, units: u64) -> Vec<Extent> {
        let cut = self.slice(units, self.units());
        let kept = self.slice(0, units);
        if !cut.is_empty() {
            *self = Self::new(&kept);
        }
        cut
    }
}
