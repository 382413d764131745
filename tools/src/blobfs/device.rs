//! Opening devices and the volumes on them.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use millrace_blobfs::{MountOptions, Timestamp, Volume};
use millrace_block::{Device, OpenOptions, Spec};

use super::ToolError;

/// Memory for transfers. What locking and pinning it counts fits into the 8 MiB that most systems let any
/// user lock, beside what a driver takes.
const ARENA_BYTES: usize = 2 << 20;

/// Opens a device for this process alone.
pub(super) fn open(spec: &Spec) -> Result<Arc<dyn Device>, ToolError> {
    let opened = spec.open(&OpenOptions::new(Instant::now()));
    opened.map_err(|source| ToolError::of_opening(spec, source))
}

/// What the system's clock says.
pub(super) fn now() -> Timestamp {
    timestamp(SystemTime::now())
}

/// A time of the host, which the volume counts from 1970 on.
pub(super) fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// What a command does with a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Nothing is written to the device.
    Read,
    /// It is changed.
    Write,
}

/// A volume that a command has mounted, and what it is called in messages.
pub(super) struct Mounted {
    pub(super) spec: Spec,
    pub(super) volume: Volume,
}

impl Mounted {
    /// Opens a device and mounts its volume.
    pub(super) fn open(spec: &Spec, access: Access) -> Result<Self, ToolError> {
        Self::on(spec, open(spec)?, access)
    }

    /// Mounts the volume of an open device.
    pub(super) fn on(
        spec: &Spec,
        device: Arc<dyn Device>,
        access: Access,
    ) -> Result<Self, ToolError> {
        let options = MountOptions {
            read_only: access == Access::Read,
            arena_bytes: ARENA_BYTES,
            ..MountOptions::new(Arc::new(now))
        };
        let volume = Volume::mount(device, options)
            .map_err(|source| ToolError::of_volume(spec, "mounting the volume", source))?;
        Ok(Self {
            spec: spec.clone(),
            volume,
        })
    }

    /// Mounts a volume, has `work` done on it and unmounts it: what was done is on the medium then, also if
    /// it was not all that had to be done.
    pub(super) fn change<T>(
        spec: &Spec,
        work: impl FnOnce(&Self) -> Result<T, ToolError>,
    ) -> Result<T, ToolError> {
        let mounted = Self::open(spec, Access::Write)?;
        let done = work(&mounted);
        let unmounted = mounted.volume.unmount();
        let done = done?;
        unmounted.map_err(mounted.failed("unmounting the volume"))?;
        Ok(done)
    }

    /// The error of a call for a path, which says by itself what was asked for.
    pub(super) fn refused(&self, source: millrace_blobfs::Error) -> ToolError {
        ToolError::of_path(&self.spec, source)
    }

    /// The error of something that the volume did not do.
    pub(super) fn failed(
        &self,
        attempted: impl Into<String>,
    ) -> impl FnOnce(millrace_blobfs::Error) -> ToolError {
        let attempted = attempted.into();
        move |source| ToolError::of_volume(&self.spec, &attempted, source)
    }
}

impl fmt::Debug for Mounted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mounted")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}
