//! What a key's order does not see.

/// How many bytes of type bits are kept without allocating: those of 64 numbers.
const INLINE_LEN: usize = 16;

/// The bits that restore the types of encoded values; see [the module's page](super).
#[derive(Clone, Debug, Default)]
pub struct TypeBits {
    /// The bytes while they are few.
    inline: [u8; INLINE_LEN],
    /// All bytes once there are more than fit inline; empty before.
    spilled: Vec<u8>,
    /// How many bytes there are up to the last one that is not zero.
    used: usize,
    /// How many bits there are, zeros included.
    count: usize,
}

impl PartialEq for TypeBits {
    fn eq(&self, other: &Self) -> bool {
        self.count == other.count && self.as_bytes() == other.as_bytes()
    }
}

impl Eq for TypeBits {}

impl TypeBits {
    /// A sequence of no bits; it allocates nothing until it outgrows its inline bytes.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            inline: [0; INLINE_LEN],
            spilled: Vec::new(),
            used: 0,
            count: 0,
        }
    }

    /// The bits as bytes, without trailing zero bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        if self.spilled.is_empty() {
            &self.inline[..self.used]
        } else {
            &self.spilled
        }
    }

    /// The bits as bytes, without trailing zero bytes.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        if self.spilled.is_empty() {
            self.inline[..self.used].to_vec()
        } else {
            self.spilled
        }
    }

    /// Forgets all bits and keeps the memory.
    pub fn clear(&mut self) {
        self.inline = [0; INLINE_LEN];
        self.spilled.clear();
        self.used = 0;
        self.count = 0;
    }

    /// Appends one bit.
    pub(super) fn push(&mut self, bit: bool) {
        if bit {
            let place = self.count / 8;
            self.used = place + 1;
            if place >= INLINE_LEN || !self.spilled.is_empty() {
                if self.spilled.is_empty() {
                    self.spilled.extend_from_slice(&self.inline);
                }
                self.spilled.resize(place + 1, 0);
                self.spilled[place] |= 1 << (self.count % 8);
            } else {
                self.inline[place] |= 1 << (self.count % 8);
            }
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
    fn many_bits_come_back() {
        let mut bits = TypeBits::new();
        let pattern = |place: usize| place % 3 == 0 || place % 7 == 2;
        for place in 0..1000 {
            bits.push(pattern(place));
        }
        let mut reader = TypeBitsReader::new(bits.as_bytes());
        assert!((0..1000).all(|place| reader.next() == pattern(place)));
        assert_eq!(bits.clone().into_bytes(), bits.as_bytes());
        bits.clear();
        assert_eq!(bits, TypeBits::new());
        bits.push(true);
        assert_eq!(bits.as_bytes(), [1]);
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
