//! Looking for damage, and mending it.
//!
//! # What is looked at
//! 1. Both superblocks.
//! 2. Each page of both copies of the checkpoint.
//! 3. The journal, to its end and beyond.
//! 4. The metadata that all this makes: every rule that it obeys.
//! 5. If asked for, all blocks of all files: whether they can be read, and if they have checksums, whether these fit.
//!
//! # What is mended
//! What can be read is kept: a page from either copy, each operation of the journal that
//! applies. Files without a name go to `/lost+found`; names without a file are dropped; of two files that
//! share units one is cut. The data that transactions carry goes home. A new checkpoint is written where
//! nothing was, then both superblocks. A power cut before the first of them leaves the volume as damaged as
//! it was, one after it a volume that is mended.
//!
//! Blocks of files that cannot be read, or are not what was written, are left as they are: an error is better than
//! zeros.

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
use crate::lanes::Lanes;
use crate::mount::refuse_torn_blocks;

/// Memory for transfers while a volume is checked. A driver has to lock and pin it, of which most systems let any
/// user have 8 MiB.
pub(crate) const CHECK_ARENA_BYTES: usize = 2 << 20;

/// What a check is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckOptions {
    /// Mend what can be mended. Otherwise nothing is written.
    pub repair: bool,
    /// Read all files too.
    pub read_data: bool,
}

/// What a check is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Reading the checkpoint.
    Checkpoint,
    /// Reading the journal.
    Journal,
    /// Reading files.
    Data,
}

/// How far a check has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What it is doing.
    pub stage: Stage,
    /// Bytes of this stage that are done.
    pub done_bytes: u64,
    /// Bytes of this stage.
    pub total_bytes: u64,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The volume's name.
    pub label: String,
    /// Its identifier.
    pub uuid: [u8; 16],
    /// Whether the bytes of files have checksums.
    pub data_checksums: bool,
    /// Whether it was unmounted in order.
    pub is_clean_unmount: bool,
    /// Transactions that the next mount has to do again.
    pub transactions: u64,
    /// Files in it.
    pub files: u64,
    /// Directories in it, the root among them.
    pub directories: u64,
    /// Bytes that the files hold.
    pub data_bytes: u64,
    /// What was found.
    pub findings: Vec<Finding>,
    /// What is still so after a repair; nothing if none was made.
    pub left: Option<Vec<Finding>>,
}

impl Report {
    /// Whether nothing is damaged or lost, or nothing is any more after a repair.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        let findings = self.left.as_ref().unwrap_or(&self.findings);
        findings.iter().all(|it| it.severity == Severity::Note)
    }
}

/// Checks the volume of a device, which must not be mounted. Without [`CheckOptions::repair`] nothing is
/// written.
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
    let lanes = Lanes::new(Arc::clone(device), CHECK_ARENA_BYTES)?;
    let found = survey(&lanes, &mut findings, progress, &mut |_| Ok(()))?;
    let mut report = report_of(&found);
    if options.read_data {
        data::read_all(&lanes, &found, &mut findings, progress);
    }
    if options.repair && findings.need_repair() {
        refuse_torn_blocks(&found.superblock.layout, device.geometry())?;
        repair::repair(lanes, found, &mut findings)?;
        let mut left = Findings::default();
        let lanes = Lanes::new(Arc::clone(device), CHECK_ARENA_BYTES)?;
        let found = survey(&lanes, &mut left, progress, &mut |_| Ok(()))?;
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
