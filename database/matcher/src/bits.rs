//! `$bitsAllSet`, `$bitsAllClear`, `$bitsAnySet`, `$bitsAnyClear`.

use bson::RawBsonRef;
use millrace_value::Number;

/// Which of the tested bits must be how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BitTestKind {
    /// Every tested bit is one.
    AllSet,
    /// Every tested bit is zero.
    AllClear,
    /// Some tested bit is one.
    AnySet,
    /// Some tested bit is zero.
    AnyClear,
}

/// A test of bits of an integral number or of binary data.
///
/// Bit 0 is the lowest bit of a number and the lowest bit of the first byte of binary data. Numbers
/// are extended by their sign, binary data by zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitTest {
    kind: BitTestKind,
    /// The tested bits of a number; those past 63 all are the sign bit.
    mask: u64,
    positions: Vec<u32>,
}

const SIGN_BIT: u32 = 63;

impl BitTest {
    /// A test of the bits at `positions`.
    pub(super) fn new(kind: BitTestKind, positions: Vec<u32>) -> Self {
        let mask = positions
            .iter()
            .fold(0, |mask, position| mask | 1 << (*position).min(SIGN_BIT));
        Self {
            kind,
            mask,
            positions,
        }
    }

    /// A test of the bits that are one in `bytes`.
    pub(super) fn from_bytes(kind: BitTestKind, bytes: &[u8]) -> Self {
        let positions = bytes.iter().zip(0u32..).flat_map(|(byte, index)| {
            (0..8)
                .filter(move |bit| byte >> bit & 1 == 1)
                .map(move |bit| index * 8 + bit)
        });
        Self::new(kind, positions.collect())
    }

    pub(super) fn matches(&self, value: RawBsonRef<'_>) -> bool {
        match value {
            RawBsonRef::Binary(binary) => self.matches_bytes(binary.bytes),
            value => Number::from_raw(value)
                .and_then(|number| number.as_i64_exact())
                .is_some_and(|number| {
                    self.matches_number(u64::from_ne_bytes(number.to_ne_bytes()))
                }),
        }
    }

    const fn matches_number(&self, number: u64) -> bool {
        match self.kind {
            BitTestKind::AllSet => number & self.mask == self.mask,
            BitTestKind::AllClear => !number & self.mask == self.mask,
            BitTestKind::AnySet => number & self.mask != 0,
            BitTestKind::AnyClear => !number & self.mask != 0,
        }
    }

    fn matches_bytes(&self, bytes: &[u8]) -> bool {
        let is_set = |position: &u32| {
            let index = usize::try_from(position / 8).unwrap_or(usize::MAX);
            bytes
                .get(index)
                .is_some_and(|byte| byte >> (position % 8) & 1 == 1)
        };
        match self.kind {
            BitTestKind::AllSet => self.positions.iter().all(is_set),
            BitTestKind::AllClear => !self.positions.iter().any(is_set),
            BitTestKind::AnySet => self.positions.iter().any(is_set),
            BitTestKind::AnyClear => !self.positions.iter().all(is_set),
        }
    }
}
