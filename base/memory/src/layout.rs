//! Where the blocks of an arena lie in its region.

use crate::{Error, ErrorKind, Result};

/// Number and size of those blocks of an arena that are equally large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizeClass {
    /// The size of a block in bytes: a power of two from [`SizeClass::SIZE_MIN`] to
    /// [`SizeClass::SIZE_MAX`].
    pub size: usize,
    /// How many there are; not zero.
    pub count: u32,
}

impl SizeClass {
    /// The smallest block: a cache line, so that no two blocks share one.
    pub const SIZE_MIN: usize = 64;
    /// The largest block in bytes: 2 GiB.
    pub const SIZE_MAX: usize = 1 << 31;
}

/// A class and where its first block begins. The blocks follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) class: SizeClass,
    /// From the region's beginning, in bytes: a multiple of the class's size.
    pub(crate) offset: usize,
}

/// All classes of an arena.
///
/// # Invariants
/// 1. Blocks do not overlap.
/// 2. A block begins at a multiple of its size. The larger class lies first; as all sizes are powers of two,
///    it ends at a multiple of every smaller size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// The smallest size first, which is the order in which a fitting block is looked for.
    pub(crate) placed: Vec<Placed>,
    /// How many bytes all take together.
    pub(crate) size: usize,
}

impl Layout {
    /// Lays the classes out.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] if there are none, two have the same size, a size is not a power of two within
    /// the limits, a count is zero, or all together are too large.
    pub(crate) fn new(classes: &[SizeClass]) -> Result<Self> {
        let mut classes = classes.to_vec();
        classes.sort_unstable_by_key(|class| std::cmp::Reverse(class.size));
        if classes.is_empty() {
            return Err(Error::new(ErrorKind::Invalid, "an arena of no blocks"));
        }
        if let Some(twice) = classes.windows(2).find(|pair| pair[0].size == pair[1].size) {
            let context = format!("two size classes of {} bytes", twice[0].size);
            return Err(Error::new(ErrorKind::Invalid, context));
        }
        let mut placed = Vec::with_capacity(classes.len());
        let mut size = 0_usize;
        for class in classes {
            let sizes = SizeClass::SIZE_MIN..=SizeClass::SIZE_MAX;
            let sound =
                class.size.is_power_of_two() && sizes.contains(&class.size) && class.count > 0;
            let end = usize::try_from(class.count)
                .ok()
                .and_then(|count| class.size.checked_mul(count))
                .and_then(|bytes| bytes.checked_add(size))
                .filter(|_| sound);
            let Some(end) = end else {
                let context = format!("{} blocks of {} bytes", class.count, class.size);
                return Err(Error::new(ErrorKind::Invalid, context));
            };
            placed.push(Placed {
                class,
                offset: size,
            });
            size = end;
        }
        placed.reverse();
        Ok(Self { placed, size })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn classes() -> impl Strategy<Value = Vec<SizeClass>> {
        let counts = prop::collection::btree_map(6..32_u32, 1..40_u32, 1..8);
        counts.prop_map(|counts: BTreeMap<u32, u32>| {
            let class = |(exponent, count)| SizeClass {
                size: 1_usize << exponent,
                count,
            };
            counts.into_iter().map(class).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn blocks_are_aligned_and_apart(classes in classes().prop_shuffle()) {
            let layout = Layout::new(&classes).expect("sound");
            let mut sorted = classes.clone();
            sorted.sort_by_key(|class| class.size);
            let placed: Vec<SizeClass> = layout.placed.iter().map(|placed| placed.class).collect();
            prop_assert_eq!(placed, sorted);
            let mut end = layout.size;
            for Placed { class, offset } in &layout.placed {
                prop_assert_eq!(offset % class.size, 0);
                prop_assert_eq!(offset + class.size * class.count as usize, end);
                end = *offset;
            }
            prop_assert_eq!(end, 0);
        }
    }

    #[test]
    fn classes_that_make_no_sense_are_refused() {
        let class = |size, count| SizeClass { size, count };
        for classes in [
            vec![],
            vec![class(4096, 0)],
            vec![class(32, 1)],
            vec![class(0, 1)],
            vec![class(96, 1)],
            vec![class(1 << 32, 1)],
            vec![class(4096, 1), class(64, 1), class(4096, 2)],
            (7..=31)
                .map(|e| class(1 << e, u32::MAX))
                .chain([class(64, 0)])
                .collect(),
        ] {
            let error = Layout::new(&classes).expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Invalid, "{classes:?}");
        }
    }
}
