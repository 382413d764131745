//! Bytes of a key, ascending or descending.

use std::borrow::Cow;

use super::tag;
use crate::{Error, ErrorCode, Result};

/// Takes bytes from the front of a key and undoes the complement of descending fields.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
    /// FF for descending fields, 00 for ascending ones.
    mask: u8,
}

impl<'a> Reader<'a> {
    pub(super) const fn new(rest: &'a [u8], descending: bool) -> Self {
        Self {
            rest,
            mask: if descending { 0xFF } else { 0 },
        }
    }

    /// What has not been read.
    pub(super) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(super) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or_else(corrupt)?;
        self.rest = rest;
        Ok(first ^ self.mask)
    }

    /// The next byte, which stays where it is.
    pub(super) fn peek(&self) -> Result<u8> {
        self.rest
            .first()
            .map(|byte| byte ^ self.mask)
            .ok_or_else(corrupt)
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk::<N>().ok_or_else(corrupt)?;
        self.rest = rest;
        Ok(first.map(|byte| byte ^ self.mask))
    }

    pub(super) fn bytes(&mut self, count: usize) -> Result<Cow<'a, [u8]>> {
        let taken = self.skip(count)?;
        Ok(self.unmasked(taken))
    }

    /// Steps over `count` bytes and returns them as they are stored.
    pub(super) fn skip(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or_else(corrupt)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The bytes up to the next NUL, which is read too.
    pub(super) fn until_nul(&mut self) -> Result<Cow<'a, [u8]>> {
        let taken = self.skip_until_nul()?;
        Ok(self.unmasked(taken))
    }

    /// Steps behind the next NUL and returns what is before it as it is stored.
    pub(super) fn skip_until_nul(&mut self) -> Result<&'a [u8]> {
        let length = self
            .rest
            .iter()
            .position(|byte| *byte == self.mask)
            .ok_or_else(corrupt)?;
        let taken = self.skip(length)?;
        self.skip(1)?;
        Ok(taken)
    }

    /// An escaped text.
    pub(super) fn text(&mut self) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            text.extend_from_slice(&self.until_nul()?);
            match self.byte()? {
                tag::TEXT_END => return Ok(text),
                tag::TEXT_NUL => text.push(0),
                _ => return Err(corrupt()),
            }
        }
    }

    /// Steps over an escaped text.
    pub(super) fn skip_text(&mut self) -> Result<()> {
        loop {
            self.skip_until_nul()?;
            match self.byte()? {
                tag::TEXT_END => return Ok(()),
                tag::TEXT_NUL => {}
                _ => return Err(corrupt()),
            }
        }
    }

    /// A length of four bytes.
    pub(super) fn length(&mut self) -> Result<usize> {
        usize::try_from(u32::from_be_bytes(self.array()?)).map_err(|_| corrupt())
    }

    fn unmasked(&self, stored: &'a [u8]) -> Cow<'a, [u8]> {
        if self.mask == 0 {
            Cow::Borrowed(stored)
        } else {
            Cow::Owned(stored.iter().map(|byte| byte ^ self.mask).collect())
        }
    }
}

/// The failure for bytes that encoding does not write: a stored key is damaged.
pub(super) fn corrupt() -> Error {
    Error::new(ErrorCode::InternalError, "an index key is damaged")
}
