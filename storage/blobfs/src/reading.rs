//! Reading of an open file.
//!
//! What is home is read by whoever wants it, with no lock but the map's, which only truncation has for long; what
//! is not, by who takes the turn to write.

use std::sync::atomic::Ordering;

use crate::file::ReadPart;
use crate::format::{InodeId, Seal};
use crate::inode::Inode;
use crate::lanes::Piece;
use crate::map::{Map, Place};
use crate::shared::Shared;
use crate::{Error, ErrorKind, Result};

impl Inode {
    /// Reads from `offset` on; returns how many bytes, less than asked for only at the end.
    pub(crate) fn read_at(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<usize> {
        // Truncation changes size, home and map while it has the map to itself.
        let map = self.map.read().expect("no holder of the lock panics");
        let wanted = self.size().saturating_sub(offset).min(out.len() as u64);
        let wanted = usize::try_from(wanted).expect("no more than the buffer has");
        let out = &mut out[..wanted];
        if self.is_home(offset + wanted as u64) {
            match self.read_mapped(shared, &map, offset, out) {
                Ok(()) => return Ok(wanted),
                // A block that is being written again may be read in halves: with the turn to write it is not.
                Err(error) if is_mismatch(&error) => {}
                Err(error) => return Err(error),
            }
        }
        drop(map);
        let read = self.read_in_turn(shared, offset, out);
        read.map_err(|error| self.named(shared, error))
    }

    /// The same with the turn to write.
    fn read_in_turn(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut writing = self.lock();
        // What could not be written concerns only those who want it.
        let _ = self.drain(shared, &mut writing);
        let wanted = self.size().saturating_sub(offset).min(out.len() as u64);
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
            if writing.has_failed && !self.is_home(offset + at_home.len() as u64) {
                let context = format!(
                    "bytes of file {} could not be written and are lost",
                    self.id
                );
                return Err(Error::new(ErrorKind::Io, context));
            }
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
                for part in parts {
                    if part.result.as_ref().is_err_and(is_mismatch) {
                        part.result = self.read_at(shared, part.offset, part.out);
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

    pub(crate) fn read_home(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<()> {
        let map = self.map.read().expect("no holder of the lock panics");
        self.read_mapped(shared, &map, offset, out)
    }

    fn read_mapped(&self, shared: &Shared, map: &Map, offset: u64, out: &mut [u8]) -> Result<()> {
        shared.counters.reads.add(1);
        shared.counters.read_bytes.add(out.len() as u64);
        let mut read = self.read_blocks(shared, map, offset, out);
        if shared.read_only && read.as_ref().is_err_and(is_mismatch) {
            read = self.read_around(shared, map, offset, out);
        }
        read?;
        shared.patch(self.id, offset, out);
        Ok(())
    }

    /// Reads from the device.
    pub(crate) fn read_blocks(
        &self,
        shared: &Shared,
        map: &Map,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let place = self.place(shared, map, offset);
        let place = place.ok_or_else(|| unmapped(self.id, offset))?;
        // Most reads are of one piece, which needs no list.
        if out.len() <= longest(shared, &place) {
            let mut piece = [place.piece(out)];
            return shared.lanes.with(|lane| lane.read(&mut piece));
        }
        let mut pieces = Vec::new();
        pieces_of(shared, map, self.id, offset, out, &mut pieces)?;
        shared.lanes.with(|lane| lane.read(&mut pieces))
    }

    /// The same block by block, without those of which transactions carry all that is wanted: these may never have
    /// been written.
    fn read_around(&self, shared: &Shared, map: &Map, offset: u64, out: &mut [u8]) -> Result<()> {
        let mut at = offset;
        let mut left = out;
        while !left.is_empty() {
            let len = shared.data.payload_bytes() - shared.data.block_of(at).1;
            let (now, later) = left.split_at_mut(len.min(left.len()));
            let end = at + now.len() as u64;
            if !shared.overlay.covers(self.id, at..end) {
                self.read_blocks(shared, map, at, now)?;
            }
            at = end;
            left = later;
        }
        Ok(())
    }

    /// Where `len` bytes at `offset`, all of them home, lie in one run: the first block and the bytes before.
    pub(crate) fn locate(&self, shared: &Shared, offset: u64, len: usize) -> Option<(u64, usize)> {
        let (lba, skip, run) = self.run_at(shared, offset)?;
        (run >= len as u64).then_some((lba, skip))
    }

    /// Where the byte at `offset` lies: its block, the bytes before it there, and how many bytes follow in a run.
    pub(crate) fn run_at(&self, shared: &Shared, offset: u64) -> Option<(u64, usize, u64)> {
        let map = self.map.read().expect("no holder of the lock panics");
        map.find(shared.data, offset)
    }

    /// Takes the bytes at `offset` and behind out of the blocks that hold them; false if these are others.
    pub(crate) fn open_blocks(&self, shared: &Shared, offset: u64, blocks: &mut [u8]) -> bool {
        Seal::at(shared.data, shared.key, self.id, offset)
            .is_none_or(|seal| seal.open_in_place(blocks).is_ok())
    }

    /// Where the byte at `offset` lies.
    pub(crate) fn place(&self, shared: &Shared, map: &Map, offset: u64) -> Option<Place> {
        map.place(shared.data, shared.key, self.id, offset)
    }

    /// The error with the file's name, if it is about what the file holds. Only the turn to write may be taken.
    pub(crate) fn named(&self, shared: &Shared, error: Error) -> Error {
        if !is_mismatch(&error) {
            return error;
        }
        let path = shared.state().metadata.path_of(self.id);
        error.at(&path)
    }
}

/// Whether what was read is not what was written.
fn is_mismatch(error: &Error) -> bool {
    error.kind() == ErrorKind::Corruption
}

/// Bytes of the longest piece from a place on.
fn longest(shared: &Shared, place: &Place) -> usize {
    let most = shared.data.payload_of(shared.lanes.piece_bytes()) - place.skip;
    usize::try_from(place.run).unwrap_or(usize::MAX).min(most)
}

/// Divides a read into pieces that the device can do.
fn pieces_of<'a>(
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
        let place = map.place(shared.data, shared.key, id, at);
        let place = place.ok_or_else(|| unmapped(id, at))?;
        let len = longest(shared, &place).min(left.len());
        let (out, later) = left.split_at_mut(len);
        pieces.push(place.piece(out));
        at += len as u64;
        left = later;
    }
    Ok(())
}

pub(crate) fn unmapped(id: InodeId, offset: u64) -> Error {
    Error::new(
        ErrorKind::Corruption,
        format!("file {id} has no unit at byte {offset}"),
    )
}
