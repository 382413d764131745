//! Decoder of numbers and text from untrusted bytes.

use super::extent::{EXTENT_BYTES, Extents};
use super::ids::{InodeId, Kind, Timestamp};

/// Remaining bytes. Each method consumes from the front, or fails.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// All of `bytes`.
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Whether nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(len)?;
        self.rest = rest;
        Some(bytes)
    }

    /// The next `N` bytes.
    pub(crate) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.rest.split_first_chunk()?;
        self.rest = rest;
        Some(*bytes)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        Some(u8::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.array()?))
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.array()?))
    }

    pub(crate) fn inode_id(&mut self) -> Option<InodeId> {
        self.u64().map(InodeId)
    }

    pub(crate) fn timestamp(&mut self) -> Option<Timestamp> {
        self.u64().map(Timestamp)
    }

    /// 1 for a file, 2 for a directory.
    pub(crate) fn kind(&mut self) -> Option<Kind> {
        match self.u8()? {
            1 => Some(Kind::File),
            2 => Some(Kind::Directory),
            _ => None,
        }
    }

    /// A length in one byte, then so many bytes of UTF-8.
    pub(crate) fn name(&mut self) -> Option<&'a str> {
        let len = self.u8()?;
        std::str::from_utf8(self.bytes(usize::from(len))?).ok()
    }

    /// A length in four bytes, then so many bytes.
    pub(crate) fn long_bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.u32()?).ok()?;
        self.bytes(len)
    }

    /// A count in four bytes, then so many extents.
    pub(crate) fn extents(&mut self) -> Option<Extents<'a>> {
        let count = usize::try_from(self.u32()?).ok()?;
        self.extents_of(count)
    }

    /// `count` extents.
    pub(crate) fn extents_of(&mut self, count: usize) -> Option<Extents<'a>> {
        self.bytes(count.checked_mul(EXTENT_BYTES)?)
            .map(Extents::Encoded)
    }
}

/// Appends what [`Reader::kind`] reads.
pub(crate) const fn kind_byte(kind: Kind) -> u8 {
    match kind {
        Kind::File => 1,
        Kind::Directory => 2,
    }
}

/// Appends what [`Reader::name`] reads.
///
/// # Panics
/// If the name has more than 255 bytes.
pub(crate) fn push_name(bytes: &mut Vec<u8>, name: &str) {
    bytes.push(u8::try_from(name.len()).expect("a name has at most 255 bytes"));
    bytes.extend_from_slice(name.as_bytes());
}

/// Appends what [`Reader::extents_of`] reads.
pub(crate) fn push_extents(bytes: &mut Vec<u8>, extents: Extents<'_>) {
    match extents {
        Extents::Encoded(encoded) => bytes.extend_from_slice(encoded),
        Extents::Listed(listed) => {
            bytes.extend(listed.iter().flat_map(|extent| extent.to_bytes()));
        }
    }
}
