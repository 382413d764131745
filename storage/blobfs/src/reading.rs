//! Reads of an open file.
//!
//! Bytes on the device are read under the map's read lock, which only truncation takes for writing; all other bytes
//! under the `writing` lock.

use std::sync::atomic::Ordering;

use crate::format::{BlockTrailer, InodeId};
use crate::inode::Inode;
use crate::io::no_mapping;
use crate::io_context::Piece;
use crate::map::{BlockMapping, Map};
use crate::shared::Shared;
use crate::types::ReadPart;
use crate::{Error, ErrorKind, Result};

impl Inode {
    /// Reads at `offset`; returns the number of bytes, less than `out.len()` only at the end.
    pub(crate) fn read_at(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<usize> {
        // Truncation changes size, `on_device_end` and map under the map's write lock.
        let map = self.map.read().expect("no holder of the lock panics");
        let wanted = self.size().saturating_sub(offset).min(out.len() as u64);
        let wanted = usize::try_from(wanted).expect("no more than the buffer has");
        let out = &mut out[..wanted];
        if self.is_on_device(offset + wanted as u64) {
            match self.read_mapped(shared, &map, offset, out) {
                Ok(()) => return Ok(wanted),
                // A read concurrent with a write of the block may mix both; under the `writing` lock it cannot.
                Err(error) if is_mismatch(&error) => {}
                Err(error) => return Err(error),
            }
        }
        drop(map);
        let read = self.read_in_turn(shared, offset, out);
        read.map_err(|error| self.named(shared, error))
    }

    /// Reads under the `writing` lock.
    fn read_in_turn(&self, shared: &Shared, offset: u64, out: &mut [u8]) -> Result<usize> {
        let mut writing = self.lock();
        // A failed write concerns only reads of its bytes.
        let _ = self.drain(shared, &mut writing);
        let wanted = self.size().saturating_sub(offset).min(out.len() as u64);
        let wanted = usize::try_from(wanted).expect("no more than before");
        let out = &mut out[..wanted];
        let start = if writing.is_loaded {
            writing.start
        } else {
            u64::MAX
        };
        let on_device = usize::try_from(start.saturating_sub(offset))
            .unwrap_or(usize::MAX)
            .min(wanted);
        let (on_device, in_memory) = out.split_at_mut(on_device);
        if !on_device.is_empty() {
            if writing.has_failed && !self.is_on_device(offset + on_device.len() as u64) {
                let context = format!(
                    "bytes of file {} could not be written and are lost",
                    self.id
                );
                return Err(Error::new(ErrorKind::Io, context));
            }
            self.read_on_device(shared, offset, on_device)?;
        }
        if !in_memory.is_empty() {
            let from = usize::try_from((offset + on_device.len() as u64) - start)
                .expect("within the tail");
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
            if !self.is_on_device(part.offset + wanted) || shared.read_only {
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
        let results = shared.io_contexts.with(|io| Ok(io.read_many(&mut pieces)));
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

    /// Whether bytes before `end` are complete on the device.
    pub(crate) fn is_on_device(&self, end: u64) -> bool {
        end <= self.on_device_end.load(Ordering::Acquire)
    }

    pub(crate) fn read_on_device(
        &self,
        shared: &Shared,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
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

    /// Reads from the device, without the journaled bytes.
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
        let mapping = self.mapping(shared, map, offset);
        let mapping = mapping.ok_or_else(|| no_mapping(self.id, offset))?;
        // Most reads need one transfer, and no list.
        if out.len() <= longest(shared, &mapping) {
            let mut piece = [mapping.piece(out)];
            return shared.io_contexts.with(|io| io.read(&mut piece));
        }
        let mut pieces = Vec::new();
        pieces_of(shared, map, self.id, offset, out, &mut pieces)?;
        shared.io_contexts.with(|io| io.read(&mut pieces))
    }

    /// Reads block by block, without the blocks of which all wanted bytes are journaled: these may never have been
    /// written.
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

    /// First block, and bytes before `offset` in it, of `len` bytes that are contiguous on the device.
    pub(crate) fn locate(&self, shared: &Shared, offset: u64, len: usize) -> Option<(u64, usize)> {
        let (lba, skip, run) = self.run_at(shared, offset)?;
        (run >= len as u64).then_some((lba, skip))
    }

    /// Block of the byte at `offset`, the bytes before it there, and the number of contiguous bytes.
    pub(crate) fn run_at(&self, shared: &Shared, offset: u64) -> Option<(u64, usize, u64)> {
        let map = self.map.read().expect("no holder of the lock panics");
        map.find(shared.data, offset)
    }

    /// Verifies blocks and moves the file's bytes at `offset` to their front; false if a trailer does not match.
    pub(crate) fn verify_blocks(&self, shared: &Shared, offset: u64, blocks: &mut [u8]) -> bool {
        BlockTrailer::at(shared.data, shared.key, self.id, offset)
            .is_none_or(|trailer| trailer.verify_in_place(blocks).is_ok())
    }

    /// Mapping of the byte at `offset`.
    pub(crate) fn mapping(&self, shared: &Shared, map: &Map, offset: u64) -> Option<BlockMapping> {
        map.mapping(shared.data, shared.key, self.id, offset)
    }

    /// Adds the file's path to a checksum error. The caller may hold the `writing` lock only.
    pub(crate) fn named(&self, shared: &Shared, error: Error) -> Error {
        if !is_mismatch(&error) {
            return error;
        }
        let path = shared.state().metadata.path_of(self.id);
        error.at(&path)
    }
}

/// Whether the error is a checksum mismatch.
fn is_mismatch(error: &Error) -> bool {
    error.kind() == ErrorKind::Corruption
}

/// Bytes of the longest transfer from a mapping on.
fn longest(shared: &Shared, mapping: &BlockMapping) -> usize {
    let most = shared.data.payload_of(shared.io_contexts.piece_bytes()) - mapping.skip;
    usize::try_from(mapping.run).unwrap_or(usize::MAX).min(most)
}

/// Splits a read into transfers.
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
        let mapping = map.mapping(shared.data, shared.key, id, at);
        let mapping = mapping.ok_or_else(|| no_mapping(id, at))?;
        let len = longest(shared, &mapping).min(left.len());
        let (out, later) = left.split_at_mut(len);
        pieces.push(mapping.piece(out));
        at += len as u64;
        left = later;
    }
    Ok(())
}
