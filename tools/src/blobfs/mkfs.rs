//! `millrace blobfs mkfs`: makes a volume where nothing is, or where that is given up.

use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use millrace_blobfs::{FormatOptions, Volume};
use millrace_block::{Deallocation, Device, FileDevice, MemoryDevice, Size, Spec};
use serde_json::{Value, json};

use super::bar::Bar;
use super::blocks::Blocks;
use super::contents::{Contents, wipe_ends};
use super::device::{self, Access, Mounted};
use super::report::{self, uuid_text};
use super::stop::Stop;
use super::{ToolError, ErrorKind, MkfsOptions};
use crate::terminal::Report;
use crate::terminal::quantity::{bytes, power_of_two_size};
use crate::terminal::Section;

/// Blocks are deallocated so many bytes at a time: between two of them the bar moves.
const DEALLOCATED_BYTES: u64 = 1 << 30;

/// The command.
pub(super) fn run(options: &MkfsOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let made = make_file(options)?;
    let report = make_volume(options, made.is_some());
    if let (Err(_), Some(path)) = (&report, made) {
        // It was not there before, and nobody can have put anything into it.
        let _ = std::fs::remove_file(path);
    }
    report::show(&report?, options.json, out)
}

/// Makes the file of the device if it is missing and may be made; its path then.
fn make_file(options: &MkfsOptions) -> Result<Option<&Path>, ToolError> {
    let spec = &options.spec;
    let (path, size) = match (spec, options.size) {
        (_, None) => return Ok(None),
        (Spec::File(path), Some(size)) => (path, size),
        (spec, Some(size)) => {
            let context = format!("--size {size} is for files, and {spec} has the size it has");
            return Err(ToolError::new(ErrorKind::Usage, context));
        }
    };
    if path.exists() {
        return Ok(None);
    }
    FileDevice::create(path, size.0).map_err(|source| {
        let context = format!("{spec} could not be made");
        ToolError::new(ErrorKind::Device, context).caused_by(source)
    })?;
    Ok(Some(path))
}

fn make_volume(options: &MkfsOptions, is_new_file: bool) -> Result<MkfsReport, ToolError> {
    let spec = &options.spec;
    let device = device::open(spec)?;
    check_size(options, &device)?;
    let failed = |attempted: &'static str| {
        move |source| ToolError::of_device(&options.spec, attempted, source)
    };
    let mut blocks = Blocks::new(&device).map_err(failed("taking a queue"))?;
    if !options.force {
        let contents = Contents::of_device(&mut blocks).map_err(failed("looking at it"))?;
        if !contents.is_blank() {
            return Err(refusal(spec, device, &contents));
        }
    }
    let format = FormatOptions {
        label: options.label.clone(),
        journal_bytes: options.journal_size.map(|size| size.0),
        data_checksums: options.data_checksums,
        ..FormatOptions::new(new_uuid()?, device::now())
    };
    rehearse(spec, &device, &format)?;
    let mut notes = device.notes().to_vec();
    if !options.no_discard && device.geometry().deallocation == Deallocation::Cheap {
        notes.extend(deallocate(&mut blocks)?);
    }
    wipe_ends(&mut blocks).map_err(failed("wiping its ends"))?;
    drop(blocks);
    Volume::format(&device, &format)
        .map_err(|source| ToolError::of_volume(spec, "making the volume", source))?;
    let geometry = device.geometry().clone();
    let mounted = Mounted::on(spec, device, Access::Read)?;
    Ok(MkfsReport {
        device: spec.to_string(),
        is_new_file,
        format,
        device_bytes: geometry.bytes(),
        block_bytes: geometry.block_bytes,
        free_bytes: mounted.volume.space().free_bytes,
        notes,
    })
}

/// Refuses a size that the device does not have.
fn check_size(options: &MkfsOptions, device: &Arc<dyn Device>) -> Result<(), ToolError> {
    let bytes = device.geometry().bytes();
    match options.size {
        Some(size) if size.0 != bytes => {
            let spec = &options.spec;
            let context = format!("{spec} is there, with {} bytes and not {size}", Size(bytes));
            let error = ToolError::new(ErrorKind::Usage, context);
            Err(error.advise("leave --size out, or remove the file first if it is not needed"))
        }
        _ => Ok(()),
    }
}

/// The error that says what would be lost.
fn refusal(spec: &Spec, device: Arc<dyn Device>, contents: &Contents) -> ToolError {
    let mut held = contents.to_string();
    if contents.is_volume() {
        // What a volume that cannot be mounted has is not known.
        if let Ok(mounted) = Mounted::on(spec, device, Access::Read) {
            let space = mounted.volume.space();
            let used = bytes(space.total_bytes.saturating_sub(space.free_bytes).into());
            // The root directory is no loss.
            let files = report::count(
                space.files.saturating_sub(1),
                "file or directory",
                "files and directories",
            );
            held = format!("{held} with {files}, {used} in use");
        }
    }
    let context = format!("{spec} was left as it is, as it holds {held}");
    ToolError::new(ErrorKind::NotForced, context)
        .advise("--force makes the volume nevertheless: what is there is lost")
}

/// Makes the volume in memory first: options that no volume can have must not cost what the device holds.
fn rehearse(
    spec: &Spec,
    device: &Arc<dyn Device>,
    format: &FormatOptions,
) -> Result<(), ToolError> {
    let memory = MemoryDevice::with_geometry(device.geometry().clone())
        .map_err(|source| ToolError::of_device(spec, "preparing the volume", source))?;
    let memory: Arc<dyn Device> = Arc::new(memory);
    Volume::format(&memory, format).map_err(|source| {
        let context = format!("{spec}: there can be no such volume");
        ToolError::new(ErrorKind::Usage, context).caused_by(source)
    })
}

/// Tells the device that no block is needed; a note if it does not do it.
fn deallocate(blocks: &mut Blocks) -> Result<Option<String>, ToolError> {
    let stop = Stop::on_signal()?;
    let geometry = blocks.geometry().clone();
    let bar = Bar::new("deallocating", geometry.bytes());
    let step = DEALLOCATED_BYTES / u64::from(geometry.block_bytes);
    let mut lba = 0;
    while lba < geometry.blocks {
        stop.check()?;
        let count = step.min(geometry.blocks - lba);
        if let Err(error) = blocks.deallocate(lba, count) {
            return Ok(Some(format!("blocks could not be deallocated: {error}")));
        }
        bar.advance(count * u64::from(geometry.block_bytes));
        lba += count;
    }
    Ok(None)
}

/// An identifier that no other volume has (RFC 9562, version 4).
fn new_uuid() -> Result<[u8; 16], ToolError> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|source| {
        let context = "the system has no random numbers";
        ToolError::new(ErrorKind::System, context).caused_by(io::Error::from(source))
    })?;
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    Ok(uuid)
}

/// What was made.
#[derive(Clone, Debug)]
struct MkfsReport {
    device: String,
    is_new_file: bool,
    format: FormatOptions,
    device_bytes: u64,
    block_bytes: u32,
    free_bytes: u64,
    notes: Vec<String>,
}

impl Report for MkfsReport {
    fn text(&self) -> String {
        let title = match self.is_new_file {
            true => format!("{}: made, with an empty volume", self.device),
            false => format!("{}: an empty volume", self.device),
        };
        let mut section = Section::new(title);
        if !self.format.label.is_empty() {
            section.row("label", report::printable(&self.format.label));
        }
        section.row("identifier", uuid_text(&self.format.uuid));
        section.row("device", bytes(self.device_bytes.into()));
        section.row("blocks", power_of_two_size(self.block_bytes.into()));
        section.row("checksums", report::checksums(self.format.data_checksums));
        section.row("free for files", bytes(self.free_bytes.into()));
        for note in &self.notes {
            section.row("note", note.as_str());
        }
        section.text()
    }

    fn json(&self) -> Value {
        json!({
            "device": self.device,
            "is_new_file": self.is_new_file,
            "label": self.format.label,
            "uuid": uuid_text(&self.format.uuid),
            "created": report::rfc3339(self.format.created),
            "device_bytes": self.device_bytes,
            "block_bytes": self.block_bytes,
            "data_checksums": self.format.data_checksums,
            "free_bytes": self.free_bytes,
            "notes": self.notes,
        })
    }
}
