//! Device transfers and errors that mount, check, checkpoint and files share.

use millrace_block::Geometry;

use crate::barrier::{Barrier, Durable};
use crate::format::superblock::Superblock;
use crate::format::{Extent, InodeId, Layout};
use crate::io_context::{IoContext, IoContexts, Piece};
use crate::{Error, ErrorKind, Result};

/// Way in which a device of this geometry makes writes durable.
pub(crate) const fn durability(geometry: &Geometry) -> Durable {
    match (geometry.volatile_cache, geometry.write_through) {
        (false, _) => Durable::AsWritten,
        (true, true) => Durable::WriteThrough,
        (true, false) => Durable::Flush,
    }
}

/// Reads whole blocks into `bytes`, with several requests in flight.
pub(crate) fn read_blocks(io_contexts: &IoContexts, lba: u64, bytes: &mut [u8]) -> Result<()> {
    let block = io_contexts.block_bytes();
    let step = io_contexts.piece_bytes();
    let mut pieces: Vec<_> = Vec::new();
    let mut lba = lba;
    for out in bytes.chunks_mut(step) {
        let blocks = (out.len() / block) as u64;
        pieces.push(Piece {
            lba,
            skip: 0,
            out,
            trailer: None,
        });
        lba += blocks;
    }
    io_contexts.with(|io| io.read(&mut pieces))
}

/// Writes bytes to extents, padded with zeros to whole blocks.
pub(crate) fn write_units(
    io: &mut IoContext,
    layout: &Layout,
    extents: &[Extent],
    bytes: &[u8],
) -> Result<()> {
    let mut left = bytes;
    for extent in extents {
        let room = u64::from(extent.units) * u64::from(layout.unit_bytes());
        let (here, later) =
            left.split_at(usize::try_from(room).unwrap_or(usize::MAX).min(left.len()));
        let mut padded = here.to_vec();
        padded.resize(
            here.len().next_multiple_of(layout.block_bytes() as usize),
            0,
        );
        io.write(layout.block_of(extent.start), &padded, false)?;
        left = later;
    }
    if left.is_empty() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoSpace,
        "a checkpoint is longer than its units",
    ))
}

/// Writes both copies of the superblock in order, each durable before the next step.
pub(crate) fn write_superblocks(
    superblock: &Superblock,
    durable: Durable,
    io: &mut IoContext,
) -> Result<()> {
    let bytes = superblock.encode()?;
    let [first, second] = superblock
        .layout
        .superblocks()
        .map(|unit| superblock.layout.block_of(unit));
    Barrier::FirstSuperblock.write(io, durable, first, &bytes)?;
    Barrier::SecondSuperblock.write(io, durable, second, &bytes)
}

pub(crate) fn no_mapping(id: InodeId, offset: u64) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("file {id} has no unit at byte {offset}"),
    )
}
