//! Volumes for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use millrace_blobfs::{Clock, FormatOptions, MountOptions, Volume};
use millrace_block::Device;

/// A clock that moves on by a millisecond with each look.
fn clock() -> Clock {
    millrace_fixtures::blobfs::clock(1_700_000_000_000)
}

/// Makes a volume on a device.
pub(crate) fn format(device: &Arc<dyn Device>) {
    // Each volume of a process has a name of its own.
    static NAMES: AtomicU8 = AtomicU8::new(1);
    let uuid = [NAMES.fetch_add(1, Ordering::Relaxed); 16];
    Volume::format(device, &FormatOptions::new(uuid, clock()()))
        .expect("the device is large enough");
}

/// Mounts the volume that a device holds.
pub(crate) fn mount(device: Arc<dyn Device>) -> millrace_blobfs::Result<Volume> {
    let mut options = MountOptions::new(clock());
    options.arena_bytes = 4 << 20;
    Volume::mount(device, options)
}
