//! How a program wants its bytes to be carried.

use crate::partition::Class;

/// What a program asks of whoever carries its bytes, by [`Sender::serve`](crate::Sender::serve). A peer that is the
/// other program itself has no use for it.
///
/// ```text
/// word:  class + 1 u8, 0 if nothing was said | bytes a second u56, 0 if there is no limit
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// How urgent its bytes are beside others'.
    pub class: Option<Class>,
    /// How many bytes a second it wants to be sent at most: 1 to 2^56 - 1.
    pub bytes_per_second: Option<u64>,
}

const RATE_MAX: u64 = (1 << 56) - 1;

impl Service {
    pub(crate) fn word(self) -> u64 {
        let class = self.class.map_or(0, |class| class.number() + 1);
        let rate = self.bytes_per_second.map_or(0, |rate| rate.min(RATE_MAX));
        u64::from(class) | rate << 8
    }

    /// What a peer has said: anything at all.
    pub(crate) fn from_word(word: u64) -> Self {
        let class = word.to_le_bytes()[0].checked_sub(1);
        Self {
            class: class.and_then(Class::new),
            bytes_per_second: Some(word >> 8).filter(|rate| *rate > 0),
        }
    }
}
