//! Reads and verifies the blocks of all files.

use std::collections::BTreeMap;
use std::ops::Range;

use super::finding::{Area, Findings, Severity};
use super::survey::{Survey, explain, parts, push_range};
use super::{Progress, Stage};
use crate::format::{BlockTrailer, DataLayout, InodeId, Metadata, Overlay, VolumeKey};
use crate::io::read_blocks;
use crate::io_context::{IoContexts, Piece};

/// Most transfers in flight at once.
const BATCH: usize = 16;

/// A contiguous run of units of a file.
struct Run {
    id: InodeId,
    /// Index of the first unit in the file.
    index: u64,
    /// First unit on the device.
    unit: u64,
    units: u64,
}

/// Unreadable units of a file, the cause of the first, and the blocks that do not match their checksums.
#[derive(Default)]
struct Bad {
    units: Vec<Range<u64>>,
    why: String,
    blocks: Vec<Range<u64>>,
}

/// Verification of block trailers.
struct TrailerCheck<'a> {
    data: DataLayout,
    key: VolumeKey,
    metadata: &'a Metadata,
    overlay: &'a Overlay,
}

impl TrailerCheck<'_> {
    /// Verifies the blocks of a run from unit `first` on.
    fn check(&self, run: &Run, first: u64, bytes: &[u8], bad: &mut BTreeMap<InodeId, Bad>) {
        let number = self.data.first_block(run.index + first);
        let Some(trailer) = BlockTrailer::new(self.data, self.key, run.id, number) else {
            return;
        };
        let size = self
            .metadata
            .inode(run.id)
            .map_or(0, |record| record.size());
        let blocks = bytes.chunks_exact(self.data.block_bytes());
        for (index, (block, number)) in blocks.zip(number..self.data.blocks(size)).enumerate() {
            let held = self.data.offset_of(number)..self.data.offset_of(number + 1).min(size);
            // A block whose bytes are all journaled may never have been written here.
            if !trailer.matches(index, block) && !self.overlay.covers(run.id, held) {
                push_range(&mut bad.entry(run.id).or_default().blocks, number);
            }
        }
    }
}

/// Reads all units of all files; reports unreadable units and blocks that do not match their checksums.
pub(super) fn read_all(
    io_contexts: &IoContexts,
    found: &Survey,
    findings: &mut Findings,
    progress: &mut dyn FnMut(Progress),
) {
    let metadata = &found.metadata;
    let layout = metadata.layout();
    let trailers = TrailerCheck {
        data: layout.file_data(),
        key: found.superblock.key(),
        metadata,
        overlay: &found.overlay,
    };
    let unit_bytes = layout.unit_bytes() as usize;
    let step = u32::try_from(io_contexts.piece_bytes() / unit_bytes)
        .unwrap_or(1)
        .max(1);
    let total_bytes = metadata.units() * u64::from(layout.unit_bytes());
    let mut done_bytes = 0;
    let mut single = vec![0; unit_bytes];
    let mut memory = vec![0; BATCH * step as usize * unit_bytes];
    let mut all = runs(metadata, step);
    let mut bad = BTreeMap::<InodeId, Bad>::new();
    loop {
        let batch: Vec<Run> = all.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let mut pieces: Vec<Piece<'_>> = batch
            .iter()
            .zip(memory.chunks_mut(step as usize * unit_bytes))
            .map(|(run, memory)| Piece {
                lba: layout.block_of(run.unit),
                skip: 0,
                out: &mut memory[..usize::try_from(run.units).unwrap_or(0) * unit_bytes],
                trailer: None,
            })
            .collect();
        // If no I/O context is available every transfer fails; the units are then read one by one.
        let results = io_contexts.with(|io| Ok(io.read_many(&mut pieces)));
        let failed = |index: usize| results.as_ref().map_or(true, |it| it[index].is_err());
        for (index, run) in batch.iter().enumerate() {
            if failed(index) {
                read_units(io_contexts, &trailers, run, &mut single, &mut bad);
            } else {
                let from = index * step as usize * unit_bytes;
                let len = usize::try_from(run.units).unwrap_or(0) * unit_bytes;
                trailers.check(run, 0, &memory[from..from + len], &mut bad);
            }
            done_bytes += run.units * u64::from(layout.unit_bytes());
        }
        progress(Progress {
            stage: Stage::Data,
            done_bytes,
            total_bytes,
        });
    }
    for (id, bad) in &bad {
        report(&trailers, *id, bad, findings);
    }
}

/// Reports the damage of a file.
fn report(trailers: &TrailerCheck<'_>, id: InodeId, bad: &Bad, findings: &mut Findings) {
    let (metadata, data) = (trailers.metadata, trailers.data);
    let size = metadata.inode(id).map_or(0, |record| record.size());
    let path = metadata.path_of(id);
    let list = |ranges: &[Range<u64>], offset: &dyn Fn(u64) -> u64| {
        let ranges = ranges.iter().map(|range| {
            let end = offset(range.end).min(size);
            format!("{}..{end}", offset(range.start))
        });
        ranges.collect::<Vec<_>>().join(", ")
    };
    if !bad.units.is_empty() {
        let ranges = list(&bad.units, &|unit| data.bytes(unit));
        let text = format!("{path}: bytes {ranges} cannot be read: {}", bad.why);
        findings.add(Severity::Loss, Area::Data, text);
    }
    if !bad.blocks.is_empty() {
        let ranges = list(&bad.blocks, &|block| data.offset_of(block));
        let text = format!("{path}: bytes {ranges} do not match their checksums");
        findings.add(Severity::Loss, Area::Data, text);
    }
}

/// The runs of all files, each of at most `step` units.
fn runs(metadata: &Metadata, step: u32) -> impl Iterator<Item = Run> {
    metadata.inodes().flat_map(move |(id, record)| {
        let mut index = 0;
        let extents = record.extents().iter();
        extents
            .flat_map(move |extent| parts(*extent, step))
            .map(move |extent| {
                let run = Run {
                    id,
                    index,
                    unit: extent.start,
                    units: u64::from(extent.units),
                };
                index += run.units;
                run
            })
    })
}

/// Reads the units of a run one by one.
fn read_units(
    io_contexts: &IoContexts,
    trailers: &TrailerCheck<'_>,
    run: &Run,
    memory: &mut [u8],
    bad: &mut BTreeMap<InodeId, Bad>,
) {
    for offset in 0..run.units {
        let lba = trailers.data.first_block(run.unit + offset);
        if let Err(error) = read_blocks(io_contexts, lba, memory) {
            let bad = bad.entry(run.id).or_default();
            if bad.units.is_empty() {
                bad.why = explain(&error);
            }
            push_range(&mut bad.units, run.index + offset);
        } else {
            trailers.check(run, offset, memory, bad);
        }
    }
}
