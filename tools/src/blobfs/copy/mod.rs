//! `millrace blobfs cp`: files and trees into a volume, out of it, and within it.
//!
//! First the sources are walked and a plan is made, so that nothing is copied if something is in the way or
//! it does not fit. Then each file is written under another name, synced, and renamed: who looks finds all of
//! it or what was there before.

mod files;
mod plan;
mod reading;
mod writing;

use std::io::Write;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use self::files::Files;
use self::plan::{Plan, Step, Work};
use self::reading::Reading;
use self::writing::Writing;
use super::bar::Bar;
use super::device::{Access, Mounted};
use super::report::{self, count, printable};
use super::stop::Stop;
use super::{ToolError, CpOptions, Place};
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, duration};

/// So many bytes are read and written at once.
const PIECE_BYTES: usize = 1 << 20;

/// The command.
pub(super) fn run(options: &CpOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let (target, sources) = options
        .paths
        .split_last()
        .expect("the command line has two paths at least");
    plan::check_sides(sources, target)?;
    let stop = Stop::on_signal()?;
    let copy = |mounted: &Mounted| {
        let files = Files::new(mounted);
        let plan = Plan::new(&files, sources, target, options)?;
        copy(&files, plan, &stop)
    };
    let report = match target {
        Place::Volume(_) => Mounted::change(&options.spec, copy),
        Place::Host(_) => copy(&Mounted::open(&options.spec, Access::Read)?),
    }?;
    report::show(&report, options.json, out)
}

fn copy(files: &Files<'_>, plan: Plan, stop: &Stop) -> Result<CopyReport, ToolError> {
    let start = Instant::now();
    let bar = Bar::new("copying", plan.bytes);
    let mut report = CopyReport {
        files: 0,
        directories: 0,
        bytes: 0,
        elapsed: Duration::ZERO,
        skipped: plan.skipped,
    };
    for step in &plan.steps {
        let done = stop
            .check()
            .and_then(|()| take(files, step, &bar, stop, &mut report));
        // What was copied so far stays.
        done.map_err(|error| match report.files {
            0 => error,
            done => error.advise(format!(
                "{} of {} were copied before; --force copies all again",
                done,
                count(plan.files, "file", "files")
            )),
        })?;
    }
    files.sync_host()?;
    report.elapsed = start.elapsed();
    Ok(report)
}

fn take(
    files: &Files<'_>,
    step: &Step,
    bar: &Bar,
    stop: &Stop,
    report: &mut CopyReport,
) -> Result<(), ToolError> {
    match &step.work {
        Work::Directory => {
            files.make_directory(&step.to)?;
            report.directories += 1;
        }
        Work::File {
            from,
            bytes,
            modified,
        } => {
            bar.show(printable(&from.to_string()));
            let mut reading = Reading::open(files, from)?;
            let mut writing = Writing::create(files, &step.to, *bytes)?;
            let mut piece = vec![0; PIECE_BYTES];
            loop {
                stop.check()?;
                let read = reading.next(&mut piece)?;
                if read == 0 {
                    break;
                }
                writing.write(&piece[..read])?;
                bar.advance(read as u64);
                report.bytes += read as u64;
            }
            writing.finish(*modified)?;
            report.files += 1;
        }
    }
    Ok(())
}

/// What was copied.
#[derive(Clone, Debug)]
struct CopyReport {
    files: u64,
    directories: u64,
    bytes: u64,
    elapsed: Duration,
    skipped: Vec<String>,
}

impl Report for CopyReport {
    fn text(&self) -> String {
        let mut parts = vec![count(self.files, "file", "files")];
        if self.directories > 0 {
            parts.push(count(self.directories, "directory", "directories"));
        }
        let mut text = format!(
            "copied {}, {}, in {}\n",
            parts.join(" and "),
            bytes(self.bytes.into()),
            duration(self.elapsed.as_secs_f64() * 1e9)
        );
        for path in &self.skipped {
            text.push_str(&format!("left out: {}\n", printable(path)));
        }
        text
    }

    fn json(&self) -> Value {
        json!({
            "files": self.files,
            "directories": self.directories,
            "bytes": self.bytes,
            "seconds": self.elapsed.as_secs_f64(),
            "skipped": self.skipped,
        })
    }
}
