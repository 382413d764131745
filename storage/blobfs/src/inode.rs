//! An open file.
//!
//! ```text
//! 0            home           tail.start    clean       stable      size
//! |-------------|---------------|-------------|-----------|-----------|
//!   on the device  being written    the tail, in memory
//! ```
//!
//! The tail is what was appended last, from a block's border on; when it is long enough it is written behind, home,
//! several pieces at once, by a queue that the file has for as long as something is in flight.
//!
//! * `clean`: bytes before it are at home, or being written there.
//! * `stable`: the size that the metadata knows. Bytes before it are on the medium as soon as the transactions so
//!   far are.
//! * `home`: bytes before it can be read from the device without asking anybody.
//!
//! # Invariants
//! 1. `tail.start` is where a block begins; the tail has all bytes from there to `size`.
//! 2. Units for all bytes before `size` are held: what was appended never meets a full device later.
//! 3. Bytes between `clean` and `stable` are in transactions; then the file is in [`State::carried`], so that the next
//!    checkpoint writes them home.
//! 4. `writing` is taken before the state, and the state before the map for writing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use crate::format::{InodeId, Operation};
use crate::map::Map;
use crate::reading::unmapped;
use crate::room::EXTENT_GROWTH;
use crate::shared::Shared;
use crate::state::State;
use crate::writer::Writer;
use crate::{Error, ErrorKind, Result, Timestamp};

/// The tail is written home when it is so long.
const TAIL_BYTES: usize = 1 << 20;
/// A sync of so many bytes goes to the journal, of more goes home first.
const CARRIED_BYTES_MAX: u64 = 64 << 10;
/// A file grows by its own size, and so many bytes at most, so that files which grow together have few extents.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// The longest file.
const FILE_BYTES_MAX: u64 = 1 << 62;
/// So many extents go into one operation.
const EXTENTS_MAX: usize = 4096;

/// What those who write to a file share.
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
    /// When something was last changed that no transaction tells of.
    modified: Option<Timestamp>,
    writer: Option<Writer>,
    /// Whether something could not be written: then bytes between `home` and the tail may be lost.
    pub(crate) has_failed: bool,
    /// Bytes from here on are not being written.
    written_to: u64,
}

/// A file that is open.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    pub(crate) map: RwLock<Map>,
    /// How many extents the map has.
    extents: AtomicUsize,
    writing: Mutex<Writing>,
    size: AtomicU64,
    pub(crate) home: AtomicU64,
    /// Whether its last name is gone.
    unlinked: AtomicBool,
}

impl Inode {
    /// A file as the metadata has it.
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
            home: AtomicU64::new(size),
            unlinked: AtomicBool::new(false),
        }
    }

    pub(crate) fn size(&self) -> u64 {
        self.size.load(Ordering::Acquire)
    }

    /// Its last name is gone. The state is locked.
    pub(crate) fn set_unlinked(&self) {
        self.unlinked.store(true, Ordering::Release);
    }

    fn is_unlinked(&self) -> bool {
        self.unlinked.load(Ordering::Acquire)
    }

    /// Units it holds, needed or not.
    pub(crate) fn units(&self) -> u64 {
        self.map
            .read()
            .expect("no holder of the lock panics")
            .units()
    }

    /// Extents that it holds, which transactions may not have told of yet.
    pub(crate) fn extents(&self) -> usize {
        self.extents.load(Ordering::Relaxed)
    }

    /// The turn to write.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().expect("no holder of the lock panics")
    }

    /// Appends.
    pub(crate) fn append(&self, shared: &Shared, data: &[u8]) -> Result<()> {
        let mut writing = self.begin_write(shared, |size| size.checked_add(data.len() as u64))?;
        self.extend(shared, &mut writing, data)
    }

    /// Appends what there are units for.
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

    /// Appends zeros up to `end`, for which there are units.
    fn extend_to(&self, shared: &Shared, writing: &mut Writing, end: u64) -> Result<()> {
        while self.size() < end {
            let len = (end - self.size()).min(TAIL_BYTES as u64);
            let zeros = vec![0; usize::try_from(len).expect("at most a tail")];
            self.extend(shared, writing, &zeros)?;
        }
        Ok(())
    }

    /// Makes room in the tail. What a transaction is to carry soon stays, if that leaves room enough.
    fn write_behind_tail(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        let end = writing.start + writing.tail.len() as u64;
        let stable = writing.stable.min(end);
        let goes = if stable.saturating_sub(writing.start) >= TAIL_BYTES as u64 / 2 {
            stable
        } else {
            end
        };
        self.write_home(shared, writing, shared.data.block_start(goes))
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
            let written = self.overwrite_home(shared, offset, below);
            written.map_err(|error| self.named(shared, error))?;
        }
        if !in_tail.is_empty() {
            let at = offset + below.len() as u64;
            let from = usize::try_from(at - writing.start).expect("within the tail");
            writing.tail[from..from + in_tail.len()].copy_from_slice(in_tail);
            writing.clean = writing.clean.min(at);
            self.home.fetch_min(at, Ordering::AcqRel);
        }
        self.extend(shared, &mut writing, beyond)
    }

    /// Changes bytes on the device. Of the first and the last block the others are read.
    fn overwrite_home(&self, shared: &Shared, offset: u64, data: &[u8]) -> Result<()> {
        let block = shared.data.payload_bytes();
        let most = shared.data.payload_of(shared.lanes.piece_bytes());
        let mut at = offset;
        let mut left = data;
        while !left.is_empty() {
            let map = self.map.read().expect("no holder of the lock panics");
            let place = self.place(shared, &map, at);
            let place = place.ok_or_else(|| unmapped(self.id, at))?;
            let len = usize::try_from(place.run.min((most - place.skip) as u64));
            let len = len.expect("at most a piece").min(left.len());
            let (now, later) = left.split_at(len);
            let end = place.skip + len;
            let mut bytes = vec![0; end.next_multiple_of(block)];
            let begin = at - place.skip as u64;
            let last = bytes.len() - block;
            if place.skip > 0 || (last == 0 && end < block) {
                self.read_blocks(shared, &map, begin, &mut bytes[..block])?;
            }
            if last > 0 && end < bytes.len() {
                self.read_blocks(shared, &map, begin + last as u64, &mut bytes[last..])?;
            }
            bytes[place.skip..end].copy_from_slice(now);
            let blocks = place.blocks(&bytes);
            let written = shared
                .lanes
                .with(|lane| lane.write(place.lba, &blocks, false));
            shared.poison_if_failed(written)?;
            at += len as u64;
            left = later;
        }
        Ok(())
    }

    /// Makes the file so long. What is cut off is gone, what is added is zeros. A cut within a unit is on the medium
    /// when this returns.
    pub(crate) fn truncate(&self, shared: &Shared, size: u64) -> Result<()> {
        let mut writing = self.begin_write(shared, |now| Some(now.max(size)))?;
        if size >= self.size() {
            return self.extend_to(shared, &mut writing, size);
        }
        // What transactions carry goes home first: the cut may not reach the medium.
        if writing.clean < writing.stable {
            self.write_home(shared, &mut writing, u64::MAX)?;
        }
        self.drain(shared, &mut writing)?;
        let start = shared.data.block_start(size);
        if start >= writing.start {
            let kept = usize::try_from(size - writing.start).expect("within the tail");
            writing.tail.truncate(kept);
        } else {
            let mut tail = vec![0; usize::try_from(size - start).expect("less than a block")];
            let read = self.read_home(shared, start, &mut tail);
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
        self.home.fetch_min(size, Ordering::AcqRel);
        self.size.store(size, Ordering::Release);
        let units = shared.units(size);
        // Those that no transaction names are free at once.
        let unnamed = map.truncate(units.max(stable_units));
        let named = map.truncate(units);
        self.extents.store(map.extents(), Ordering::Relaxed);
        drop(map);
        shared.allocator.give_back(&unnamed);
        shared.allocator.release(freed_by, &named);
        drop(state);
        let cuts_a_unit = size < writing.stable && size != shared.data.bytes(units);
        writing.stable = writing.stable.min(size);
        drop(writing);
        if cuts_a_unit && !self.is_unlinked() {
            // What is appended next overwrites what was cut off: not before the cut is on the medium.
            shared.commit(freed_by)?;
        }
        Ok(())
    }

    /// Holds units for a file of so many bytes.
    pub(crate) fn reserve(&self, shared: &Shared, bytes: u64) -> Result<()> {
        drop(self.begin_write(shared, |size| Some(size.max(bytes)))?);
        Ok(())
    }

    /// Begins to write home what is long enough to be worth it.
    pub(crate) fn write_behind(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        if writing.is_loaded && writing.tail.len() >= TAIL_BYTES / 4 {
            self.write_behind_tail(shared, &mut writing)?;
        }
        Ok(())
    }

    /// Makes all bytes and the size part of a transaction; returns the number of the one to be waited for.
    pub(crate) fn prepare_sync(&self, shared: &Shared) -> Result<u64> {
        let mut writing = self.lock();
        shared.check_writable()?;
        self.record(shared, &mut writing, true)
    }

    /// Adds to a transaction what it lacks of this file.
    fn record(&self, shared: &Shared, writing: &mut Writing, may_carry: bool) -> Result<u64> {
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
        if may_carry && is_in_tail && !writing.is_rewritten && unsynced <= CARRIED_BYTES_MAX {
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
            self.carry(&mut state);
            writing.stable = size;
            writing.modified = None;
            return Ok(sequence);
        }
        self.write_home(shared, writing, u64::MAX)?;
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
        state.carried.remove(&self.id);
        drop(state);
        writing.stable = size;
        writing.is_rewritten = false;
        Ok(sequence)
    }

    /// The next checkpoint is to bring this file home. (Another that was open under this id was closed, and is.)
    fn carry(&self, state: &mut State) {
        if let Some(opened) = state.open.get(&self.id) {
            let inode = Arc::clone(&opened.inode);
            state.carried.insert(self.id, inode);
        }
    }

    /// Writes home what transactions carry, for a checkpoint.
    pub(crate) fn bring_home(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        if writing.is_loaded {
            self.write_home(shared, &mut writing, u64::MAX)?;
        }
        self.drain(shared, &mut writing)
    }

    /// The last handle goes: what was appended goes home, and units that are not needed are given up. If somebody has
    /// opened it meanwhile it stays open.
    pub(crate) fn close(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        let result = self.bring_all_home(shared, &mut writing);
        // Nobody else has the turn to write: the metadata knows all that there is, and whoever opens the file from
        // now on takes it from there.
        let mut state = shared.state();
        let handles = state.open.get_mut(&self.id).map_or(0, |opened| {
            opened.handles -= 1;
            opened.handles
        });
        if handles > 0 || (result.is_err() && !self.is_unlinked()) {
            // (What is not home can be read from here alone. Nothing is written any more then.)
            return result;
        }
        state.open.remove(&self.id);
        // It is home; the next checkpoint flushes.
        state.carried.remove(&self.id);
        let mut map = self.map.write().expect("no holder of the lock panics");
        if self.is_unlinked() {
            // Tail and map stay: a checkpoint that knows the file may be about to bring it home.
            let units = map.slice(0, map.units());
            shared.allocator.release(state.newest(), &units);
        } else {
            let size = self.size().max(writing.stable);
            let surplus = map.truncate(shared.units(size));
            shared.allocator.give_back(&surplus);
        }
        result
    }

    fn bring_all_home(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if writing.is_loaded && !self.is_unlinked() && shared.check_writable().is_ok() {
            if self.size() > writing.stable || writing.is_rewritten || writing.modified.is_some() {
                self.record(shared, writing, false)?;
            }
            self.write_home(shared, writing, u64::MAX)?;
        }
        self.drain(shared, writing)
    }

    /// What was written has no time of its own any more: the metadata has one that was set.
    pub(crate) fn forget_modified(writing: &mut Writing) {
        writing.modified = None;
    }

    /// When it was changed, if later than the metadata knows.
    pub(crate) fn modified(&self) -> Option<Timestamp> {
        self.lock().modified
    }

    /// Prepares for writing up to where `end` says, given the size: there will be units.
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
            // What was deleted becomes free once transactions are on the medium; nothing may be locked then.
            drop(writing);
            let has_helped = shared.make_room(attempt)?;
            writing = self.lock();
            if has_helped {
                held = self.hold_units(shared, end()?);
            }
        }
        held.map(|()| writing)
    }

    /// The tail begins with the last block, if that is not whole.
    fn load_tail(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if writing.is_loaded {
            return Ok(());
        }
        let size = self.size();
        let start = shared.data.block_start(size);
        let mut tail = vec![0; usize::try_from(size - start).expect("less than a block")];
        let read = self.read_home(shared, start, &mut tail);
        read.map_err(|error| self.named(shared, error))?;
        writing.tail = tail;
        writing.start = start;
        writing.is_loaded = true;
        Ok(())
    }

    /// Holds units for all bytes up to `end`.
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
            if shared.room.grow(&shared.allocator, EXTENT_GROWTH) {
                growth += EXTENT_GROWTH;
                extent = shared.allocator.take(Some(goal), need, need.max(ahead));
            }
            let Some(extent) = extent else {
                let cut = map.truncate(before);
                shared.allocator.give_back(&cut);
                shared.room.shrink(growth);
                return Err(shared.no_space(need));
            };
            map.push(extent, &shared.layout);
        }
        self.extents.store(map.extents(), Ordering::Relaxed);
        Ok(())
    }

    /// Begins to write home what is not, up to `limit`, and drops from memory the blocks that are whole.
    fn write_home(&self, shared: &Shared, writing: &mut Writing, limit: u64) -> Result<()> {
        let block = shared.data.payload_bytes();
        let end = (writing.start + writing.tail.len() as u64).min(limit);
        if writing.clean < end {
            let first = usize::try_from(writing.clean.saturating_sub(writing.start))
                .expect("within the tail");
            let first = first / block * block;
            // Two writes of one block may be done in any order.
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

    /// Begins to write these bytes of the tail, padded to whole blocks.
    fn submit(&self, shared: &Shared, writing: &mut Writing, bytes: Range<usize>) -> Result<()> {
        let Writing {
            tail,
            start,
            writer,
            ..
        } = writing;
        let writer = match writer {
            Some(writer) => writer,
            None => writer.insert(Writer::new(&shared.lanes)?),
        };
        let map = self.map.read().expect("no holder of the lock panics");
        let most = shared.data.payload_of(shared.lanes.piece_bytes());
        let mut at = bytes.start;
        while at < bytes.end {
            let offset = *start + at as u64;
            let place = self.place(shared, &map, offset);
            let place = place.ok_or_else(|| unmapped(self.id, offset))?;
            let run = usize::try_from(place.run).unwrap_or(usize::MAX);
            let len = (bytes.end - at).min(most).min(run);
            let written = writer.write(&shared.lanes, &place, &tail[at..at + len])?;
            shared.counters.write_bytes.add(written as u64);
            at += len;
        }
        writer.leave()
    }

    /// Waits until all that is being written is home.
    pub(crate) fn drain(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if let Some(writer) = writing.writer.take() {
            let result = writer.finish(&shared.lanes);
            writing.has_failed |= result.is_err();
            shared.poison_if_failed(result)?;
        }
        if writing.has_failed {
            // Whoever took the turn before was told why.
            let context = format!("bytes of file {} could not be written", self.id);
            return Err(Error::new(ErrorKind::Poisoned, context));
        }
        writing.written_to = 0;
        if writing.is_loaded {
            self.home.store(writing.clean, Ordering::Release);
        }
        Ok(())
    }

    fn publish_size(&self, writing: &Writing) {
        self.size
            .store(writing.start + writing.tail.len() as u64, Ordering::Release);
    }
}
