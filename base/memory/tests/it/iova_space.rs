//! Device addresses beside a model that keeps a flag for each granule.

use millrace_memory::{ErrorKind, Iova, IovaRange, IovaSpace};
use proptest::prelude::*;

const GRANULE: u64 = 64;
/// How many granules the model knows.
const GRANULES: u64 = if cfg!(miri) { 24 } else { 96 };

fn range(first: u64, last: u64) -> IovaRange {
    IovaRange {
        first: Iova(first),
        last: Iova(last),
    }
}

#[derive(Clone, Debug)]
enum Step {
    Take {
        size: u64,
        align: u64,
    },
    /// Gives the address back that was taken so many takings ago, if there is one.
    Give(prop::sample::Index),
    GiveWrong(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => (1..GRANULE * 9, 0..16_u32).prop_map(|(size, exponent)| Step::Take { size, align: 1 << exponent }),
        2 => any::<prop::sample::Index>().prop_map(Step::Give),
        1 => (0..GRANULE * GRANULES).prop_map(Step::GiveWrong),
    ];
    prop::collection::vec(step, 0..if cfg!(miri) { 12 } else { 80 })
}

fn ranges() -> impl Strategy<Value = Vec<IovaRange>> {
    let end = GRANULE * GRANULES - 1;
    let one = (0..=end, 0..=end).prop_map(|(a, b)| range(a.min(b), a.max(b)));
    prop::collection::vec(one, 0..5)
}

/// Which granules are free.
struct Model {
    base: u64,
    free: Vec<bool>,
}

impl Model {
    /// `base` is added to all addresses.
    fn new(ranges: &[IovaRange], base: u64) -> Self {
        let whole = |granule: u64| {
            let within = |address: u64| {
                let address = base + address;
                ranges
                    .iter()
                    .any(|r| r.first.0 <= address && address <= r.last.0)
            };
            (base + granule * GRANULE != 0)
                && (granule * GRANULE..(granule + 1) * GRANULE).all(within)
        };
        Self {
            base,
            free: (0..GRANULES).map(whole).collect(),
        }
    }

    fn take(&mut self, size: u64, align: u64) -> Option<u64> {
        let count = size.div_ceil(GRANULE);
        let first = (0..=GRANULES.saturating_sub(count)).find(|first| {
            (self.base + first * GRANULE) % align == 0
                && (*first..first + count).all(|granule| self.free[index(granule)])
        })?;
        self.set(first, count, false);
        Some(self.base + first * GRANULE)
    }

    fn set(&mut self, first: u64, count: u64, free: bool) {
        for granule in first..first + count {
            assert_ne!(self.free[index(granule)], free);
            self.free[index(granule)] = free;
        }
    }

    /// The ranges of free granules, as the space tells them.
    fn ranges(&self) -> Vec<IovaRange> {
        let mut ranges: Vec<IovaRange> = Vec::new();
        for granule in (0..GRANULES).filter(|granule| self.free[index(*granule)]) {
            let first = self.base + granule * GRANULE;
            let last = first + (GRANULE - 1);
            match ranges.last_mut() {
                Some(before) if before.last.0 + 1 == first => before.last = Iova(last),
                _ => ranges.push(range(first, last)),
            }
        }
        ranges
    }
}

fn index(granule: u64) -> usize {
    usize::try_from(granule).expect("small")
}

fn matches_the_model(ranges: &[IovaRange], base: u64, steps: &[Step]) {
    let ranges: Vec<IovaRange> = ranges
        .iter()
        .map(|r| range(base + r.first.0, base + r.last.0))
        .collect();
    let mut model = Model::new(&ranges, base);
    let mut space = IovaSpace::new(ranges, GRANULE).expect("sound");
    let whole = model.ranges();
    assert_eq!(space.free().collect::<Vec<_>>(), whole);
    let mut taken: Vec<(u64, u64)> = Vec::new();
    let give = |space: &mut IovaSpace, model: &mut Model, (iova, size): (u64, u64)| {
        space.give(Iova(iova)).expect("it was taken");
        model.set((iova - base) / GRANULE, size.div_ceil(GRANULE), true);
    };
    for step in steps {
        match step {
            Step::Take { size, align } => {
                match (space.take(*size, *align), model.take(*size, *align)) {
                    (Ok(iova), Some(expected)) => {
                        assert_eq!(iova, Iova(expected));
                        assert_ne!(iova, Iova(0));
                        taken.push((expected, *size));
                    }
                    (Err(error), None) => assert_eq!(error.kind(), ErrorKind::NoAddresses),
                    (own, expected) => panic!("{own:?} instead of {expected:?}"),
                }
            }
            Step::Give(which) if !taken.is_empty() => {
                let one = taken.swap_remove(which.index(taken.len()));
                give(&mut space, &mut model, one);
            }
            Step::Give(_) => {}
            Step::GiveWrong(iova) => {
                let iova = base + iova;
                if taken.iter().all(|(first, _)| *first != iova) {
                    let error = space.give(Iova(iova)).expect_err("it was not taken");
                    assert_eq!(error.kind(), ErrorKind::NotMapped);
                }
            }
        }
        assert_eq!(space.free().collect::<Vec<_>>(), model.ranges());
    }
    for one in taken {
        give(&mut space, &mut model, one);
    }
    assert_eq!(space.free().collect::<Vec<_>>(), whole);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 256 }))]

    #[test]
    fn low_addresses_match_the_model(ranges in ranges(), steps in steps()) {
        matches_the_model(&ranges, 0, &steps);
    }

    /// One granule short of the end, so that the model's own ends have numbers.
    #[test]
    fn high_addresses_match_the_model(ranges in ranges(), steps in steps()) {
        matches_the_model(&ranges, u64::MAX - GRANULE * (GRANULES + 1) + 1, &steps);
    }
}

#[test]
fn the_last_page_of_all_can_be_taken() {
    let mut space = IovaSpace::new(vec![range(0, u64::MAX)], GRANULE).expect("sound");
    let all = u64::MAX - GRANULE + 1;
    let whole: Vec<_> = space.free().collect();
    assert_eq!(whole, [range(GRANULE, u64::MAX)]);
    let everything = space.take(all, 1).expect("all is free");
    assert_eq!(everything, Iova(GRANULE));
    assert!(space.take(1, 1).is_err());
    space.give(everything).expect("taken");
    let below = space.take(all - GRANULE, 1).expect("free");
    let last = space.take(1, 1).expect("free");
    assert_eq!(last, Iova(all));
    space.give(below).expect("taken");
    space.give(last).expect("taken");
    assert_eq!(space.free().collect::<Vec<_>>(), whole);
    assert!(space.take(u64::MAX, 1).is_err());
    assert!(space.take(1, 1 << 63).is_ok());
    assert!(space.take(1, 1 << 63).is_err());
}

#[test]
fn what_makes_no_sense_is_refused() {
    let invalid = |result: millrace_memory::Result<IovaSpace>| {
        assert_eq!(result.expect_err("refused").kind(), ErrorKind::Invalid);
    };
    invalid(IovaSpace::new(vec![range(2, 1)], GRANULE));
    invalid(IovaSpace::new(vec![range(0, 1)], 0));
    invalid(IovaSpace::new(vec![range(0, 1)], 3));
    let mut space = IovaSpace::new(vec![range(0, GRANULE * 4 - 1)], GRANULE).expect("sound");
    for (size, align) in [(0, 1), (1, 0), (1, 3)] {
        let error = space.take(size, align).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Invalid);
    }
}
