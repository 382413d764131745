//! State of an open file: its unwritten tail, its size and its extents.
//!
//! ```text
//! 0        on_device_end       tail.start    clean       stable      size
//! |-------------|---------------|-------------|-----------|-----------|
//!   on the device  being written    the tail, in memory
//! ```
//!
//! The tail holds the bytes appended last, from the start of a block on. When it is long enough it is written back, in
//! several requests at once, through a queue that the file holds for as long as a write is in flight.
//!
//! * `clean`: bytes before it are in their final location, or in flight to it.
//! * `stable`: the size that the metadata knows. Bytes before it are on the medium as soon as the transactions so
//!   far are.
//! * `on_device_end`: bytes before it can be read from the device without the `writing` lock.
//!
//! # Invariants
//! 1. `tail.start` is the start of a block; the tail has all bytes from there to `size`.
//! 2. Units for all bytes before `size` are allocated: an append that succeeded needs no further space.
//! 3. Bytes between `clean` and `stable` are journaled; then the file is in [`State::journaled`], so that the next
//!    checkpoint writes them back.
//! 4. Lock order: `writing`, then the state, then the map for writing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use crate::checkpoint_reservation::EXTENT_GROWTH;
use crate::format::{InodeId, Operation};
use crate::io::no_mapping;
use crate::map::Map;
use crate::shared::Shared;
use crate::state::State;
use crate::writer::Writer;
use crate::{Error, ErrorKind, Result, Timestamp};

/// Tail length, in bytes, at which it is written back.
const TAIL_BYTES: usize = 1 << 20;
/// Largest sync, in bytes, that goes to the journal; a larger one is written back first.
const JOURNALED_BYTES_MAX: u64 = 64 << 10;
/// Most bytes by which a file grows ahead (otherwise by its own size), so that files which grow together have few
/// extents.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// Largest size of a file, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 62;
/// Most extents in one operation.
const EXTENTS_MAX: usize = 4096;

/// State that all writers of a file share, under one lock.
#[derive(Debug)]
pub(crate) struct Writing {
    pub(crate) tail: Vec<u8>,
    pub(crate) start: u64,
    /// Whether the tail was loaded; before the first write it is empty.
    pub(crate) is_loaded: bool,
    clean: u64,
    stable: u64,
    /// Whether bytes before `stable` were changed since the last sync.
    is_rewritten: bool,
    /// Time of the last change that no transaction contains.
    modified: Option<Timestamp>,
    writer: Option<Writer>,
    /// Whether a write has failed: bytes between `on_device_end` and the tail may be lost then.
    pub(crate) has_failed: bool,
    /// End of the range that is in flight to the device; 0 if none is.
    written_to: u64,
}

/// A file that is open.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    pub(crate) map: RwLock<Map>,
    /// Number of extents in the map.
    extents: AtomicUsize,
    writing: Mutex<Writing>,
    size: AtomicU64,
    pub(crate) on_device_end: AtomicU64,
    /// Whether the last name was removed.
    unlinked: AtomicBool,
}

impl Inode {
    /// A file with the extents and the size that the metadata has.
    pub(crate) fn new(id: InodeId, map: Map, size: u64) -> Self {
        Self {
            id,
            extents: AtomicUsize::new(map.extents()),
            map: RwLock::new(map),
            writing: Mutex::new(Writing {
                tail: Vec::new(),
                start: 0,
                is_loaded: false,
                clean: size,
                stable: size,
                is_rewritten: false,
                modified: None,
                writer: None,
                has_failed: false,
                written_to: 0,
            }),
            size: AtomicU64::new(size),
            on_device_end: AtomicU64::new(size),
            unlinked: AtomicBool::new(false),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Marks the file as having no name. The caller holds the state's lock.
    pub(crate) fn set_unlinked(&self) {
        self.unlinked.store(true, Ordering::Release);
    }

    fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Acquire)
    }

    /// Units allocated to the file, including units reserved ahead.
    pub(crate) fn units(&self) -> u64 {
        self.map
            .read()
            .expect("no holder of the lock panics")
            .units()
    }

    /// Extents of the file, including those that no transaction names yet.
    pub(crate) fn extents(&self) -> usize {
        self.extents.load(Ordering::Relaxed)
    }

    /// Locks the file for writing.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().expect("no holder of the lock panics")
    }

    /// Appends.
    pub(crate) fn append(&self, shared: &Shared, data: &[u8]) -> Result<()> {
        let mut writing = self.begin_write(shared, |size| size.checked_add(data.len() as u64))?;
        self.extend(shared, &mut writing, data)
    }

    /// Appends bytes for which units are allocated.
    fn extend(&self, shared: &Shared, writing: &mut Writing, mut data: &[u8]) -> Result<()> {
        writing.modified = Some(shared.now());
        while !data.is_empty() {
            let room = TAIL_BYTES.saturating_sub(writing.tail.len());
            if room == 0 {
                self.write_behind_tail(shared, writing)?;
                continue;
            }
            let (now, later) = data.split_at(room.min(data.len()));
            writing.tail.extend_from_slice(now);
            data = later;
            self.publish_size(writing);
        }
        if writing.tail.len() >= TAIL_BYTES {
            self.write_behind_tail(shared, writing)?;
        }
        Ok(())
    }

    /// Appends zeros up to `end`, for which units are allocated.
    fn extend_to(&self, shared: &Shared, writing: &mut Writing, end: u64) -> Result<()> {
        while self.size() < end {
            let len = (end - self.size()).min(TAIL_BYTES as u64);
            let zeros = vec![0; usize::try_from(len).expect("at most a tail")];
            self.extend(shared, writing, &zeros)?;
        }
        Ok(())
    }

    /// Shortens the tail. Bytes that a transaction will journal soon stay in memory if that leaves enough space.
    fn write_behind_tail(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        let end = writing.start + writing.tail.len() as u64;
        let stable = writing.stable.min(end);
        let goes = if stable.saturating_sub(writing.start) >= TAIL_BYTES as u64 / 2 {
            stable
        } else {
            end
        };
        self.write_back(shared, writing, shared.data.block_start(goes))
    }

    /// Writes at an offset; a gap before it becomes zeros.
    pub(crate) fn write_at(&self, shared: &Shared, offset: u64, data: &[u8]) -> Result<()> {
        let end = offset.checked_add(data.len() as u64);
        let mut writing = self.begin_write(shared, |size| Some(size.max(end?)))?;
        self.extend_to(shared, &mut writing, offset)?;
        writing.modified = Some(shared.now());
        let size = self.size();
        let inside = usize::try_from(size.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(data.len());
        let (over, beyond) = data.split_at(inside);
        if offset < writing.stable && !over.is_empty() {
            writing.is_rewritten = true;
        }
        let below = usize::try_from(writing.start.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(over.len());
        let (below, in_tail) = over.split_at(below);
        if !below.is_empty() {
            self.drain(shared, &mut writing)?;
            let written = self.overwrite_on_device(shared, offset, below);
            written.map_err(|error| self.named(shared, error))?;
        }
        if !in_tail.is_empty() {
            let at = offset + below.len() as u64;
            let from = usize::try_from(at - writing.start).expect("within the tail");
            writing.tail[from..from + in_tail.len()].copy_from_slice(in_tail);
            writing.clean = writing.clean.min(at);
            self.on_device_end.fetch_min(at, Ordering::AcqRel);
        }
        self.extend(shared, &mut writing, beyond)
    }

    /// Overwrites bytes on the device; reads the rest of the first and the last block.
    fn overwrite_on_device(&self, shared: &Shared, offset: u64, data: &[u8]) -> Result<()> {
        let block = shared.data.payload_bytes();
        let most = shared.data.payload_of(shared.io_contexts.piece_bytes());
        let mut at = offset;
        let mut left = data;
        while !left.is_empty() {
            let map = self.map.read().expect("no holder of the lock panics");
            let mapping = self.mapping(shared, &map, at);
            let mapping = mapping.ok_or_else(|| no_mapping(self.id, at))?;
            let len = usize::try_from(mapping.run.min((most - mapping.skip) as u64));
            let len = len.expect("at most a piece").min(left.len());
            let (now, later) = left.split_at(len);
            let end = mapping.skip + len;
            let mut bytes = vec![0; end.next_multiple_of(block)];
            let begin = at - mapping.skip as u64;
            let last = bytes.len() - block;
            if mapping.skip > 0 || (last == 0 && end < block) {
                self.read_blocks(shared, &map, begin, &mut bytes[..block])?;
            }
            if last > 0 && end < bytes.len() {
                self.read_blocks(shared, &map, begin + last as u64, &mut bytes[last..])?;
            }
            bytes[mapping.skip..end].copy_from_slice(now);
            let blocks = mapping.encode_blocks(&bytes);
            let written = shared
                .io_contexts
                .with(|io| io.write(mapping.lba, &blocks, false));
            shared.poison_if_failed(written)?;
            at += len as u64;
            left = later;
        }
        Ok(())
    }

    /// Sets the size in bytes; added bytes are zeros. A cut within a unit is on the medium when this returns.
    pub(crate) fn truncate(&self, shared: &Shared, size: u64) -> Result<()> {
        let mut writing = self.begin_write(shared, |now| Some(now.max(size)))?;
        if size >= self.size() {
            return self.extend_to(shared, &mut writing, size);
        }
        // Journaled bytes are written back first: the cut may not reach the medium.
        if writing.clean < writing.stable {
            self.write_back(shared, &mut writing, u64::MAX)?;
        }
        self.drain(shared, &mut writing)?;
        let start = shared.data.block_start(size);
        if start >= writing.start {
            let kept = usize::try_from(size - writing.start).expect("within the tail");
            writing.tail.truncate(kept);
        } else {
            let mut tail = vec![0; usize::try_from(size - start).expect("less than a block")];
            let read = self.read_on_device(shared, start, &mut tail);
            read.map_err(|error| self.named(shared, error))?;
            writing.tail = tail;
            writing.start = start;
        }
        writing.clean = writing.clean.min(size);
        let stable_units = shared.units(writing.stable);
        let mut state = shared.state();
        let mut freed_by = state.newest();
        if size < writing.stable && !self.is_unlinked() {
            let modified = shared.now();
            let id = self.id;
            freed_by = state
                .record(&Operation::Truncate { id, size, modified }, false)?
                .0;
        }
        let mut map = self.map.write().expect("no holder of the lock panics");
        self.on_device_end.fetch_min(size, Ordering::AcqRel);
        self.size.store(size, Ordering::Release);
        let units = shared.units(size);
        // Units that no transaction names are free at once.
        let unnamed = map.truncate(units.max(stable_units));
        let named = map.truncate(units);
        self.extents.store(map.extents(), Ordering::Relaxed);
        drop(map);
        shared.allocator.free_now(&unnamed);
        shared.allocator.free_after(freed_by, &named);
        drop(state);
        let cuts_a_unit = size < writing.stable && size != shared.data.bytes(units);
        writing.stable = writing.stable.min(size);
        drop(writing);
        if cuts_a_unit && !self.is_unlinked() {
            // The next append overwrites the bytes cut off, which must not happen before the cut is on the medium.
            shared.commit(freed_by)?;
        }
        Ok(())
    }

    /// Allocates units for a file of `bytes` bytes.
    pub(crate) fn reserve(&self, shared: &Shared, bytes: u64) -> Result<()> {
        drop(self.begin_write(shared, |size| Some(size.max(bytes)))?);
        Ok(())
    }

    /// Starts to write the tail back if it is at least a quarter of the limit.
    pub(crate) fn write_behind(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        if writing.is_loaded && writing.tail.len() >= TAIL_BYTES / 4 {
            self.write_behind_tail(shared, &mut writing)?;
        }
        Ok(())
    }

    /// Adds all bytes and the size to a transaction; returns the number of the transaction to wait for.
    pub(crate) fn prepare_sync(&self, shared: &Shared) -> Result<u64> {
        let mut writing = self.lock();
        shared.check_writable()?;
        self.record(shared, &mut writing, true)
    }

    /// Adds to a transaction what no transaction contains of this file.
    fn record(&self, shared: &Shared, writing: &mut Writing, may_journal: bool) -> Result<u64> {
        let size = self.size();
        if self.is_unlinked() || (size == writing.stable && !writing.is_rewritten) {
            let mut state = shared.state();
            if let Some(modified) = writing.modified.take().filter(|_| !self.is_unlinked()) {
                let id = self.id;
                state.record(&Operation::SetModified { id, modified }, false)?;
            }
            return Ok(state.newest());
        }
        let unsynced = size - writing.stable;
        let is_in_tail = writing.is_loaded && writing.stable >= writing.start;
        let (from, to) = (shared.units(writing.stable), shared.units(size));
        if may_journal && is_in_tail && !writing.is_rewritten && unsynced <= JOURNALED_BYTES_MAX {
            let extents = self
                .map
                .read()
                .expect("no holder of the lock panics")
                .slice(from, to);
            let offset = writing.stable;
            let begin = usize::try_from(offset - writing.start).expect("within the tail");
            let mut state = shared.state();
            if self.is_unlinked() {
                return Ok(state.newest());
            }
            let operation = Operation::Data {
                id: self.id,
                offset,
                bytes: &writing.tail[begin..],
                extents: (&extents).into(),
                modified: writing.modified.unwrap_or_else(|| shared.now()),
            };
            let (sequence, _) = state.record(&operation, false)?;
            self.mark_journaled(&mut state);
            writing.stable = size;
            writing.modified = None;
            return Ok(sequence);
        }
        self.write_back(shared, writing, u64::MAX)?;
        self.drain(shared, writing)?;
        let extents = self
            .map
            .read()
            .expect("no holder of the lock panics")
            .slice(from, to);
        let mut state = shared.state();
        if self.is_unlinked() {
            return Ok(state.newest());
        }
        let modified = writing.modified.take().unwrap_or_else(|| shared.now());
        let mut sequence = state.newest();
        let mut units = from;
        let mut parts = extents.chunks(EXTENTS_MAX).peekable();
        loop {
            let part = parts.next().unwrap_or(&[]);
            units += part
                .iter()
                .map(|extent| u64::from(extent.units))
                .sum::<u64>();
            let is_last = parts.peek().is_none();
            let operation = Operation::Extend {
                id: self.id,
                size: if is_last {
                    size
                } else {
                    shared.data.bytes(units)
                },
                extents: part.into(),
                modified,
            };
            sequence = sequence.max(state.record(&operation, true)?.0);
            if is_last {
                break;
            }
        }
        state.journaled.remove(&self.id);
        drop(state);
        writing.stable = size;
        writing.is_rewritten = false;
        Ok(sequence)
    }

    /// Makes the next checkpoint write this file back. (A file that was open under this id before is closed and written
    /// back.)
    fn mark_journaled(&self, state: &mut State) {
        if let Some(opened) = state.open.get(&self.id) {
            let inode = Arc::clone(&opened.inode);
            state.journaled.insert(self.id, inode);
        }
    }

    /// Writes journaled bytes back, for a checkpoint.
    pub(crate) fn write_back_journaled(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        if writing.is_loaded {
            self.write_back(shared, &mut writing, u64::MAX)?;
        }
        self.drain(shared, &mut writing)
    }

    /// Drops a handle. With the last one it writes the tail back and frees units that are not needed; if the file was
    /// opened again meanwhile it stays open.
    pub(crate) fn close(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        let result = self.write_back_all(shared, &mut writing);
        // This thread holds the write lock: the metadata is complete, and the next `open` starts from it.
        let mut state = shared.state();
        let handles = state.open.get_mut(&self.id).map_or(0, |opened| {
            opened.handles -= 1;
            opened.handles
        });
        if handles > 0 || (result.is_err() && !self.is_unlinked()) {
            // (Bytes that are not on the device can be read from this inode only. Nothing is written any more after the
            // failure.)
            return result;
        }
        state.open.remove(&self.id);
        // The bytes are in their final location; the next checkpoint flushes.
        state.journaled.remove(&self.id);
        let mut map = self.map.write().expect("no holder of the lock panics");
        if self.is_unlinked() {
            // Tail and map stay: a checkpoint in progress that lists the file may still write it back.
            let units = map.slice(0, map.units());
            shared.allocator.free_after(state.newest(), &units);
        } else {
            let size = self.size().max(writing.stable);
            let surplus = map.truncate(shared.units(size));
            shared.allocator.free_now(&surplus);
        }
        result
    }

    fn write_back_all(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if writing.is_loaded && !self.is_unlinked() && shared.check_writable().is_ok() {
            if self.size() > writing.stable || writing.is_rewritten || writing.modified.is_some() {
                self.record(shared, writing, false)?;
            }
            self.write_back(shared, writing, u64::MAX)?;
        }
        self.drain(shared, writing)
    }

    /// Drops the pending time of modification: the metadata has one that was set explicitly.
    pub(crate) fn clear_modified(writing: &mut Writing) {
        writing.modified = None;
    }

    /// Time of the last change, if later than the metadata's.
    pub(crate) fn modified(&self) -> Option<Timestamp> {
        self.lock().modified
    }

    /// Locks for writing and allocates units up to `end`, a function of the size.
    fn begin_write(
        &self,
        shared: &Shared,
        end: impl Fn(u64) -> Option<u64>,
    ) -> Result<MutexGuard<'_, Writing>> {
        let mut writing = self.lock();
        shared.check_writable()?;
        self.load_tail(shared, &mut writing)?;
        let end = || {
            let end = end(self.size()).filter(|&end| end <= FILE_BYTES_MAX);
            end.ok_or_else(|| {
                Error::new(ErrorKind::Invalid, "a file would be longer than 2^62 bytes")
            })
        };
        let mut held = self.hold_units(shared, end()?);
        for attempt in 0..2 {
            if held.is_ok() {
                break;
            }
            // Deleted units become free when transactions reach the medium; the wait must hold no lock.
            drop(writing);
            let has_helped = shared.reclaim_space(attempt)?;
            writing = self.lock();
            if has_helped {
                held = self.hold_units(shared, end()?);
            }
        }
        held.map(|()| writing)
    }

    /// Loads the tail: the last block, if it is partial.
    fn load_tail(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if writing.is_loaded {
            return Ok(());
        }
        let size = self.size();
        let start = shared.data.block_start(size);
        let mut tail = vec![0; usize::try_from(size - start).expect("less than a block")];
        let read = self.read_on_device(shared, start, &mut tail);
        read.map_err(|error| self.named(shared, error))?;
        writing.tail = tail;
        writing.start = start;
        writing.is_loaded = true;
        Ok(())
    }

    /// Allocates units for all bytes up to `end`.
    fn hold_units(&self, shared: &Shared, end: u64) -> Result<()> {
        let needed = shared.units(end);
        if needed <= self.units() {
            return Ok(());
        }
        let mut map = self.map.write().expect("no holder of the lock panics");
        let before = map.units();
        let mut growth = 0;
        while map.units() < needed {
            let units = map.units();
            let ahead = units.min(GROWTH_BYTES_MAX / shared.unit_bytes());
            let goal = map.goal().unwrap_or_else(|| shared.allocator.new_goal());
            let need = needed - units;
            let mut extent = None;
            if shared.reservation.grow(&shared.allocator, EXTENT_GROWTH) {
                growth += EXTENT_GROWTH;
                extent = shared.allocator.take(Some(goal), need, need.max(ahead));
            }
            let Some(extent) = extent else {
                let cut = map.truncate(before);
                shared.allocator.free_now(&cut);
                shared.reservation.shrink(growth);
                return Err(shared.no_space(need));
            };
            map.push(extent, &shared.layout);
        }
        self.extents.store(map.extents(), Ordering::Relaxed);
        Ok(())
    }

    /// Starts to write the tail back, up to `limit`, and drops whole blocks from memory.
    fn write_back(&self, shared: &Shared, writing: &mut Writing, limit: u64) -> Result<()> {
        let block = shared.data.payload_bytes();
        let end = (writing.start + writing.tail.len() as u64).min(limit);
        if writing.clean < end {
            let first = usize::try_from(writing.clean.saturating_sub(writing.start))
                .expect("within the tail");
            let first = first / block * block;
            // The device may reorder two writes of one block.
            if writing.start + (first as u64) < writing.written_to {
                self.drain(shared, writing)?;
            }
            let last = usize::try_from(end - writing.start).expect("within the tail");
            let result = self.submit(shared, writing, first..last);
            writing.has_failed |= result.is_err();
            shared.poison_if_failed(result)?;
            writing.clean = end;
            writing.written_to = end.next_multiple_of(block as u64);
        }
        let whole = usize::try_from(writing.clean.saturating_sub(writing.start)).unwrap_or(0)
            / block
            * block;
        writing.tail.drain(..whole.min(writing.tail.len()));
        writing.start += whole as u64;
        Ok(())
    }

    /// Submits writes of these bytes of the tail, padded to whole blocks.
    fn submit(&self, shared: &Shared, writing: &mut Writing, bytes: Range<usize>) -> Result<()> {
        let Writing {
            tail,
            start,
            writer,
            ..
        } = writing;
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(Writer::new(&shared.io_contexts)?),
        };
        let map = self.map.read().expect("no holder of the lock panics");
        let most = shared.data.payload_of(shared.io_contexts.piece_bytes());
        let mut at = bytes.start;
        while at < bytes.end {
            let offset = *start + at as u64;
            let mapping = self.mapping(shared, &map, offset);
            let mapping = mapping.ok_or_else(|| no_mapping(self.id, offset))?;
            let run = usize::try_from(mapping.run).unwrap_or(usize::MAX);
            let len = (bytes.end - at).min(most).min(run);
            let written = writer.write(&shared.io_contexts, &mapping, &tail[at..at + len])?;
            shared.counters.write_bytes.add(written as u64);
            at += len;
        }
        writer.submit_all()
    }

    /// Waits for all writes in flight.
    pub(crate) fn drain(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if let Some(writer) = writing.writer.take() {
            let result = writer.finish(&shared.io_contexts);
            writing.has_failed |= result.is_err();
            shared.poison_if_failed(result)?;
        }
        if writing.has_failed {
            // The caller whose write failed received the cause.
            let context = format!("bytes of file {} could not be written", self.id);
            return Err(Error::new(ErrorKind::Poisoned, context));
        }
        writing.written_to = 0;
        if writing.is_loaded {
            self.on_device_end.store(writing.clean, Ordering::Release);
        }
        Ok(())
    }

    fn publish_size(&self, writing: &Writing) {
        self.size
            .store(writing.start + writing.tail.len() as u64, Ordering::Release);
    }
}
