//! Commands on a volume whose device loses power at any moment.
//!
//! A history of commands runs on the whole of what a server stores with: catalog, documents and indexes, the
//! RocksDB engine, the file system, and a device with a volatile cache that records every write and every flush.
//! Then each image that a disk could hold if the power had gone in between is checked, mounted and opened. What
//! is found must be the history up to some commit: not one that is earlier than what was acknowledged, and
//! with every index, counter and document in agreement.
//!
//! By default a sample of the events of two histories is tried. `MILLRACE_SEEDS=0..4` tries all events of these.

mod campaign;
mod clients;
mod recorded;
mod stack;

use millrace_fixtures::chosen_seeds;

use campaign::Campaign;
use clients::Clients;
use recorded::{Acknowledged, Recorded};

/// Without seeds from outside, images are made at about so many of a history's events.
const POINTS: usize = 30;

#[test]
fn whatever_a_disk_holds_what_was_acknowledged_is_there() {
    let all = chosen_seeds();
    let mut images = 0;
    for seed in all.clone().unwrap_or(0..2) {
        let recorded = Recorded::new(seed, Acknowledged::WhenDurable);
        let points_max = all.as_ref().map_or(POINTS, |_| usize::MAX);
        let campaign = Campaign::new(&recorded, points_max).run();
        eprintln!("seed {seed}: {campaign}");
        assert_eq!(campaign.lossy, 0);
        images += campaign.images;
    }
    assert!(images >= 200, "{images} images are no test");
}

#[test]
fn clients_that_write_at_once_find_what_they_were_told_of() {
    let all = chosen_seeds();
    for seed in all.clone().unwrap_or(0..2) {
        let points_max = all.as_ref().map_or(POINTS / 2, |_| usize::MAX);
        let images = Clients::new(seed).cut(points_max);
        eprintln!("seed {seed}: {images} images");
        assert!(images > 0);
    }
}

#[test]
fn what_is_acknowledged_too_early_is_lost() {
    // Shows that the test above can fail: were a command acknowledged before the device was asked for it, some image
    // would lack it.
    let recorded = Recorded::new(0, Acknowledged::TooEarly);
    let campaign = Campaign::new(&recorded, POINTS / 3).run();
    assert!(campaign.lossy > 0, "{campaign}");
}
