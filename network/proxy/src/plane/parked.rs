//! Bytes that an application has no room for yet.

use std::collections::VecDeque;

use super::end::End;

/// A ring of bytes that grows up to what was set aside.
#[derive(Debug, Default)]
pub(super) struct Parked {
    bytes: VecDeque<u8>,
    /// Which of them is urgent: the last that came, as a newer one makes those before it common.
    urgent: Option<usize>,
}

/// So much stays allocated.
const KEPT: usize = 16 * 1024;

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Gives bytes, of which the first may be urgent, to an application behind those that wait for it, and keeps what
    /// it has no room for. Returns how many it took.
    pub(super) fn give(&mut self, end: &mut End, bytes: &[u8], is_urgent: bool) -> usize {
        let sent = if self.is_empty() {
            end.send(bytes, is_urgent)
        } else {
            0
        };
        if is_urgent && sent == 0 {
            self.urgent = Some(self.bytes.len());
        }
        self.bytes.extend(&bytes[sent..]);
        sent
    }

    /// Gives what waits to the application, as far as it has room. Returns how many bytes it took.
    pub(super) fn drain(&mut self, end: &mut End) -> usize {
        let mut whole = 0;
        while !self.bytes.is_empty() {
            let (first, _) = self.bytes.as_slices();
            let common = self.urgent.filter(|place| *place > 0);
            let piece = &first[..common.unwrap_or(first.len()).min(first.len())];
            let count = end.send(piece, self.urgent == Some(0));
            if count == 0 {
                break;
            }
            self.bytes.drain(..count);
            self.urgent = self.urgent.and_then(|place| place.checked_sub(count));
            whole += count;
        }
        if self.bytes.is_empty() {
            // What was set aside for a burst is given back.
            self.bytes.shrink_to(KEPT);
        }
        whole
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
