//! Checkpoints: the whole metadata in one image, after which the journal starts empty.
//!
//! Only the leader of the journal makes a checkpoint, so no transaction is written meanwhile; file operations go on.
//!
//! ```text
//! 1. under the state's lock: take the metadata with the effects of all operations so far, and the list of files with
//!    journaled data; drop the pending transactions, which the image contains
//! 2. write these files' tails back to their final locations
//! 3. write two copies of the image to free units
//! 4. flush: data and image                                                       Barrier::Checkpoint
//! 5. the first superblock                                                        Barrier::FirstSuperblock
//! 6. the second superblock                                                       Barrier::SecondSuperblock
//! 7. the old copies and the journal are free
//! ```

use crate::barrier::{Barrier, Durable};
use crate::checkpoint_reservation::EXTENT_GROWTH;
use crate::format::checkpoint_image::Image;
use crate::format::superblock::{CheckpointLocation, JournalTail};
use crate::io::{write_superblocks, write_units};
use crate::journal::Ring;
use crate::shared::Shared;
use crate::{Error, ErrorKind, Result};

impl Shared {
    /// Makes a checkpoint of everything recorded so far. Only the leader calls it.
    pub(crate) fn checkpoint(&self, ring: &mut Ring, is_last: bool) -> Result<()> {
        let mut state = self.state();
        let sequence = state.newest();
        let image = Image::new(&state.metadata, self.key, sequence);
        let image_bytes = image.bytes().len() as u64;
        let growth = state.unrecorded_extents() * EXTENT_GROWTH;
        let places = self.reservation.begin(&self.allocator, image_bytes, growth);
        let copies = places.ok_or_else(|| {
            let context = format!("no room for a checkpoint of {image_bytes} bytes");
            Error::new(ErrorKind::NoSpace, context)
        })?;
        state.clear_pending();
        state.has_changed = false;
        let journaled = std::mem::take(&mut state.journaled);
        drop(state);
        for inode in journaled.values() {
            inode.write_back_journaled(self)?;
        }
        for copy in &copies {
            self.io_contexts
                .with(|io| write_units(io, &self.layout, copy, image.bytes()))?;
        }
        let durable = self.durable();
        self.io_contexts
            .with(|io| Barrier::Checkpoint.flush(io, durable != Durable::AsWritten))?;
        let mut superblock = self
            .superblock
            .lock()
            .expect("no holder of the lock panics");
        let mut next = superblock.clone();
        next.generation += 1;
        next.checkpoint = CheckpointLocation {
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
        self.io_contexts
            .with(|io| write_superblocks(&next, durable, io))?;
        *superblock = next;
        drop(superblock);
        self.reservation.end(&self.allocator);
        ring.used = 0;
        self.counters.checkpoints.add(1);
        self.counters.flushes.add(3);
        self.counters.checkpoint_bytes.add(2 * image_bytes);
        self.journal.set_durable(sequence);
        self.discard_freed()
    }
}
