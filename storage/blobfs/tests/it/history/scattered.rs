//! A volume whose checkpoint is in many pieces.

use std::sync::Arc;

use millrace_blobfs::{FormatOptions, Timestamp, Volume, dump};
use millrace_block::{Device, Geometry, Image};
use millrace_power_cut::PowerCut;

use crate::support::{mount, pattern};
use crate::{CREATE, write};

/// Groups of a volume of 8 MiB.
const GROUPS: usize = 8;

/// Half of the units of the volume are free, each by itself, and it has so many names that checkpoints, each in
/// other units than the one before, need many of them.
pub(crate) fn scattered(geometry: &Geometry, data_checksums: bool) -> Image {
    let device = PowerCut::new(geometry.clone()).expect("a good geometry");
    let shared: Arc<dyn Device> = Arc::clone(&device) as _;
    let format = FormatOptions {
        journal_bytes: Some(256 << 10),
        data_checksums,
        ..FormatOptions::new([3; 16], Timestamp(1))
    };
    Volume::format(&shared, &format).expect("the device is good");
    let volume = mount(&shared);
    let made = (0..).map_while(|number| {
        let path = format!("{number}");
        let file = volume.open(&path, &CREATE).ok()?;
        let is_full = file.append(b"one unit").is_err();
        drop(file);
        (!is_full).then_some(path)
    });
    let made: Vec<String> = made.collect();
    // New files go to each of the groups in turn.
    for round in made.chunks(GROUPS).step_by(2) {
        for path in round {
            volume.remove(path).expect("it was made");
        }
    }
    drop(volume);
    // What long runs there are goes to files.
    let volume = mount(&shared);
    for number in 0..16 {
        write(&volume, &format!("run{number}"), &pattern(number, 80_000));
    }
    // Many long names make the place of checkpoints grow by what is left.
    let long = "x".repeat(200);
    for number in 0..700 {
        let file = volume.open(&format!("{long}{number}"), &CREATE);
        file.expect("a third of the volume is free");
    }
    drop(volume);
    device.live()
}

/// In how many pieces the two copies of the last checkpoint are.
pub(crate) fn checkpoint_extents(device: &Arc<dyn Device>) -> usize {
    let mut text = Vec::new();
    dump(device, &mut text).expect("a volume");
    let text = String::from_utf8(text).expect("it is text");
    let copies = text.lines().filter(|line| line.starts_with("    copy "));
    copies.map(|line| line.matches("..").count()).sum()
}
