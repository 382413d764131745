//! Volumes on devices in memory: what they do, when the power goes, when the device fails, when it is full.

#[cfg(test)]
mod check;
#[cfg(test)]
mod checksums;
#[cfg(test)]
mod devices;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod format_golden;
#[cfg(test)]
mod full;
#[cfg(test)]
mod history;
#[cfg(test)]
mod mounting;
#[cfg(test)]
mod names;
#[cfg(test)]
mod posix;
#[cfg(test)]
mod power_cut;
#[cfg(test)]
mod read_ahead;
mod support;
#[cfg(test)]
mod threads;
#[cfg(test)]
mod trim;

use std::sync::Arc;

use millrace_blobfs::{File, OpenOptions, Volume};
use millrace_block::Device;

use crate::support::fresh_with;

/// Opens a file, or makes it.
const CREATE: OpenOptions = OpenOptions {
    create: true,
    create_new: false,
    truncate: false,
};
/// Opens a file that is there.
const OPEN: OpenOptions = OpenOptions {
    create: false,
    create_new: false,
    truncate: false,
};

/// Whether the volume of a seed has checksums of data: every second, in no step with what else seeds decide.
const fn data_checksums(seed: u64) -> bool {
    seed.count_ones() % 2 == 1
}

/// Makes a volume without checksums of data and mounts it.
fn fresh(device: &Arc<dyn Device>) -> Volume {
    fresh_with(device, false)
}

/// All bytes of a file.
fn contents(file: &File) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(file.size()).expect("a small file") + 10];
    let read = file.read_at(0, &mut bytes).expect("the device is good");
    bytes.truncate(read);
    bytes
}

/// All bytes of the file of this name.
fn read(volume: &Volume, path: &str) -> Vec<u8> {
    contents(&volume.open(path, &OPEN).expect("the file is there"))
}

/// Makes a file of these bytes.
fn write(volume: &Volume, path: &str, bytes: &[u8]) {
    let file = volume.open(path, &CREATE).expect("the directory is there");
    file.append(bytes).expect("there is room");
}
