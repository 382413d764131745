//! `millrace blobfs ls`.

use std::io::Write;

use millrace_blobfs::{Kind, Status};
use serde_json::{Value, json};

use super::device::{Access, Mounted};
use super::report::{self, kind_name, printable};
use super::{ToolError, LsOptions, VolumePath};
use crate::terminal::Report;
use crate::terminal::quantity::grouped;
use crate::terminal::{Side, Table};

/// The command.
pub(super) fn run(options: &LsOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let mounted = Mounted::open(&options.spec, Access::Read)?;
    let report = ListReport::new(&mounted, options)?;
    report::show(&report, options.json, out)
}

/// A file or directory.
#[derive(Clone, Debug)]
struct Row {
    path: VolumePath,
    status: Status,
}

/// What there is.
#[derive(Clone, Debug)]
struct ListReport {
    /// What was asked for. Names are shown from there on.
    top: VolumePath,
    long: bool,
    rows: Vec<Row>,
}

impl ListReport {
    fn new(mounted: &Mounted, options: &LsOptions) -> Result<Self, ToolError> {
        let top = options.path.clone();
        let status = status(mounted, &top)?;
        let mut rows = Vec::new();
        if status.kind == Kind::File {
            rows.push(Row {
                path: top.clone(),
                status,
            });
        } else {
            collect(mounted, &top, options.recursive, &mut rows)?;
        }
        Ok(Self {
            top,
            long: options.long,
            rows,
        })
    }

    /// The name of a row: its path from the listed directory on.
    fn name(&self, row: &Row) -> String {
        let top = self.top.as_str().trim_end_matches('/');
        let rest = row.path.as_str().strip_prefix(top).unwrap_or_default();
        let name = match rest.trim_start_matches('/') {
            // What was asked for is a file.
            "" => row.path.name().unwrap_or_default(),
            name => name,
        };
        let mark = match row.status.kind {
            Kind::File => "",
            Kind::Directory => "/",
        };
        printable(name) + mark
    }
}

fn status(mounted: &Mounted, path: &VolumePath) -> Result<Status, ToolError> {
    let status = mounted.volume.status(path.as_str());
    status.map_err(|error| mounted.refused(error))
}

/// Adds what is in a directory, each directory before what is in it.
fn collect(
    mounted: &Mounted,
    directory: &VolumePath,
    is_recursive: bool,
    rows: &mut Vec<Row>,
) -> Result<(), ToolError> {
    let entries = mounted.volume.read_dir(directory.as_str());
    for entry in entries.map_err(|error| mounted.refused(error))? {
        let path = directory.join(&entry.name);
        let status = status(mounted, &path)?;
        rows.push(Row {
            path: path.clone(),
            status,
        });
        if is_recursive && entry.kind == Kind::Directory {
            collect(mounted, &path, true, rows)?;
        }
    }
    Ok(())
}

impl Report for ListReport {
    fn text(&self) -> String {
        if !self.long {
            let names = self.rows.iter().map(|row| self.name(row) + "\n");
            return names.collect();
        }
        let mut table = Table::new(&[
            ("KIND", Side::Left),
            ("NAMES", Side::Right),
            ("BYTES", Side::Right),
            ("MODIFIED (UTC)", Side::Left),
            ("NAME", Side::Left),
        ]);
        for row in &self.rows {
            let status = &row.status;
            let size = match status.kind {
                Kind::File => grouped(status.size.into()),
                Kind::Directory => "-".to_owned(),
            };
            table.row(vec![
                kind_name(status.kind).to_owned(),
                status.links.to_string(),
                size,
                report::seconds(status.modified),
                self.name(row),
            ]);
        }
        table.text()
    }

    fn json(&self) -> Value {
        rows_json(&self.rows)
    }
}

/// All files and directories below one, as JSON has them.
pub(super) fn all_below(mounted: &Mounted, top: &VolumePath) -> Result<Value, ToolError> {
    let mut rows = Vec::new();
    collect(mounted, top, true, &mut rows)?;
    Ok(rows_json(&rows))
}

fn rows_json(rows: &[Row]) -> Value {
    let rows = rows.iter();
    rows.map(|row| status_json(&row.path, &row.status))
        .collect()
}

/// What is known of a file or directory.
pub(super) fn status_json(path: &VolumePath, status: &Status) -> Value {
    let is_file = status.kind == Kind::File;
    json!({
        "path": path.as_str(),
        "kind": kind_name(status.kind),
        "id": status.id,
        "size_bytes": is_file.then_some(status.size),
        "allocated_bytes": is_file.then_some(status.allocated_bytes),
        "entries": (!is_file).then_some(status.size),
        "names": status.links,
        "modified": report::rfc3339(status.modified),
    })
}
