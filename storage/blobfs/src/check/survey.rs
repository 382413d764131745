//! Survey: reads all metadata of a volume and reports damage.

use std::error::Error as StdError;
use std::fmt::Write as _;
use std::ops::Range;

use super::finding::{Area, Findings, Severity};
use super::{Progress, Stage};
use crate::format::checkpoint_image::{Decoder, PAGE_BYTES};
use crate::format::damage::Damage;
use crate::format::layout::{superblock_units, unit_bytes_for};
use crate::format::replay::{Replay, Replayed};
use crate::format::superblock::{Chosen, Superblock, choose};
use crate::format::{Extent, Metadata, Overlay};
use crate::io::read_blocks;
use crate::io_context::IoContexts;
use crate::journal_reader::{JournalReader, JournalRemainder};
use crate::{Error, ErrorKind, Result};

/// Bytes of one read of the checkpoint.
const READ_BYTES: u64 = 1 << 20;
/// Most ranges that a finding lists.
const RANGES_MAX: usize = 8;

/// On-disk state of a volume, as far as it is readable.
pub(crate) struct Survey {
    pub(crate) superblock: Superblock,
    /// As of the last transaction. All invariants hold, except that files may share units with the checkpoint.
    pub(crate) metadata: Metadata,
    /// Journaled bytes of files.
    pub(crate) overlay: Overlay,
    /// Block of the journal at which it continues.
    pub(crate) head: u64,
    /// Number of transactions since the checkpoint.
    pub(crate) transactions: u64,
    /// Highest transaction number in the journal or of the checkpoint.
    pub(crate) highest: u64,
    /// Positions of unreadable blocks of the journal.
    pub(crate) unreadable: Vec<u64>,
}

/// A transaction of the journal.
pub(crate) struct Transaction<'a> {
    pub(crate) sequence: u64,
    /// Block of the journal at which it begins.
    pub(crate) position: u64,
    pub(crate) payload: &'a [u8],
}

/// Text of an error and all its sources.
pub(crate) fn explain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a String does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

/// Reads superblocks, checkpoint and journal. Calls `visit` with each transaction.
pub(crate) fn survey(
    io_contexts: &IoContexts,
    findings: &mut Findings,
    progress: &mut dyn FnMut(Progress),
    visit: &mut dyn FnMut(&Transaction<'_>) -> Result<()>,
) -> Result<Survey> {
    let superblock = read_superblocks(io_contexts, findings)?;
    let geometry = io_contexts.device().geometry();
    let layout = superblock.layout;
    layout.check_device(geometry.block_bytes, geometry.blocks)?;
    io_contexts.set_block_bytes(layout.block_bytes())?;

    let mut decoder = Decoder::new(&superblock);
    for (copy, name) in superblock.checkpoint.copies.iter().zip(["first", "second"]) {
        let bad = read_copy(io_contexts, &superblock, copy, &mut decoder, progress);
        if !bad.is_empty() {
            let text = format!("pages {} of the {name} copy are damaged", list(&bad));
            findings.add(Severity::Damage, Area::Checkpoint, text);
        }
    }
    let (metadata, damages) = decoder.finish();
    let mut found = Survey {
        highest: superblock.checkpoint.sequence,
        superblock,
        metadata: Metadata::new(layout),
        overlay: Overlay::default(),
        head: 0,
        transactions: 0,
        unreadable: Vec::new(),
    };
    let mut replay = Replay::lenient(metadata, damages);
    read_journal(
        io_contexts,
        &mut found,
        &mut replay,
        findings,
        progress,
        visit,
    )?;
    let Replayed {
        metadata,
        overlay,
        damages,
    } = replay.finish();
    for damage in &damages {
        let area = match damage {
            Damage::Pages(_) | Damage::Records(_) | Damage::Mixed => Area::Checkpoint,
            Damage::Skipped { .. } => Area::Journal,
            _ => Area::Metadata,
        };
        findings.add(Severity::Loss, area, damage.to_string());
    }
    for problem in metadata.validate(&found.superblock.checkpoint.copies.concat()) {
        findings.add(Severity::Damage, Area::Metadata, problem.to_string());
    }
    found.metadata = metadata;
    found.overlay = overlay;
    Ok(found)
}

fn read_superblocks(io_contexts: &IoContexts, findings: &mut Findings) -> Result<Superblock> {
    let geometry = io_contexts.device().geometry();
    let unit_bytes = unit_bytes_for(geometry.block_bytes)?;
    let unit_blocks = u64::from(unit_bytes / geometry.block_bytes);
    let read = |unit: u64| {
        let mut bytes = vec![0; unit_bytes as usize];
        read_blocks(io_contexts, unit * unit_blocks, &mut bytes)?;
        Superblock::decode(&bytes)
    };
    let [first, last] = superblock_units(geometry.block_bytes, geometry.blocks);
    let first = read(first);
    // The device may have grown since the volume was formatted.
    let second = read(first.as_ref().map_or(last, |it| it.layout.superblocks()[1]));
    for (copy, name) in [(&first, "first"), (&second, "second")] {
        if let Err(error) = copy {
            // A power cut during its write leaves a copy whose start is valid.
            let severity = match error.kind() {
                ErrorKind::Corruption => Severity::Note,
                _ => Severity::Damage,
            };
            let text = format!("the {name} cannot be used: {}", explain(error));
            findings.add(severity, Area::Superblock, text);
        }
    }
    if let (Ok(first), Ok(second)) = (&first, &second) {
        if first != second && first.uuid == second.uuid {
            let text = format!(
                "the first has generation {}, the second {}",
                first.generation, second.generation
            );
            // The first is written before the second.
            let severity = match first.generation.checked_sub(second.generation) {
                Some(1) => Severity::Note,
                _ => Severity::Damage,
            };
            findings.add(severity, Area::Superblock, text);
        }
    }
    let Chosen { superblock, .. } = choose(first, second)?;
    Ok(superblock)
}

/// Reads one copy of the checkpoint, passes missing pages to the decoder, and returns the damaged pages.
fn read_copy(
    io_contexts: &IoContexts,
    superblock: &Superblock,
    copy: &[Extent],
    decoder: &mut Decoder,
    progress: &mut dyn FnMut(Progress),
) -> Vec<Range<u64>> {
    let layout = &superblock.layout;
    let unit_bytes = u64::from(layout.unit_bytes());
    let step = u32::try_from(READ_BYTES / unit_bytes).unwrap_or(1).max(1);
    let mut bad: Vec<Range<u64>> = Vec::new();
    let mut number = 0;
    for extent in copy.iter().flat_map(|extent| parts(*extent, step)) {
        let mut bytes = vec![0; extent.units as usize * layout.unit_bytes() as usize];
        read_what_can_be(
            io_contexts,
            layout.block_of(extent.start),
            &mut bytes,
            layout.unit_bytes(),
        );
        for page in bytes.chunks(PAGE_BYTES) {
            if number == decoder.page_count() {
                break;
            }
            // A page present from the first copy was verified there, but not in this copy.
            let good = decoder.check(number, page).is_ok();
            if good && !decoder.has(number) {
                let taken = decoder.page(number, page);
                debug_assert_eq!(taken, Ok(()));
            }
            if !good {
                push_range(&mut bad, u64::from(number));
            }
            number += 1;
        }
        progress(Progress {
            stage: Stage::Checkpoint,
            done_bytes: u64::from(number) * PAGE_BYTES as u64,
            total_bytes: superblock.checkpoint.bytes,
        });
    }
    bad
}

/// An extent in parts of at most `step` units.
pub(super) fn parts(extent: Extent, step: u32) -> impl Iterator<Item = Extent> {
    (0..extent.units.div_ceil(step)).map(move |index| Extent {
        start: extent.start + u64::from(index) * u64::from(step),
        units: step.min(extent.units - index * step),
    })
}

/// Reads blocks; after a failure unit by unit, with zeros for unreadable units.
fn read_what_can_be(io_contexts: &IoContexts, lba: u64, bytes: &mut [u8], unit_bytes: u32) {
    if read_blocks(io_contexts, lba, bytes).is_ok() {
        return;
    }
    let unit_blocks = u64::from(unit_bytes) / io_contexts.block_bytes() as u64;
    let mut lba = lba;
    for unit in bytes.chunks_mut(unit_bytes as usize) {
        if read_blocks(io_contexts, lba, unit).is_err() {
            unit.fill(0);
        }
        lba += unit_blocks;
    }
}

/// Adds a number above all numbers in `ranges`.
pub(super) fn push_range(ranges: &mut Vec<Range<u64>>, number: u64) {
    match ranges.last_mut() {
        Some(last) if last.end == number => last.end += 1,
        _ => ranges.push(number..number + 1),
    }
}

fn list(ranges: &[Range<u64>]) -> String {
    let mut texts: Vec<String> = ranges
        .iter()
        .take(RANGES_MAX)
        .map(|range| match range.end - range.start {
            1 => range.start.to_string(),
            _ => format!("{} to {}", range.start, range.end - 1),
        })
        .collect();
    if ranges.len() > RANGES_MAX {
        texts.push(format!("and {} more ranges", ranges.len() - RANGES_MAX));
    }
    texts.join(", ")
}

fn read_journal(
    io_contexts: &IoContexts,
    found: &mut Survey,
    replay: &mut Replay,
    findings: &mut Findings,
    progress: &mut dyn FnMut(Progress),
    visit: &mut dyn FnMut(&Transaction<'_>) -> Result<()>,
) -> Result<()> {
    let layout = found.superblock.layout;
    let block_bytes = u64::from(layout.block_bytes());
    let mut reader = JournalReader::new(io_contexts, &found.superblock);
    let mut sequence = found.superblock.journal_tail.sequence;
    loop {
        let position = reader.head();
        let payload = match reader.next() {
            Ok(Some(payload)) => payload,
            Ok(None) => break,
            Err(error) => {
                let text = format!(
                    "transaction {sequence}, if there is one, is unreadable: {}",
                    explain(&error)
                );
                findings.add(Severity::Loss, Area::Journal, text);
                break;
            }
        };
        visit(&Transaction {
            sequence,
            position,
            payload,
        })?;
        if let Err(error) = replay.apply_transaction(payload) {
            let text = format!("transaction {sequence}: {}", explain(&error));
            findings.add(Severity::Loss, Area::Journal, text);
        }
        found.highest = found.highest.max(sequence);
        found.transactions += 1;
        sequence += 1;
        progress(Progress {
            stage: Stage::Journal,
            done_bytes: reader.used() * block_bytes,
            total_bytes: layout.journal_blocks() * block_bytes,
        });
    }
    found.head = reader.head();
    if found.superblock.clean && found.transactions > 0 {
        let text = "the volume was cleanly unmounted, but the journal is not empty";
        findings.add(Severity::Damage, Area::Journal, text);
    }
    let JournalRemainder { beyond, unreadable } = reader.probe_rest();
    progress(Progress {
        stage: Stage::Journal,
        done_bytes: layout.journal_blocks() * block_bytes,
        total_bytes: layout.journal_blocks() * block_bytes,
    });
    if let Some(beyond) = beyond {
        let text = format!(
            "transaction {sequence} is damaged, and transaction {beyond} follows it: the changes of {sequence} and all later \
             transactions are lost, and files may hold bytes that these wrote"
        );
        findings.add(Severity::Loss, Area::Journal, text);
        found.highest = found.highest.max(beyond);
    }
    if !unreadable.is_empty() {
        let mut ranges = Vec::new();
        for position in &unreadable {
            push_range(&mut ranges, *position);
        }
        let text = format!("blocks {} are unreadable", list(&ranges));
        findings.add(Severity::Damage, Area::Journal, text);
    }
    found.unreadable = unreadable;
    Ok(())
}
