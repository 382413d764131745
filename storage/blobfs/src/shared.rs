//! State shared by all handles of a mounted volume, and the writing of its transactions.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use millrace_block::Deallocation;

use crate::allocator::Allocator;
use crate::barrier::{Barrier, Durable};
use crate::checkpoint_reservation::CheckpointReservation;
use crate::counters::Counting;
use crate::finished_readaheads::FinishedReadaheads;
use crate::format::superblock::Superblock;
use crate::format::transaction::{HEADER_BYTES, write_header};
use crate::format::{DataLayout, Extent, InodeId, Layout, Overlay, VolumeKey};
use crate::io::{durability, write_superblocks};
use crate::io_context::IoContexts;
use crate::journal::{Journal, Ring};
use crate::state::{Pending, State};
use crate::types::{Clock, Status};
use crate::{Error, ErrorKind, Result, Timestamp};

/// State shared by all handles of a mounted volume.
pub(crate) struct Shared {
    pub(crate) layout: Layout,
    pub(crate) data: DataLayout,
    pub(crate) key: VolumeKey,
    pub(crate) io_contexts: IoContexts,
    pub(crate) allocator: Allocator,
    pub(crate) reservation: CheckpointReservation,
    pub(crate) journal: Journal,
    pub(crate) superblock: Mutex<Superblock>,
    pub(crate) counters: Counting,
    pub(crate) clock: Clock,
    pub(crate) read_only: bool,
    /// Whether freed units are deallocated on the device.
    pub(crate) discard: bool,
    /// Journaled bytes of a volume that is mounted read-only and so cannot write them back.
    pub(crate) overlay: Overlay,
    pub(crate) finished_readaheads: FinishedReadaheads,
    state: Mutex<State>,
    is_unmounted: AtomicBool,
    /// Held while free units are deallocated and during an unmount: after the unmount the units may belong to the next
    /// mount.
    pub(crate) trim_step: Mutex<()>,
    /// Cause of the first failed write; once set, nothing is acknowledged any more.
    poison: OnceLock<String>,
}

/// Parts from which [`Shared::new`] assembles a volume.
pub(crate) struct Parts {
    pub(crate) io_contexts: IoContexts,
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
        let deallocation = parts.io_contexts.device().geometry().deallocation;
        let can_discard = deallocation != Deallocation::None;
        let discard = parts.discard.unwrap_or(deallocation == Deallocation::Cheap);
        let layout = parts.superblock.layout;
        let checkpoint = &parts.superblock.checkpoint;
        Self {
            layout,
            data: layout.file_data(),
            reservation: CheckpointReservation::new(layout, &checkpoint.copies, checkpoint.bytes),
            key: parts.superblock.key(),
            io_contexts: parts.io_contexts,
            allocator: parts.allocator,
            journal: parts.journal,
            superblock: Mutex::new(parts.superblock),
            counters: Counting::default(),
            clock: parts.clock,
            read_only: parts.read_only,
            discard: discard && can_discard && !parts.read_only,
            overlay: parts.overlay,
            finished_readaheads: FinishedReadaheads::default(),
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

    /// Units of a file of `bytes` bytes.
    pub(crate) const fn units(&self, bytes: u64) -> u64 {
        self.data.units(bytes)
    }

    /// Way in which writes become durable on this device.
    pub(crate) fn durable(&self) -> Durable {
        durability(self.io_contexts.device().geometry())
    }

    /// Fails if the volume is read-only, unmounted or poisoned.
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

    /// Fails if a write has failed.
    pub(crate) fn check_not_poisoned(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |why| {
            let context = format!("the volume takes no more changes since a write failed: {why}");
            Err(Error::new(ErrorKind::Poisoned, context))
        })
    }

    /// Poisons the volume if a write failed: nothing is acknowledged any more.
    pub(crate) fn poison_if_failed<T>(&self, result: Result<T>) -> Result<T> {
        if let Err(error) = &result {
            let source = std::error::Error::source(error).map(|source| format!(": {source}"));
            let why = format!("{error}{}", source.unwrap_or_default());
            if self.poison.set(why.clone()).is_ok() {
                let device = self.io_contexts.device().name();
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

    /// Overlays the journaled bytes of a file on bytes read from the device.
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

    /// Makes everything recorded so far durable, and frees what that releases.
    pub(crate) fn commit_all(&self) -> Result<()> {
        let newest = self.state().newest();
        self.commit(newest)?;
        self.reclaim_freed();
        Ok(())
    }

    /// Waits until deleted units are free; false if there were none. The first attempt commits. The second makes a
    /// checkpoint, which may need less space than was reserved, and waits for a deallocation in progress.
    pub(crate) fn reclaim_space(&self, attempt: usize) -> Result<bool> {
        let has_pending_free = self.allocator.pending_free_units() > 0;
        let (newest, has_changed) = {
            let state = self.state();
            (state.newest(), state.has_changed)
        };
        if attempt > 0 {
            let helps = has_pending_free || has_changed;
            return if helps {
                self.checkpoint_now(false).map(|()| true)
            } else {
                Ok(false)
            };
        }
        if has_pending_free {
            self.commit(newest)?;
            let reclaimed = self.allocator.take_durably_freed(self.journal.durable());
            self.allocator.free_reclaimed(&reclaimed);
        }
        Ok(has_pending_free)
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

    /// Clears the superblock's mark of a clean unmount.
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
            .io_contexts
            .with(|io| write_superblocks(&superblock, self.durable(), io));
        drop(superblock);
        self.poison_if_failed(result)
    }

    /// Makes a last checkpoint and marks the volume as cleanly unmounted; no change is possible afterwards.
    pub(crate) fn unmount(&self) -> Result<()> {
        if self.read_only || self.is_unmounted.load(Ordering::Acquire) {
            return Ok(());
        }
        self.checkpoint_now(true)?;
        let _no_trim = self.trim_step.lock().expect("no holder of the lock panics");
        self.is_unmounted.store(true, Ordering::Release);
        Ok(())
    }

    /// Leaves the device unchanged: the mount failed.
    pub(crate) fn abandon(&self) {
        self.is_unmounted.store(true, Ordering::Release);
    }

    /// Writes pending transactions up to `target`. Only the leader calls it.
    fn lead(&self, ring: &mut Ring, target: u64) -> Result<()> {
        while self.journal.durable() < target {
            let mut state = self.state();
            let Some(first) = state.first_pending() else {
                // Only leaders take pending transactions, and each writes all that it takes.
                return Err(Error::new(ErrorKind::Poisoned, "a transaction was lost"));
            };
            let blocks = self.blocks_of(first);
            if !ring.fits(blocks) {
                drop(state);
                self.checkpoint(ring, false)?;
                continue;
            }
            let pending = state.take_pending().expect("it was just looked at");
            drop(state);
            self.write(ring, pending)?;
        }
        if ring.is_half_full() {
            // Waiting threads have their transactions and need not wait for the checkpoint.
            self.checkpoint(ring, false)?;
        }
        Ok(())
    }

    fn blocks_of(&self, pending: &Pending) -> u64 {
        (pending.bytes.len() as u64).div_ceil(self.io_contexts.block_bytes() as u64)
    }

    /// Writes one transaction durably. Only the leader calls it.
    fn write(&self, ring: &mut Ring, pending: Pending) -> Result<()> {
        let Pending {
            sequence,
            mut bytes,
            needs_flush,
        } = pending;
        let block = self.io_contexts.block_bytes();
        let payload = bytes.len() - HEADER_BYTES;
        bytes.resize(bytes.len().next_multiple_of(block), 0);
        write_header(&mut bytes, payload, self.key, ring.head, sequence);
        let first = self.layout.block_of(self.layout.journal().start);
        let until_end = usize::try_from(ring.blocks - ring.head)
            .unwrap_or(usize::MAX)
            .saturating_mul(block);
        let (here, at_start) = bytes.split_at(until_end.min(bytes.len()));
        let durable = self.durable();
        self.io_contexts.with(|io| {
            if needs_flush {
                self.counters.flushes.add(1);
                Barrier::DataBeforeTransaction.flush(io, durable != Durable::AsWritten)?;
            }
            if !at_start.is_empty() {
                Barrier::Transaction.write(io, durable, first, at_start)?;
            }
            Barrier::Transaction.write(io, durable, first + ring.head, here)
        })?;
        self.counters.flushes.add(1);
        self.counters.transactions.add(1);
        self.counters.journal_bytes.add(bytes.len() as u64);
        ring.advance((bytes.len() / block) as u64);
        self.journal.set_durable(sequence);
        self.reclaim_freed();
        Ok(())
    }

    /// Frees units that durable transactions have released. On a device that benefits from TRIM, the next checkpoint
    /// deallocates and frees them instead.
    pub(crate) fn reclaim_freed(&self) {
        // When space is short the units are freed without TRIM.
        let is_short = self.allocator.free_units() <= self.layout.units() / 64;
        if !self.discard || is_short {
            let reclaimed = self.allocator.take_durably_freed(self.journal.durable());
            self.allocator.free_reclaimed(&reclaimed);
        }
    }

    /// Deallocates and frees units that durable transactions have released.
    pub(crate) fn discard_freed(&self) -> Result<()> {
        let mut reclaimed = self.allocator.take_durably_freed(self.journal.durable());
        if self.discard {
            reclaimed.sort_unstable();
            let runs = reclaimed.chunk_by(|a, b| a.end() == b.start);
            let runs: Vec<(u64, u64)> = runs
                .map(|run| (run[0].start, run[run.len() - 1].end()))
                .collect();
            let result = self.io_contexts.with(|io| {
                let mut discarded = 0;
                for &(start, end) in &runs {
                    let blocks = self.layout.block_of(end) - self.layout.block_of(start);
                    io.deallocate(self.layout.block_of(start), blocks)?;
                    discarded += end - start;
                }
                Ok(discarded)
            });
            match result {
                Ok(discarded) => self.counters.discarded_units.add(discarded),
                // The units are free in any case; only the device does not know.
                Err(error) => tracing::warn!(%error, "cannot deallocate freed blocks"),
            }
        }
        self.allocator.free_reclaimed(&reclaimed);
        Ok(())
    }

    /// Attributes of a file or directory; those of an open file include what is not in a transaction yet.
    pub(crate) fn status(&self, id: InodeId) -> Result<Status> {
        let (mut status, opened) = {
            let state = self.state();
            let record = state.metadata.inode(id)?;
            let units: u64 = record
                .extents()
                .iter()
                .map(|extent| u64::from(extent.units))
                .sum();
            let status = Status {
                id: id.0,
                kind: record.kind(),
                size: record
                    .entries()
                    .map_or(record.size(), |entries| entries.len() as u64),
                allocated_bytes: units * self.unit_bytes(),
                links: record.links(),
                modified: record.modified(),
            };
            (
                status,
                state.open.get(&id).map(|opened| Arc::clone(&opened.inode)),
            )
        };
        if let Some(inode) = opened {
            status.size = inode.size();
            status.allocated_bytes = inode.units() * self.unit_bytes();
            status.modified = inode.modified().unwrap_or(status.modified);
        }
        Ok(status)
    }

    /// Frees the units of a file that lost its last name when that is durable, or when the file is closed.
    pub(crate) fn removed(&self, state: &mut State, id: InodeId, sequence: u64, freed: &[Extent]) {
        state.journaled.remove(&id);
        if let Some(opened) = state.open.get(&id) {
            opened.inode.set_unlinked();
        } else {
            self.allocator.free_after(sequence, freed);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if self.poison.get().is_some() {
            return;
        }
        if let Err(error) = self.unmount() {
            let device = self.io_contexts.device().name();
            tracing::error!(%error, device, "cannot unmount a volume: what was not synced is lost");
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared")
            .field("device", self.io_contexts.device())
            .finish_non_exhaustive()
    }
}
