//! Whether others need the processor.

/// Knows by the clock whether a plane that had nothing to do and gave the processor up was kept waiting for it. Then
/// more threads want to run than there are processors for: whoever spins takes the time of those that it spins for.
///
/// The first time it is believed for 10 ms, then for twice as long each time, up to a second: to find out costs a wait.
#[derive(Debug)]
pub(super) struct Crowd {
    until_ns: u64,
    period_ns: u64,
    /// When the processor was given up.
    left_ns: Option<u64>,
    /// So often it came back in time since the last crowd.
    calm: u32,
}

/// Who keeps it for longer computes. Those that wait for the plane let go of it within this, however many they are.
const AWAY_NS: u64 = 1_000_000;
/// It came back in time so often: the next crowd is the first again. One that computes may let others run between two
/// of its slices.
const CALM: u32 = 256;
const PERIOD_MIN_NS: u64 = 10_000_000;
const PERIOD_MAX_NS: u64 = 1_000_000_000;

impl Default for Crowd {
    fn default() -> Self {
        Self {
            until_ns: 0,
            period_ns: PERIOD_MIN_NS,
            left_ns: None,
            calm: 0,
        }
    }
}

impl Crowd {
    /// The processor is given up now.
    pub(super) const fn leave(&mut self, now_ns: u64) {
        self.left_ns = Some(now_ns);
    }

    /// Whether there is a crowd, as far as is known now.
    pub(super) fn look(&mut self, now_ns: u64) -> bool {
        if let Some(left_ns) = self.left_ns.take() {
            if now_ns.saturating_sub(left_ns) > AWAY_NS {
                self.until_ns = now_ns.saturating_add(self.period_ns);
                self.period_ns = (self.period_ns * 2).min(PERIOD_MAX_NS);
                self.calm = 0;
            } else {
                self.calm = (self.calm + 1).min(CALM);
                if self.calm == CALM {
                    self.period_ns = PERIOD_MIN_NS;
                }
            }
        }
        now_ns < self.until_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn who_was_kept_waiting_is_in_a_crowd_for_longer_each_time() {
        let (mut crowd, mut now_ns) = (Crowd::default(), MS);
        assert!(!crowd.look(now_ns));
        for period_ms in [10, 20, 40, 80, 160, 320, 640, 1000, 1000] {
            // It comes back in time, but not often enough.
            for _ in 1..CALM {
                crowd.leave(now_ns);
                assert!(!crowd.look(now_ns));
            }
            crowd.leave(now_ns);
            now_ns += 3 * MS;
            assert!(crowd.look(now_ns), "{period_ms}");
            assert!(crowd.look(now_ns + period_ms * MS - 1), "{period_ms}");
            assert!(!crowd.look(now_ns + period_ms * MS), "{period_ms}");
            now_ns += period_ms * MS;
        }
        for _ in 0..CALM {
            crowd.leave(now_ns);
            assert!(!crowd.look(now_ns + AWAY_NS), "it has gone");
        }
        crowd.leave(now_ns);
        assert!(crowd.look(now_ns + 2 * MS));
        assert!(!crowd.look(now_ns + 12 * MS), "it is as at first");
    }
}
