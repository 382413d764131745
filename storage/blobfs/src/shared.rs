//! A mounted volume: what all its handles share, and how its transactions reach the medium.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use millrace_block::Deallocation;

use crate::allocator::Allocator;
use crate::barrier::{Barrier, Durable};
use crate::checkpoint::write_superblocks;
use crate::counters::Counting;
use crate::format::superblock::Superblock;
use crate::format::transaction::{HEADER_BYTES, seal};
use crate::format::{DataLayout, Extent, InodeId, Layout, Overlay, VolumeKey};
use crate::journal::{Journal, Ring};
use crate::lanes::Lanes;
use crate::mount::durability;
use crate::read_ahead::Endings;
use crate::room::Room;
use crate::state::{Pending, State};
use crate::{Error, ErrorKind, Result, Timestamp};

/// Gives the time. Libraries read no clock by themselves.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What all handles of a mounted volume share.
pub(crate) struct Shared {
    pub(crate) layout: Layout,
    pub(crate) data: DataLayout,
    pub(crate) key: VolumeKey,
    pub(crate) lanes: Lanes,
    pub(crate) allocator: Allocator,
    pub(crate) room: Room,
    pub(crate) journal: Journal,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) counters: Counting,
    pub(crate) clock: Clock,
    pub(crate) read_only: bool,
    /// Whether freed units are deallocated on the device.
    pub(crate) discard: bool,
    /// What transactions carry, of a volume that is mounted for reading and so cannot bring it home.
    pub(crate) overlay: Overlay,
    pub(crate) endings: Endings,
    state: Mutex<State>,
    is_unmounted: AtomicBool,
    /// Held by who deallocates what is free, and by who unmounts: what is free then may be another's afterwards.
    pub(crate) trim_step: Mutex<()>,
    /// Why nothing is acknowledged any more.
    poison: OnceLock<String>,
}

/// The parts that [`Shared::new`] puts together.
pub(crate) struct Parts {
    pub(crate) lanes: Lanes,
    pub(crate) allocator: Allocator,
    pub(crate) journal: Journal,
    pub(crate) superblock: Superblock,
    pub(crate) clock: Clock,
    pub(crate) read_only: bool,
    pub(crate) discard: Option<bool>,
    pub(crate) overlay: Overlay,
    pub(crate) state: State,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        let deallocation = parts.lanes.device().geometry().deallocation;
        let can_discard = deallocation != Deallocation::None;
        let discard = parts.discard.unwrap_or(deallocation == Deallocation::Cheap);
        let layout = parts.superblock.layout;
        let checkpoint = &parts.superblock.checkpoint;
        Self {
            layout,
            data: layout.file_data(),
            room: Room::new(layout, &checkpoint.copies, checkpoint.bytes),
            key: parts.superblock.key(),
            lanes: parts.lanes,
            allocator: parts.allocator,
            journal: parts.journal,
            superblock: Mutex::new(parts.superblock),
            counters: Counting::default(),
            clock: parts.clock,
            read_only: parts.read_only,
            discard: discard && can_discard && !parts.read_only,
            overlay: parts.overlay,
            endings: Endings::default(),
            state: Mutex::new(parts.state),
            is_unmounted: AtomicBool::new(false),
            trim_step: Mutex::default(),
            poison: OnceLock::new(),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    pub(crate) const fn unit_bytes(&self) -> u64 {
        self.layout.unit_bytes() as u64
    }

    /// Units for a file of so many bytes.
    pub(crate) const fn units(&self, bytes: u64) -> u64 {
        self.data.units(bytes)
    }

    /// How a write is put on the medium.
    pub(crate) fn durable(&self) -> Durable {
        durability(self.lanes.device().geometry())
    }

    /// Whether anything may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                "the volume is mounted for reading only",
            ));
        }
        if self.is_unmounted.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::ReadOnly, "the volume was unmounted"));
        }
        self.check_not_poisoned()
    }

    /// Whether no write has failed so far.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |why| {
            let context = format!("the volume takes no more changes since a write failed: {why}");
            Err(Error::new(ErrorKind::Poisoned, context))
        })
    }

    /// Lets nothing be acknowledged any more if a write failed.
    pub(crate) fn poison_if_failed<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let source = std::error::Error::source(error).map(|source| format!(": {source}"));
            let why = format!("{error}{}", source.unwrap_or_default());
            if self.poison.set(why.clone()).is_ok() {
                let device = self.lanes.device().name();
                tracing::error!(
                    device,
                    why,
                    "a write failed: the volume can only be read from now on"
                );
            }
        }
        result
    }

    pub(crate) fn no_space(&self, units: u64) -> Error {
        let left = self.allocator.free_units();
        let (wanted, left) = (units * self.unit_bytes(), left * self.unit_bytes());
        Error::new(
            ErrorKind::NoSpace,
            format!("No space left on device: {wanted} bytes are needed and {left} are free"),
        )
    }

    /// What transactions carry of a file goes over what was read.
    pub(crate) fn patch(&self, id: InodeId, offset: u64, out: &mut [u8]) {
        if self.read_only {
            self.overlay.patch(id, offset, out);
        }
    }

    /// Makes transactions up to `target` durable.
    pub(crate) fn commit(&self, target: u64) -> Result<()> {
        let is_done = || {
            if self.journal.durable() >= target {
                return Ok(true);
            }
            self.check_writable().map(|()| false)
        };
        self.journal.wait(is_done, |ring| {
            let result = self.lead(ring, target);
            self.poison_if_failed(result)
        })
    }

    /// Makes everything recorded so far durable, and what that frees free.
    pub(crate) fn commit_all(&self) -> Result<()> {
        let newest = self.state().newest();
        self.commit(newest)?;
        self.settle();
        Ok(())
    }

    /// Waits until what was deleted is free; false if nothing was. The first attempt has it on the medium. The second
    /// makes a checkpoint, which may need less room than was held for it, and waits for who is deallocating.
    pub(crate) fn make_room(&self, attempt: usize) -> Result<bool> {
        let has_limbo = self.allocator.limbo_units() > 0;
        let (newest, has_changed) = {
            let state = self.state();
            (state.newest(), state.has_changed)
        };
        if attempt > 0 {
            let helps = has_limbo || has_changed;
            return if helps {
                self.checkpoint_now(false).map(|()| true)
            } else {
                Ok(false)
            };
        }
        if has_limbo {
            self.commit(newest)?;
            let settled = self.allocator.settle(self.journal.durable());
            self.allocator.give_back_settled(&settled);
        }
        Ok(has_limbo)
    }

    /// Makes a checkpoint now, after which the journal is empty.
    pub(crate) fn checkpoint_now(&self, is_last: bool) -> Result<()> {
        let is_done = std::cell::Cell::new(false);
        self.journal.wait(
            || self.check_writable().map(|()| is_done.get()),
            |ring| {
                let result = self.checkpoint(ring, is_last);
                is_done.set(true);
                self.poison_if_failed(result)
            },
        )
    }

    /// Tells the medium that the volume is in use.
    pub(crate) fn mark_in_use(&self) -> Result<()> {
        let mut superblock = self
            .superblock
            .lock()
            .expect("no holder of the lock panics");
        if !superblock.clean {
            return Ok(());
        }
        superblock.clean = false;
        superblock.generation += 1;
        let result = self
            .lanes
            .with(|lane| write_superblocks(&superblock, self.durable(), lane));
        drop(superblock);
        self.poison_if_failed(result)
    }

    /// Makes a last checkpoint; nothing can be changed afterwards.
    pub(crate) fn unmount(&self) -> Result<()> {
        if self.read_only || self.is_unmounted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.checkpoint_now(true)?;
        let _no_trim = self.trim_step.lock().expect("no holder of the lock panics");
        self.is_unmounted.store(true, Ordering::Release);
        Ok(())
    }

    /// Leaves the device as it is: the volume was not mounted after all.
    pub(crate) fn abandon(&self) {
        self.is_unmounted.store(true, Ordering::Release);
    }

    /// As the leader: writes what is pending, up to `target`.
    fn lead(&self, ring: &mut Ring, target: u64) -> Result<()> {
        while self.journal.durable() < target {
            let mut state = self.state();
            let Some(first) = state.first_pending() else {
                // Nothing else takes what is pending but leaders, who leave none of it undone.
                return Err(Error::new(ErrorKind::Poisoned, "a transaction was lost"));
            };
            let blocks = self.blocks_of(first);
            if !ring.has_room(blocks) {
                drop(state);
                self.checkpoint(ring, false)?;
                continue;
            }
            let pending = state.take_pending().expect("it was just looked at");
            drop(state);
            self.write(ring, pending)?;
        }
        if ring.is_half_full() {
            // Those who wait for transactions need not wait for this.
            self.checkpoint(ring, false)?;
        }
        Ok(())
    }

    fn blocks_of(&self, pending: &Pending) -> u64 {
        (pending.bytes.len() as u64).div_ceil(self.lanes.block_bytes() as u64)
    }

    /// As the leader: writes one transaction, which is then on the medium.
    fn write(&self, ring: &mut Ring, pending: Pending) -> Result<()> {
        let Pending {
            sequence,
            mut bytes,
            needs_flush,
        } = pending;
        let block = self.lanes.block_bytes();
        let payload = bytes.len() - HEADER_BYTES;
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        seal(&mut bytes, payload, self.key, ring.head, sequence);
        let first = self.layout.block_of(self.layout.journal().start);
        let until_end = usize::try_from(ring.blocks - ring.head)
            .unwrap_or(usize::MAX)
            .saturating_mul(block);
        let (here, at_start) = bytes.split_at(until_end.min(bytes.len()));
        let durable = self.durable();
        self.lanes.with(|lane| {
            if needs_flush {
                self.counters.flushes.add(1);
                Barrier::DataBeforeTransaction.flush(lane, durable != Durable::AsWritten)?;
            }
            if !at_start.is_empty() {
                Barrier::Transaction.write(lane, durable, first, at_start)?;
            }
            Barrier::Transaction.write(lane, durable, first + ring.head, here)
        })?;
        self.counters.flushes.add(1);
        self.counters.transactions.add(1);
        self.counters.journal_bytes.add(bytes.len() as u64);
        ring.advance((bytes.len() / block) as u64);
        self.journal.set_durable(sequence);
        self.settle();
        Ok(())
    }

    /// Frees what durable transactions have freed. On a device that gains by it the units are deallocated first, by
    /// the next checkpoint.
    pub(crate) fn settle(&self) {
        // When space is short there is no time for that.
        let is_short = self.allocator.free_units() <= self.layout.units() / 64;
        if !self.discard || is_short {
            let settled = self.allocator.settle(self.journal.durable());
            self.allocator.give_back_settled(&settled);
        }
    }

    /// Deallocates and frees what durable transactions have freed.
    pub(crate) fn discard_freed(&self) -> Result<()> {
        let mut settled = self.allocator.settle(self.journal.durable());
        if self.discard {
            settled.sort_unstable();
            let runs = settled.chunk_by(|a, b| a.end() == b.start);
            let runs: Vec<(u64, u64)> = runs
                .map(|run| (run[0].start, run[run.len() - 1].end()))
                .collect();
            let result = self.lanes.with(|lane| {
                let mut discarded = 0;
                for &(start, end) in &runs {
                    let blocks = self.layout.block_of(end) - self.layout.block_of(start);
                    lane.deallocate(self.layout.block_of(start), blocks)?;
                    discarded += end - start;
                }
                Ok(discarded)
            });
            match result {
                Ok(discarded) => self.counters.discarded_units.add(discarded),
                // The units are as free as before; only the device does not know.
                Err(error) => tracing::warn!(%error, "cannot deallocate freed blocks"),
            }
        }
        self.allocator.give_back_settled(&settled);
        Ok(())
    }

    /// The units of a file that lost its last name: free when that is durable, or when it is closed.
    pub(crate) fn removed(&self, state: &mut State, id: InodeId, sequence: u64, freed: &[Extent]) {
        state.carried.remove(&id);
        if let Some(opened) = state.open.get(&id) {
            opened.inode.set_unlinked();
        } else {
            self.allocator.release(sequence, freed);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.poison.get().is_some() {
            return;
        }
        if let Err(error) = self.unmount() {
            let device = self.lanes.device().name();
            tracing::error!(%error, device, "cannot unmount a volume: what was not synced is lost");
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("device", self.lanes.device())
            .finish_non_exhaustive()
    }
}
