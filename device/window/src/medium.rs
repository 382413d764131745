//! What a window is made of.

use std::fmt;
use std::ops::Range;

use crate::Attributes;

/// Bytes of a line: payload may tear between lines, and slots begin at multiples of it.
pub const LINE: usize = 64;

/// Alignment of halves, in bytes: the largest cache line of the supported machines (POWER), and two lines of the
/// others, which prefetch them in pairs. No line is stored to by one side and loaded by it too.
pub const APART: usize = 128;

/// The bytes of a word, in which nothing tears.
pub const WORD: usize = 8;

/// Order between accesses. Each variant states the least effect; [`crate`] lists the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fence {
    /// Orders loads and stores of cached memory before it before later stores to it. No effect on
    /// memory that is not cached, nor on write-backs of lines.
    Release,
    /// Orders loads of cached memory before it before later loads and stores. No effect on memory
    /// that is not cached, nor on invalidations of lines.
    Acquire,
    /// Loads, stores to any memory and write-backs before this are done before any store after this, and will
    /// be done if no store follows.
    Drain,
    /// All loads, stores, write-backs and invalidations before this are done before any after this.
    Full,
}

/// Memory that a peer accesses too, as this side accesses it: mapped, or a model.
///
/// Offsets are bytes from its start. Words lie at multiples of [`WORD`], lines at multiples of [`LINE`]. The
/// halves check their arguments and pass on only valid offsets; an implementation asserts it.
///
/// No access orders another; only [`Medium::fence`] does, and a load or store of a word after one of the same
/// word.
pub trait Medium: fmt::Debug + Send + Sync {
    /// How many bytes there are.
    fn size(&self) -> usize;

    /// What is known of it. Never changes.
    fn attributes(&self) -> Attributes;

    /// The word at `offset`.
    fn load(&self, offset: usize) -> u64;

    /// Changes the word at `offset`.
    fn store(&self, offset: usize, value: u64);

    /// Copies bytes out of the words from `offset` on.
    fn load_bytes(&self, offset: usize, bytes: &mut [u8]) {
        for (index, part) in bytes.chunks_mut(WORD).enumerate() {
            let word = self.load(offset + index * WORD).to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }

    /// Copies bytes into the words from `offset` on; zeros fill the last one up.
    fn store_bytes(&self, offset: usize, bytes: &[u8]) {
        for (index, part) in bytes.chunks(WORD).enumerate() {
            let mut word = [0; WORD];
            word[..part.len()].copy_from_slice(part);
            self.store(offset + index * WORD, u64::from_le_bytes(word));
        }
    }

    /// Writes back the lines of these bytes if they are cached and changed. Comes after earlier stores to the
    /// same lines; before other accesses only by a [`Fence::Drain`] or [`Fence::Full`].
    fn write_back(&self, bytes: Range<usize>);

    /// Drops the lines of these bytes from the cache. In order with other accesses only by a [`Fence::Full`].
    fn invalidate(&self, bytes: Range<usize>);

    /// Orders what comes before and after.
    fn fence(&self, fence: Fence);
}
