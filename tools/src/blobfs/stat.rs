//! `millrace blobfs stat`.

use std::io::Write;

use millrace_blobfs::{Kind, Status};
use serde_json::Value;

use super::device::{Access, Mounted};
use super::list::status_json;
use super::report::{self, kind_name, printable};
use super::{ToolError, StatOptions, VolumePath};
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, grouped};
use crate::terminal::Section;

/// The command.
pub(super) fn run(options: &StatOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let mounted = Mounted::open(&options.spec, Access::Read)?;
    let status = |path: &VolumePath| {
        let status = mounted.volume.status(path.as_str());
        let status = status.map_err(|error| mounted.refused(error))?;
        Ok((path.clone(), status))
    };
    let all: Result<_, ToolError> = options.paths.iter().map(status).collect();
    report::show(&StatReport(all?), options.json, out)
}

/// Files and directories, and what is known of them.
#[derive(Clone, Debug)]
struct StatReport(Vec<(VolumePath, Status)>);

impl Report for StatReport {
    fn text(&self) -> String {
        let sections = self.0.iter().map(|(path, status)| {
            let mut section = Section::new(printable(path.as_str()));
            section.row("kind", kind_name(status.kind));
            match status.kind {
                Kind::File => {
                    section.row("size", bytes(status.size.into()));
                    section.row("on the device", bytes(status.allocated_bytes.into()));
                    section.row("names", status.links.to_string());
                }
                Kind::Directory => section.row("entries", grouped(status.size.into())),
            }
            let modified = report::rfc3339(status.modified);
            section.row(
                "modified",
                modified.unwrap_or_else(|| report::seconds(status.modified)),
            );
            section.row("number", status.id.to_string());
            section.text()
        });
        sections.collect::<Vec<_>>().join("\n")
    }

    fn json(&self) -> Value {
        let all = self.0.iter();
        Value::Array(
            all.map(|(path, status)| status_json(path, status))
                .collect(),
        )
    }
}
