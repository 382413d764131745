//! Writes of one file, in flight also between calls.

use std::fmt;

use millrace_block::{Completion, ErrorKind as DeviceErrorKind, Queue, Request};
use millrace_memory::Arena;

use crate::Result;
use crate::lanes::{Lanes, io_error, lost, take_buffer, wait_for_buffer};
use crate::map::Place;
use crate::permits::{Permit, Purpose};

/// Writes of one file in flight.
const WRITES_MAX: usize = 8;

struct InFlight {
    token: u64,
    lba: u64,
    /// Without one it ends before the call does.
    permit: Option<Permit>,
}

/// A queue with writes of one file.
pub(crate) struct Writer {
    queue: Box<dyn Queue>,
    arena: Arena,
    in_flight: Vec<InFlight>,
    next_token: u64,
}

impl Writer {
    /// With nothing in flight.
    pub(crate) fn new(lanes: &Lanes) -> Result<Self> {
        let (queue, arena) = lanes.writer()?;
        Ok(Self {
            queue,
            arena,
            in_flight: Vec::with_capacity(WRITES_MAX),
            next_token: 0,
        })
    }

    /// Begins to write at most a piece, padded with zeros to whole blocks, to a place that begins one; returns how many
    /// bytes go to the device. When a call has begun all it has to, it must come to [`Writer::leave`] or [`Writer::finish`].
    pub(crate) fn write(&mut self, lanes: &Lanes, place: &Place, bytes: &[u8]) -> Result<usize> {
        debug_assert_eq!(place.skip, 0);
        let (lba, seal) = (place.lba, place.seal.as_ref());
        let padded = match seal {
            None => bytes.len().next_multiple_of(lanes.block_bytes()),
            Some(seal) => seal.transfer_bytes(bytes.len()),
        };
        while self.in_flight.len() >= WRITES_MAX {
            self.take_one()?;
        }
        let mut buffer = loop {
            match take_buffer(&self.arena, padded)? {
                Some(buffer) => break buffer,
                None if !self.in_flight.is_empty() => self.take_one()?,
                None => break wait_for_buffer(&self.arena, padded)?,
            }
        };
        if let Some(seal) = seal {
            seal.close(bytes, &mut buffer);
        } else {
            buffer[..bytes.len()].copy_from_slice(bytes);
            buffer[bytes.len()..].fill(0);
        }
        let permit = lanes.permit(Purpose::Write, &buffer);
        let token = self.next_token;
        self.next_token += 1;
        let mut request = Request::write(lanes.address(lba), buffer, token);
        while let Err(refused) = self.queue.submit(request) {
            if refused.error.kind() != DeviceErrorKind::Full || self.in_flight.is_empty() {
                return Err(io_error("write", lba, refused.error));
            }
            request = refused.request;
            self.take_one()?;
        }
        self.in_flight.push(InFlight { token, lba, permit });
        Ok(padded)
    }

    /// Has the device begin, and waits for writes whose buffers others may be in need of.
    pub(crate) fn leave(&mut self) -> Result<()> {
        while let Some(completion) = self.queue.poll() {
            self.took(completion)?;
        }
        while self.in_flight.iter().any(|write| write.permit.is_none()) {
            self.take_one()?;
        }
        Ok(())
    }

    /// Waits for all writes; the first failure is told when none is in flight any more.
    pub(crate) fn finish(mut self, lanes: &Lanes) -> Result<()> {
        let mut result = Ok(());
        while !self.in_flight.is_empty() {
            let completion = self.queue.wait().ok_or_else(lost)?;
            result = result.and(self.took(completion));
        }
        lanes.return_writer(self.queue);
        result
    }

    fn take_one(&mut self) -> Result<()> {
        let completion = self.queue.wait().ok_or_else(lost)?;
        self.took(completion)
    }

    fn took(&mut self, completion: Completion) -> Result<()> {
        let is_this = |write: &InFlight| write.token == completion.token;
        let at = self.in_flight.iter().position(is_this).ok_or_else(lost)?;
        // The buffer goes before the permit does.
        drop(completion.buffer);
        let write = self.in_flight.swap_remove(at);
        completion
            .result
            .map_err(|error| io_error("write", write.lba, error))
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Writer")
            .field("queue", &self.queue)
            .field("in_flight", &self.in_flight.len())
            .finish_non_exhaustive()
    }
}
