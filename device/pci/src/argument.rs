//! Structures of VFIO's that are followed by data.

/// A structure followed by data: its first word, `argsz`, is the length of both together.
#[derive(Clone, Debug)]
pub(crate) struct Argument {
    bytes: Vec<u8>,
}

impl Argument {
    /// `size` zero bytes, but for the first word.
    pub(crate) fn new(size: usize) -> Self {
        let mut argument = Self {
            bytes: vec![0; size.max(4)],
        };
        let size = u32::try_from(argument.bytes.len()).expect("arguments are below 4 GiB");
        argument.put(0, &size.to_ne_bytes());
        argument
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Address for the kernel's reads and writes. Sets the first word to the space available.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u8 {
        let size = u32::try_from(self.bytes.len()).expect("arguments are below 4 GiB");
        self.put(0, &size.to_ne_bytes());
        self.bytes.as_mut_ptr()
    }

    /// Writes bytes at an offset that must lie inside.
    pub(crate) fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    /// The word at an offset, if the argument is that long.
    pub(crate) fn word(&self, offset: usize) -> Option<u32> {
        let bytes = self.bytes.get(offset..offset.checked_add(4)?)?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// The long word at an offset, if the argument is that long.
    pub(crate) fn long(&self, offset: usize) -> Option<u64> {
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

impl From<Vec<u8>> for Argument {
    /// The bytes as received: the first word is whatever the sender wrote.
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes }
    }
}
