//! Draws that follow from a seed, for test beds and tests: a run that failed can be repeated. No secrets.

#![forbid(unsafe_code)]

/// A small generator (SplitMix64, Steele et al. 2014): the same seed gives the same draws.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// A generator at the first draw of `seed`; every seed is valid.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next draw: each number from 0 to 2^64 - 1 is equally likely.
    pub const fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`.
    ///
    /// # Panics
    /// If `bound` is zero.
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.number() % bound
    }

    /// An index of a list of `len`.
    ///
    /// # Panics
    /// If `len` is zero.
    pub fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).expect("less than a usize")
    }

    /// True `part` times of `whole`.
    ///
    /// # Panics
    /// If `whole` is zero.
    pub fn chance(&mut self, part: u64, whole: u64) -> bool {
        self.below(whole) < part
    }

    /// Any order of `items`, each equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Fills `bytes` with random bytes: one draw for every 8, in little-endian order.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let draw = self.number().to_le_bytes();
            part.copy_from_slice(&draw[..part.len()]);
        }
    }
}

/// The bits of `value` spread over all 64: the finaliser of SplitMix64. A bijection that keeps zero.
#[must_use]
pub const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_draws_are_the_published_ones() {
        // The reference implementation's for the seed 1234567.
        let mut random = Random::new(1_234_567);
        let draws = [random.number(), random.number(), random.number()];
        let published = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(draws, published);
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Random::new(1).shuffle(&mut items);
        assert!(!items.is_sorted());
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
