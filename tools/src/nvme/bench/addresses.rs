//! Which blocks a run touches.

/// Numbers that look random and follow from a seed (splitmix64: Steele, Lea, Flood, "Fast splittable
/// pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

    /// The stream of a thread.
    pub(super) const fn new(seed: u64, thread: u64) -> Self {
        let mut source = Self { state: seed };
        let seed = source.next();
        let mut source = Self {
            state: seed ^ thread,
        };
        Self {
            state: source.next(),
        }
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(Self::STEP);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which is not zero; each as likely as the others to within `end` of 2^64.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        let product = u128::from(self.next()) * u128::from(end);
        u64::try_from(product >> 64).expect("the upper half of 128 bits")
    }
}

/// Places of one operation's size, numbered from zero.
#[derive(Clone, Debug)]
pub(super) enum Addresses {
    /// Any of so many.
    Random { count: u64 },
    /// One after the other from `first` to before `end`, and again.
    Sequential { first: u64, next: u64, end: u64 },
}

impl Addresses {
    pub(super) const fn random(count: u64) -> Self {
        Self::Random { count }
    }

    /// The part of a thread among `threads`; there are as many places at least.
    pub(super) fn sequential(count: u64, thread: u64, threads: u64) -> Self {
        let border = |thread: u64| {
            let border = u128::from(count) * u128::from(thread) / u128::from(threads);
            u64::try_from(border).expect("no more than the count")
        };
        let first = border(thread);
        Self::Sequential {
            first,
            next: first,
            end: border(thread + 1),
        }
    }

    pub(super) fn next(&mut self, random: &mut Random) -> u64 {
        match self {
            Self::Random { count } => random.below(*count),
            Self::Sequential { first, next, end } => {
                let place = *next;
                *next += 1;
                if *next == *end {
                    *next = *first;
                }
                place
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn sequential_threads_share_all_places(count in 1..500_u64, threads in 1..20_u64) {
            prop_assume!(threads <= count);
            let mut seen = BTreeSet::new();
            let mut random = Random::new(0, 0);
            for thread in 0..threads {
                let mut addresses = Addresses::sequential(count, thread, threads);
                let begin = addresses.next(&mut random);
                let mut place = begin;
                loop {
                    prop_assert!(seen.insert(place), "place {} of two threads", place);
                    place = addresses.next(&mut random);
                    if place == begin {
                        break;
                    }
                }
            }
            prop_assert_eq!(seen, (0..count).collect::<BTreeSet<_>>());
        }

        #[test]
        fn random_places_are_inside(seed: u64, count in 1..=u64::MAX) {
            let mut random = Random::new(seed, 3);
            let mut addresses = Addresses::random(count);
            for _ in 0..100 {
                prop_assert!(addresses.next(&mut random) < count);
            }
        }
    }

    #[test]
    fn threads_have_streams_of_their_own_that_follow_from_the_seed() {
        let numbers = |seed, thread| {
            let mut random = Random::new(seed, thread);
            [random.next(), random.next()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }
}
