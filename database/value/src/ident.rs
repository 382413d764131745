//! The number under which a collection or an index keeps its keys.

use millrace_engine::KeyRange;

/// The prefix of all engine keys of one collection or index. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ident(u32);

impl Ident {
    /// The ident of the catalog itself: 0.
    pub const CATALOG: Self = Self(0);
    /// The length of the prefix in bytes.
    pub const LEN: usize = 4;

    /// The ident with this number; 0 is the catalog's.
    #[must_use]
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number of the ident, from 0 to `u32::MAX`.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }

    /// The first four bytes of the ident's engine keys: its number, big-endian.
    #[must_use]
    pub const fn prefix(self) -> [u8; Self::LEN] {
        self.0.to_be_bytes()
    }

    /// The engine key of `rest` under this ident.
    #[must_use]
    pub fn key(self, rest: &[u8]) -> Vec<u8> {
        let mut key = Vec::with_capacity(Self::LEN + rest.len());
        key.extend_from_slice(&self.prefix());
        key.extend_from_slice(rest);
        key
    }

    /// The range of all engine keys that begin with the ident.
    #[must_use]
    pub fn range(self) -> KeyRange {
        KeyRange::prefix(&self.prefix())
    }
}
