//! A window in this process's address space.

use std::fmt;
use std::mem;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::machine::{self, Lines};
use crate::medium::{APART, WORD};
use crate::{Attributes, Error, ErrorKind, Fence, Medium, Result};

/// Owner that keeps bytes mapped.
pub type Keeper = Arc<dyn fmt::Debug + Send + Sync>;

/// Bytes in this process's address space that a peer accesses too.
///
/// # Why this is sound
/// 1. No reference to the bytes exists, but for those to one atomic word for the time of one access.
/// 2. All accesses of this process are relaxed atomic loads and stores of aligned words of 8 bytes: threads of
///    this process do not race, and no two sizes are mixed.
/// 3. Any 8 bytes are a `u64`. To the compiler, the peer's writes are stores of another thread: it may assume nothing
///    about them, not even that two loads of a word agree. Hence a load copies, and the copy is checked.
/// 4. The bytes stay mapped as long as the [`Keeper`] lives, and the file behind them cannot shrink.
/// 5. No word is read, changed and written by one instruction: memory that is not cached need not support it.
/// 6. Only unsafe code follows addresses given out ([`OutgoingSlot::payload`](crate::OutgoingSlot::payload),
///    [`IncomingSlot::payload`](crate::IncomingSlot::payload)), under the conditions stated there.
pub struct Mapped {
    first: NonNull<u8>,
    size: usize,
    attributes: Attributes,
    lines: Lines,
    /// Keeper of the mapping, dropped last.
    _keeper: Keeper,
}

// SAFETY: an address range of this process, not bound to a thread, whose words are accessed atomically.
unsafe impl Send for Mapped {}

// SAFETY: words are accessed by relaxed atomic operations of one size only, so threads do not race.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// The `size` bytes from `first` on.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if `first` does not lie at a multiple of [`APART`], or there are no bytes;
    /// [`ErrorKind::Unsupported`] if lines must be flushed by hand and are longer than that, so that two halves
    /// could meet in one.
    ///
    /// # Safety
    /// The bytes are mapped for reading and writing as long as a clone of `keeper` exists. Until then this
    /// process accesses them by atomic operations on aligned words of 8 bytes only.
    pub unsafe fn new(
        first: NonNull<u8>,
        size: usize,
        attributes: Attributes,
        keeper: Keeper,
    ) -> Result<Self> {
        if first.addr().get() % APART != 0 || size == 0 || isize::try_from(size).is_err() {
            let context = format!("a window of {size} bytes at {first:?}");
            return Err(Error::new(ErrorKind::OutOfRange, context));
        }
        let lines = Lines::detect();
        if attributes.is_flushed_by_hand() && lines.size() > APART {
            let context = format!("cache lines of {} bytes, by hand", lines.size());
            return Err(Error::new(ErrorKind::Unsupported, context));
        }
        Ok(Self {
            first,
            size,
            attributes,
            lines,
            _keeper: keeper,
        })
    }

    #[inline]
    fn check(&self, offset: usize, size: usize) {
        let end = offset.checked_add(size);
        assert!(
            offset % WORD == 0 && end.is_some_and(|end| end <= self.size),
            "what is accessed was checked by a half to lie within"
        );
    }

    /// The word at `offset`.
    ///
    /// # Safety
    /// It lies within, at a multiple of [`WORD`].
    #[inline]
    unsafe fn word(&self, offset: usize) -> &AtomicU64 {
        // SAFETY: the caller keeps the offset within.
        let word = unsafe { self.first.add(offset) };
        // SAFETY: the word is mapped as long as `self` exists, is aligned because the offset and `first` are, and is
        // accessed by atomic operations of its size only (`Mapped::new`).
        unsafe { AtomicU64::from_ptr(word.cast().as_ptr()) }
    }

    /// Address of `size` bytes at `offset`.
    pub(crate) fn address(&self, offset: usize, size: usize) -> NonNull<[u8]> {
        self.check(offset, size);
        // SAFETY: checked above.
        let first = unsafe { self.first.add(offset) };
        NonNull::slice_from_raw_parts(first, size)
    }

    fn line(&self, bytes: &Range<usize>) -> (NonNull<u8>, usize) {
        let size = bytes.end.saturating_sub(bytes.start);
        self.check(bytes.start, size);
        // SAFETY: checked above.
        let first = unsafe { self.first.add(bytes.start) };
        (first, size)
    }
}

impl Medium for Mapped {
    #[inline]
    fn size(&self) -> usize {
        self.size
    }

    #[inline]
    fn attributes(&self) -> Attributes {
        self.attributes
    }

    #[inline]
    fn load(&self, offset: usize) -> u64 {
        self.check(offset, WORD);
        // SAFETY: checked above.
        let word = unsafe { self.word(offset) };
        u64::from_le(word.load(Ordering::Relaxed))
    }

    #[inline]
    fn store(&self, offset: usize, value: u64) {
        self.check(offset, WORD);
        // SAFETY: checked above.
        let word = unsafe { self.word(offset) };
        word.store(value.to_le(), Ordering::Relaxed);
    }

    #[inline]
    fn load_bytes(&self, offset: usize, bytes: &mut [u8]) {
        self.check(offset, bytes.len().next_multiple_of(WORD));
        let (mut place, mut rest) = (offset, bytes);
        while rest.len() >= WORD {
            let (part, tail) = mem::take(&mut rest)
                .split_first_chunk_mut::<WORD>()
                .expect("the loop goes on while a word is left");
            // SAFETY: checked above for all words.
            let word = unsafe { self.word(place) };
            *part = word.load(Ordering::Relaxed).to_ne_bytes();
            (place, rest) = (place + WORD, tail);
        }
        if !rest.is_empty() {
            // SAFETY: the offset was checked to be a word's, aligned and within the mapping.
            let word = unsafe { self.word(place) };
            rest.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes()[..rest.len()]);
        }
    }

    #[inline]
    fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len().next_multiple_of(WORD));
        let (mut place, mut rest) = (offset, bytes);
        while let Some((part, tail)) = rest.split_first_chunk::<WORD>() {
            // SAFETY: checked above for all words.
            let word = unsafe { self.word(place) };
            word.store(u64::from_ne_bytes(*part), Ordering::Relaxed);
            (place, rest) = (place + WORD, tail);
        }
        if !rest.is_empty() {
            let mut value = [0; WORD];
            value[..rest.len()].copy_from_slice(rest);
            // SAFETY: the offset was checked to be a word's, aligned and within the mapping.
            let word = unsafe { self.word(place) };
            word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
        }
    }

    // The rest of a slot's way is small and belongs into its callers; this would fill them.
    #[inline(never)]
    fn write_back(&self, bytes: Range<usize>) {
        let (first, size) = self.line(&bytes);
        self.lines.write_back(first, size);
    }

    #[inline(never)]
    fn invalidate(&self, bytes: Range<usize>) {
        let (first, size) = self.line(&bytes);
        self.lines.invalidate(first, size);
    }

    #[inline]
    fn fence(&self, fence: Fence) {
        machine::fence(fence);
    }
}

impl fmt::Debug for Mapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mapped")
            .field("size", &self.size)
            .field("attributes", &self.attributes)
            .finish_non_exhaustive()
    }
}
