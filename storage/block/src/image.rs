//! A sparse byte image in memory.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Bytes copied when one of them is changed in an image that has clones.
const CHUNK_BYTES: usize = 16 << 10;
/// Chunks in a leaf.
const LEAF_CHUNKS: usize = 256;

/// A chunk of the image; none reads as zeros.
type Chunk = Option<Arc<[u8; CHUNK_BYTES]>>;
/// Consecutive chunks; none is a leaf without chunks.
type Leaf = Option<Arc<Vec<Chunk>>>;

/// Bytes of a device, in memory. Bytes that were never written are zeros and take no memory.
///
/// A clone shares all chunks of 16 KiB that neither image changes afterwards: it costs a reference count for each 4
/// MiB.
#[derive(Clone)]
pub struct Image {
    bytes: u64,
    leaves: Vec<Leaf>,
}

impl Image {
    /// An image of `bytes` zeros.
    ///
    /// # Panics
    /// If the machine cannot address as many.
    #[must_use]
    pub fn new(bytes: u64) -> Self {
        let size = usize::try_from(bytes).expect("no more than the machine can address");
        let leaves = size.div_ceil(CHUNK_BYTES * LEAF_CHUNKS);
        Self {
            bytes,
            leaves: vec![None; leaves],
        }
    }

    /// Size of the image in bytes.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes of memory that the image uses, including those shared with clones.
    #[must_use]
    pub fn taken_bytes(&self) -> usize {
        let leaves = self.leaves.iter().flatten();
        let chunks = leaves.map(|leaf| leaf.iter().flatten().count());
        chunks.sum::<usize>() * CHUNK_BYTES
    }

    /// Copies the bytes from `offset` on to `into`.
    ///
    /// # Panics
    /// If the range is not within the image.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        let mut rest = into;
        for (index, within) in self.places(offset, rest.len()) {
            let (part, behind) = rest.split_at_mut(within.len());
            rest = behind;
            match self.chunk(index) {
                Some(chunk) => part.copy_from_slice(&chunk[within]),
                None => part.fill(0),
            }
        }
    }

    /// Copies `from` to the bytes from `offset` on.
    ///
    /// # Panics
    /// If the range is not within the image.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        let mut rest = from;
        for (index, within) in self.places(offset, rest.len()) {
            let (part, behind) = rest.split_at(within.len());
            rest = behind;
            let chunk = self.chunk_mut(index);
            let bytes = chunk.get_or_insert_with(|| Arc::new([0; CHUNK_BYTES]));
            Arc::make_mut(bytes)[within].copy_from_slice(part);
        }
    }

    /// Zeroes `len` bytes at `offset`, and frees the memory of whole chunks of zeros.
    ///
    /// # Panics
    /// If the range is not within the image.
    pub fn zero(&mut self, offset: u64, len: u64) {
        let len =
            usize::try_from(len).expect("no more than there are, which the machine can address");
        for (index, within) in self.places(offset, len) {
            if self.chunk(index).is_none() {
                continue;
            }
            let chunk = self.chunk_mut(index);
            if within.len() == CHUNK_BYTES {
                *chunk = None;
            } else if let Some(bytes) = chunk {
                Arc::make_mut(bytes)[within].fill(0);
            }
        }
    }

    fn chunk(&self, index: usize) -> Option<&[u8; CHUNK_BYTES]> {
        let leaf = self.leaves[index / LEAF_CHUNKS].as_ref()?;
        leaf[index % LEAF_CHUNKS].as_deref()
    }

    fn chunk_mut(&mut self, index: usize) -> &mut Chunk {
        let leaf = &mut self.leaves[index / LEAF_CHUNKS];
        let leaf = leaf.get_or_insert_with(|| Arc::new(vec![None; LEAF_CHUNKS]));
        &mut Arc::make_mut(leaf)[index % LEAF_CHUNKS]
    }

    /// The chunks of which `len` bytes from `offset` on have some, and which.
    fn places(
        &self,
        offset: u64,
        len: usize,
    ) -> impl Iterator<Item = (usize, Range<usize>)> + use<> {
        let end = offset.checked_add(len as u64);
        let fits = end.is_some_and(|end| end <= self.bytes);
        assert!(fits, "{len} bytes from {offset} on of {}", self.bytes);
        let offset = usize::try_from(offset).expect("within what the machine can address");
        let end = offset + len;
        let places = offset / CHUNK_BYTES..end.div_ceil(CHUNK_BYTES);
        let places = if len == 0 { 0..0 } else { places };
        places.map(move |index| {
            let begin = index * CHUNK_BYTES;
            let first = offset.max(begin) - begin;
            (index, first..(end - begin).min(CHUNK_BYTES))
        })
    }
}

impl fmt::Debug for Image {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Image")
            .field("bytes", &self.bytes)
            .field("taken_bytes", &self.taken_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const BYTES: usize = 5 << 20;

    #[derive(Clone, Debug)]
    enum Step {
        Write(usize, usize, u8),
        Zero(usize, usize),
        Clone,
        Restore,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let range = (0..=BYTES, 0..3 * CHUNK_BYTES);
        let range = range.prop_map(|(at, len)| (at, len.min(BYTES - at)));
        let step = prop_oneof![
            4 => (range.clone(), 1..=255_u8).prop_map(|((at, len), byte)| Step::Write(at, len, byte)),
            2 => range.prop_map(|(at, len)| Step::Zero(at, len)),
            1 => Just(Step::Clone),
            1 => Just(Step::Restore),
        ];
        prop::collection::vec(step, 0..40)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]

        #[test]
        fn it_is_as_bytes_are_and_so_are_its_clones(steps in steps()) {
            let (mut image, mut model) = (Image::new(BYTES as u64), vec![0_u8; BYTES]);
            let mut kept = (image.clone(), model.clone());
            for step in steps {
                match step {
                    Step::Write(at, len, byte) => {
                        image.write(at as u64, &vec![byte; len]);
                        model[at..at + len].fill(byte);
                    }
                    Step::Zero(at, len) => {
                        image.zero(at as u64, len as u64);
                        model[at..at + len].fill(0);
                    }
                    Step::Clone => kept = (image.clone(), model.clone()),
                    Step::Restore => (image, model) = (kept.0.clone(), kept.1.clone()),
                }
            }
            let mut read = vec![1; BYTES];
            image.read(0, &mut read);
            prop_assert!(read == model);
            kept.0.read(0, &mut read);
            prop_assert!(read == kept.1);
        }
    }

    #[test]
    fn what_was_never_written_takes_no_memory() {
        let mut image = Image::new(1 << 40);
        assert_eq!(image.taken_bytes(), 0);
        image.write((1 << 40) - 1, &[1]);
        image.write(CHUNK_BYTES as u64 - 1, &[1, 2]);
        assert_eq!(image.taken_bytes(), 3 * CHUNK_BYTES);
        image.zero(0, 2 * CHUNK_BYTES as u64);
        assert_eq!(image.taken_bytes(), CHUNK_BYTES);
    }

    #[test]
    #[should_panic(expected = "2 bytes from 9 on of 10")]
    fn nothing_lies_beyond_the_end() {
        Image::new(10).read(9, &mut [0; 2]);
    }
}
