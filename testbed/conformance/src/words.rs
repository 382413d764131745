//! What blocks are filled with.

use millrace_nvme::Namespace;

use millrace_random::mix;

/// Fills the blocks of a namespace with words that follow from the seed, the namespace, the block's number and
/// the version that is written, each from the one before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    seed: u64,
    block_bytes: usize,
}

impl Words {
    pub(crate) fn new(namespace: &Namespace, seed: u64) -> Self {
        Self {
            seed: mix(seed ^ u64::from(namespace.id())),
            block_bytes: usize::try_from(namespace.block_size())
                .expect("blocks have 64 KiB at most"),
        }
    }

    /// Bytes of a block.
    pub(crate) const fn block_bytes(&self) -> usize {
        self.block_bytes
    }

    /// Fills whole blocks, the first of which is number `first`.
    pub(crate) fn fill(&self, bytes: &mut [u8], first: u64, version: u32) {
        for (block, bytes) in (first..).zip(bytes.chunks_exact_mut(self.block_bytes)) {
            let mut word = self.first(block, version);
            for chunk in bytes.chunks_exact_mut(8) {
                chunk.copy_from_slice(&word.to_le_bytes());
                word = next(word);
            }
        }
    }

    /// Where the bytes of one block are other than this version's.
    pub(crate) fn first_difference(&self, bytes: &[u8], block: u64, version: u32) -> Option<usize> {
        let mut word = self.first(block, version);
        for (index, chunk) in bytes.chunks_exact(8).enumerate() {
            if *chunk != word.to_le_bytes() {
                return Some(index * 8);
            }
            word = next(word);
        }
        None
    }

    /// Whether whole blocks, the first of which is number `first`, hold this version.
    pub(crate) fn are_in(&self, bytes: &[u8], first: u64, version: u32) -> bool {
        let mut blocks = (first..).zip(bytes.chunks_exact(self.block_bytes));
        blocks.all(|(block, bytes)| self.first_difference(bytes, block, version).is_none())
    }

    /// The first word of a block.
    const fn first(&self, block: u64, version: u32) -> u64 {
        mix(self.seed ^ block.wrapping_mul(0x1_0001) ^ (version as u64) << 40)
    }
}

const fn next(word: u64) -> u64 {
    word.wrapping_mul(0x5851_f42d_4c95_7f2d)
        .wrapping_add(0x1405_7b7e_f767_814f)
}

/// Changes every byte, so that what lay in a buffer is not taken for what was read into it.
pub(crate) fn invert(bytes: &mut [u8]) {
    for byte in bytes {
        *byte = !*byte;
    }
}
