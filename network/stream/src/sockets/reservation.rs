//! A reservation of room in a stream.

use std::io;
use std::ptr::NonNull;

use millrace_window::WORD;

use super::Stream;
use crate::{Error, Reserved};

/// Reserved room in the memory that the peer reads. A commit sends the written bytes; a drop discards them.
#[derive(Debug)]
#[must_use]
pub struct Reservation<'stream> {
    stream: &'stream mut Stream,
    reserved: Reserved,
    /// Bytes written so far.
    written: usize,
    /// The last bytes, which do not fill a word.
    tail: [u8; WORD],
}

impl<'stream> Reservation<'stream> {
    pub(super) const fn new(stream: &'stream mut Stream, reserved: Reserved) -> Self {
        Self {
            stream,
            reserved,
            written: 0,
            tail: [0; WORD],
        }
    }

    /// The size of the reservation in bytes.
    #[must_use]
    pub const fn length(&self) -> usize {
        self.reserved.length()
    }

    /// The count of bytes written so far.
    #[must_use]
    pub const fn written(&self) -> usize {
        self.written
    }

    /// The regions of the reservation, for a caller that stores bytes itself and then calls
    /// [`commit_first`](Reservation::commit_first). [`Sender::places`](crate::Sender::places) has the rules.
    pub fn places(&mut self) -> impl Iterator<Item = NonNull<[u8]>> + use<'_, 'stream> {
        self.stream.sending().0.places(self.reserved)
    }

    /// Sends the written bytes, and returns their count.
    ///
    /// # Errors
    /// As [`Stream::send`].
    pub fn commit(self) -> io::Result<usize> {
        let written = self.written;
        self.commit_first(written)
    }

    /// Sends the first `length` bytes, and returns `length`.
    ///
    /// # Errors
    /// As [`Stream::send`]; [`io::ErrorKind::InvalidInput`] if `length` exceeds the reservation.
    pub fn commit_first(mut self, length: usize) -> io::Result<usize> {
        self.flush_tail()?;
        self.stream.check_peer()?;
        let (sender, cursor) = self.stream.sending();
        sender
            .commit(cursor, self.reserved, length)
            .map_err(invalid)?;
        if length > 0 {
            self.stream.wake();
        }
        Ok(length)
    }

    fn fill(&mut self, offset: usize, bytes: &[u8]) -> io::Result<()> {
        let (sender, _) = self.stream.sending();
        sender.fill(self.reserved, offset, bytes).map_err(invalid)
    }

    fn flush_tail(&mut self) -> io::Result<()> {
        let (count, tail) = (self.written % WORD, self.tail);
        self.fill(self.written - count, &tail[..count])
    }
}

impl io::Write for Reservation<'_> {
    /// Writes as much as there is room for behind the written bytes; 0 when it is full.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.length() - self.written);
        let mut rest = &bytes[..count];
        let begun = self.written % WORD;
        if begun > 0 {
            let (part, behind) = rest.split_at(rest.len().min(WORD - begun));
            self.tail[begun..begun + part.len()].copy_from_slice(part);
            self.written += part.len();
            rest = behind;
            if self.written % WORD == 0 {
                let tail = self.tail;
                self.fill(self.written - WORD, &tail)?;
            }
        }
        let (words, behind) = rest.split_at(rest.len() / WORD * WORD);
        if !words.is_empty() {
            self.fill(self.written, words)?;
            self.written += words.len();
        }
        if !behind.is_empty() {
            self.tail[..behind.len()].copy_from_slice(behind);
            self.written += behind.len();
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn invalid(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}
