//! `millrace blobfs check`: looks for damage, and mends it if asked to.

use std::io::Write;
use std::sync::Arc;

use millrace_blobfs::{Finding, Progress, Stage};
use millrace_block::{Device, Spec};
use serde_json::{Value, json};

use super::bar::Bar;
use super::report::{self, count, printable, uuid_text};
use super::{ToolError, CheckOptions, device};
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, grouped};
use crate::terminal::Section;

/// The volume is sound.
const SOUND: u8 = 0;
/// It is now.
const MENDED: u8 = 1;
/// It is not.
const DAMAGED: u8 = 4;
/// Nobody knows.
const FAILED: u8 = 8;

/// The command; returns what the process is to end with.
pub(super) fn run(options: &CheckOptions, out: &mut dyn Write) -> Result<u8, ToolError> {
    let how = millrace_blobfs::CheckOptions {
        repair: options.repair,
        read_data: options.read_data,
    };
    let report = device::open(&options.spec)
        .and_then(|device| CheckReport::new(&options.spec, &device, how))
        .map_err(|error| error.ending_with(FAILED))?;
    report::show(&report, options.json, out)?;
    Ok(report.exit_code())
}

/// What a check found.
#[derive(Clone, Debug)]
pub(super) struct CheckReport {
    device: String,
    found: millrace_blobfs::Report,
    /// Whether there is something to be gained by a repair.
    may_repair: bool,
}

impl CheckReport {
    /// Checks the volume of a device.
    pub(super) fn new(
        spec: &Spec,
        device: &Arc<dyn Device>,
        how: millrace_blobfs::CheckOptions,
    ) -> Result<Self, ToolError> {
        let bar = Bar::new("checking", 0);
        let found = millrace_blobfs::check(device, how, &mut |progress: Progress| {
            bar.show(match progress.stage {
                Stage::Checkpoint => "the checkpoint".to_owned(),
                Stage::Journal => "the journal".to_owned(),
                Stage::Data => "files".to_owned(),
            });
            bar.set(progress.done_bytes, progress.total_bytes);
        });
        drop(bar);
        let attempted = match how.repair {
            true => "mending the volume",
            false => "checking the volume",
        };
        Ok(Self {
            device: spec.to_string(),
            found: found.map_err(|source| ToolError::of_volume(spec, attempted, source))?,
            may_repair: !how.repair,
        })
    }

    fn exit_code(&self) -> u8 {
        match (self.found.is_sound(), &self.found.left) {
            (true, None) => SOUND,
            (true, Some(_)) => MENDED,
            (false, _) => DAMAGED,
        }
    }
}

impl Report for CheckReport {
    fn text(&self) -> String {
        let verdict = match self.exit_code() {
            SOUND => "sound",
            MENDED => "mended, and sound now",
            _ if self.found.left.is_some() => "mended as far as it can be: damage is left",
            _ => "damaged",
        };
        let found = &self.found;
        let mut section = Section::new(format!("{}: {verdict}", self.device));
        if !found.label.is_empty() {
            section.row("label", printable(&found.label));
        }
        section.row("identifier", uuid_text(&found.uuid));
        section.row("files", grouped(found.files.into()));
        section.row("directories", grouped(found.directories.into()));
        section.row("data", bytes(found.data_bytes.into()));
        section.row("checksums", report::checksums(found.data_checksums));
        section.row(
            "unmounted in order",
            match (found.is_clean_unmount, found.transactions) {
                (true, _) => "yes".to_owned(),
                (false, 0) => "no; nothing is lost by it".to_owned(),
                (false, transactions) => {
                    let transactions = count(transactions, "transaction", "transactions");
                    format!("no; the next mount does {transactions} of the journal again")
                }
            },
        );
        let mut text = section.text();
        let mut list = |title: &str, findings: &[Finding]| {
            if !findings.is_empty() {
                text.push_str(&format!("{title}\n"));
            }
            for finding in findings {
                text.push_str(&format!("  {}\n", printable(&finding.to_string())));
            }
        };
        list("Found", &found.findings);
        list("Left", found.left.as_deref().unwrap_or_default());
        if self.exit_code() == DAMAGED && self.may_repair {
            text.push_str("--repair keeps what can be read\n");
        }
        text
    }

    fn json(&self) -> Value {
        let found = &self.found;
        let list = |findings: &[Finding]| {
            let all = findings.iter().map(|finding| {
                json!({
                    "severity": finding.severity.to_string(),
                    "area": finding.area.to_string(),
                    "text": finding.text,
                })
            });
            Value::Array(all.collect())
        };
        json!({
            "device": self.device,
            "is_sound": found.is_sound(),
            "label": found.label,
            "uuid": uuid_text(&found.uuid),
            "files": found.files,
            "directories": found.directories,
            "data_bytes": found.data_bytes,
            "data_checksums": found.data_checksums,
            "is_clean_unmount": found.is_clean_unmount,
            "transactions_to_replay": found.transactions,
            "findings": list(&found.findings),
            "left": found.left.as_deref().map(list),
        })
    }
}
