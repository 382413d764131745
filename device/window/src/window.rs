//! The window and the owners of its parts.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::out_of_range;
use crate::medium::APART;
use crate::{
    Attributes, Direction, Doorbell, Error, ErrorKind, Incoming, Mapped, Medium, Outgoing, Result,
    doorbell,
};

/// Bytes shared with a peer, taken in halves: this side stores to one and loads from the other. The peer takes the same
/// halves in the opposite roles.
pub struct Window<M: Medium = Mapped> {
    shared: Arc<Shared<M>>,
    doorbell: Option<Arc<dyn Doorbell>>,
}

/// What a window and its halves share.
pub(crate) struct Shared<M> {
    medium: M,
    /// The ranges of the halves that exist. No two overlap.
    taken: Mutex<Vec<Range<usize>>>,
}

/// A range that is taken until this is dropped.
pub(crate) struct Part<M> {
    shared: Arc<Shared<M>>,
    range: Range<usize>,
}

impl<M: Medium> Window<M> {
    /// A window on `medium`, without a doorbell.
    #[must_use]
    pub fn new(medium: M) -> Self {
        let taken = Mutex::new(Vec::new());
        Self {
            shared: Arc::new(Shared { medium, taken }),
            doorbell: None,
        }
    }

    /// This window with a doorbell at the peer.
    #[must_use]
    pub fn with_doorbell(mut self, doorbell: Arc<dyn Doorbell>) -> Self {
        self.doorbell = Some(doorbell);
        self
    }

    /// How many bytes there are. What lies beyond the last multiple of [`APART`] is in no half.
    #[must_use]
    pub fn size(&self) -> usize {
        self.shared.medium.size()
    }

    /// What is known of the mapping.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        self.shared.medium.attributes()
    }

    /// Whether the peer can be woken.
    #[must_use]
    pub const fn has_doorbell(&self) -> bool {
        self.doorbell.is_some()
    }

    /// Wakes the peer, after all that was published on this thread before.
    ///
    /// # Errors
    /// [`ErrorKind::Unsupported`] if there is no doorbell, or the doorbell's error.
    pub fn ring(&self) -> Result<()> {
        self.doorbell
            .as_ref()
            .ok_or_else(doorbell::none)
            .and_then(|doorbell| doorbell.ring())
    }

    /// The bytes of `range` to store to, until the half is dropped. Both ends are multiples of [`APART`].
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if the range is empty, not within or not at such multiples;
    /// [`ErrorKind::InUse`] if another half of this window has a part of it; [`ErrorKind::Direction`] if the
    /// window is for loads alone.
    pub fn outgoing(&self, range: Range<usize>) -> Result<Outgoing<M>> {
        self.take(range, Direction::Loads).map(Outgoing::new)
    }

    /// The bytes of `range` to load from, until the half is dropped. Both ends are multiples of [`APART`].
    ///
    /// # Errors
    /// As [`Window::outgoing`]; [`ErrorKind::Direction`] if the window is for stores alone.
    pub fn incoming(&self, range: Range<usize>) -> Result<Incoming<M>> {
        self.take(range, Direction::Stores).map(Incoming::new)
    }

    fn take(&self, range: Range<usize>, refused: Direction) -> Result<Part<M>> {
        let direction = self.attributes().direction;
        if direction == refused {
            let context = format!("the window is for {direction:?} alone").to_lowercase();
            return Err(Error::new(ErrorKind::Direction, context));
        }
        let is_apart = range.start % APART == 0 && range.end % APART == 0;
        if !is_apart || range.is_empty() || range.end > self.size() {
            let length = range.end.saturating_sub(range.start);
            return Err(out_of_range("a half", range.start, length, self.size()));
        }
        let mut taken = self.shared.lock();
        let overlaps = |other: &Range<usize>| other.start < range.end && range.start < other.end;
        if let Some(other) = taken.iter().find(|other| overlaps(other)) {
            let context = format!("{range:?} overlaps {other:?}");
            return Err(Error::new(ErrorKind::InUse, context));
        }
        taken.push(range.clone());
        Ok(Part {
            shared: Arc::clone(&self.shared),
            range,
        })
    }
}

impl<M> Shared<M> {
    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Range<usize>>> {
        // The list is whole between any two steps.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M: Medium> Part<M> {
    #[inline]
    pub(crate) fn medium(&self) -> &M {
        &self.shared.medium
    }

    #[inline]
    pub(crate) fn size(&self) -> usize {
        self.range.end - self.range.start
    }

    /// The medium, and where the byte at `offset` of this part lies in it.
    #[inline]
    pub(crate) fn at(&self, offset: usize) -> (&M, usize) {
        (self.medium(), self.range.start + offset)
    }

    /// Where `length` bytes at `offset` of this part begin in the medium, if they lie within and `offset` is a
    /// multiple of `align`.
    #[inline]
    pub(crate) fn find(&self, offset: usize, align: usize, length: usize) -> Result<usize> {
        let end = offset.checked_add(length);
        if offset % align == 0 && end.is_some_and(|end| end <= self.size()) {
            return Ok(self.range.start + offset);
        }
        Err(out_of_range("a slot", offset, length, self.size()))
    }
}

impl<M> Drop for Part<M> {
    fn drop(&mut self) {
        let mut taken = self.shared.lock();
        if let Some(index) = taken.iter().position(|other| *other == self.range) {
            taken.swap_remove(index);
        }
    }
}

impl<M: Medium> fmt::Debug for Window<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Window")
            .field("medium", &self.shared.medium)
            .field("doorbell", &self.doorbell)
            .finish_non_exhaustive()
    }
}

impl<M> fmt::Debug for Part<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Part").field(&self.range).finish()
    }
}
