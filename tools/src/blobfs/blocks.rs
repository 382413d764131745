//! The blocks of a device, one request after the other: for what is done before there is a volume.

use std::sync::Arc;

use millrace_block::{
    Completion, Device, Error, ErrorKind, Geometry, Lba, Queue, Refused, Request, Result,
};
use millrace_memory::{Arena, ArenaOptions, DomainId, NoDevice, SizeClass};

/// The longest read.
const PIECE_BYTES: usize = 256 << 10;

/// A queue of a device, and a buffer for it.
#[derive(Debug)]
pub(super) struct Blocks {
    geometry: Geometry,
    queue: Box<dyn Queue>,
    arena: Arena,
    piece_bytes: usize,
}

impl Blocks {
    /// Takes a queue of a device.
    pub(super) fn new(device: &Arc<dyn Device>) -> Result<Self> {
        let geometry = device.geometry().clone();
        // Blocks are powers of two, and no transfer is shorter than one.
        let piece_bytes = 1 << PIECE_BYTES.min(geometry.transfer_bytes_max).ilog2();
        let options = ArenaOptions {
            classes: vec![SizeClass {
                size: piece_bytes,
                count: 2,
            }],
            // What no device sees need not be locked.
            locked: DomainId::of(device.domain()) != DomainId::of(&NoDevice::shared()),
            ..ArenaOptions::default()
        };
        let arena = Arena::new(Arc::clone(device.domain()), &options)
            .map_err(|error| Error::new(ErrorKind::Memory, "making a buffer").caused_by(error))?;
        Ok(Self {
            queue: device.queue()?,
            arena,
            piece_bytes,
            geometry,
        })
    }

    /// What the device is like.
    pub(super) const fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Reads `blocks` blocks from `lba` on.
    pub(super) fn read(&mut self, lba: u64, blocks: u64) -> Result<Vec<u8>> {
        let block_bytes = self.geometry.block_bytes as usize;
        let bytes = usize::try_from(blocks).unwrap_or(usize::MAX) * block_bytes;
        let mut read = Vec::with_capacity(bytes);
        while read.len() < bytes {
            let piece = self.piece_bytes.min(bytes - read.len());
            let buffer = self.arena.try_buffer(piece).map_err(|error| {
                Error::new(ErrorKind::Memory, "taking a buffer").caused_by(error)
            })?;
            let lba = Lba(lba + (read.len() / block_bytes) as u64);
            let completion = self.run(Request::read(lba, buffer, 0))?;
            read.extend_from_slice(&completion.buffer.expect("a read brings its buffer back"));
        }
        Ok(read)
    }

    /// Makes blocks zeros.
    pub(super) fn zero(&mut self, lba: u64, blocks: u64) -> Result<()> {
        self.run(Request::write_zeroes(Lba(lba), blocks, 0))
            .map(drop)
    }

    /// Tells the device that nobody needs what is in these blocks.
    pub(super) fn deallocate(&mut self, lba: u64, blocks: u64) -> Result<()> {
        self.run(Request::deallocate(Lba(lba), blocks, 0)).map(drop)
    }

    /// Puts on the medium what was written.
    pub(super) fn flush(&mut self) -> Result<()> {
        self.run(Request::flush(0)).map(drop)
    }

    fn run(&mut self, request: Request) -> Result<Completion> {
        let refused = |Refused { error, .. }| error;
        let mut completion = self.queue.run(request).map_err(refused)?;
        std::mem::replace(&mut completion.result, Ok(()))?;
        Ok(completion)
    }
}
