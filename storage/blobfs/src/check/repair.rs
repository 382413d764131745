//! Makes a sound volume of what was found.

use std::sync::Arc;

use super::finding::{Area, Findings, Severity};
use super::survey::{Survey, explain};
use crate::allocator::Allocator;
use crate::format::{InodeId, Metadata, Overlay};
use crate::journal::{Journal, Ring};
use crate::lanes::Lanes;
use crate::map::Map;
use crate::mount::read_blocks;
use crate::shared::{Parts, Shared};
use crate::state::State;
use crate::{Error, ErrorKind, Result, Timestamp};

/// Parts files that share units, brings data home that transactions carry, and writes a new checkpoint and
/// both superblocks. The old checkpoint stays where it is until they are written.
pub(super) fn repair(lanes: Lanes, found: Survey, findings: &mut Findings) -> Result<()> {
    let Survey {
        superblock,
        mut metadata,
        mut overlay,
        head,
        highest,
        unreadable,
        ..
    } = found;
    let layout = superblock.layout;
    let old_copies = superblock.checkpoint.copies.concat();
    for damage in metadata.part_files(&old_copies, |_| 0) {
        findings.add(Severity::Loss, Area::Metadata, damage.to_string());
    }
    for id in overlay.files().collect::<Vec<_>>() {
        overlay.truncate(id, metadata.inode(id).map_or(0, |record| record.size()));
    }
    // A block that cannot be read can often be written, and read again then.
    let journal = layout.block_of(layout.journal().start);
    let zeros = vec![0; layout.block_bytes() as usize];
    let blocks = u64::from(layout.block_bytes()) / lanes.block_bytes() as u64;
    for position in unreadable {
        // If it cannot be written either the next check says so.
        let _ = lanes.with(|lane| lane.write(journal + position * blocks, &zeros, false));
    }
    bring_home(&lanes, &metadata, &overlay, findings)?;

    let allocator = Allocator::new(&layout);
    let files = metadata.inodes().flat_map(|(_, record)| record.extents());
    for extent in files.chain(&old_copies) {
        if !allocator.hold(*extent) {
            let context = format!("{extent} is held twice after files were parted");
            return Err(Error::new(ErrorKind::Corruption, context));
        }
    }
    let ring = Ring {
        blocks: layout.journal_blocks(),
        head,
        used: 0,
    };
    let exhausted = || Error::new(ErrorKind::Corruption, "no number of a transaction is left");
    // No transaction that is still in the journal may ever look like one that comes next.
    let next_sequence = highest.checked_add(2).ok_or_else(exhausted)?;
    let shared = Shared::new(Parts {
        allocator,
        journal: Journal::new(ring, next_sequence - 1),
        superblock,
        clock: Arc::new(Timestamp::default),
        read_only: false,
        discard: Some(false),
        overlay: Overlay::default(),
        state: State::new(metadata, next_sequence),
        lanes,
    });
    shared.unmount()
}

/// Writes what transactions carry to its place.
fn bring_home(
    lanes: &Lanes,
    metadata: &Metadata,
    overlay: &Overlay,
    findings: &mut Findings,
) -> Result<()> {
    for id in overlay.files() {
        let map = Map::new(metadata.inode(id)?.extents());
        let mut lost = None;
        for (offset, bytes) in overlay.of(id) {
            let mut at = offset;
            let mut left = bytes;
            while !left.is_empty() {
                let len = write_run(lanes, metadata, &map, (id, at), left, &mut lost)?;
                left = &left[len..];
                at += len as u64;
            }
        }
        if let Some(error) = lost {
            let path = metadata.path_of(id);
            let text = format!(
                "{path}: a block cannot be read of which the journal has a part, the rest is zeros now: {}",
                explain(&error)
            );
            findings.add(Severity::Loss, Area::Data, text);
        }
    }
    Ok(())
}

/// Writes the bytes at `at` that are in one run of units; returns how many.
fn write_run(
    lanes: &Lanes,
    metadata: &Metadata,
    map: &Map,
    (id, at): (InodeId, u64),
    bytes: &[u8],
    lost: &mut Option<Error>,
) -> Result<usize> {
    let unit_bytes = u64::from(metadata.layout().unit_bytes());
    let block = lanes.block_bytes();
    let (unit, units) = map.locate(at / unit_bytes).ok_or_else(|| {
        let context = format!("the file {id} has no unit at byte {at}");
        Error::new(ErrorKind::Corruption, context)
    })?;
    let within = at % unit_bytes;
    let run = units * unit_bytes - within;
    let len = usize::try_from(run).unwrap_or(usize::MAX).min(bytes.len());
    let address = unit * unit_bytes + within;
    let lba = address / block as u64;
    let skip = usize::try_from(address % block as u64).expect("less than a block");
    let mut blocks = vec![0; (skip + len).next_multiple_of(block)];
    // Only the first and the last block can hold other bytes.
    let last = blocks.len() / block - 1;
    for index in [0, last] {
        let place = &mut blocks[index * block..][..block];
        if let Err(error) = read_blocks(lanes, lba + index as u64, place) {
            place.fill(0);
            lost.get_or_insert(error);
        }
    }
    blocks[skip..skip + len].copy_from_slice(&bytes[..len]);
    lanes.with(|lane| lane.write(lba, &blocks, false))?;
    Ok(len)
}
