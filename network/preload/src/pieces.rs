//! Buffers of the program, as calls of the C library pass them.

use std::ffi::{c_int, c_void};
use std::slice;

use libc::iovec;

use crate::errno::{Errno, Outcome};

/// How many pieces a call takes.
pub(crate) const PIECES_MAX: usize = 1024;
/// No program has anything in the first page.
const LOWEST: usize = 4096;
/// No program has anything from here on: on x86-64 with five levels of pages, by the sign of an address elsewhere.
const HIGHEST: usize = if cfg!(target_arch = "x86_64") {
    1 << 56
} else {
    1 << 63
};

/// Bytes of the program that are to be sent.
///
/// # Errors
/// `EFAULT` if no program has anything there.
///
/// # Safety
/// `first` has `size` readable bytes that stay unchanged for the lifetime, or [`check`] fails.
#[inline]
pub(crate) unsafe fn bytes<'a>(first: *const c_void, size: usize) -> Outcome<&'a [u8]> {
    if size == 0 {
        return Ok(&[]);
    }
    check(first, size)?;
    // SAFETY: the `size` bytes are there and stay unchanged, as this function asks for; `check` excluded null.
    Ok(unsafe { slice::from_raw_parts(first.cast(), size) })
}

/// Buffer of the program that receives bytes.
///
/// # Errors
/// `EFAULT` if no program has memory there.
///
/// # Safety
/// `first` has `size` writable bytes that nothing else accesses for the lifetime, or [`check`] fails.
#[inline]
pub(crate) unsafe fn room<'a>(first: *mut c_void, size: usize) -> Outcome<&'a mut [u8]> {
    if size == 0 {
        return Ok(&mut []);
    }
    check(first, size)?;
    // SAFETY: the `size` bytes are there and nothing else uses them, as this function asks for; any value is a byte.
    Ok(unsafe { slice::from_raw_parts_mut(first.cast(), size) })
}

/// Checks that a program can have `size` bytes there: not in the first page, nor in the kernel's addresses. Accesses
/// alone find out whether the memory is mapped.
///
/// # Errors
/// `EFAULT` for such addresses.
#[inline]
pub(crate) fn check<T>(first: *const T, size: usize) -> Outcome<()> {
    let is_high = HIGHEST
        .checked_sub(size)
        .is_none_or(|last| first.addr() > last);
    if is_high || first.addr() < LOWEST {
        return Err(Errno(libc::EFAULT));
    }
    Ok(())
}

/// Whether the address is the kernel's, which is checked before any other step.
pub(crate) fn is_high<T>(first: *const T) -> bool {
    first.addr() >= HIGHEST
}

/// Pieces of the program that are to be sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a>(&'a [iovec]);

/// Buffers of the program that receive bytes.
#[derive(Debug)]
pub(crate) struct PiecesMut<'a>(&'a [iovec]);

impl<'a> Pieces<'a> {
    /// # Errors
    /// `EINVAL` for more than [`PIECES_MAX`] pieces; `EFAULT` if the pointer, or one in a piece, is null.
    ///
    /// # Safety
    /// `first` has `count` pieces, each with the bytes that it states, or is null.
    pub(crate) unsafe fn new(first: *const iovec, count: usize) -> Outcome<Self> {
        // SAFETY: there are `count` pieces, as this function asks for.
        Ok(Self(unsafe { pieces(first, count) }?))
    }

    /// How many bytes there are in all.
    pub(crate) fn size(self) -> Outcome<usize> {
        size(self.0)
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = &'a [u8]> {
        // SAFETY: the caller of `new` keeps that the bytes of each piece are there; `pieces` excluded null.
        self.0
            .iter()
            .filter_map(|piece| unsafe { bytes(piece.iov_base, piece.iov_len) }.ok())
    }
}

impl<'a> PiecesMut<'a> {
    /// # Errors
    /// As for [`Pieces::new`].
    ///
    /// # Safety
    /// `first` has `count` pieces, each with the room that it states, or is null.
    pub(crate) unsafe fn new(first: *const iovec, count: usize) -> Outcome<Self> {
        // SAFETY: there are `count` pieces, as this function asks for.
        Ok(Self(unsafe { pieces(first, count) }?))
    }

    /// How much room there is in all.
    pub(crate) fn size(&self) -> Outcome<usize> {
        size(self.0)
    }

    pub(crate) fn iter(&mut self) -> impl Iterator<Item = &'a mut [u8]> {
        // SAFETY: the caller of `new` keeps that the buffer of each piece is there; `pieces` excluded null.
        self.0
            .iter()
            .filter_map(|piece| unsafe { room(piece.iov_base, piece.iov_len) }.ok())
    }
}

/// The pieces that a call of the C library counts by a `c_int`.
pub(crate) fn count(count: c_int) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

unsafe fn pieces<'a>(first: *const iovec, count: usize) -> Outcome<&'a [iovec]> {
    if count > PIECES_MAX {
        return Err(Errno(libc::EINVAL));
    }
    if count == 0 {
        return Ok(&[]);
    }
    check(first, count * size_of::<iovec>())?;
    // SAFETY: there are `count` pieces, as this function asks for; `check` excluded null.
    let pieces = unsafe { slice::from_raw_parts(first, count) };
    for piece in pieces.iter().filter(|piece| piece.iov_len > 0) {
        if isize::try_from(piece.iov_len).is_ok() {
            check(piece.iov_base, piece.iov_len)?;
        }
    }
    Ok(pieces)
}

fn size(pieces: &[iovec]) -> Outcome<usize> {
    let size = pieces
        .iter()
        .try_fold(0usize, |size, piece| size.checked_add(piece.iov_len));
    size.filter(|size| isize::try_from(*size).is_ok())
        .ok_or(Errno(libc::EINVAL))
}
