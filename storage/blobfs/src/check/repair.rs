//! Repair: writes a sound volume from the survey.

use std::sync::Arc;

use super::finding::{Area, Findings, Severity};
use super::survey::{Survey, explain};
use crate::allocator::Allocator;
use crate::format::{DataLayout, Metadata, Overlay, VolumeKey};
use crate::io::no_mapping;
use crate::io_context::IoContexts;
use crate::journal::{Journal, Ring};
use crate::map::{BlockMapping, Map};
use crate::shared::{Parts, Shared};
use crate::state::State;
use crate::{Error, ErrorKind, Result, Timestamp};

/// Separates files that share units, writes journaled data back, and writes a new checkpoint and both superblocks. The
/// old checkpoint stays in place until they are written.
pub(super) fn repair(
    io_contexts: IoContexts,
    found: Survey,
    findings: &mut Findings,
) -> Result<()> {
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
    for damage in metadata.separate_files(&old_copies, |_| 0) {
        findings.add(Severity::Loss, Area::Metadata, damage.to_string());
    }
    for id in overlay.files().collect::<Vec<_>>() {
        overlay.truncate(id, metadata.inode(id).map_or(0, |record| record.size()));
    }
    // A write often makes an unreadable block readable again.
    let journal = layout.block_of(layout.journal().start);
    let zeros = vec![0; layout.block_bytes() as usize];
    let blocks = u64::from(layout.block_bytes()) / io_contexts.block_bytes() as u64;
    for position in unreadable {
        // If the write fails too, the next check reports the block.
        let _ = io_contexts.with(|io| io.write(journal + position * blocks, &zeros, false));
    }
    let key = superblock.key();
    write_back_journaled(&io_contexts, (&metadata, key), &overlay, findings)?;

    let allocator = Allocator::new(&layout);
    let files = metadata.inodes().flat_map(|(_, record)| record.extents());
    for extent in files.chain(&old_copies) {
        if !allocator.hold(*extent) {
            let context =
                format!("{extent} is held twice after files that shared units were separated");
            return Err(Error::new(ErrorKind::Corruption, context));
        }
    }
    let ring = Ring {
        blocks: layout.journal_blocks(),
        head,
        used: 0,
    };
    let exhausted = || Error::new(ErrorKind::Corruption, "no transaction number is left");
    // A transaction that is still in the journal must never look like one that comes next.
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
        io_contexts,
    });
    shared.unmount()
}

/// Writes journaled data back to its final location.
fn write_back_journaled(
    io_contexts: &IoContexts,
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
                let mapping = map.mapping(data, key, id, at);
                let mapping = mapping.ok_or_else(|| no_mapping(id, at))?;
                let run = usize::try_from(mapping.run).unwrap_or(usize::MAX);
                let len = run.min(left.len());
                let is_end = at + len as u64 >= size;
                write_run(
                    io_contexts,
                    data,
                    &mapping,
                    (&left[..len], is_end),
                    &mut lost,
                )?;
                left = &left[len..];
                at += len as u64;
            }
        }
        if let Some(error) = lost {
            let path = metadata.path_of(id);
            let what = if data.has_checksums() {
                "stays as it is"
            } else {
                "the rest is zeros now"
            };
            let text = format!(
                "{path}: a block that the journal holds in part is unreadable, {what}: {}",
                explain(&error)
            );
            findings.add(Severity::Loss, Area::Data, text);
        }
    }
    Ok(())
}

/// Writes bytes to one run of blocks; `is_end` if they end the file. The rest of an unreadable block becomes zeros; a
/// block that does not match its checksum stays as it is.
fn write_run(
    io_contexts: &IoContexts,
    data: DataLayout,
    mapping: &BlockMapping,
    (bytes, is_end): (&[u8], bool),
    lost: &mut Option<Error>,
) -> Result<()> {
    let block = data.payload_bytes();
    let end = mapping.skip + bytes.len();
    let mut all = vec![0; end.next_multiple_of(block)];
    let last = all.len() / block - 1;
    let mut written = 0..last + 1;
    // Only the first and the last block can hold other bytes.
    let has_others = [(0, mapping.skip > 0), (last, end % block != 0 && !is_end)];
    for (index, _) in has_others.into_iter().filter(|(_, has_others)| *has_others) {
        let out = &mut all[index * block..][..block];
        let Err(error) = mapping.read_block(io_contexts, index, out) else {
            continue;
        };
        out.fill(0);
        if data.has_checksums() {
            if index == 0 {
                written.start = 1;
            } else {
                written.end = last;
            }
        }
        lost.get_or_insert(error);
    }
    all[mapping.skip..end].copy_from_slice(bytes);
    let blocks = mapping.encode_blocks(&all);
    let lba = mapping.lba + written.start as u64;
    let blocks = blocks
        .chunks(data.block_bytes())
        .take(written.end)
        .skip(written.start);
    let blocks: Vec<u8> = blocks.flatten().copied().collect();
    io_contexts.with(|io| io.write(lba, &blocks, false))
}
