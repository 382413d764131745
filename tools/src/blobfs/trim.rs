//! `millrace blobfs trim`: tells the device what is free.

use std::io::Write;
use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::bar::Bar;
use super::device::Mounted;
use super::stop::Stop;
use super::{ToolError, TrimOptions, report};
use crate::terminal::Report;
use crate::terminal::quantity::bytes;
use crate::terminal::Section;

/// The command.
pub(super) fn run(options: &TrimOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let stop = Stop::on_signal()?;
    let report = Mounted::change(&options.spec, |mounted| {
        let bar = Bar::new("deallocating", 0);
        let trimmed = mounted.volume.trim(&mut |done, all| {
            bar.set(done, all);
            match stop.check() {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            }
        });
        drop(bar);
        let trimmed_bytes = trimmed.map_err(mounted.failed("deallocating what is free"))?;
        stop.check()?;
        Ok(TrimReport {
            device: options.spec.to_string(),
            trimmed_bytes,
        })
    })?;
    report::show(&report, options.json, out)
}

/// What the device was told.
#[derive(Clone, Debug)]
struct TrimReport {
    device: String,
    trimmed_bytes: u64,
}

impl Report for TrimReport {
    fn text(&self) -> String {
        let mut section = Section::new(self.device.clone());
        section.row("deallocated", bytes(self.trimmed_bytes.into()));
        section.text()
    }

    fn json(&self) -> Value {
        json!({
            "device": self.device,
            "deallocated_bytes": self.trimmed_bytes,
        })
    }
}
