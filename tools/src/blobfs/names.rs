//! `millrace blobfs rm`, `mkdir` and `mv`.

use std::io::Write;

use millrace_blobfs::{ErrorKind as Kind, Status};
use serde_json::{Value, json};

use super::device::Mounted;
use super::report::{self, count};
use super::{ToolError, ErrorKind, MkdirOptions, MvOptions, RmOptions, VolumePath};
use crate::terminal::Report;

/// `rm`.
pub(super) fn remove(options: &RmOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let report = Mounted::change(&options.spec, |mounted| {
        // First whether all of it is there, so that a slip costs nothing.
        for path in &options.paths {
            if path.name().is_none() {
                let context = "the root directory cannot be removed";
                return Err(ToolError::new(ErrorKind::Usage, context));
            }
            status(mounted, path)?;
        }
        let mut report = ChangeReport::new("removed");
        let mut removed: Vec<&VolumePath> = Vec::new();
        for path in &options.paths {
            if !removed.iter().any(|above| path.is_within(above)) {
                remove_one(mounted, path, options.recursive, &mut report)?;
                removed.push(path);
            }
        }
        Ok(report)
    })?;
    report::show(&report, options.json, out)
}

fn remove_one(
    mounted: &Mounted,
    path: &VolumePath,
    is_recursive: bool,
    report: &mut ChangeReport,
) -> Result<(), ToolError> {
    let volume = &mounted.volume;
    let refused = |error| mounted.refused(error);
    if status(mounted, path)?.kind == millrace_blobfs::Kind::File {
        volume.remove(path.as_str()).map_err(refused)?;
        report.files += 1;
        return Ok(());
    }
    if is_recursive {
        for entry in volume.read_dir(path.as_str()).map_err(refused)? {
            remove_one(mounted, &path.join(&entry.name), true, report)?;
        }
    }
    volume.remove_dir(path.as_str()).map_err(|error| {
        let is_filled = error.kind() == Kind::NotEmpty;
        let error = refused(error);
        match is_filled {
            true => error.advise("--recursive removes it with all that is in it"),
            false => error,
        }
    })?;
    report.directories += 1;
    Ok(())
}

/// `mkdir`.
pub(super) fn make_directories(
    options: &MkdirOptions,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let report = Mounted::change(&options.spec, |mounted| {
        let mut report = ChangeReport::new("made");
        for path in &options.paths {
            if options.parents {
                report.directories += make_all(mounted, path)?;
            } else {
                let made = mounted.volume.create_dir(path.as_str());
                made.map_err(|error| mounted.refused(error))?;
                report.directories += 1;
            }
        }
        Ok(report)
    })?;
    report::show(&report, options.json, out)
}

/// Makes a directory and those above it that are missing; how many.
fn make_all(mounted: &Mounted, path: &VolumePath) -> Result<u64, ToolError> {
    match mounted.volume.status(path.as_str()) {
        Ok(status) if status.kind == millrace_blobfs::Kind::Directory => return Ok(0),
        Err(error) if error.kind() == Kind::NotFound => {}
        Err(error) => return Err(mounted.refused(error)),
        Ok(_) => {
            let context = format!("{path} is a file");
            return Err(ToolError::new(ErrorKind::Usage, context));
        }
    }
    let above = make_all(mounted, &path.parent())?;
    let made = mounted.volume.create_dir(path.as_str());
    made.map_err(|error| mounted.refused(error))?;
    Ok(above + 1)
}

/// `mv`.
pub(super) fn rename(options: &MvOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let report = Mounted::change(&options.spec, |mounted| {
        let from = &options.from;
        let Some(name) = from.name() else {
            let context = "the root directory cannot be moved";
            return Err(ToolError::new(ErrorKind::Usage, context));
        };
        let source = status(mounted, from)?;
        let to = match find(mounted, &options.to)? {
            Some(found) if found.kind == millrace_blobfs::Kind::Directory => options.to.join(name),
            _ => options.to.clone(),
        };
        if to != *from && to.is_within(from) {
            let context = format!("{from} cannot be moved into itself, to {to}");
            return Err(ToolError::new(ErrorKind::Usage, context));
        }
        if let Some(found) = find(mounted, &to)?.filter(|found| found.id != source.id) {
            if !options.force {
                let what = report::kind_name(found.kind);
                let context = format!("{from} was not moved: there is a {what} {to} already");
                return Err(ToolError::new(ErrorKind::NotForced, context)
                    .advise("--force puts it in the place of a file or an empty directory"));
            }
        }
        // The volume would say that of the other path.
        status(mounted, &to.parent())?;
        let renamed = mounted.volume.rename(from.as_str(), to.as_str());
        renamed.map_err(|error| mounted.refused(error))?;
        Ok(RenameReport {
            from: from.clone(),
            to,
        })
    })?;
    report::show(&report, options.json, out)
}

fn status(mounted: &Mounted, path: &VolumePath) -> Result<Status, ToolError> {
    let status = mounted.volume.status(path.as_str());
    status.map_err(|error| mounted.refused(error))
}

fn find(mounted: &Mounted, path: &VolumePath) -> Result<Option<Status>, ToolError> {
    match mounted.volume.status(path.as_str()) {
        Ok(status) => Ok(Some(status)),
        Err(error) if error.kind() == Kind::NotFound => Ok(None),
        Err(error) => Err(mounted.refused(error)),
    }
}

/// How many there are more or less.
#[derive(Clone, Debug)]
struct ChangeReport {
    done: &'static str,
    files: u64,
    directories: u64,
}

impl ChangeReport {
    const fn new(done: &'static str) -> Self {
        Self {
            done,
            files: 0,
            directories: 0,
        }
    }
}

impl Report for ChangeReport {
    fn text(&self) -> String {
        let mut parts = Vec::new();
        if self.files > 0 {
            parts.push(count(self.files, "file", "files"));
        }
        if self.directories > 0 || self.files == 0 {
            parts.push(count(self.directories, "directory", "directories"));
        }
        format!("{} {}\n", self.done, parts.join(" and "))
    }

    fn json(&self) -> Value {
        json!({ "files": self.files, "directories": self.directories })
    }
}

/// What has another name now.
#[derive(Clone, Debug)]
struct RenameReport {
    from: VolumePath,
    to: VolumePath,
}

impl Report for RenameReport {
    fn text(&self) -> String {
        let show = |path: &VolumePath| report::printable(path.as_str());
        format!("{} is now {}\n", show(&self.from), show(&self.to))
    }

    fn json(&self) -> Value {
        json!({ "from": self.from.as_str(), "to": self.to.as_str() })
    }
}
