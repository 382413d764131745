//! The half that is stored to.

use std::ptr::NonNull;

use crate::error::out_of_range;
use crate::medium::{LINE, WORD};
use crate::window::Part;
use crate::{Cacheability, Fence, Mapped, Medium, Result, Site};

/// Bytes of a window that this side stores to and the peer loads from. There is no way to load from them.
///
/// One thread at a time stores: the order between two threads' stores would be neither's.
#[derive(Debug)]
pub struct Outgoing<M: Medium> {
    part: Part<M>,
    steps: Steps,
}

/// What the mapping needs at each step.
#[derive(Clone, Copy, Debug)]
struct Steps {
    is_drained: bool,
    is_flushed: bool,
    is_pushed: bool,
    can_settle: bool,
}

impl<M: Medium> Outgoing<M> {
    pub(crate) fn new(part: Part<M>) -> Self {
        let attributes = part.medium().attributes();
        let is_flushed = attributes.is_flushed_by_hand();
        let is_cached = attributes.cacheability == Cacheability::WriteBack;
        let steps = Steps {
            is_drained: !is_cached || is_flushed,
            is_flushed,
            is_pushed: !attributes.leaves_by_itself(),
            can_settle: attributes.is_one_memory(),
        };
        Self { part, steps }
    }

    /// How many bytes there are: a multiple of [`APART`](crate::APART).
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.part.size()
    }

    /// The slot of `size` bytes at `offset`, to be filled; both are multiples of [`LINE`]. Several contiguous slots of
    /// a protocol may be filled as one: the peer, which polls them in order, sees none of them before the first is
    /// published.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if it is empty, not within, or not of whole lines.
    #[inline]
    pub fn slot(&mut self, offset: usize, size: usize) -> Result<OutgoingSlot<'_, M>> {
        if size == 0 || size % LINE != 0 {
            return Err(out_of_range("a slot", offset, size, self.size()));
        }
        let start = self.part.find(offset, LINE, size)?;
        Ok(OutgoingSlot {
            medium: self.part.medium(),
            steps: &self.steps,
            start,
            size,
        })
    }

    /// Makes everything published on this thread visible to the peer before any later poll: if two sides each publish,
    /// call this and poll, at least one sees the other's publication. A sleep after the poll needs that.
    ///
    /// Returns whether it is possible: only where both sides access one memory through coherent caches. Over a bus a
    /// store is posted, and only a load from the peer shows that it has arrived; there a sleeping side must
    /// poll again after a time, or receive a doorbell for each message.
    #[inline]
    pub fn settle(&mut self) -> bool {
        if self.steps.can_settle && Site::Settled.is_kept() {
            self.part.medium().fence(Fence::Full);
        }
        self.steps.can_settle
    }
}

/// A slot that is being filled. Dropped, it is as if it had never been, but for the bytes.
///
/// ```text
///  0       8                                  size
///  +-------+------------------------------------+
///  | word  | payload                            |
///  +-------+------------------------------------+
/// ```
#[derive(Debug)]
pub struct OutgoingSlot<'outgoing, M: Medium> {
    medium: &'outgoing M,
    steps: &'outgoing Steps,
    /// Where it begins in the medium.
    start: usize,
    size: usize,
}

impl<M: Medium> OutgoingSlot<'_, M> {
    /// Copies payload to `offset` of the slot, a multiple of [`WORD`] behind the word. Zeros fill the last word
    /// up.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if it does not lie within the slot's payload.
    #[inline]
    pub fn store(&mut self, offset: usize, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len());
        let is_within = offset >= WORD && end.is_some_and(|end| end <= self.size);
        if !is_within || offset % WORD != 0 {
            return Err(out_of_range("payload", offset, bytes.len(), self.size));
        }
        let start = self.start + offset;
        self.medium.store_bytes(start, bytes);
        self.write_back(start, bytes.len());
        Ok(())
    }

    /// Records that the first `size` bytes of payload were stored at the address from
    /// [`payload`](OutgoingSlot::payload).
    ///
    /// # Errors
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if there is no such payload.
    #[inline]
    pub fn stored(&mut self, size: usize) -> Result<()> {
        if size > self.size - WORD {
            return Err(out_of_range("payload", WORD, size, self.size));
        }
        self.write_back(self.start + WORD, size);
        Ok(())
    }

    #[inline]
    fn write_back(&self, start: usize, size: usize) {
        if self.steps.is_flushed && Site::PayloadWrittenBack.is_kept() {
            self.medium.write_back(start..start + size);
        }
    }

    /// Publishes the slot: after all payload, and after all that was loaded before, the peer sees `word`.
    #[inline]
    pub fn publish(self, word: u64) {
        let steps = self.steps;
        if Site::BeforeWord.is_kept() {
            if steps.is_drained {
                self.medium.fence(Fence::Drain);
            } else {
                self.medium.fence(Fence::Release);
            }
        }
        self.medium.store(self.start, word);
        if steps.is_flushed && Site::WordWrittenBack.is_kept() {
            self.medium.write_back(self.start..self.start + WORD);
        }
        if steps.is_pushed && Site::AfterWord.is_kept() {
            self.medium.fence(Fence::Drain);
        }
    }
}

impl OutgoingSlot<'_, Mapped> {
    /// Address of the payload. [`OutgoingSlot::stored`] must be called before the slot is published.
    ///
    /// The caller stores there only while the window is mapped and before this slot, or another one with the same
    /// bytes, is published; makes no reference to the bytes, which the peer can change; and lets no other thread
    /// access them meanwhile. It fences stores that the machine does not order by itself (non-temporal ones).
    #[must_use]
    pub fn payload(&mut self) -> NonNull<[u8]> {
        self.medium.address(self.start + WORD, self.size - WORD)
    }
}
