//! A rate limit in bytes per second.

/// The rate limit of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Bytes per second; at least 1.
    pub bytes_per_second: u64,
    /// Bytes that may follow at once after a pause; at least 1.
    pub burst: u64,
}

/// A token bucket: one token per byte, added at a rate and removed by sends.
///
/// Over any time t at most `burst + rate * t` bytes are sent.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    rate: Rate,
    tokens: u64,
    /// The time up to which tokens were added, in nanoseconds.
    filled_at_ns: u64,
}

const SECOND_NS: u128 = 1_000_000_000;
/// The least default burst in bytes, and the fraction of a second that a larger one covers.
const BURST_MIN: u64 = 16 * 1024;
const BURSTS_A_SECOND: u64 = 100;

impl Rate {
    /// A rate with a default burst.
    #[must_use]
    pub fn steady(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            burst: (bytes_per_second / BURSTS_A_SECOND).max(BURST_MIN),
        }
    }
}

impl Bucket {
    /// A full bucket of this rate at `now_ns`.
    #[must_use]
    pub fn new(rate: Rate, now_ns: u64) -> Self {
        let rate = Rate {
            bytes_per_second: rate.bytes_per_second.max(1),
            burst: rate.burst.max(1),
        };
        Self {
            rate,
            tokens: rate.burst,
            filled_at_ns: now_ns,
        }
    }

    /// Whether the bucket has this rate.
    #[must_use]
    pub fn is_of(&self, rate: Rate) -> bool {
        self.rate == rate
    }

    /// The count of bytes of `wanted` that may be sent now: all of them, or as many as a full bucket has.
    ///
    /// # Errors
    /// The later time at which they may be sent: nanoseconds of the clock of `now_ns`.
    pub fn allowed(&mut self, wanted: u64, now_ns: u64) -> Result<u64, u64> {
        self.fill(now_ns);
        let wanted = wanted.min(self.rate.burst);
        if self.tokens >= wanted {
            return Ok(wanted);
        }
        let missing = u128::from(wanted - self.tokens);
        let wait = (missing * SECOND_NS).div_ceil(u128::from(self.rate.bytes_per_second));
        let wait = u64::try_from(wait).unwrap_or(u64::MAX);
        Err(self.filled_at_ns.saturating_add(wait))
    }

    /// Removes a token for each sent byte.
    pub const fn take(&mut self, bytes: u64) {
        self.tokens = self.tokens.saturating_sub(bytes);
    }

    fn fill(&mut self, now_ns: u64) {
        // A clock that goes back adds nothing.
        let elapsed = u128::from(now_ns.saturating_sub(self.filled_at_ns));
        let rate = u128::from(self.rate.bytes_per_second);
        let come = elapsed * rate / SECOND_NS;
        let room = u128::from(self.rate.burst - self.tokens);
        if come >= room {
            self.tokens = self.rate.burst;
            self.filled_at_ns = self.filled_at_ns.max(now_ns);
        } else if come > 0 {
            self.tokens += u64::try_from(come).expect("less than the room, which is a u64");
            // The rest of a token's time is kept.
            let used = (come * SECOND_NS).div_ceil(rate);
            let used = u64::try_from(used).expect("no more than has elapsed");
            self.filled_at_ns = self.filled_at_ns.saturating_add(used).min(now_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use millrace_random::Random;

    #[test]
    fn no_more_than_the_rate_and_no_less_in_the_long_run() {
        for seed in 0..50 {
            let mut random = Random::new(seed);
            let scale = 10 + random.below(24);
            let rate = Rate {
                bytes_per_second: 1 + random.below(1 << scale),
                burst: 1 + random.below(100_000),
            };
            let start = random.number() >> 2;
            let mut bucket = Bucket::new(rate, start);
            let (mut now, mut sent) = (start, 0_u64);
            for _ in 0..2000 {
                let wanted = 1 + random.below(8192);
                match bucket.allowed(wanted, now) {
                    Ok(bytes) => {
                        bucket.take(bytes);
                        sent += bytes;
                    }
                    Err(due) => {
                        assert!(due > now, "seed {seed}");
                        now = due;
                    }
                }
                let elapsed = u128::from(now - start);
                let come = elapsed * u128::from(rate.bytes_per_second) / SECOND_NS;
                let limit = u128::from(rate.burst) + come;
                assert!(u128::from(sent) <= limit, "seed {seed}: {sent} of {limit}");
                // At most a burst and a rounded token per iteration behind.
                assert!(
                    u128::from(sent) + 8192 + u128::from(rate.burst) + 2000 >= come,
                    "seed {seed}"
                );
            }
        }
    }
}
