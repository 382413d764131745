//! The ports of connections that name none.

use std::ops::RangeInclusive;

/// A round-robin allocator of ports: a port is reused only after all others.
#[derive(Clone, Debug)]
pub struct Ports {
    range: RangeInclusive<u16>,
    next: u16,
}

impl Ports {
    /// The range of ports that `ip_local_port_range` has by default.
    pub const DEFAULT_RANGE: RangeInclusive<u16> = 32768..=60999;

    /// An allocator over this range. An empty range, or one with port 0, is replaced by [`Ports::DEFAULT_RANGE`].
    #[must_use]
    pub fn new(range: RangeInclusive<u16>) -> Self {
        let usable = !range.is_empty() && *range.start() > 0;
        let range = if usable { range } else { Self::DEFAULT_RANGE };
        let next = *range.start();
        Self { range, next }
    }

    /// The next port that is not in use; if all are, the next one.
    pub(crate) fn take(&mut self, in_use: impl Fn(u16) -> bool) -> u16 {
        let first = self.step();
        let mut port = first;
        while in_use(port) {
            port = self.step();
            if port == first {
                break;
            }
        }
        port
    }

    /// Takes up to `most` more ports in sequence from `next` on, as long as they are next in turn and not in use.
    /// Returns their count.
    pub(crate) fn extend(&mut self, next: u16, most: u16, in_use: impl Fn(u16) -> bool) -> u16 {
        let mut count = 0;
        // The sequence ends where the range wraps.
        while count < most && Some(self.next) == next.checked_add(count) && !in_use(self.next) {
            self.step();
            count += 1;
        }
        count
    }

    fn step(&mut self) -> u16 {
        let port = self.next;
        self.next = if port == *self.range.end() {
            *self.range.start()
        } else {
            port + 1
        };
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_comes_again_before_all_others() {
        let mut ports = Ports::new(10..=12);
        let mut taken = || ports.take(|_| false);
        assert_eq!([taken(), taken(), taken(), taken()], [10, 11, 12, 10]);
    }

    #[test]
    fn ports_in_use_are_passed_over() {
        let mut ports = Ports::new(10..=12);
        assert_eq!(ports.take(|port| port == 10), 11);
        assert_eq!(ports.take(|port| port != 11), 11);
        assert_eq!(ports.take(|_| true), 12);
    }

    #[test]
    fn a_run_ends_where_the_range_does_and_before_a_port_in_use() {
        let mut ports = Ports::new(10..=19);
        assert_eq!(ports.take(|_| false), 10);
        assert_eq!(ports.extend(11, 3, |_| false), 3);
        assert_eq!(ports.extend(14, 9, |port| port == 16), 2);
        assert_eq!(ports.extend(11, 9, |_| false), 0, "others come next");
        assert_eq!(ports.extend(16, 99, |_| false), 4);
        assert_eq!(ports.take(|_| false), 10);
    }

    #[test]
    fn a_range_without_ports_is_the_default_one() {
        #[expect(
            clippy::reversed_empty_ranges,
            reason = "an empty range is what is tested"
        )]
        let empty = 9..=8;
        for range in [empty, 0..=9] {
            assert_eq!(Ports::new(range).take(|_| false), 32768);
        }
        assert_eq!(Ports::new(65535..=65535).take(|_| false), 65535);
    }
}
