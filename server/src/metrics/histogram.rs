//! Latencies of one command.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The upper ends of the buckets, in microseconds: powers of two from 16 us to 33 s.
pub(super) const BUCKET_ENDS_US: [u64; 22] = {
    let mut ends = [0; 22];
    let mut index = 0;
    while index < ends.len() {
        ends[index] = 16 << index;
        index += 1;
    }
    ends
};

/// Counts of latencies by bucket. Only rises.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_ENDS_US.len()],
    above: AtomicU64,
    sum_us: AtomicU64,
}

impl Histogram {
    /// Adds one latency to its bucket, in whole microseconds.
    pub fn record(&self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        let index = BUCKET_ENDS_US.partition_point(|end| *end < us);
        self.buckets
            .get(index)
            .unwrap_or(&self.above)
            .fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
    }

    /// How many latencies were at most as long as each bucket's end; then how many there were.
    pub fn cumulative(&self) -> ([u64; BUCKET_ENDS_US.len()], u64) {
        let mut sum = 0;
        let counts = std::array::from_fn(|index| {
            sum += self.buckets[index].load(Ordering::Relaxed);
            sum
        });
        (counts, sum + self.above.load(Ordering::Relaxed))
    }

    /// The sum of all latencies, in microseconds.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_is_in_the_bucket_of_its_length() {
        let histogram = Histogram::default();
        for us in [0, 16, 17, 32, 1_000_000_000] {
            histogram.record(Duration::from_micros(us));
        }
        let (counts, total) = histogram.cumulative();
        assert_eq!((counts[0], counts[1], counts[21], total), (2, 4, 4, 5));
        assert_eq!(histogram.sum_us(), 1_000_000_065);
    }
}
