//! It is a device like others, in either order of requests.

use std::sync::Arc;

use millrace_block::{Device, Geometry, MemoryDevice, conformance};
use millrace_power_cut::{Options, Order, PowerCut, Survivors};

#[test]
fn it_does_what_devices_do() {
    for (order, block_bytes, deallocated_reads_zero) in [
        (Order::AtOnce, 512, true),
        (Order::Shuffled(1), 512, true),
        (Order::Shuffled(2), 4096, false),
    ] {
        let geometry = Geometry {
            volatile_cache: true,
            deallocated_reads_zero,
            ..MemoryDevice::geometry_of(4 << 20, block_bytes)
        };
        let options = Options {
            geometry,
            image: None,
            order,
        };
        let device = PowerCut::with_options(options).expect("a sound geometry");
        let shared: Arc<dyn Device> = Arc::<PowerCut>::clone(&device);
        conformance::all(&shared, 0..10);
    }
}

#[test]
fn what_survives_as_a_whole_is_what_was_seen() {
    let geometry = Geometry {
        volatile_cache: true,
        ..MemoryDevice::geometry_of(4 << 20, 512)
    };
    let device = PowerCut::new(geometry).expect("a sound geometry");
    let shared: Arc<dyn Device> = Arc::<PowerCut>::clone(&device);
    for seed in 0..4 {
        conformance::random_operations_match_bytes(&shared, seed);
    }
    let mut cursor = device.cursor();
    cursor.advance_to(device.events());
    let [mut left, mut seen] = [(); 2].map(|()| vec![0; 4 << 20]);
    cursor.image(Survivors::Everything, 0).read(0, &mut left);
    device.live().read(0, &mut seen);
    assert!(left == seen);
}
