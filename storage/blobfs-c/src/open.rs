//! A device spec into a mounted volume.
//!
//! A library reads neither clock nor random source, so blobfs asks for both. This is a process's edge: the clock
//! is the system's, and the name of a new volume is random.

use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millrace_blobfs::{Clock, ErrorKind, FormatOptions, MountOptions, Timestamp, Volume};
use millrace_block::{Device, OpenOptions, Spec};

use crate::blank::is_blank;
use crate::code::{Code, Failure};

/// When a device is formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    Never,
    /// If it holds nothing.
    Blank,
    Always,
}

impl Format {
    pub(crate) fn from_c(number: u32) -> Result<Self, Failure> {
        match number {
            0 => Ok(Self::Never),
            1 => Ok(Self::Blank),
            2 => Ok(Self::Always),
            other => {
                let message = format!("{other} does not say when to format");
                Err(Failure::new(Code::Invalid, message))
            }
        }
    }
}

/// How a volume is to be opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) format: Format,
    pub(crate) read_only: bool,
    /// Zero for blobfs's own choice.
    pub(crate) arena_bytes: u64,
}

/// Opens the device that `spec` names and mounts the volume on it.
pub(crate) fn open(spec: &str, request: Request) -> Result<Volume, Failure> {
    let parsed: Spec = spec.parse().map_err(|error| block(&error))?;
    let device = parsed
        .open(&OpenOptions::new(Instant::now()))
        .map_err(|error| block(&error))?;
    let options = mount_options(request)?;
    if request.read_only && request.format != Format::Never {
        let message = "a volume for reading alone cannot be formatted";
        return Err(Failure::new(Code::Invalid, message));
    }
    if request.format == Format::Always {
        format(&device)?;
    }
    match Volume::mount(Arc::clone(&device), options.clone()) {
        Err(error) if error.kind() == ErrorKind::NotAVolume && request.format == Format::Blank => {
            if !is_blank(&device).map_err(|error| block(&error))? {
                let message = format!("{spec} holds something that is no Millrace volume");
                return Err(Failure::new(Code::NotAVolume, message));
            }
            format(&device)?;
            Ok(Volume::mount(device, options)?)
        }
        mounted => Ok(mounted?),
    }
}

fn block(error: &millrace_block::Error) -> Failure {
    use millrace_block::ErrorKind;
    let code = match error.kind() {
        ErrorKind::Invalid => Code::Invalid,
        ErrorKind::NotFound => Code::NotFound,
        ErrorKind::InUse => Code::InUse,
        ErrorKind::Unsupported => Code::Unsupported,
        ErrorKind::Memory => Code::Memory,
        ErrorKind::NoSpace => Code::NoSpace,
        _ => Code::Io,
    };
    Failure::caused(code, error)
}

fn mount_options(request: Request) -> Result<MountOptions, Failure> {
    let mut options = MountOptions::new(clock());
    options.read_only = request.read_only;
    if request.arena_bytes > 0 {
        options.arena_bytes = usize::try_from(request.arena_bytes).map_err(|_| {
            let message = format!("{} bytes of memory cannot be had", request.arena_bytes);
            Failure::new(Code::Memory, message)
        })?;
    }
    Ok(options)
}

fn format(device: &Arc<dyn Device>) -> Result<(), Failure> {
    let mut uuid = [0; 16];
    getrandom::fill(&mut uuid).map_err(|error| {
        let message = format!("the random source gives no name for the volume: {error}");
        Failure::new(Code::Io, message)
    })?;
    Ok(Volume::format(
        device,
        &FormatOptions::new(uuid, clock()()),
    )?)
}

fn clock() -> Clock {
    Arc::new(|| {
        // A clock before 1970 is wrong by so much that 1970 is as good.
        let elapsed = SystemTime::now().duration_since(UNIX_EPOCH);
        let ms = elapsed.map_or(0, |elapsed| elapsed.as_millis());
        Timestamp(u64::try_from(ms).unwrap_or(u64::MAX))
    })
}
