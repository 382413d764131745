//! Extents: contiguous runs of units.

use std::fmt;

/// Bytes of an extent on the device.
pub(crate) const EXTENT_BYTES: usize = 8;

/// A contiguous run of units on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Extent {
    /// First unit, below 2^32.
    pub(crate) start: u64,
    /// Number of units; at least 1 in stored extents.
    pub(crate) units: u32,
}

impl Extent {
    /// The unit after the last one.
    #[must_use]
    pub(crate) const fn end(&self) -> u64 {
        self.start.saturating_add(self.units as u64)
    }

    /// Encoding on the device: start and number of units, each a `u32`.
    pub(crate) fn to_bytes(self) -> [u8; EXTENT_BYTES] {
        let start = u32::try_from(self.start).expect("a volume has at most 2^32 units");
        let mut bytes = [0; EXTENT_BYTES];
        bytes[..4].copy_from_slice(&start.to_le_bytes());
        bytes[4..].copy_from_slice(&self.units.to_le_bytes());
        bytes
    }

    /// Inverse of [`Extent::to_bytes`]; checks nothing.
    pub(crate) const fn from_bytes([s0, s1, s2, s3, u0, u1, u2, u3]: [u8; EXTENT_BYTES]) -> Self {
        Self {
            start: u32::from_le_bytes([s0, s1, s2, s3]) as u64,
            units: u32::from_le_bytes([u0, u1, u2, u3]),
        }
    }
}

impl fmt::Display for Extent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "units {}..{}", self.start, self.end())
    }
}

/// Borrowed extents: a list in memory, or encoded as in a transaction.
#[derive(Clone, Copy)]
pub(crate) enum Extents<'a> {
    /// In memory.
    Listed(&'a [Extent]),
    /// Encoded, [`EXTENT_BYTES`] each.
    Encoded(&'a [u8]),
}

impl<'a> Extents<'a> {
    /// Number of extents.
    pub(crate) const fn len(self) -> usize {
        match self {
            Self::Listed(extents) => extents.len(),
            Self::Encoded(bytes) => bytes.len() / EXTENT_BYTES,
        }
    }

    /// Iterator over the extents.
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = Extent> + use<'a> {
        (0..self.len()).map(move |index| match self {
            Self::Listed(extents) => extents[index],
            Self::Encoded(bytes) => {
                let mut extent = [0; EXTENT_BYTES];
                extent.copy_from_slice(&bytes[index * EXTENT_BYTES..][..EXTENT_BYTES]);
                Extent::from_bytes(extent)
            }
        })
    }
}

impl<'a> From<&'a [Extent]> for Extents<'a> {
    fn from(extents: &'a [Extent]) -> Self {
        Self::Listed(extents)
    }
}

impl<'a> From<&'a Vec<Extent>> for Extents<'a> {
    fn from(extents: &'a Vec<Extent>) -> Self {
        Self::Listed(extents)
    }
}

impl PartialEq for Extents<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Extents<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
