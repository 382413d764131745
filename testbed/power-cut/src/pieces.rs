//! What of a request is on the medium as a whole or not at all.

use std::ops::Range;

/// The pieces of `blocks`: each whole run of `atomic` blocks that begins at a multiple of as many, and each
/// other block.
pub(crate) fn pieces(blocks: Range<u64>, atomic: u32) -> impl Iterator<Item = Range<u64>> {
    let atomic = u64::from(atomic);
    let mut next = blocks.start;
    std::iter::from_fn(move || {
        let left = blocks.end - next;
        if left == 0 {
            return None;
        }
        let whole = next % atomic == 0 && left >= atomic;
        let piece = next..next + if whole { atomic } else { 1 };
        next = piece.end;
        Some(piece)
    })
}

/// How many there are, or a few more.
pub(crate) const fn pieces_at_most(blocks: &Range<u64>, atomic: u32) -> u64 {
    let (len, atomic) = (blocks.end - blocks.start, atomic as u64);
    let whole = len / atomic;
    let rest = len - whole * atomic;
    // Whole runs begin later than the blocks do, so that one of them may fall apart.
    whole + rest + atomic
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whole_runs_stay_whole(start in 0..100_u64, len in 0..100_u64, atomic in 1..9_u32) {
            let pieces: Vec<Range<u64>> = pieces(start..start + len, atomic).collect();
            let flat: Vec<u64> = pieces.iter().cloned().flatten().collect();
            prop_assert_eq!(flat, (start..start + len).collect::<Vec<_>>());
            let most = pieces_at_most(&(start..start + len), atomic);
            prop_assert!(pieces.len() as u64 <= most);
            let run = u64::from(atomic);
            for first in (start..start + len).filter(|first| first % run == 0) {
                let is_piece = pieces.contains(&(first..first + run));
                prop_assert_eq!(is_piece, first + run <= start + len);
            }
        }
    }
}
