//! Where does the first message in a buffer end?

use crate::{Error, ErrorKind, Header, MESSAGE_LEN_MAX, Result};

/// The length of the first message in a buffer, in bytes, header included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FrameLen(usize);

impl FrameLen {
    /// The length in bytes, between [`HEADER_LEN`](crate::HEADER_LEN) and the decoder's limit.
    #[must_use]
    pub const fn get(self) -> usize {
        self.0
    }
}

/// Cuts a stream of bytes into messages. It keeps no state: the caller's buffer is the state.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    message_len_max: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            message_len_max: MESSAGE_LEN_MAX,
        }
    }
}

impl Decoder {
    /// A decoder that refuses messages longer than `message_len_max` bytes; at most
    /// [`MESSAGE_LEN_MAX`].
    #[must_use]
    pub fn with_message_len_max(message_len_max: usize) -> Self {
        Self {
            message_len_max: message_len_max.min(MESSAGE_LEN_MAX),
        }
    }

    /// The length of the message that `buffer` starts with, or `None` as long as its header is not
    /// complete. The message itself is complete once `buffer` is at least that long.
    ///
    /// # Errors
    /// [`ErrorKind::MessageLength`]: there is no way to find the next message.
    pub fn frame(&self, buffer: &[u8]) -> Result<Option<FrameLen>> {
        let Some(header) = Header::parse(buffer)? else {
            return Ok(None);
        };
        if header.message_len > self.message_len_max {
            return Err(Error::new(
                ErrorKind::MessageLength,
                format!(
                    "message length {} is above the limit of {}",
                    header.message_len, self.message_len_max
                ),
            ));
        }
        Ok(Some(FrameLen(header.message_len)))
    }
}
