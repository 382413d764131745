//! Images of one history.

use std::fmt;
use std::sync::Arc;

use millrace_blobfs::Volume;
use millrace_block::{Device, Geometry, Image};
use millrace_power_cut::{Cursor, Event, PowerCut, Survivors};

use crate::data_checksums;
use crate::history::{Fault, Record, Workload, checkpoint_extents, geometry, scattered, unsound};
use crate::support::{Rng, options};

const OPERATIONS: usize = 150;
/// On a volume with many names each image takes ten times as long.
const OPERATIONS_SCATTERED: usize = 60;
const DEVICE_BYTES: u64 = 8 << 20;
/// A volume that is full soon.
const DEVICE_BYTES_SMALL: u64 = 3 << 19;
/// A superblock with as many extents is longer than a block of 512 bytes.
const EXTENTS_OF_TWO_BLOCKS: usize = 33;

/// A history, by its seed. Every eighth is on a volume with a scattered checkpoint, every eighth on one that is full.
pub(super) struct Campaign {
    seed: u64,
    geometry: Geometry,
    is_scattered: bool,
    is_checked: bool,
    cursor: Cursor,
    record: Record,
    images: usize,
    rng: Rng,
}

/// What came of a campaign.
pub(super) struct Outcome {
    pub(super) images: usize,
    pub(super) fault: Option<Found>,
}

/// A fault, and the image that has it.
pub(super) struct Found {
    place: String,
    pub(super) fault: Fault,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.fault)
    }
}

/// A superblock that cannot be read, beside what a power cut leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unreadable {
    None,
    First,
    Second,
}

impl Campaign {
    pub(super) fn new(seed: u64) -> Self {
        let bytes = if seed % 8 == 6 {
            DEVICE_BYTES_SMALL
        } else {
            DEVICE_BYTES
        };
        let geometry = geometry(seed, bytes);
        let is_scattered = seed % 8 == 4;
        let image = is_scattered.then(|| scattered(&geometry, data_checksums(seed)));
        let mut workload = Workload::new(seed, geometry.clone(), image);
        let operations = if is_scattered {
            OPERATIONS_SCATTERED
        } else {
            OPERATIONS
        };
        for number in 0..operations {
            let done = workload.step();
            done.unwrap_or_else(|error| panic!("seed {seed}, operation {number}: {error}"));
        }
        let (device, record) = workload.end();
        if is_scattered {
            let shared: Arc<dyn Device> = Arc::clone(&device) as _;
            let extents = checkpoint_extents(&shared);
            assert!(
                extents >= EXTENTS_OF_TWO_BLOCKS,
                "seed {seed}: {extents} extents"
            );
        }
        Self {
            seed,
            geometry,
            is_scattered,
            is_checked: false,
            cursor: device.cursor(),
            record,
            images: 0,
            rng: Rng::new(seed),
        }
    }

    /// Has images checked too.
    pub(super) fn checked(mut self) -> Self {
        self.is_checked = true;
        self
    }

    /// Cuts the power at one of so many events, chosen by the seed, and at all that are about a superblock.
    pub(super) fn cut_at_every(mut self, stride: usize) -> Outcome {
        let stride = if self.is_scattered {
            20 * stride
        } else {
            stride
        };
        loop {
            let is_superblock = self.is_about_superblock();
            // There are many ways to tear two superblocks.
            let further = if is_superblock && self.is_scattered {
                10
            } else {
                0
            };
            if self.rng.below(stride) == 0 || is_superblock {
                let further = std::iter::repeat_n(Survivors::Random, further);
                for survivors in Survivors::ALL.into_iter().chain(further) {
                    if let Some(fault) = self.cut(survivors) {
                        return self.outcome(Some(fault));
                    }
                }
            }
            if !self.cursor.advance() {
                return self.outcome(None);
            }
        }
    }

    fn is_about_superblock(&self) -> bool {
        let Some(Event::Submitted { blocks, .. }) = self.cursor.event() else {
            return false;
        };
        !blocks.is_empty() && (blocks.start == 0 || blocks.start == self.second_superblock())
    }

    /// The first block of the second superblock.
    fn second_superblock(&self) -> u64 {
        let unit_blocks = 4096_u32.div_ceil(self.geometry.block_bytes);
        self.geometry.blocks - u64::from(unit_blocks)
    }

    fn outcome(&self, fault: Option<Found>) -> Outcome {
        Outcome {
            images: self.images,
            fault,
        }
    }

    fn cut(&mut self, survivors: Survivors) -> Option<Found> {
        let chosen = self.rng.next();
        let unreadable = match chosen % 8 {
            // While the one is written, which is not done at once when it has several blocks, the other is the only
            // one.
            _ if self.is_scattered => Unreadable::None,
            0 => Unreadable::First,
            1 => Unreadable::Second,
            _ => Unreadable::None,
        };
        let disk = self.disk(self.cursor.image(survivors, chosen), unreadable);
        let mut place = format!(
            "seed {}, event {} of {}, {survivors:?} {chosen}, unreadable: {unreadable:?}",
            self.seed,
            self.cursor.point(),
            self.cursor.events(),
        );
        let shared: Arc<dyn Device> = Arc::clone(&disk) as _;
        if self.is_checked && chosen % 5 == 0 && unreadable == Unreadable::None {
            if let Some(fault) = unsound(&shared) {
                return Some(Found { place, fault });
            }
        }
        // The power may go again while the volume is mounted, or soon after.
        let is_cut_again = chosen % 16 < 3 && Volume::mount(Arc::clone(&shared), options()).is_ok();
        let disk = if is_cut_again {
            let point = self.rng.below(disk.events() + 1);
            place = format!("{place}, again at event {point}");
            let mut cursor = disk.cursor();
            cursor.advance_to(point);
            self.disk(cursor.image(survivors, chosen), unreadable)
        } else {
            disk
        };
        let shared: Arc<dyn Device> = disk;
        let fault = self.record.fault(&shared, self.cursor.point())?;
        Some(Found { place, fault })
    }

    fn disk(&mut self, image: Image, unreadable: Unreadable) -> Arc<PowerCut> {
        self.images += 1;
        let disk = PowerCut::on(image, self.geometry.clone()).expect("a good geometry");
        let last = self.second_superblock();
        match unreadable {
            Unreadable::None => {}
            Unreadable::First => disk.make_bad(0..1),
            Unreadable::Second => disk.make_bad(last..last + 1),
        }
        disk
    }
}
