//! Makes a sound volume of what was found.

use std::sync::Arc;

use super::finding::{Area, Findings, Severity};
use super::survey::{Survey, explain};
use crate::allocator::Allocator;
use crate::format::{DataLayout, Metadata, Overlay, VolumeKey};
use crate::journal::{Journal, Ring};
use crate::lanes::Lanes;
use crate::map::{Map, Place};
use crate::reading::unmapped;
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
    let key = superblock.key();
    bring_home(&lanes, (&metadata, key), &overlay, findings)?;

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
    (metadata, key): (&Metadata, VolumeKey),
    overlay: &Overlay,
    findings: &mut Findings,
) -> Result<()> {
    let data = metadata.layout().file_data();
    for id in overlay.files() {
        let record = metadata.inode(id)?;
        let (map, size) = (Map::new(record.extents()), record.size());
        let mut lost = None;
        for (offset, bytes) in overlay.of(id) {
            let mut at = offset;
            let mut left = bytes;
            while !left.is_empty() {
                let place = map.place(data, key, id, at);
                let place = place.ok_or_else(|| unmapped(id, at))?;
                let run = usize::try_from(place.run).unwrap_or(usize::MAX);
                let len = run.min(left.len());
                let is_end = at + len as u64 >= size;
                write_run(lanes, data, &place, (&left[..len], is_end), &mut lost)?;
                left = &left[len..];
                at += len as u64;
            }
        }
        if let Some(error) = lost {
            let path = metadata.path_of(id);
            let what = if data.is_sealed() {
                "stays as it is"
            } else {
                "the rest is zeros now"
            };
            let text = format!(
                "{path}: a block cannot be read of which the journal has a part, {what}: {}",
                explain(&error)
            );
            findings.add(Severity::Loss, Area::Data, text);
        }
    }
    Ok(())
}

/// Writes bytes to one run of blocks; nothing of the file follows if so. Of a block that cannot be read the rest is
/// zeros then; one that is not what its checksum says stays as it is.
fn write_run(
    lanes: &Lanes,
    data: DataLayout,
    place: &Place,
    (bytes, is_end): (&[u8], bool),
    lost: &mut Option<Error>,
) -> Result<()> {
    let block = data.payload_bytes();
    let end = place.skip + bytes.len();
    let mut all = vec![0; end.next_multiple_of(block)];
    let last = all.len() / block - 1;
    let mut written = 0..last + 1;
    // Only the first and the last block can hold other bytes.
    let has_others = [(0, place.skip > 0), (last, end % block != 0 && !is_end)];
    for (index, _) in has_others.into_iter().filter(|(_, has_others)| *has_others) {
        let out = &mut all[index * block..][..block];
        let Err(error) = place.read_block(lanes, index, out) else {
            continue;
        };
        out.fill(0);
        if data.is_sealed() {
            if index == 0 {
                written.start = 1;
            } else {
                written.end = last;
            }
        }
        lost.get_or_insert(error);
    }
    all[place.skip..end].copy_from_slice(bytes);
    let blocks = place.blocks(&all);
    let lba = place.lba + written.start as u64;
    let blocks = blocks
        .chunks(data.block_bytes())
        .take(written.end)
        .skip(written.start);
    let blocks: Vec<u8> = blocks.flatten().copied().collect();
    lanes.with(|lane| lane.write(lba, &blocks, false))
}
