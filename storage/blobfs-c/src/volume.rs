//! The functions for a volume as a whole.

use std::ffi::c_char;
use std::sync::Arc;

use millrace_blobfs::Volume;

use crate::boundary::{Health, call, call_without_volume, free, give, set, shared, text};
use crate::code::{CError, Failure};
use crate::open::{self, Format, Request};

/// `millrace_blobfs_volume`: a share of a mounted volume.
#[derive(Debug)]
pub struct VolumeHandle {
    pub(crate) volume: Volume,
    pub(crate) health: Arc<Health>,
}

impl VolumeHandle {
    /// The handle of a volume that was opened in Rust, for code in C. It goes back through
    /// [`millrace_blobfs_close`].
    #[must_use]
    pub fn into_raw(volume: Volume) -> *mut Self {
        Box::into_raw(Box::new(Self::new(volume)))
    }

    fn new(volume: Volume) -> Self {
        Self {
            volume,
            health: Arc::default(),
        }
    }

    /// Runs `body` on the volume that `handle` is a share of.
    ///
    /// # Safety
    /// `handle` is null or a handle that is not given back meanwhile; `error` is null or points to a structure of
    /// the caller's.
    pub(crate) unsafe fn call(
        handle: *const Self,
        error: *mut CError,
        body: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> i32 {
        // SAFETY: the caller promises that the handle is null or stays.
        match unsafe { shared(handle) } {
            // SAFETY: the caller promises that `error` is null or its own.
            Ok(this) => unsafe { call(&this.health, error, || body(this)) },
            // SAFETY: `error` is null or points to the structure that the caller owns, as this function requires.
            Err(failure) => unsafe { call_without_volume(error, || Err(failure)) },
        }
    }
}

/// C structure `millrace_blobfs_open_options`: options of [`millrace_blobfs_open`]; all zeros are the defaults.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct OpenOptions {
    /// Policy of formatting: 0 never, 1 only a blank device, 2 always.
    pub format: u32,
    /// Whether the mount writes nothing to the device: 0 is false, any other value true.
    pub read_only: u32,
    /// Memory for data on its way.
    pub arena_bytes: u64,
}

/// Opens a device and mounts the volume on it.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_open(
    spec: *const c_char,
    spec_length: usize,
    options: *const OpenOptions,
    volume: *mut *mut VolumeHandle,
    error: *mut CError,
) -> i32 {
    let body = || {
        // SAFETY: the caller passes a text that stays until this returns.
        let spec = unsafe { text(spec, spec_length) }?;
        // SAFETY: the caller passes null or its structure.
        let options = unsafe { options.as_ref() }.copied().unwrap_or_default();
        let request = Request {
            format: Format::from_c(options.format)?,
            read_only: options.read_only != 0,
            arena_bytes: options.arena_bytes,
        };
        let opened = VolumeHandle::new(open::open(spec, request)?);
        // SAFETY: the caller passes null or the place for the handle.
        unsafe { give(volume, opened) }
    };
    // SAFETY: the caller passes null or its structure.
    unsafe { call_without_volume(error, body) }
}

/// Unmounts a volume.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_unmount(
    volume: *const VolumeHandle,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, |this| Ok(this.volume.unmount()?)) }
}

/// Gives a handle back.
///
/// # Safety
/// `volume` is null or a handle that is not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_close(volume: *mut VolumeHandle) {
    // SAFETY: the caller gives up the handle.
    unsafe { free(volume) }
}

/// C structure `millrace_blobfs_space`: space usage of a volume, as `statvfs` returns it.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CSpace {
    /// Bytes available for files in an empty volume.
    pub total_bytes: u64,
    /// Bytes that files can still get.
    pub free_bytes: u64,
    /// Bytes of superblocks, journal and checkpoints, and the reservation for the next checkpoint.
    pub metadata_bytes: u64,
    /// Number of files and directories, including the root.
    pub files: u64,
}

/// How much room there is.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_get_space(
    volume: *const VolumeHandle,
    space: *mut CSpace,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        let known = this.volume.space();
        let value = CSpace {
            total_bytes: known.total_bytes,
            free_bytes: known.free_bytes,
            metadata_bytes: known.metadata_bytes,
            files: known.files,
        };
        // SAFETY: the caller passes null or its structure.
        unsafe { set(space, value) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// C structure `millrace_blobfs_counters`: counts of operations since the mount.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CCounters {
    /// Reads of files that went to the device.
    pub reads: u64,
    /// Bytes of file data that these reads asked for.
    pub read_bytes: u64,
    /// Appends and other writes to files.
    pub writes: u64,
    /// Bytes of files written to their place, in whole blocks.
    pub write_bytes: u64,
    /// Calls of `sync`, of files and of volumes.
    pub syncs: u64,
    /// Transactions written to the journal since the mount.
    pub transactions: u64,
    /// Bytes of them, in whole blocks.
    pub journal_bytes: u64,
    /// Flushes and write-through requests sent to the device.
    pub flushes: u64,
    /// Checkpoints of the metadata completed since the mount.
    pub checkpoints: u64,
    /// Bytes of checkpoint images written, both copies.
    pub checkpoint_bytes: u64,
    /// Units deallocated on the device (TRIM).
    pub discarded_units: u64,
}

/// What was done so far.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_get_counters(
    volume: *const VolumeHandle,
    counters: *mut CCounters,
    error: *mut CError,
) -> i32 {
    let body = |this: &VolumeHandle| {
        let known = this.volume.counters();
        let value = CCounters {
            reads: known.reads,
            read_bytes: known.read_bytes,
            writes: known.writes,
            write_bytes: known.write_bytes,
            syncs: known.syncs,
            transactions: known.transactions,
            journal_bytes: known.journal_bytes,
            flushes: known.flushes,
            checkpoints: known.checkpoints,
            checkpoint_bytes: known.checkpoint_bytes,
            discarded_units: known.discarded_units,
        };
        // SAFETY: the caller passes null or its structure.
        unsafe { set(counters, value) }
    };
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, body) }
}

/// Bytes of a logical block.
///
/// # Safety
/// `volume` is null or a handle that stays.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_block_bytes(volume: *const VolumeHandle) -> u32 {
    // SAFETY: the caller passes null or a handle that stays.
    unsafe { volume.as_ref() }.map_or(0, |this| this.volume.block_bytes())
}

/// Puts all changes of names on the medium.
///
/// # Safety
/// The pointers are what the header says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn millrace_blobfs_sync(
    volume: *const VolumeHandle,
    error: *mut CError,
) -> i32 {
    // SAFETY: the caller passes a handle that stays, and null or its structure.
    unsafe { VolumeHandle::call(volume, error, |this| Ok(this.volume.sync()?)) }
}
