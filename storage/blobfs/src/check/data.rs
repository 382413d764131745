//! Reads all files.

use std::collections::BTreeMap;
use std::ops::Range;

use super::finding::{Area, Findings, Severity};
use super::survey::{explain, parts, push_range};
use super::{Progress, Stage};
use crate::format::{InodeId, Metadata};
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

/// The units of a file that cannot be read, and why not the first.
#[derive(Default)]
struct Bad {
    units: Vec<Range<u64>>,
    why: String,
}

/// Reads all units of all files, and notes those that cannot be read.
pub(super) fn read_all(
    lanes: &Lanes,
    metadata: &Metadata,
    findings: &mut Findings,
    progress: &mut dyn FnMut(Progress),
) {
    let layout = metadata.layout();
    let unit_bytes = layout.unit_bytes() as usize;
    let step = u32::try_from(lanes.piece_bytes() / unit_bytes)
        .unwrap_or(1)
        .max(1);
    let total_bytes = metadata.units() * u64::from(layout.unit_bytes());
    let mut done_bytes = 0;
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
            })
            .collect();
        // A lane that cannot be had is an error of every piece, which is found again one by one.
        let results = lanes.with(|lane| Ok(lane.read_many(&mut pieces)));
        let failed = |index: usize| results.as_ref().map_or(true, |it| it[index].is_err());
        for (index, run) in batch.iter().enumerate() {
            if failed(index) {
                read_units(lanes, metadata, run, &mut memory[..unit_bytes], &mut bad);
            }
            done_bytes += run.units * u64::from(layout.unit_bytes());
        }
        progress(Progress {
            stage: Stage::Data,
            done_bytes,
            total_bytes,
        });
    }
    for (id, bad) in bad {
        let size = metadata.inode(id).map_or(0, |record| record.size());
        let unit_bytes = u64::from(layout.unit_bytes());
        let ranges: Vec<String> = bad
            .units
            .iter()
            .map(|units| {
                let end = (units.end * unit_bytes).min(size);
                format!("{}..{end}", units.start * unit_bytes)
            })
            .collect();
        let (path, ranges) = (metadata.path_of(id), ranges.join(", "));
        let text = format!("{path}: bytes {ranges} cannot be read: {}", bad.why);
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
    metadata: &Metadata,
    run: &Run,
    memory: &mut [u8],
    bad: &mut BTreeMap<InodeId, Bad>,
) {
    for offset in 0..run.units {
        let lba = metadata.layout().block_of(run.unit + offset);
        if let Err(error) = read_blocks(lanes, lba, memory) {
            let bad = bad.entry(run.id).or_default();
            if bad.units.is_empty() {
                bad.why = explain(&error);
            }
            push_range(&mut bad.units, run.index + offset);
        }
    }
}
