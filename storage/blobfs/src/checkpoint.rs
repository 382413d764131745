//! Checkpoints: all metadata in one place, so that the journal can begin anew.
//!
//! Only the leader of the journal makes one, so no transaction is written meanwhile; files go on.
//!
//! ```text
//! 1. under the state's lock: the metadata with the effects of all operations so far, and which files transactions
//!    carry data of; what is pending is forgotten, for the checkpoint contains it
//! 2. these files' tails go home
//! 3. two copies of the image are written where nothing is
//! 4. flush: data and image                                                       Barrier::Checkpoint
//! 5. the first superblock                                                        Barrier::FirstSuperblock
//! 6. the second superblock                                                       Barrier::SecondSuperblock
//! 7. the old copies and the journal are free
//! ```

use crate::Result;
use crate::barrier::{Barrier, Durable};
use crate::format::Extent;
use crate::format::checkpoint_image::Image;
use crate::format::superblock::{CheckpointPlace, JournalTail, Superblock};
use crate::journal::Ring;
use crate::lanes::Lane;
use crate::mount::write_units;
use crate::shared::Shared;

/// Beside what a checkpoint is expected to need, so many units are kept for it.
const RESERVE_UNITS: u64 = 4;

impl Shared {
    /// As the leader: makes a checkpoint of everything recorded so far.
    pub(crate) fn checkpoint(&self, ring: &mut Ring, is_last: bool) -> Result<()> {
        let mut state = self.state();
        let sequence = state.newest();
        let image = Image::new(&state.metadata, self.key, sequence);
        state.clear_pending();
        state.growth = 0;
        let carried = std::mem::take(&mut state.carried);
        drop(state);
        for inode in carried.values() {
            inode.bring_home(self)?;
        }
        let image_bytes = image.bytes().len() as u64;
        let copies = self.write_image(image.bytes())?;
        let durable = self.durable();
        self.lanes
            .with(|lane| Barrier::Checkpoint.flush(lane, durable != Durable::AsWritten))?;
        let mut superblock = self
            .superblock
            .lock()
            .expect("no holder of the lock panics");
        let mut next = superblock.clone();
        next.generation += 1;
        next.checkpoint = CheckpointPlace {
            sequence,
            bytes: image_bytes,
            checksum: image.checksum(),
            copies,
        };
        next.journal_tail = JournalTail {
            block: ring.head,
            sequence: sequence + 1,
        };
        next.clean = is_last;
        self.lanes
            .with(|lane| write_superblocks(&next, durable, lane))?;
        let old = std::mem::replace(&mut *superblock, next);
        drop(superblock);
        for copy in &old.checkpoint.copies {
            self.allocator.give_back(copy);
        }
        ring.used = 0;
        self.set_reserve(image_bytes);
        self.counters.checkpoints.add(1);
        self.counters.flushes.add(3);
        self.counters.checkpoint_bytes.add(2 * image_bytes);
        self.journal.set_durable(sequence);
        self.discard_freed()
    }

    /// Keeps enough units for the next checkpoint, which must be written while this one is still there. Until it
    /// the journal can make the image larger by what it holds.
    pub(crate) fn set_reserve(&self, image_bytes: u64) {
        let growth = self.layout.journal_units() / 8;
        let small = self.layout.units() / 64;
        let units = self.units(image_bytes) + growth.min(small) + RESERVE_UNITS;
        self.allocator.set_reserve(2 * units);
    }

    /// Writes two copies of the image, far from each other if there is room.
    fn write_image(&self, image: &[u8]) -> Result<[Vec<Extent>; 2]> {
        let units = self.units(image.len() as u64);
        let take = || {
            self.allocator
                .take_reserved(units)
                .ok_or_else(|| self.no_space(units))
        };
        let first = take()?;
        let second = take().inspect_err(|_| self.allocator.give_back(&first))?;
        for copy in [&first, &second] {
            self.lanes
                .with(|lane| write_units(lane, &self.layout, copy, image))?;
        }
        Ok([first, second])
    }
}

/// Writes both copies of the superblock, one after the other.
pub(crate) fn write_superblocks(
    superblock: &Superblock,
    durable: Durable,
    lane: &mut Lane,
) -> Result<()> {
    let bytes = superblock.encode()?;
    let [first, second] = superblock
        .layout
        .superblocks()
        .map(|unit| superblock.layout.block_of(unit));
    Barrier::FirstSuperblock.write(lane, durable, first, &bytes)?;
    Barrier::SecondSuperblock.write(lane, durable, second, &bytes)
}
