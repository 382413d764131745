//! Private descriptors of this library: they have high numbers, and the program's calls that close or replace
//! descriptors skip them.

use std::ffi::c_int;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use rustix::io::{DupFlags, Errno, FdFlags};
use rustix::process::{Resource, getrlimit};

use crate::errno::Outcome;
use crate::limits::NUMBERS;

/// Highest number at which private descriptors begin.
const FIRST_MAX: u64 = 60_000;
/// Below this number programs expect their own first descriptors.
const LOWEST: c_int = 32;

/// One bit for each number; set for private descriptors.
static HIDDEN: [AtomicU64; NUMBERS / 64] = [const { AtomicU64::new(0) }; NUMBERS / 64];

fn bit(fd: c_int) -> Option<(&'static AtomicU64, u64)> {
    let number = usize::try_from(fd).ok()?;
    Some((HIDDEN.get(number / 64)?, 1 << (number % 64)))
}

/// Number from which private descriptors are allocated, as last computed; 0 before that.
static FIRST: AtomicI32 = AtomicI32::new(0);

/// Computes that number from the limit of the process: private descriptors have the upper quarter.
fn look_up_first() -> c_int {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let first = (limit / 4).saturating_mul(3).min(FIRST_MAX);
    let first = c_int::try_from(first).unwrap_or(c_int::MAX);
    FIRST.store(first, Ordering::Relaxed);
    first
}

/// A copy with a high number, or a lower one if those are taken.
fn copy(fd: BorrowedFd<'_>) -> Outcome<OwnedFd> {
    let first = match FIRST.load(Ordering::Relaxed) {
        0 => look_up_first(),
        first => first,
    };
    if let Ok(copy) = rustix::io::fcntl_dupfd_cloexec(fd, first) {
        return Ok(copy);
    }
    // The limit may have changed. The program's calls skip private numbers at any place.
    let mut first = look_up_first();
    loop {
        match rustix::io::fcntl_dupfd_cloexec(fd, first) {
            Err(Errno::MFILE) if first > LOWEST => first = (first / 2).max(LOWEST),
            copied => return Ok(copied?),
        }
    }
}

/// Moves a descriptor of this library to a private number, closed on exec.
///
/// # Errors
/// The kernel's, if no number is left; the descriptor is closed then.
pub(crate) fn hide(fd: OwnedFd) -> Outcome<RawFd> {
    let number = close_after(fd, hide_copy)?;
    Ok(number)
}

/// A private copy of a descriptor that is optional: it takes none of the numbers that the program may need.
pub(crate) fn hide_if_room(fd: BorrowedFd<'_>) -> Outcome<RawFd> {
    let first = match FIRST.load(Ordering::Relaxed) {
        0 => look_up_first(),
        first => first,
    };
    let copied = rustix::io::fcntl_dupfd_cloexec(fd, first);
    let copied = match copied {
        // The limit is another by now: lower, or higher.
        Err(Errno::INVAL) => rustix::io::fcntl_dupfd_cloexec(fd, look_up_first()),
        Ok(copy) if copy.as_raw_fd() > first / 3 * 4 + 4 => {
            close_raw(into_raw(copy));
            rustix::io::fcntl_dupfd_cloexec(fd, look_up_first())
        }
        copied => copied,
    };
    Ok(mark(copied?))
}

/// A private copy of a descriptor, closed on exec.
pub(crate) fn hide_copy(fd: BorrowedFd<'_>) -> Outcome<RawFd> {
    Ok(mark(copy(fd)?))
}

fn mark(copy: OwnedFd) -> RawFd {
    let copy = into_raw(copy);
    if let Some((word, bit)) = bit(copy) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    copy
}

/// Makes sure that `count` more descriptors can be opened.
///
/// # Errors
/// `EMFILE` if the limit of the process is too low.
pub(crate) fn spare(count: usize) -> Outcome<()> {
    let stdin = borrow(libc::STDIN_FILENO);
    let mut socket_cache = [-1; 4];
    let mut outcome = Ok(());
    for spare in socket_cache.iter_mut().take(count) {
        match rustix::io::fcntl_dupfd_cloexec(stdin, 0) {
            Ok(copy) => *spare = into_raw(copy),
            Err(Errno::MFILE) => outcome = Err(Errno::MFILE.into()),
            // It says nothing: there is no descriptor of that number.
            Err(_) => {}
        }
    }
    for spare in socket_cache.into_iter().filter(|spare| *spare >= 0) {
        close_raw(spare);
    }
    outcome
}

/// Marks a descriptor that the previous program has left under this number as private.
pub(crate) fn adopt(fd: RawFd) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_or(bit, Ordering::Relaxed);
    }
    // It was found to be open.
    let _closed_on_exec = rustix::io::fcntl_setfd(borrow(fd), FdFlags::CLOEXEC);
}

/// Whether the number is a private descriptor's.
#[inline]
pub(crate) fn is_hidden(fd: c_int) -> bool {
    bit(fd).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
}

/// Closes a private descriptor, and clears its bit.
pub(crate) fn close(fd: RawFd) {
    if let Some((word, bit)) = bit(fd) {
        word.fetch_and(!bit, Ordering::Relaxed);
    }
    close_raw(fd);
}

/// All private numbers from `first` to `last`.
pub(crate) fn numbers(first: usize, last: usize) -> impl Iterator<Item = c_int> {
    let last = last.min(NUMBERS - 1);
    (first / 64..=last / 64).flat_map(move |word| {
        let mut bits = HIDDEN[word].load(Ordering::Relaxed);
        std::iter::from_fn(move || {
            if bits == 0 {
                return None;
            }
            let number = word * 64 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            Some(number)
        })
        .filter(move |number| (first..=last).contains(number))
        .filter_map(|number| c_int::try_from(number).ok())
    })
}

/// Gives up the ownership of a descriptor. The standard library would close it by the name `close`, which this library
/// defines.
pub(crate) fn into_raw(fd: OwnedFd) -> RawFd {
    std::os::fd::IntoRawFd::into_raw_fd(fd)
}

/// Closes a descriptor of this library by the kernel's own call.
pub(crate) fn close_raw(fd: RawFd) {
    // SAFETY: the caller owns the descriptor and does not use it again.
    unsafe { rustix::io::close(fd) };
}

/// Runs `work` with a borrowed descriptor, and closes it.
fn close_after<T>(fd: OwnedFd, work: impl FnOnce(BorrowedFd<'_>) -> T) -> T {
    let raw = into_raw(fd);
    let result = work(borrow(raw));
    close_raw(raw);
    result
}

/// A descriptor number as rustix takes it. The kernel returns `EBADF` for a closed number.
#[inline]
pub(crate) fn borrow<'a>(fd: RawFd) -> BorrowedFd<'a> {
    debug_assert!(fd >= 0, "a number was taken from an open descriptor");
    // SAFETY: the number is not -1. The program that passed it may close it at any time, in which case the kernel's
    // calls fail.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Replaces `target` by a copy of `source`, as `dup3(2)`.
pub(crate) fn replace(source: RawFd, target: RawFd, is_closed_on_exec: bool) -> Outcome<()> {
    let flags = if is_closed_on_exec {
        DupFlags::CLOEXEC
    } else {
        DupFlags::empty()
    };
    // SAFETY: the number is open; it is not closed here, as the owner is never dropped.
    let mut target = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(target) });
    rustix::io::dup3(borrow(source), &mut target, flags)?;
    Ok(())
}
