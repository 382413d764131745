//! Data structures as bytes: little-endian fields at their offsets.

/// Some bytes, zero until they are put.
#[derive(Clone, Debug)]
pub(crate) struct Bytes {
    bytes: Vec<u8>,
}

impl Bytes {
    pub(crate) fn new(size: usize) -> Self {
        Self {
            bytes: vec![0; size],
        }
    }

    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub(crate) fn put_u8(&mut self, offset: usize, value: u8) {
        self.put(offset, &[value]);
    }

    pub(crate) fn put_u16(&mut self, offset: usize, value: u16) {
        self.put(offset, &value.to_le_bytes());
    }

    pub(crate) fn put_u32(&mut self, offset: usize, value: u32) {
        self.put(offset, &value.to_le_bytes());
    }

    pub(crate) fn put_u64(&mut self, offset: usize, value: u64) {
        self.put(offset, &value.to_le_bytes());
    }

    /// ASCII, padded with spaces and cut to `size` bytes.
    pub(crate) fn put_text(&mut self, offset: usize, size: usize, text: &str) {
        let mut field = vec![b' '; size];
        let count = text.len().min(size);
        field[..count].copy_from_slice(&text.as_bytes()[..count]);
        self.put(offset, &field);
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}
