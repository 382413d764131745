//! `SO_MAX_PACING_RATE` of one connection.

use std::sync::atomic::{AtomicU64, Ordering};

/// `SO_MAX_PACING_RATE` in bytes a second. All ones is no limit; stored as the complement, so that zeros are no limit.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct PacingRate(AtomicU64);

impl PacingRate {
    /// A rate without limit.
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        !self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, rate: u64) {
        self.0.store(!rate, Ordering::Relaxed);
    }

    /// Bytes that `getsockopt(2)` returns into `room` bytes, and their number: 8 or 4.
    pub(crate) fn to_bytes(&self, room: usize) -> ([u8; 8], usize) {
        let rate = self.get();
        if room >= 8 {
            return (rate.to_ne_bytes(), 8);
        }
        let mut bytes = [0; 8];
        let short = u32::try_from(rate).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&short.to_ne_bytes());
        (bytes, 4)
    }

    /// Rate that the bytes of `setsockopt(2)` mean: a 64-bit number, or a 32-bit one.
    pub(crate) fn read(bytes: [u8; 8], is_long: bool) -> u64 {
        let [a, b, c, d, ..] = bytes;
        match (is_long, u32::from_ne_bytes([a, b, c, d])) {
            (true, _) => u64::from_ne_bytes(bytes),
            (false, u32::MAX) => u64::MAX,
            (false, short) => short.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        let rate = PacingRate::none();
        assert_eq!(rate.get(), u64::MAX, "no limit");
        assert_eq!(rate.to_bytes(8), ([0xff; 8], 8));
        rate.set(1 << 40);
        assert_eq!(rate.to_bytes(8), ((1_u64 << 40).to_ne_bytes(), 8));
        assert_eq!(rate.to_bytes(4).1, 4);
        assert_eq!(rate.to_bytes(4).0[..4], [0xff; 4]);
        assert_eq!(PacingRate::read([0xff; 8], false), u64::MAX);
        let short = u64::from(5_u32.to_le()).to_le_bytes();
        assert_eq!(PacingRate::read(short, false), 5);
        assert_eq!(PacingRate::read(7_u64.to_ne_bytes(), true), 7);
    }
}
