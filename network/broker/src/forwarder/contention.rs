//! The detection of contention for the processor.

use millrace_sync::spin::{Contention, ContentionPolicy};

/// Contention of the processor, detected by the clock. If an idle forwarder yields the processor and resumes late, more
/// threads are runnable than there are processors; spinning then takes time from the threads that the forwarder waits
/// for.
///
/// The first detection holds for 10 ms, each later one for twice the period, up to a second: a probe costs a late
/// resumption. No probe is needed: a forwarder shares its detection with no other thread.
#[derive(Debug)]
pub(super) struct CpuContention {
    contention: Contention,
    /// The time of the last yield, in nanoseconds.
    yielded_ns: Option<u64>,
    /// Resumptions in time since the last contention.
    on_time: u32,
}

const POLICY: ContentionPolicy = ContentionPolicy {
    // Threads that wait for the forwarder sleep again within it; a thread that runs longer computes.
    late_ns: 1_000_000,
    backoff_min_ns: 10_000_000,
    backoff_max_ns: 1_000_000_000,
    growth: 2,
    // A computing thread may let others run between two of its slices.
    on_time_min: 256,
};

impl Default for CpuContention {
    fn default() -> Self {
        Self {
            contention: Contention::new(POLICY),
            yielded_ns: None,
            on_time: 0,
        }
    }
}

impl CpuContention {
    /// Records that the processor is yielded.
    pub(super) const fn on_yield(&mut self, now_ns: u64) {
        self.yielded_ns = Some(now_ns);
    }

    /// Whether the processor is contended, as of now.
    pub(super) fn is_contended(&mut self, now_ns: u64) -> bool {
        if let Some(yielded_ns) = self.yielded_ns.take() {
            if self.contention.on_yield(yielded_ns, now_ns) {
                self.on_time = 0;
            } else {
                self.on_time = self.on_time.saturating_add(1);
                self.contention.on_time(self.on_time);
            }
        }
        self.contention.is_contended(now_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn late_resumption_doubles_the_contended_period() {
        let (mut contention, mut now_ns) = (CpuContention::default(), MS);
        assert!(!contention.is_contended(now_ns));
        for period_ms in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            // It resumes in time, but not often enough.
            for _ in 1..POLICY.on_time_min {
                contention.on_yield(now_ns);
                assert!(!contention.is_contended(now_ns));
            }
            contention.on_yield(now_ns);
            now_ns += 3 * MS;
            assert!(contention.is_contended(now_ns), "{period_ms}");
            assert!(
                contention.is_contended(now_ns + period_ms * MS - 1),
                "{period_ms}"
            );
            assert!(
                !contention.is_contended(now_ns + period_ms * MS),
                "{period_ms}"
            );
            now_ns += period_ms * MS;
        }
        for _ in 0..POLICY.on_time_min {
            contention.on_yield(now_ns);
            assert!(
                !contention.is_contended(now_ns + POLICY.late_ns),
                "it has gone"
            );
        }
        contention.on_yield(now_ns);
        assert!(contention.is_contended(now_ns + 2 * MS));
        assert!(
            !contention.is_contended(now_ns + 12 * MS),
            "it is as at first"
        );
    }
}
