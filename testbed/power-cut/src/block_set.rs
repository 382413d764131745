//! Blocks of a device.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of blocks, kept as ranges that neither touch nor meet.
#[derive(Clone, Debug, Default)]
pub(crate) struct BlockSet(BTreeMap<u64, u64>);

impl BlockSet {
    /// The ranges, in order.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(start, end)| *start..*end)
    }

    pub(crate) fn insert(&mut self, blocks: Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        let mut whole = blocks;
        while let Some((start, end)) = self.last_before(whole.end) {
            if end < whole.start {
                break;
            }
            self.0.remove(&start);
            whole = start.min(whole.start)..end.max(whole.end);
        }
        self.0.insert(whole.start, whole.end);
    }

    pub(crate) fn remove(&mut self, blocks: &Range<u64>) {
        if blocks.is_empty() {
            return;
        }
        while let Some((start, end)) = self.last_before(blocks.end - 1) {
            if end <= blocks.start {
                break;
            }
            self.0.remove(&start);
            for rest in [start..blocks.start, blocks.end..end] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, rest.end);
                }
            }
        }
    }

    /// Whether any of the blocks is in the set.
    pub(crate) fn meets(&self, blocks: &Range<u64>) -> bool {
        let last = blocks.end.checked_sub(1);
        let found = last.and_then(|last| self.last_before(last));
        !blocks.is_empty() && found.is_some_and(|(_, end)| blocks.start < end)
    }

    /// The last range that begins at `limit` or before.
    fn last_before(&self, limit: u64) -> Option<(u64, u64)> {
        let last = self.0.range(..=limit).next_back()?;
        Some((*last.0, *last.1))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_as_bits_are(steps in prop::collection::vec((any::<bool>(), 0..64_usize, 0..20_usize), 0..40)) {
            let (mut set, mut bits) = (BlockSet::default(), [false; 100]);
            for (inserts, start, len) in steps {
                bits[start..start + len].fill(inserts);
                let blocks = start as u64..(start + len) as u64;
                if inserts {
                    set.insert(blocks);
                } else {
                    set.remove(&blocks);
                    prop_assert!(!set.meets(&blocks));
                }
                let mut seen = [false; 100];
                let mut end = None;
                for range in set.ranges() {
                    prop_assert!(!range.is_empty() && end.is_none_or(|end| end < range.start));
                    end = Some(range.end);
                    range.for_each(|block| seen[usize::try_from(block).expect("small")] = true);
                }
                prop_assert_eq!(seen, bits);
                let meets = bits[start..start + len].iter().any(|bit| *bit);
                prop_assert_eq!(set.meets(&(start as u64..(start + len) as u64)), meets);
            }
        }
    }
}
