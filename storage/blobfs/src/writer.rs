//! Writes of one file that stay in flight between calls.

use std::fmt;

use millrace_block::{Completion, ErrorKind as DeviceErrorKind, Queue, Request};
use millrace_memory::Arena;

use crate::Result;
use crate::io_context::{IoContexts, io_error, lost, take_buffer, wait_for_buffer};
use crate::map::BlockMapping;
use crate::permits::{Permit, Purpose};

/// Most writes of one file in flight.
const WRITES_MAX: usize = 8;

struct InFlight {
    token: u64,
    lba: u64,
    /// Permit to stay in flight between calls; a write without one completes within the call.
    permit: Option<Permit>,
}

/// A queue with writes of one file in flight.
pub(crate) struct Writer {
    queue: Box<dyn Queue>,
    arena: Arena,
    in_flight: Vec<InFlight>,
    next_token: u64,
}

impl Writer {
    /// A writer with nothing in flight.
    pub(crate) fn new(io_contexts: &IoContexts) -> Result<Self> {
        let (queue, arena) = io_contexts.writer()?;
        Ok(Self {
            queue,
            arena,
            in_flight: Vec::with_capacity(WRITES_MAX),
            next_token: 0,
        })
    }

    /// Submits a write of at most one transfer, padded with zeros to whole blocks, to a mapping at the start of a block;
    /// returns the bytes sent to the device. The caller must end with [`Writer::submit_all`] or [`Writer::finish`].
    pub(crate) fn write(
        &mut self,
        io_contexts: &IoContexts,
        mapping: &BlockMapping,
        bytes: &[u8],
    ) -> Result<usize> {
        debug_assert_eq!(mapping.skip, 0);
        let (lba, trailer) = (mapping.lba, mapping.trailer.as_ref());
        let padded = match trailer {
            None => bytes.len().next_multiple_of(io_contexts.block_bytes()),
            Some(trailer) => trailer.transfer_bytes(bytes.len()),
        };
        while self.in_flight.len() >= WRITES_MAX {
            self.complete_one()?;
        }
        let mut buffer = loop {
            match take_buffer(&self.arena, padded)? {
                Some(buffer) => break buffer,
                None if !self.in_flight.is_empty() => self.complete_one()?,
                None => break wait_for_buffer(&self.arena, padded)?,
            }
        };
        if let Some(trailer) = trailer {
            trailer.fill_blocks(bytes, &mut buffer);
        } else {
            buffer[..bytes.len()].copy_from_slice(bytes);
            buffer[bytes.len()..].fill(0);
        }
        let permit = io_contexts.permit(Purpose::Write, &buffer);
        let token = self.next_token;
        self.next_token += 1;
        let mut request = Request::write(io_contexts.address(lba), buffer, token);
        while let Err(refused) = self.queue.submit(request) {
            if refused.error.kind() != DeviceErrorKind::Full || self.in_flight.is_empty() {
                return Err(io_error("write", lba, refused.error));
            }
            request = refused.request;
            self.complete_one()?;
        }
        self.in_flight.push(InFlight { token, lba, permit });
        Ok(padded)
    }

    /// Submits all writes to the device, and waits for the writes that have no permit to stay in flight.
    pub(crate) fn submit_all(&mut self) -> Result<()> {
        while let Some(completion) = self.queue.poll() {
            self.complete(completion)?;
        }
        while self.in_flight.iter().any(|write| write.permit.is_none()) {
            self.complete_one()?;
        }
        Ok(())
    }

    /// Waits for all writes; returns the first failure when none is in flight any more.
    pub(crate) fn finish(mut self, io_contexts: &IoContexts) -> Result<()> {
        let mut result = Ok(());
        while !self.in_flight.is_empty() {
            let completion = self.queue.wait().ok_or_else(lost)?;
            result = result.and(self.complete(completion));
        }
        io_contexts.return_writer(self.queue);
        result
    }

    fn complete_one(&mut self) -> Result<()> {
        let completion = self.queue.wait().ok_or_else(lost)?;
        self.complete(completion)
    }

    fn complete(&mut self, completion: Completion) -> Result<()> {
        let is_this = |write: &InFlight| write.token == completion.token;
        let at = self.in_flight.iter().position(is_this).ok_or_else(lost)?;
        // The buffer drops before its permit.
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
