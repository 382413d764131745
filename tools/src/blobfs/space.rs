//! `millrace blobfs df`.

use std::io::Write;

use millrace_blobfs::Space;
use serde_json::{Value, json};

use super::device::{Access, Mounted};
use super::{ToolError, DfOptions, report};
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, grouped};
use crate::terminal::Section;

/// The command.
pub(super) fn run(options: &DfOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let mounted = Mounted::open(&options.spec, Access::Read)?;
    let report = SpaceReport {
        device: options.spec.to_string(),
        label: mounted.volume.label(),
        uuid: mounted.volume.uuid(),
        space: mounted.volume.space(),
        data_checksums: mounted.volume.data_checksums(),
    };
    report::show(&report, options.json, out)
}

/// How full a volume is.
#[derive(Clone, Debug)]
struct SpaceReport {
    device: String,
    label: String,
    uuid: [u8; 16],
    space: Space,
    data_checksums: bool,
}

impl SpaceReport {
    const fn used_bytes(&self) -> u64 {
        self.space.total_bytes.saturating_sub(self.space.free_bytes)
    }

    /// The root directory is always there.
    const fn files(&self) -> u64 {
        self.space.files.saturating_sub(1)
    }
}

impl Report for SpaceReport {
    fn text(&self) -> String {
        let mut section = Section::new(self.device.clone());
        let (used, total) = (self.used_bytes(), self.space.total_bytes);
        let percent = u128::from(used) * 100 / u128::from(total.max(1));
        if !self.label.is_empty() {
            section.row("label", report::printable(&self.label));
        }
        section.row("identifier", report::uuid_text(&self.uuid));
        section.row("space", bytes(total.into()));
        section.row("used", format!("{}, {percent} %", bytes(used.into())));
        section.row("free", bytes(self.space.free_bytes.into()));
        section.row("metadata", bytes(self.space.metadata_bytes.into()));
        section.row("files and directories", grouped(self.files().into()));
        section.row("checksums", report::checksums(self.data_checksums));
        section.text()
    }

    fn json(&self) -> Value {
        json!({
            "device": self.device,
            "label": self.label,
            "uuid": report::uuid_text(&self.uuid),
            "total_bytes": self.space.total_bytes,
            "used_bytes": self.used_bytes(),
            "free_bytes": self.space.free_bytes,
            "metadata_bytes": self.space.metadata_bytes,
            "files_and_directories": self.files(),
            "data_checksums": self.data_checksums,
        })
    }
}
