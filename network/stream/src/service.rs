//! The service that a program requests for its bytes.

use crate::partition::Class;

/// A program's service request to a forwarder, stored by [`Sender::serve`](crate::Sender::serve). A peer in direct mode
/// ignores it.
///
/// ```text
/// word:  class + 1 u8, 0 if nothing is requested | bytes a second u56, 0 if there is no limit
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The service class; `None` for the default.
    pub class: Option<Class>,
    /// The highest rate in bytes a second: 1 to 2^56 - 1.
    pub bytes_per_second: Option<u64>,
}

const RATE_MAX: u64 = (1 << 56) - 1;

impl Service {
    pub(crate) fn word(self) -> u64 {
        let class = self.class.map_or(0, |class| class.number() + 1);
        let rate = self.bytes_per_second.map_or(0, |rate| rate.min(RATE_MAX));
        u64::from(class) | rate << 8
    }

    /// Decodes a peer's untrusted word.
    pub(crate) fn from_word(word: u64) -> Self {
        let class = word.to_le_bytes()[0].checked_sub(1);
        Self {
            class: class.and_then(Class::new),
            bytes_per_second: Some(word >> 8).filter(|rate| *rate > 0),
        }
    }
}
