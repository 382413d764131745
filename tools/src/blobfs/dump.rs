//! `millrace blobfs dump`: all metadata, also of a damaged volume.

use std::io::Write;
use std::sync::Arc;

use millrace_block::Device;
use serde_json::{Value, json};

use super::check::CheckReport;
use super::device::{self, Access, Mounted};
use super::{ToolError, DumpOptions, VolumePath, list};
use crate::terminal::Report;

/// The command.
pub(super) fn run(options: &DumpOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let device = device::open(&options.spec)?;
    let text = match options.json {
        true => format!("{:#}\n", as_json(options, &device)?).into_bytes(),
        false => as_text(options, &device)?,
    };
    out.write_all(&text)
        .and_then(|()| out.flush())
        .map_err(ToolError::output)
}

fn as_text(options: &DumpOptions, device: &Arc<dyn Device>) -> Result<Vec<u8>, ToolError> {
    let mut text = Vec::new();
    let dumped = millrace_blobfs::dump(device, &mut text);
    dumped
        .map_err(|source| ToolError::of_volume(&options.spec, "reading the metadata", source))?;
    Ok(text)
}

/// What a check says, and all files and directories unless the volume is too damaged to be mounted.
fn as_json(options: &DumpOptions, device: &Arc<dyn Device>) -> Result<Value, ToolError> {
    let how = millrace_blobfs::CheckOptions::default();
    let mut value = CheckReport::new(&options.spec, device, how)?.json();
    let mounted = Mounted::on(&options.spec, Arc::clone(device), Access::Read);
    // Unmounted again at once: the buffers of one at a time are all that many users may lock.
    let inodes = match mounted {
        Ok(mounted) => {
            let root: VolumePath = "/".parse().expect("the root's path");
            list::all_below(&mounted, &root)?
        }
        Err(_) => Value::Null,
    };
    value["inodes"] = inodes;
    add_extents(options, device, &mut value["inodes"])?;
    Ok(value)
}

/// Says of each file where it is on the device.
fn add_extents(
    options: &DumpOptions,
    device: &Arc<dyn Device>,
    inodes: &mut Value,
) -> Result<(), ToolError> {
    let extents = millrace_blobfs::extents(device)
        .map_err(|source| ToolError::of_volume(&options.spec, "reading the metadata", source))?;
    for inode in inodes.as_array_mut().into_iter().flatten() {
        let id = inode["id"].as_u64();
        let runs = id.and_then(|id| extents.get(&id)).into_iter().flatten();
        let runs = runs.map(
            |run| json!({"device_offset_bytes": run.start, "length_bytes": run.end - run.start}),
        );
        inode["extents"] = match inode["size_bytes"].is_null() {
            // A directory.
            true => Value::Null,
            false => runs.collect(),
        };
    }
    Ok(())
}
