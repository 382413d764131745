//! Reads all files.

use std::collections::BTreeMap;
use std::ops::Range;

use super::finding::{Area, Findings, Severity};
use super::survey::{Survey, explain, parts, push_range};
use super::{Progress, Stage};
use crate::format::{DataLayout, InodeId, Metadata, Overlay, Seal, VolumeKey};
use crate::lanes::{Lanes, Piece};
use crate::mount::read_blocks;

/// So many pieces are read at once.
const BATCH: usize = 16;

/// Some units of a file that follow each other on the device.
struct Run {
    id: InodeId,
    /// The first, counted within the file.
    index: u64,
    /// The first, on the device.
    unit: u64,
    units: u64,
}

/// The units of a file that cannot be read, and why not the first; and its blocks that are not what was written.
#[derive(Default)]
struct Bad {
    units: Vec<Range<u64>>,
    why: String,
    blocks: Vec<Range<u64>>,
}

/// What tells whether blocks are what was written.
struct Seals<'a> {
    data: DataLayout,
    key: VolumeKey,
    metadata: &'a Metadata,
    overlay: &'a Overlay,
}

impl Seals<'_> {
    /// Looks at the units of a run from `first` on.
    fn check(&self, run: &Run, first: u64, bytes: &[u8], bad: &mut BTreeMap<InodeId, Bad>) {
        let number = self.data.first_block(run.index + first);
        let Some(seal) = Seal::new(self.data, self.key, run.id, number) else {
            return;
        };
        let size = self
            .metadata
            .inode(run.id)
            .map_or(0, |record| record.size());
        let blocks = bytes.chunks_exact(self.data.block_bytes());
        for (index, (block, number)) in blocks.zip(number..self.data.blocks(size)).enumerate() {
            let held = self.data.offset_of(number)..self.data.offset_of(number + 1).min(size);
            // What the journal has all of may never have been written here.
            if !seal.fits(index, block) && !self.overlay.covers(run.id, held) {
                push_range(&mut bad.entry(run.id).or_default().blocks, number);
            }
        }
    }
}

/// Reads all units of all files, and notes those that cannot be read or are not what was written.
pub(super) fn read_all(
    lanes: &Lanes,
    found: &Survey,
    findings: &mut Findings,
    progress: &mut dyn FnMut(Progress),
) {
    let metadata = &found.metadata;
    let layout = metadata.layout();
    let seals = Seals {
        data: layout.file_data(),
        key: found.superblock.key(),
        metadata,
        overlay: &found.overlay,
    };
    let unit_bytes = layout.unit_bytes() as usize;
    let step = u32::try_from(lanes.piece_bytes() / unit_bytes)
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
                seal: None,
            })
            .collect();
        // A lane that cannot be had is an error of every piece, which is found again one by one.
        let results = lanes.with(|lane| Ok(lane.read_many(&mut pieces)));
        let failed = |index: usize| results.as_ref().map_or(true, |it| it[index].is_err());
        for (index, run) in batch.iter().enumerate() {
            if failed(index) {
                read_units(lanes, &seals, run, &mut single, &mut bad);
            } else {
                let from = index * step as usize * unit_bytes;
                let len = usize::try_from(run.units).unwrap_or(0) * unit_bytes;
                seals.check(run, 0, &memory[from..from + len], &mut bad);
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
        report(&seals, *id, bad, findings);
    }
}

/// Notes what is bad of a file.
fn report(seals: &Seals<'_>, id: InodeId, bad: &Bad, findings: &mut Findings) {
    let (metadata, data) = (seals.metadata, seals.data);
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
    lanes: &Lanes,
    seals: &Seals<'_>,
    run: &Run,
    memory: &mut [u8],
    bad: &mut BTreeMap<InodeId, Bad>,
) {
    for offset in 0..run.units {
        let lba = seals.data.first_block(run.unit + offset);
        if let Err(error) = read_blocks(lanes, lba, memory) {
            let bad = bad.entry(run.id).or_default();
            if bad.units.is_empty() {
                bad.why = explain(&error);
            }
            push_range(&mut bad.units, run.index + offset);
        } else {
            seals.check(run, offset, memory, bad);
        }
    }
}
