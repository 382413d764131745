//! A distribution of latencies, drawn with characters.

use hdrhistogram::Histogram;

use crate::terminal::quantity::duration;

/// Rows at most for what is usual.
const ROWS_MAX: usize = 20;
/// This part of latencies at either end is not usual.
const UNUSUAL: f64 = 0.0005;
/// Characters of the longest bar.
const BAR: u64 = 50;

/// How finely latencies are divided: so many steps of equal width in each power of two, of which every how
/// manieth is used. The finest first.
const GRIDS: [(u64, u32); 6] = [(4, 1), (2, 1), (1, 1), (1, 2), (1, 4), (1, 64)];

/// A range of latencies in nanoseconds and how many lie in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) first: u64,
    /// Included.
    pub(super) last: u64,
    pub(super) count: u64,
}

/// All latencies in 22 ranges at most: what is usual is divided as finely as 20 allow, and what is not has a
/// range at either end.
pub(super) fn ranges(latencies: &Histogram<u64>) -> Vec<Range> {
    if latencies.is_empty() {
        return Vec::new();
    }
    let first = latencies.value_at_quantile(UNUSUAL);
    let last = latencies.value_at_quantile(1.0 - UNUSUAL);
    let mut edges = Vec::new();
    for (steps, stride) in GRIDS {
        edges = grid(first, last, steps, stride);
        if edges.len() <= ROWS_MAX + 1 {
            break;
        }
    }
    if latencies.min() < edges[0] {
        edges.insert(0, latencies.min());
    }
    let end = latencies.max().saturating_add(1);
    if edges[edges.len() - 1] < end {
        edges.push(end);
    }
    let pairs = edges.windows(2);
    pairs
        .map(|pair| Range {
            first: pair[0],
            last: pair[1] - 1,
            count: latencies.count_between(pair[0], pair[1] - 1),
        })
        .collect()
}

/// The edges of ranges that have everything from `min` to `max` in them.
fn grid(min: u64, max: u64, steps: u64, stride: u32) -> Vec<u64> {
    let mut edges = vec![0];
    let mut shift = 0;
    while shift < 63 {
        for step in 0..steps {
            let edge = (u128::from(steps + step) << shift) / u128::from(steps);
            let edge = u64::try_from(edge).unwrap_or(u64::MAX);
            if edge <= min {
                edges.clear();
            }
            if edges.last().is_none_or(|last| *last < edge) {
                edges.push(edge);
            }
            if edge > max {
                return edges;
            }
        }
        shift += stride;
    }
    edges.push(u64::MAX);
    edges
}

/// A line for each range.
pub(super) fn plot(latencies: &Histogram<u64>) -> String {
    let ranges = ranges(latencies);
    let most = ranges.iter().map(|range| range.count).max().unwrap_or(0);
    let mut text = String::new();
    for range in &ranges {
        let bar = u128::from(range.count) * u128::from(BAR) / u128::from(most.max(1));
        let bar = match usize::try_from(bar).expect("no longer than the longest") {
            0 if range.count > 0 => ".".to_owned(),
            length => "#".repeat(length),
        };
        let share = range.count as f64 * 100.0 / latencies.len() as f64;
        let line = format!(
            "  {:>8} .. {:>8}  {share:6.2} %  {bar}",
            duration(range.first as f64),
            duration((range.last + 1) as f64)
        );
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::report::latencies;
    use super::*;

    #[test]
    fn nothing_is_no_plot() {
        assert_eq!(plot(&latencies()), "");
    }

    #[test]
    fn a_few_outliers_do_not_hide_the_shape() {
        let mut all = latencies();
        all.record_n(1_000, 50_000).expect("inside");
        all.record_n(1_500, 50_000).expect("inside");
        all.record_n(10, 1).expect("inside");
        all.record_n(900_000_000, 1).expect("inside");
        let counts: Vec<u64> = ranges(&all).iter().map(|range| range.count).collect();
        assert_eq!(counts, [1, 50_000, 0, 50_000, 1]);
    }

    #[test]
    fn bars_are_as_long_as_their_shares() {
        let mut few = latencies();
        few.record_n(1000, 100).expect("inside");
        few.record_n(1600, 50).expect("inside");
        few.record_n(2000, 1).expect("inside");
        let expected = [
            "    896 ns ..  1.02 µs   66.23 %  ##################################################",
            "   1.02 µs ..  1.28 µs    0.00 %",
            "   1.28 µs ..  1.54 µs    0.00 %",
            "   1.54 µs ..  1.79 µs   33.11 %  #########################",
            "   1.79 µs ..  2.05 µs    0.66 %  .",
        ];
        assert_eq!(plot(&few), expected.join("\n") + "\n");
    }

    proptest! {
        #[test]
        fn every_latency_is_in_one_range(values in prop::collection::vec(1..1_u64 << 40, 1..50)) {
            let mut all = latencies();
            for value in &values {
                all.saturating_record(*value);
            }
            let ranges = ranges(&all);
            prop_assert!(ranges.len() <= ROWS_MAX + 2, "{} ranges", ranges.len());
            prop_assert!(ranges[0].first <= all.min());
            prop_assert!(ranges[ranges.len() - 1].last >= all.max());
            for pair in ranges.windows(2) {
                prop_assert_eq!(pair[0].last + 1, pair[1].first);
            }
        }
    }
}
