//! Numbers from a seed.

/// A generator whose whole sequence follows from its seed (SplitMix64: Steele, Lea, Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// A sequence of its own for each pair of seed and purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self {
            state: seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17),
        };
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// An index of something with `length` items, which is not zero.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        let drawn = self.below(length as u64);
        usize::try_from(drawn).expect("an index below a length fits")
    }

    /// True once in `period` draws on average; never for zero.
    pub(crate) fn one_in(&mut self, period: u32) -> bool {
        period != 0 && self.below(u64::from(period)) == 0
    }

    /// Any 16 bits.
    pub(crate) fn word(&mut self) -> u16 {
        (self.next() >> 48) as u16
    }

    pub(crate) fn fill(&mut self, bytes: &mut [u8]) {
        for piece in bytes.chunks_mut(8) {
            let drawn = self.next().to_le_bytes();
            piece.copy_from_slice(&drawn[..piece.len()]);
        }
    }
}
