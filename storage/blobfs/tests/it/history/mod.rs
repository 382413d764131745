//! Random histories of a volume, and what may be left of them.
//!
//! Within an epoch of a file, which a cut or an overwriting ends, all versions are prefixes of the last.

mod record;
mod scattered;
mod workload;

pub(crate) use record::{Cause, Fault, Record, unsound};
pub(crate) use scattered::{checkpoint_extents, scattered};
pub(crate) use workload::Workload;

use std::collections::BTreeMap;

use millrace_blobfs::{Kind, Volume};
use millrace_block::{Deallocation, Geometry, MemoryDevice};

/// A tree of names: path to the file's id, 0 for directories.
pub(crate) type Names = BTreeMap<String, u64>;

/// All names of a volume.
pub(crate) fn collect(volume: &Volume) -> Names {
    let mut names = Names::new();
    collect_below(volume, "", &mut names);
    names
}

fn collect_below(volume: &Volume, path: &str, names: &mut Names) {
    for entry in volume.read_dir(path).expect("a directory that was listed") {
        let path = if path.is_empty() {
            entry.name
        } else {
            format!("{path}/{}", entry.name)
        };
        if entry.kind == Kind::Directory {
            collect_below(volume, &path, names);
            names.insert(path, 0);
        } else {
            names.insert(path, entry.id);
        }
    }
}

/// A disk with a volatile cache: with larger blocks for every fourth seed, one that writes through for every
/// second, one that holds anything where it deallocated for every third, one that moves little at once for every
/// fifth.
pub(crate) fn geometry(seed: u64, bytes: u64) -> Geometry {
    let block = if seed % 4 == 3 { 4096 } else { 512 };
    let mut geometry = MemoryDevice::geometry_of(bytes, block);
    geometry.volatile_cache = true;
    geometry.write_through = seed % 2 == 1;
    geometry.deallocation = Deallocation::Cheap;
    geometry.deallocated_reads_zero = seed % 3 != 1;
    if seed % 5 == 4 {
        geometry.transfer_bytes_max = 16 << 10;
        geometry.queue_depth = 2;
    }
    geometry
}
