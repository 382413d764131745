//! The half that is loaded from.

use std::ptr::NonNull;

use crate::error::out_of_range;
use crate::medium::{LINE, WORD};
use crate::window::Part;
use crate::{Cacheability, Fence, Mapped, Medium, Result, Site};

/// Bytes of a window that the peer stores to and this side loads from. This side cannot store to them.
///
/// The peer may change any of it at any time: a word between two polls, and payload during a copy. Nothing here panics
/// on it; the receiver checks the word, copies, and checks the copy.
#[derive(Debug)]
pub struct Incoming<M: Medium> {
    part: Part<M>,
    is_cached: bool,
    is_flushed: bool,
}

impl<M: Medium> Incoming<M> {
    pub(crate) fn new(part: Part<M>) -> Self {
        let attributes = part.medium().attributes();
        Self {
            is_cached: attributes.cacheability == Cacheability::WriteBack,
            is_flushed: attributes.is_flushed_by_hand(),
            part,
        }
    }

    /// How many bytes there are: a multiple of [`APART`](crate::APART).
    #[must_use]
    #[inline]
    pub fn size(&self) -> usize {
        self.part.size()
    }

    /// Looks at the word of the slot at `offset`, a multiple of [`LINE`]. What is loaded through the result is
    /// at least as new as the word.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if there is no slot.
    #[inline]
    pub fn poll(&self, offset: usize) -> Result<IncomingSlot<'_, M>> {
        let start = self.part.find(offset, LINE, LINE)?;
        let medium = self.part.medium();
        if self.is_flushed {
            if Site::WordInvalidated.is_kept() {
                medium.invalidate(start..start + WORD);
            }
            if Site::WordAwaited.is_kept() {
                medium.fence(Fence::Full);
            }
        }
        let word = medium.load(start);
        if Site::AfterPoll.is_kept() {
            if self.is_cached {
                medium.fence(Fence::Acquire);
            } else {
                medium.fence(Fence::Full);
            }
        }
        Ok(IncomingSlot {
            incoming: self,
            word,
            offset,
        })
    }
}

/// A slot whose word was polled.
#[derive(Debug)]
pub struct IncomingSlot<'incoming, M: Medium> {
    incoming: &'incoming Incoming<M>,
    word: u64,
    /// Where it begins in the half.
    offset: usize,
}

impl<M: Medium> IncomingSlot<'_, M> {
    /// The word, as it was when it was polled.
    #[must_use]
    #[inline]
    pub const fn word(&self) -> u64 {
        self.word
    }

    /// Copies payload from `offset` of the slot, a multiple of [`WORD`] behind the word. It may go on beyond the
    /// slot, to the end of the half: into slots that were published with this one.
    ///
    /// # Errors
    /// [`OutOfRange`](crate::ErrorKind::OutOfRange) if it does not lie within the half, or begins with the word;
    /// nothing is copied then.
    #[inline]
    pub fn load(&self, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (medium, start) = self.find(offset, bytes.len())?;
        medium.load_bytes(start, bytes);
        Ok(())
    }
}

impl<'incoming, M: Medium> IncomingSlot<'incoming, M> {
    /// Where `size` bytes at `offset` of the slot begin in the medium. They are at least as new as the word then.
    #[inline]
    fn find(&self, offset: usize, size: usize) -> Result<(&'incoming M, usize)> {
        // The slot was found within the half.
        let rest = self.incoming.size() - self.offset;
        let end = offset.checked_add(size);
        let is_within = offset >= WORD && end.is_some_and(|end| end <= rest);
        if !is_within || offset % WORD != 0 {
            return Err(out_of_range("payload", offset, size, rest));
        }
        let (medium, start) = self.incoming.part.at(self.offset + offset);
        if self.incoming.is_flushed {
            if Site::BeforeInvalidation.is_kept() {
                medium.fence(Fence::Full);
            }
            if Site::PayloadInvalidated.is_kept() {
                medium.invalidate(start..start + size);
            }
            if Site::PayloadAwaited.is_kept() {
                medium.fence(Fence::Full);
            }
        }
        Ok((medium, start))
    }
}

impl IncomingSlot<'_, Mapped> {
    /// Address of `size` bytes of payload at `offset` of the slot, as for [`IncomingSlot::load`].
    ///
    /// The caller loads from there only while the window is mapped; makes no reference to the bytes, which the peer can
    /// change at any time; and validates only copies. Loads are volatile, atomic, or done by code that is opaque to the
    /// compiler.
    ///
    /// # Errors
    /// As for [`IncomingSlot::load`].
    pub fn payload(&self, offset: usize, size: usize) -> Result<NonNull<[u8]>> {
        let (medium, start) = self.find(offset, size)?;
        Ok(medium.address(start, size))
    }
}
