//! What a key's order does not see.

/// The bits that restore the types of encoded values; see [the module's page](super).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TypeBits {
    /// Up to the last byte that is not zero.
    bytes: Vec<u8>,
    /// How many bits there are, zeros included.
    count: usize,
}

impl TypeBits {
    /// No bits.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            bytes: Vec::new(),
            count: 0,
        }
    }

    /// The bits as bytes, without trailing zero bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bits as bytes, without trailing zero bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Forgets all bits and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count = 0;
    }

    /// Appends one bit.
    pub(super) fn push(&mut self, bit: bool) {
        if bit {
            self.bytes.resize(self.count / 8 + 1, 0);
            self.bytes[self.count / 8] |= 1 << (self.count % 8);
        }
        self.count += 1;
    }

    /// Appends the lowest `count` bits of `value`, the highest of them first.
    pub(super) fn push_number(&mut self, value: u32, count: u32) {
        for place in (0..count).rev() {
            self.push(value >> place & 1 == 1);
        }
    }
}

/// Reads [`TypeBits`] from their bytes. Behind their end all bits are zero.
#[derive(Clone, Debug)]
pub struct TypeBitsReader<'a> {
    bytes: &'a [u8],
    position: usize,
}

impl<'a> TypeBitsReader<'a> {
    /// A reader at the first bit of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, position: 0 }
    }

    /// The next bit.
    pub(super) fn next(&mut self) -> bool {
        let byte = self.bytes.get(self.position / 8).copied().unwrap_or(0);
        let bit = byte >> (self.position % 8) & 1 == 1;
        self.position += 1;
        bit
    }

    /// The next `count` bits, the highest first.
    pub(super) fn next_number(&mut self, count: u32) -> u32 {
        (0..count).fold(0, |number, _| number << 1 | u32::from(self.next()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trailing_zeros_take_no_room() {
        let mut bits = TypeBits::new();
        for _ in 0..100 {
            bits.push(false);
        }
        assert!(bits.as_bytes().is_empty());
        bits.push(true);
        bits.push_number(0, 20);
        assert_eq!(bits.as_bytes().len(), 13);
        let mut reader = TypeBitsReader::new(bits.as_bytes());
        assert_eq!((0..100).filter(|_| reader.next()).count(), 0);
        assert!(reader.next());
        assert_eq!(reader.next_number(30), 0);
    }

    #[test]
    fn numbers_round_trip() {
        let mut bits = TypeBits::new();
        bits.push_number(0b101, 3);
        bits.push_number(12_287, 14);
        let mut reader = TypeBitsReader::new(bits.as_bytes());
        assert_eq!(
            (reader.next_number(3), reader.next_number(14)),
            (0b101, 12_287)
        );
    }
}
