//! Numbers from a seed.

/// Draws for one purpose: the whole sequence follows from its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(millrace_random::Random);

impl Random {
    /// A sequence of its own for each pair of seed and purpose.
    pub(crate) fn new(seed: u64, purpose: u64) -> Self {
        let mut random = Self(millrace_random::Random::new(
            seed ^ purpose.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17),
        ));
        random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.number()
    }

    /// Below `bound`, which is not zero.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0.below(bound)
    }

    /// An index of something with `length` items, which is not zero.
    pub(crate) fn index(&mut self, length: usize) -> usize {
        self.0.index(length)
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
        self.0.fill(bytes);
    }
}
