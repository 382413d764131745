//! Findings of a check: area, severity, text.

use std::fmt;

/// Area of the volume that a finding concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// Either copy of the superblock.
    Superblock,
    /// Either copy of the checkpoint.
    Checkpoint,
    /// The journal: transactions since the checkpoint.
    Journal,
    /// Names, sizes and extents of files.
    Metadata,
    /// Blocks of file data.
    Data,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Superblock => "superblock",
            Self::Checkpoint => "checkpoint",
            Self::Journal => "journal",
            Self::Metadata => "metadata",
            Self::Data => "data",
        })
    }
}

/// Severity of a finding, in ascending order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// State that a power cut may leave; the next mount repairs it.
    Note,
    /// One copy of redundant data is damaged; another copy is good.
    Damage,
    /// Data or metadata that cannot be recovered.
    Loss,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Note => "note",
            Self::Damage => "damage",
            Self::Loss => "loss",
        })
    }
}

/// Finding of a check: severity, area and description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Severity: a note, damage that a copy covers, or a loss.
    pub severity: Severity,
    /// Area of the volume it concerns.
    pub area: Area,
    /// Description in English, one line without a final period.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.area, self.text)
    }
}

/// Findings of a check in progress.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) all: Vec<Finding>,
}

impl Findings {
    pub(crate) fn add(&mut self, severity: Severity, area: Area, text: impl Into<String>) {
        self.all.push(Finding {
            severity,
            area,
            text: text.into(),
        });
    }

    /// Whether a new checkpoint would repair some finding.
    pub(crate) fn need_repair(&self) -> bool {
        let mendable = |it: &Finding| it.severity > Severity::Note && it.area != Area::Data;
        self.all.iter().any(mendable)
    }
}
