//! Bytes that wait for room in an application's ring.

use std::collections::VecDeque;

use super::end::End;

/// A growing ring buffer, bounded by the granted room.
#[derive(Debug, Default)]
pub(super) struct Parked {
    bytes: VecDeque<u8>,
    /// The index of the urgent byte. A newer urgent byte makes the earlier one ordinary.
    urgent: Option<usize>,
}

/// The capacity in bytes that stays allocated.
const CAPACITY_KEPT: usize = 16 * 1024;

impl Parked {
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Sends bytes to an application behind the waiting ones, and buffers the rest. If `is_urgent`, the first is
    /// urgent. Returns the count of bytes sent.
    pub(super) fn push(&mut self, end: &mut End, bytes: &[u8], is_urgent: bool) -> usize {
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

    /// Sends waiting bytes to the application. Returns the count of bytes sent.
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
            // The memory of a burst is released.
            self.bytes.shrink_to(CAPACITY_KEPT);
        }
        whole
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
