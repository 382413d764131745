//! Bytes that an application has no room for yet.

/// A ring of bytes that grows up to what was set aside.
#[derive(Debug, Default)]
pub(super) struct Parked {
    bytes: std::collections::VecDeque<u8>,
}

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// Gives bytes to `send`, which says how many it took, until it takes none. Returns how many it took in all.
    pub(super) fn drain(&mut self, mut send: impl FnMut(&[u8]) -> usize) -> usize {
        let mut whole = 0;
        while !self.bytes.is_empty() {
            let (first, _) = self.bytes.as_slices();
            let count = send(first).min(first.len());
            if count == 0 {
                break;
            }
            self.bytes.drain(..count);
            whole += count;
        }
        if self.bytes.is_empty() {
            // What was set aside for a burst is given back.
            self.bytes.shrink_to(KEPT);
        }
        whole
    }

    pub(super) fn clear(&mut self) {
        self.bytes = std::collections::VecDeque::new();
    }
}

/// So much stays allocated.
const KEPT: usize = 16 * 1024;
