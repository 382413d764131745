//! The volume that `serve --device` works on.

use std::sync::Arc;

use millrace_blobfs::{ErrorKind, FormatOptions, MountOptions, Timestamp, Volume};
use millrace_blobfs_c::is_blank;
use millrace_block::{Device, OpenOptions, Spec};

use crate::clock::{Clock, SystemClock};
use crate::settings::DeviceSettings;

/// The folder of the database in its volume.
pub const DATA_FOLDER: &str = "/data";

/// Memory for data on its way to and from the device.
pub const ARENA_BYTES: usize = 16 << 20;

/// Why a volume could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum VolumeError {
    /// Another process has the device.
    #[error(
        "the device {spec} is in use by another process: stop that one, or choose another device"
    )]
    InUse {
        /// The device.
        spec: Spec,
    },
    /// The device cannot be opened or read.
    #[error("the device {spec} could not be opened")]
    Device {
        /// The device.
        spec: Spec,
        /// Why.
        source: millrace_block::Error,
    },
    /// The device holds nothing yet.
    #[error(
        "{spec} is blank, and not a Millrace volume: make one with `millrace blobfs mkfs {spec}`, \
         or start once with --format"
    )]
    Blank {
        /// The device.
        spec: Spec,
    },
    /// The device holds something else.
    #[error(
        "{spec} is not a Millrace volume and holds something else, of which nothing was changed: \
         choose another device, or overwrite it with `millrace blobfs mkfs --force {spec}`"
    )]
    Foreign {
        /// The device.
        spec: Spec,
    },
    /// The volume cannot be made.
    #[error("no volume could be made on {spec}")]
    Format {
        /// The device.
        spec: Spec,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The volume cannot be used.
    #[error("the volume on {spec} could not be mounted")]
    Mount {
        /// The device.
        spec: Spec,
        /// Why.
        source: millrace_blobfs::Error,
    },
}

/// Opens a device and mounts its volume; a blank device gets one first, if that was asked for.
///
/// # Errors
/// What is wrong, with what to do about it.
pub fn open(settings: &DeviceSettings, clock: SystemClock) -> Result<Volume, VolumeError> {
    let spec = settings.spec.clone();
    let device = match spec.open(&OpenOptions::new(clock.origin())) {
        Ok(device) => device,
        Err(error) if error.kind() == millrace_block::ErrorKind::InUse => {
            return Err(VolumeError::InUse { spec });
        }
        Err(source) => return Err(VolumeError::Device { spec, source }),
    };
    for note in device.notes() {
        tracing::info!(target: "STORAGE", id = 23_306_u32, device = %spec, note, "Device");
    }
    let mounted = match Volume::mount(Arc::clone(&device), mount_options(clock)) {
        Err(error) if error.kind() == ErrorKind::NotAVolume => {
            format_blank(&device, settings, clock)?;
            Volume::mount(device, mount_options(clock))
        }
        mounted => mounted,
    };
    let volume = match mounted {
        Ok(volume) => volume,
        Err(source) => return Err(VolumeError::Mount { spec, source }),
    };
    let space = volume.space();
    tracing::info!(
        target: "STORAGE",
        id = 23_307_u32,
        device = %spec,
        totalBytes = space.total_bytes,
        freeBytes = space.free_bytes,
        dataChecksums = volume.data_checksums(),
        "Volume mounted"
    );
    Ok(volume)
}

fn mount_options(clock: SystemClock) -> MountOptions {
    let mut options = MountOptions::new(Arc::new(move || timestamp(clock)));
    options.arena_bytes = ARENA_BYTES;
    options
}

/// Makes a volume on a device that holds nothing.
fn format_blank(
    device: &Arc<dyn Device>,
    settings: &DeviceSettings,
    clock: SystemClock,
) -> Result<(), VolumeError> {
    let spec = settings.spec.clone();
    match is_blank(device) {
        Err(source) => return Err(VolumeError::Device { spec, source }),
        Ok(false) => return Err(VolumeError::Foreign { spec }),
        Ok(true) if !settings.format => return Err(VolumeError::Blank { spec }),
        Ok(true) => {}
    }
    let mut uuid = [0; 16];
    let made = getrandom::fill(&mut uuid)
        .map_err(|error| error.to_string().into())
        .and_then(|()| {
            Volume::format(device, &FormatOptions::new(uuid, timestamp(clock))).map_err(Into::into)
        });
    made.map_err(|source| VolumeError::Format { spec, source })
}

fn timestamp(clock: SystemClock) -> Timestamp {
    Timestamp(u64::try_from(clock.wall_clock_ms()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use millrace_block::FileDevice;

    use super::*;

    fn open(settings: &DeviceSettings) -> Result<Volume, VolumeError> {
        super::open(settings, SystemClock::new())
    }

    fn settings(path: &std::path::Path, format: bool) -> DeviceSettings {
        let spec = format!("file:{}", path.display());
        DeviceSettings {
            spec: spec.parse().expect("it names a file"),
            format,
        }
    }

    #[test]
    fn a_blank_device_is_formatted_when_asked_and_then_mounts_without() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("disk.img");
        let missing = open(&settings(&path, true)).expect_err("there is no file");
        assert!(matches!(missing, VolumeError::Device { .. }), "{missing:?}");
        FileDevice::create(&path, 16 << 20).expect("the folder is ours");
        let blank = open(&settings(&path, false)).expect_err("it is blank");
        assert!(matches!(blank, VolumeError::Blank { .. }), "{blank:?}");
        assert!(blank.to_string().contains("--format"), "{blank}");
        let volume = open(&settings(&path, true)).expect("it is formatted");
        volume.create_dir("/kept").expect("it is empty");
        let second = open(&settings(&path, true)).expect_err("it is open");
        assert!(matches!(second, VolumeError::InUse { .. }), "{second:?}");
        drop(volume);
        for format in [false, true] {
            let volume = open(&settings(&path, format)).expect("it is a volume");
            assert!(volume.status("/kept").is_ok(), "{format}");
        }
    }

    #[test]
    fn what_holds_something_else_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("disk.img");
        let mut contents = vec![0; 16 << 20];
        contents[1024..1030].copy_from_slice(b"ext4..");
        fs::write(&path, &contents).expect("the folder is ours");
        for format in [false, true] {
            let refused = open(&settings(&path, format)).expect_err("it holds something");
            assert!(
                matches!(refused, VolumeError::Foreign { .. }),
                "{refused:?}"
            );
        }
        assert!(fs::read(&path).expect("it is there") == contents);
    }
}
