//! Every device does what all must do.

use std::sync::Arc;

use millrace_block::{
    Deallocation, Device, FileDevice, FileOptions, Geometry, MemoryDevice, conformance,
};

const BYTES: u64 = 4 << 20;

#[test]
fn memory() {
    for block_bytes in [512, 4096, 65_536] {
        let bytes = BYTES.max(u64::from(block_bytes) * 512);
        let device = MemoryDevice::new(bytes, block_bytes).expect("sound");
        conformance::all(&(Arc::new(device) as Arc<dyn Device>), 0..20);
    }
    let small = Geometry {
        queue_depth: 1,
        queues_max: 1,
        transfer_bytes_max: 8192,
        deallocation: Deallocation::None,
        ..MemoryDevice::geometry_of(BYTES, 512)
    };
    let device = MemoryDevice::with_geometry(small).expect("sound");
    conformance::all(&(Arc::new(device) as Arc<dyn Device>), 0..20);
}

/// Files: in the folder of the build, which may have direct transfers, and in memory, which may have none.
fn on_files(options: FileOptions) {
    let folders = [env!("CARGO_TARGET_TMPDIR"), "/dev/shm"];
    for folder in folders {
        let Ok(folder) = tempfile::tempdir_in(folder) else {
            println!("skipped: nothing can be written in {folder}");
            continue;
        };
        let path = folder.path().join("device");
        FileDevice::create(&path, BYTES).expect("there is space");
        let device = FileDevice::open(&path, options).expect("a file");
        println!("{:?}", device.notes());
        conformance::all(&(Arc::new(device) as Arc<dyn Device>), 0..20);
    }
}

#[test]
fn files_by_io_uring() {
    on_files(FileOptions::default());
}

#[test]
fn files_by_io_uring_through_the_page_cache() {
    on_files(FileOptions {
        direct: false,
        ..FileOptions::default()
    });
}

#[test]
fn files_by_plain_calls() {
    on_files(FileOptions {
        io_uring: false,
        ..FileOptions::default()
    });
}
