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
//! 1. `tail.start` is a multiple of a block; the tail has all bytes from there to `size`.
//! 2. Units for all bytes before `size` are held: what was appended never meets a full device later.
//! 3. Bytes between `clean` and `stable` are in transactions; then the file is in [`State::carried`], so that the next
//!    checkpoint writes them home.
//! 4. `writing` is taken before the state, and the state before the map for writing.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

use millrace_block::{Lba, Queue, Request};
use millrace_memory::Arena;

use crate::file::ReadPart;
use crate::format::{InodeId, Operation};
use crate::lanes::{Piece, io_error, take_buffer, wait_for_buffer};
use crate::map::Map;
use crate::shared::Shared;
use crate::state::State;
use crate::{Error, ErrorKind, Result, Timestamp};

/// The tail is written home when it is so long.
const TAIL_BYTES: usize = 1 << 20;
/// Writes of one file in flight.
const WRITES_MAX: usize = 8;
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
struct Writing {
    tail: Vec<u8>,
    start: u64,
    /// Whether the tail was loaded; before the first write it is empty.
    is_loaded: bool,
    clean: u64,
    stable: u64,
    /// Whether bytes before `stable` were changed since the last sync.
    is_rewritten: bool,
    /// When something was last changed that no transaction tells of.
    modified: Option<Timestamp>,
    io: Option<Io>,
    /// Whether its units were given up, since it has no name.
    is_released: bool,
    /// Bytes from here on are not being written.
    written_to: u64,
}

/// Writes in flight.
struct Io {
    queue: Box<dyn Queue>,
    arena: Arena,
}

impl std::fmt::Debug for Io {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.queue.fmt(f)
    }
}

/// A file that is open.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) id: InodeId,
    map: RwLock<Map>,
    writing: Mutex<Writing>,
    size: AtomicU64,
    home: AtomicU64,
    /// Whether its last name is gone.
    unlinked: AtomicBool,
}

impl Inode {
    /// A file as the metadata has it.
    pub(crate) fn new(id: InodeId, map: Map, size: u64) -> Self {
        Self {
            id,
            map: RwLock::new(map),
            writing: Mutex::new(Writing {
                tail: Vec::new(),
                start: 0,
                is_loaded: false,
                clean: size,
                stable: size,
                is_rewritten: false,
                modified: None,
                io: None,
                is_released: false,
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

    fn lock(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().expect("no holder of the lock panics")
    }

    /// Reads from `offset` on; returns how many bytes, less than asked for only at the end.
    pub(crate) fn read_at(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<usize> {
        // Truncation changes size, home and map while it has the map to itself.
        let map = self.map.read().expect("no holder of the lock panics");
        let wanted = self.size().saturating_sub(offset).min(out.len() as u64);
        let wanted = usize::try_from(wanted).expect("no more than the buffer has");
        let out = &mut out[..wanted];
        if self.is_home(offset + wanted as u64) {
            self.read_mapped(shared, &map, offset, out)?;
            return Ok(wanted);
        }
        drop(map);
        let mut writing = self.lock();
        self.drain(shared, &mut writing)?;
        let wanted = self.size().saturating_sub(offset).min(wanted as u64);
        let wanted = usize::try_from(wanted).expect("no more than before");
        let out = &mut out[..wanted];
        let start = if writing.is_loaded {
            writing.start
        } else {
            u64::MAX
        };
        let at_home = usize::try_from(start.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(wanted);
        let (at_home, in_memory) = out.split_at_mut(at_home);
        if !at_home.is_empty() {
            self.read_home(shared, offset, at_home)?;
        }
        if !in_memory.is_empty() {
            let from =
                usize::try_from((offset + at_home.len() as u64) - start).expect("within the tail");
            in_memory.copy_from_slice(&writing.tail[from..from + in_memory.len()]);
        }
        Ok(wanted)
    }

    /// Reads several parts at once.
    pub(crate) fn read_many(&self, shared: &Shared, parts: &mut [ReadPart<'_>]) {
        let map = self.map.read().expect("no holder of the lock panics");
        let size = self.size();
        let mut pieces = Vec::new();
        // Which part each piece belongs to.
        let mut owners = Vec::new();
        let mut others = Vec::new();
        for (index, part) in parts.iter_mut().enumerate() {
            let wanted = size.saturating_sub(part.offset).min(part.out.len() as u64);
            if !self.is_home(part.offset + wanted) || shared.read_only {
                others.push(part);
                continue;
            }
            let wanted = usize::try_from(wanted).expect("no more than the buffer has");
            part.result = pieces_of(
                shared,
                &map,
                self.id,
                part.offset,
                &mut part.out[..wanted],
                &mut pieces,
            )
            .map(|()| wanted);
            owners.resize(pieces.len(), (index, wanted));
        }
        shared.counters.reads.add((owners.len()) as u64);
        let results = shared.lanes.with(|lane| Ok(lane.read_many(&mut pieces)));
        drop(pieces);
        drop(map);
        for part in others {
            part.result = self.read_at(shared, part.offset, part.out);
        }
        match results {
            Ok(results) => {
                for (result, (index, wanted)) in results.into_iter().zip(owners) {
                    shared.counters.read_bytes.add(wanted as u64);
                    if let Err(error) = result {
                        parts[index].result = Err(error);
                    }
                }
            }
            Err(error) => {
                let context = error.to_string();
                for (index, _) in owners {
                    parts[index].result = Err(Error::new(error.kind(), context.clone()));
                }
            }
        }
    }

    /// Whether these bytes can be read from the device, and nowhere else.
    pub(crate) fn is_home(&self, end: u64) -> bool {
        end <= self.home.load(Ordering::Acquire)
    }

    fn read_home(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<()> {
        let map = self.map.read().expect("no holder of the lock panics");
        self.read_mapped(shared, &map, offset, out)
    }

    fn read_mapped(&self, shared: &Shared, map: &Map, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut pieces = Vec::new();
        shared.counters.reads.add(1);
        shared.counters.read_bytes.add(out.len() as u64);
        pieces_of(shared, map, self.id, offset, out, &mut pieces)?;
        if !pieces.is_empty() {
            shared.lanes.with(|lane| lane.read(&mut pieces))?;
        }
        drop(pieces);
        shared.patch(self.id, offset, out);
        Ok(())
    }

    /// Where `len` bytes at `offset`, all of them home, lie in one run: the first block and the bytes before.
    pub(crate) fn locate(&self, shared: &Shared, offset: u64, len: usize) -> Option<(u64, usize)> {
        let map = self.map.read().expect("no holder of the lock panics");
        let (lba, skip, run) = place(shared, &map, offset)?;
        (run >= len as u64).then_some((lba, skip))
    }

    /// Appends.
    pub(crate) fn append(&self, shared: &Shared, mut data: &[u8]) -> Result<()> {
        let mut writing = self.begin_write(shared, |size| size.checked_add(data.len() as u64))?;
        writing.modified = Some(shared.now());
        while !data.is_empty() {
            let room = TAIL_BYTES.saturating_sub(writing.tail.len());
            if room == 0 {
                self.write_behind_tail(shared, &mut writing)?;
                continue;
            }
            let (now, later) = data.split_at(room.min(data.len()));
            writing.tail.extend_from_slice(now);
            data = later;
            self.publish_size(&writing);
        }
        if writing.tail.len() >= TAIL_BYTES {
            self.write_behind_tail(shared, &mut writing)?;
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
        let block = shared.lanes.block_bytes() as u64;
        self.write_home(shared, writing, goes / block * block)
    }

    /// Writes at an offset; a gap before it becomes zeros.
    pub(crate) fn write_at(&self, shared: &Shared, offset: u64, data: &[u8]) -> Result<()> {
        let mut gap = offset.saturating_sub(self.size());
        while gap > 0 {
            let zeros =
                vec![0; usize::try_from(gap.min(TAIL_BYTES as u64)).expect("at most a tail")];
            self.append(shared, &zeros)?;
            gap = offset.saturating_sub(self.size());
        }
        let mut writing = self.begin_write(shared, |_| offset.checked_add(data.len() as u64))?;
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
            self.overwrite_home(shared, offset, below)?;
        }
        if !in_tail.is_empty() {
            let at = offset + below.len() as u64;
            let from = usize::try_from(at - writing.start).expect("within the tail");
            writing.tail[from..from + in_tail.len()].copy_from_slice(in_tail);
            writing.clean = writing.clean.min(at);
            self.home.fetch_min(at, Ordering::AcqRel);
        }
        drop(writing);
        self.append(shared, beyond)
    }

    /// Changes bytes on the device: whole blocks are read, changed and written.
    fn overwrite_home(&self, shared: &Shared, offset: u64, data: &[u8]) -> Result<()> {
        let block = shared.lanes.block_bytes() as u64;
        let mut at = offset;
        let mut left = data;
        while !left.is_empty() {
            let map = self.map.read().expect("no holder of the lock panics");
            let (lba, skip, run) = place(shared, &map, at).ok_or_else(|| unmapped(self.id, at))?;
            let len = usize::try_from(run.min((shared.lanes.piece_bytes() - skip) as u64))
                .expect("at most a piece");
            let (now, later) = left.split_at(len.min(left.len()));
            let mut blocks = vec![
                0;
                (skip + now.len())
                    .next_multiple_of(usize::try_from(block).expect("small"))
            ];
            shared.lanes.with(|lane| {
                let out = &mut blocks[..];
                lane.read(&mut [Piece { lba, skip: 0, out }])
            })?;
            blocks[skip..skip + now.len()].copy_from_slice(now);
            shared.poison_if_failed(shared.lanes.with(|lane| lane.write(lba, &blocks, false)))?;
            at += now.len() as u64;
            left = later;
        }
        Ok(())
    }

    /// Makes the file so long. What is cut off is gone, what is added is zeros. A cut within a unit is on the medium
    /// when this returns.
    pub(crate) fn truncate(&self, shared: &Shared, size: u64) -> Result<()> {
        if size >= self.size() {
            let mut gap = size - self.size();
            while gap > 0 {
                let zeros =
                    vec![0; usize::try_from(gap.min(TAIL_BYTES as u64)).expect("at most a tail")];
                self.append(shared, &zeros)?;
                gap -= zeros.len() as u64;
            }
            return Ok(());
        }
        let mut writing = self.begin_write(shared, Some)?;
        // What transactions carry goes home first: the cut may not reach the medium.
        if writing.clean < writing.stable {
            self.write_home(shared, &mut writing, u64::MAX)?;
        }
        self.drain(shared, &mut writing)?;
        let block = shared.lanes.block_bytes() as u64;
        let start = size / block * block;
        if start >= writing.start {
            let kept = usize::try_from(size - writing.start).expect("within the tail");
            writing.tail.truncate(kept);
        } else {
            let mut tail = vec![0; usize::try_from(size - start).expect("less than a block")];
            self.read_home(shared, start, &mut tail)?;
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
        drop(map);
        shared.allocator.give_back(&unnamed);
        shared.allocator.release(freed_by, &named);
        drop(state);
        let cuts_a_unit = size < writing.stable && size % shared.unit_bytes() != 0;
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
                    units * shared.unit_bytes()
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

    /// The last handle is gone: what was appended goes home, and units that are not needed are given up.
    pub(crate) fn close(&self, shared: &Shared) -> Result<()> {
        let mut writing = self.lock();
        if self.is_unlinked() {
            self.drain(shared, &mut writing)?;
            if !std::mem::replace(&mut writing.is_released, true) {
                // Tail and map stay: a checkpoint that knows the file may be about to bring it home.
                let newest = shared.state().newest();
                let map = self.map.read().expect("no holder of the lock panics");
                shared.allocator.release(newest, &map.slice(0, map.units()));
            }
            return Ok(());
        }
        if writing.is_loaded && shared.check_writable().is_ok() {
            if self.size() > writing.stable || writing.is_rewritten || writing.modified.is_some() {
                self.record(shared, &mut writing, false)?;
            }
            self.write_home(shared, &mut writing, u64::MAX)?;
            self.drain(shared, &mut writing)?;
        }
        let mut map = self.map.write().expect("no holder of the lock panics");
        let surplus = map.truncate(shared.units(self.size()).max(shared.units(writing.stable)));
        drop(map);
        shared.allocator.give_back(&surplus);
        Ok(())
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
        if let Err(error) = self.hold_units(shared, end()?) {
            // What was deleted may become free once transactions are on the medium; nothing may be locked then.
            drop(writing);
            if shared.allocator.limbo_units() == 0 {
                return Err(error);
            }
            shared.commit_all()?;
            writing = self.lock();
            self.hold_units(shared, end()?)?;
        }
        Ok(writing)
    }

    /// The tail begins with the last block, if that is not whole.
    fn load_tail(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if writing.is_loaded {
            return Ok(());
        }
        let size = self.size();
        let block = shared.lanes.block_bytes() as u64;
        let start = size / block * block;
        let mut tail = vec![0; usize::try_from(size - start).expect("less than a block")];
        self.read_home(shared, start, &mut tail)?;
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
        while map.units() < needed {
            let units = map.units();
            let growth = units.min(GROWTH_BYTES_MAX / shared.unit_bytes());
            let goal = map.goal().unwrap_or_else(|| shared.allocator.new_goal());
            let need = needed - units;
            let Some(extent) = shared.allocator.take(Some(goal), need, need.max(growth)) else {
                let cut = map.truncate(before);
                shared.allocator.give_back(&cut);
                return Err(shared.no_space(need));
            };
            map.push(extent, &shared.layout);
        }
        Ok(())
    }

    /// Begins to write home what is not, up to `limit`, and drops from memory the blocks that are whole.
    fn write_home(&self, shared: &Shared, writing: &mut Writing, limit: u64) -> Result<()> {
        let block = shared.lanes.block_bytes();
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

    /// Submits these bytes of the tail, padded to whole blocks.
    fn submit(&self, shared: &Shared, writing: &mut Writing, bytes: Range<usize>) -> Result<()> {
        let Writing {
            tail, start, io, ..
        } = writing;
        let io = match io {
            Some(io) => io,
            None => {
                let (queue, arena) = shared.lanes.writer()?;
                io.insert(Io { queue, arena })
            }
        };
        let block = shared.lanes.block_bytes();
        let map = self.map.read().expect("no holder of the lock panics");
        let mut at = bytes.start;
        while at < bytes.end {
            let offset = *start + at as u64;
            let (lba, _, run) =
                place(shared, &map, offset).ok_or_else(|| unmapped(self.id, offset))?;
            let run = usize::try_from(run).unwrap_or(usize::MAX);
            let len = (bytes.end - at).min(shared.lanes.piece_bytes()).min(run);
            let padded = len.next_multiple_of(block);
            while io.queue.in_flight() >= WRITES_MAX {
                take_write(io)?;
            }
            let mut buffer = loop {
                match take_buffer(&io.arena, padded)? {
                    Some(buffer) => break buffer,
                    None if io.queue.in_flight() > 0 => take_write(io)?,
                    None => break wait_for_buffer(&io.arena, padded)?,
                }
            };
            buffer[..len].copy_from_slice(&tail[at..at + len]);
            buffer[len..].fill(0);
            let submitted = io.queue.submit(Request::write(Lba(lba), buffer, lba));
            submitted.map_err(|refused| io_error("write", lba, refused.error))?;
            shared.counters.write_bytes.add(padded as u64);
            at += len;
        }
        // Has the device begin.
        while let Some(completion) = io.queue.poll() {
            let lba = completion.token;
            completion
                .result
                .map_err(|error| io_error("write", lba, error))?;
        }
        Ok(())
    }

    /// Waits until all that is being written is home.
    fn drain(&self, shared: &Shared, writing: &mut Writing) -> Result<()> {
        if let Some(mut io) = writing.io.take() {
            let mut result = Ok(());
            while io.queue.in_flight() > 0 {
                result = result.and(take_write(&mut io));
            }
            shared.lanes.return_writer(io.queue);
            shared.poison_if_failed(result)?;
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

/// Waits for one write.
fn take_write(io: &mut Io) -> Result<()> {
    let lost = || Error::new(ErrorKind::Io, "the device lost a write");
    let completion = io.queue.wait().ok_or_else(lost)?;
    let lba = completion.token;
    completion
        .result
        .map_err(|error| io_error("write", lba, error))
}

/// Where the byte at `offset` lies: its block, the bytes before it there, and how many bytes follow in a run.
fn place(shared: &Shared, map: &Map, offset: u64) -> Option<(u64, usize, u64)> {
    let unit = shared.unit_bytes();
    let (device_unit, units) = map.locate(offset / unit)?;
    let block = shared.lanes.block_bytes() as u64;
    let within = offset % unit;
    let lba = (device_unit * unit + within) / block;
    let skip = usize::try_from(within % block).ok()?;
    Some((lba, skip, units * unit - within))
}

/// Divides a read into pieces that the device can do.
pub(crate) fn pieces_of<'a>(
    shared: &Shared,
    map: &Map,
    id: InodeId,
    offset: u64,
    out: &'a mut [u8],
    pieces: &mut Vec<Piece<'a>>,
) -> Result<()> {
    let mut at = offset;
    let mut left = out;
    while !left.is_empty() {
        let (lba, skip, run) = place(shared, map, at).ok_or_else(|| unmapped(id, at))?;
        let most = shared.lanes.piece_bytes() - skip;
        let len = usize::try_from(run)
            .unwrap_or(usize::MAX)
            .min(most)
            .min(left.len());
        let (out, later) = left.split_at_mut(len);
        pieces.push(Piece { lba, skip, out });
        at += len as u64;
        left = later;
    }
    Ok(())
}

fn unmapped(id: InodeId, offset: u64) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("file {id} has no unit at byte {offset}"),
    )
}
