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

use crate::barrier::{Barrier, Durable};
use crate::format::checkpoint_image::Image;
use crate::format::superblock::{CheckpointPlace, JournalTail, Superblock};
use crate::journal::Ring;
use crate::lanes::Lane;
use crate::mount::write_units;
use crate::room::EXTENT_GROWTH;
use crate::shared::Shared;
use crate::{Error, ErrorKind, Result};

impl Shared {
    /// As the leader: makes a checkpoint of everything recorded so far.
    pub(crate) fn checkpoint(&self, ring: &mut Ring, is_last: bool) -> Result<()> {
        let mut state = self.state();
        let sequence = state.newest();
        let image = Image::new(&state.metadata, self.key, sequence);
        let image_bytes = image.bytes().len() as u64;
        let growth = state.unrecorded_extents() * EXTENT_GROWTH;
        let places = self.room.begin(&self.allocator, image_bytes, growth);
        let copies = places.ok_or_else(|| {
            let context = format!("no room for a checkpoint of {image_bytes} bytes");
            Error::new(ErrorKind::NoSpace, context)
        })?;
        state.clear_pending();
        state.has_changed = false;
        let carried = std::mem::take(&mut state.carried);
        drop(state);
        for inode in carried.values() {
            inode.bring_home(self)?;
        }
        for copy in &copies {
            self.lanes
                .with(|lane| write_units(lane, &self.layout, copy, image.bytes()))?;
        }
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
        *superblock = next;
        drop(superblock);
        self.room.end(&self.allocator);
        ring.used = 0;
        self.counters.checkpoints.add(1);
        self.counters.flushes.add(3);
        self.counters.checkpoint_bytes.add(2 * image_bytes);
        self.journal.set_durable(sequence);
        self.discard_freed()
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
