//! Check and repair of a volume (fsck).
//!
//! # Checks
//! 1. Both superblocks.
//! 2. Each page of both copies of the checkpoint.
//! 3. The journal, to its end and beyond.
//! 4. The resulting metadata: every invariant.
//! 5. On request, all blocks of all files: readable, and matching their checksums.
//!
//! # Repair
//! What can be read is kept: a page from either copy, each operation of the journal that
//! applies. Files without a name go to `/lost+found`; names without a file are dropped; of two files that
//! share units one is cut. Journaled data is written back. A new checkpoint is written to free units, then both
//! superblocks. A power cut before the first of them leaves the volume as damaged as it was; a power cut after it
//! leaves a repaired volume.
//!
//! Blocks of files that are unreadable or do not match their checksums stay as they are: an error is better than zeros.

mod data;
mod finding;
mod repair;
mod survey;

use std::sync::Arc;

use millrace_block::Device;

pub(crate) use finding::Findings;
pub use finding::{Area, Finding, Severity};
pub(crate) use survey::{Survey, survey};

use crate::Result;
use crate::format::Kind;
use crate::io_context::IoContexts;
use crate::mount::refuse_torn_blocks;

/// Transfer memory of a check, in bytes. A driver must lock and pin it, and most systems limit an ordinary user to
/// 8 MiB of locked memory.
pub(crate) const CHECK_ARENA_BYTES: usize = 2 << 20;

/// Options of [`check`]; by default a read-only check of the metadata.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Repair what can be repaired. Otherwise nothing is written.
    pub repair: bool,
    /// Read all blocks of all files too.
    pub read_data: bool,
}

/// Stage of a check, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading both copies of the checkpoint.
    Checkpoint,
    /// Reading the journal and its remainder.
    Journal,
    /// Reading the blocks of files.
    Data,
}

/// Progress of a check, in bytes of its current stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Stage that the check executes now.
    pub stage: Stage,
    /// Bytes of this stage already read.
    pub done_bytes: u64,
    /// Bytes of this stage in all.
    pub total_bytes: u64,
}

/// Result of a check: facts of the volume and findings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Label of the volume, at most 64 bytes.
    pub label: String,
    /// Identifier of the volume, given at format time.
    pub uuid: [u8; 16],
    /// Whether blocks of file data end in a checksum.
    pub data_checksums: bool,
    /// Whether the volume was unmounted cleanly.
    pub is_clean_unmount: bool,
    /// Transactions that the next mount must replay.
    pub transactions: u64,
    /// Number of files in the volume.
    pub files: u64,
    /// Number of directories, including the root.
    pub directories: u64,
    /// Sum of the sizes of all files, in bytes.
    pub data_bytes: u64,
    /// Findings in the order of the checks.
    pub findings: Vec<Finding>,
    /// Findings that remain after the repair; `None` if there was no repair.
    pub left: Option<Vec<Finding>>,
}

impl Report {
    /// Whether nothing is damaged or lost, or nothing is after the repair.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let findings = self.left.as_ref().unwrap_or(&self.findings);
        findings.iter().all(|it| it.severity == Severity::Note)
    }
}

/// Checks the volume of a device, which must not be mounted. Writes nothing without [`CheckOptions::repair`].
///
/// # Errors
/// [`ErrorKind::NotAVolume`](crate::ErrorKind::NotAVolume), or
/// [`ErrorKind::Corruption`](crate::ErrorKind::Corruption) if no superblock is left, or the device ends
/// within the volume; [`ErrorKind::NewerFormat`](crate::ErrorKind::NewerFormat); while repairing
/// [`ErrorKind::NoSpace`](crate::ErrorKind::NoSpace), [`ErrorKind::Io`](crate::ErrorKind::Io), and
/// [`ErrorKind::Unsupported`](crate::ErrorKind::Unsupported) as [`Volume::mount`](crate::Volume::mount).
pub fn check(
    device: &Arc<dyn Device>,
    options: CheckOptions,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report> {
    let mut findings = Findings::default();
    let io_contexts = IoContexts::new(Arc::clone(device), CHECK_ARENA_BYTES)?;
    let found = survey(&io_contexts, &mut findings, progress, &mut |_| Ok(()))?;
    let mut report = report_of(&found);
    if options.read_data {
        data::read_all(&io_contexts, &found, &mut findings, progress);
    }
    if options.repair && findings.need_repair() {
        refuse_torn_blocks(&found.superblock.layout, device.geometry())?;
        repair::repair(io_contexts, found, &mut findings)?;
        let mut left = Findings::default();
        let io_contexts = IoContexts::new(Arc::clone(device), CHECK_ARENA_BYTES)?;
        let found = survey(&io_contexts, &mut left, progress, &mut |_| Ok(()))?;
        report = report_of(&found);
        let data = findings.all.iter().filter(|it| it.area == Area::Data);
        left.all.extend(data.cloned());
        report.left = Some(left.all);
    }
    report.findings = findings.all;
    Ok(report)
}

fn report_of(found: &Survey) -> Report {
    let inodes = found.metadata.len() as u64;
    let files = found
        .metadata
        .inodes()
        .filter(|(_, record)| record.kind() == Kind::File)
        .count() as u64;
    Report {
        label: found.superblock.label.clone(),
        uuid: found.superblock.uuid,
        data_checksums: found.superblock.layout.data_checksums(),
        is_clean_unmount: found.superblock.clean,
        transactions: found.transactions,
        files,
        directories: inodes - files,
        data_bytes: found.metadata.units() * u64::from(found.superblock.layout.unit_bytes()),
        findings: Vec::new(),
        left: None,
    }
}
