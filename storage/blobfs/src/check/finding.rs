//! What a check finds.

use std::fmt;

/// Where something was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Area {
    /// The superblocks.
    Superblock,
    /// The two copies of the checkpoint.
    Checkpoint,
    /// The journal.
    Journal,
    /// Names, sizes and extents.
    Metadata,
    /// What files hold.
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

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// A power cut may leave it so; the next mount mends it.
    Note,
    /// Something is damaged of which there is more than one.
    Damage,
    /// Something is lost.
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

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// Where it is.
    pub area: Area,
    /// What it is, for people.
    pub text: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.severity, self.area, self.text)
    }
}

/// What was found so far.
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

    /// Whether there is something that a new checkpoint would mend.
    pub(crate) fn need_repair(&self) -> bool {
        let mendable = |it: &Finding| it.severity > Severity::Note && it.area != Area::Data;
        self.all.iter().any(mendable)
    }
}
