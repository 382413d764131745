//! The C library's names for waiting.
//!
//! A call without any user-level descriptor goes to the next definition, after one load for each number.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr;
use std::slice;
use std::time::Duration;

use libc::{epoll_event, fd_set, nfds_t, pollfd, sigset_t, size_t, timespec, timeval};

use crate::entry::{Entry, FDS, Kind, RefKind};
use crate::errno::{self, Errno, Outcome};
use crate::limits::NUMBERS;
use crate::{pieces, real};

use super::events::Events;
use super::hooks::{adopt, set_of};
use super::kernel;
use super::poll::poll as poll_ours;
use super::poll_target::PollTarget;
use super::select::{Asked, Bits, select as select_ours};
use super::wait::Deadline;

/// As many events as the kernel takes.
const ROOM_MAX: usize = i32::MAX as usize / size_of::<epoll_event>();

/// Whether the kernel alone does not know when this number is ready.
#[inline]
fn is_ours(fd: RawFd) -> bool {
    FDS.lookup(fd).is_some_and(|entry| match entry.kind() {
        Kind::Connection | Kind::Listener => true,
        Kind::EpollSet => set_of(entry).is_some_and(|set| set.is_ours()),
        Kind::Free => false,
    })
}

/// Result as C functions return it: the count, or -1 with `errno` set. A count leaves `errno` as it was.
fn to_c_result(work: impl FnOnce() -> Outcome<usize>) -> c_int {
    let before = kernel::last_error();
    match work() {
        Ok(value) => {
            errno::set(before.0);
            c_int::try_from(value).unwrap_or(c_int::MAX)
        }
        Err(Errno(error)) => {
            errno::set(error);
            -1
        }
    }
}

/// # Errors
/// `EINVAL` for a negative time, or for nanoseconds of a second or more.
fn duration(time: timespec) -> Outcome<Duration> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno(libc::EINVAL))?;
    let nanos = u32::try_from(time.tv_nsec).map_err(|_| Errno(libc::EINVAL))?;
    if nanos >= 1_000_000_000 {
        return Err(Errno(libc::EINVAL));
    }
    Ok(Duration::new(seconds, nanos))
}

/// A time that is not there means for ever.
///
/// # Safety
/// `time` is null or a time.
unsafe fn timeout_at(time: *const timespec) -> Outcome<Option<Duration>> {
    // SAFETY: `time` is null or a time, as this function asks for.
    unsafe { time.as_ref() }
        .map(|time| duration(*time))
        .transpose()
}

/// Less than nothing means for ever.
fn timeout_of(millis: c_int) -> Option<Duration> {
    u64::try_from(millis).ok().map(Duration::from_millis)
}

/// # Safety
/// The pointers meet the contract of `epoll_pwait`.
unsafe fn wait_in(
    outer: RawFd,
    entry: &'static Entry,
    (events, room): (*mut epoll_event, c_int),
    timeout: Option<Duration>,
    mask: *const sigset_t,
) -> Outcome<usize> {
    let room = usize::try_from(room)
        .ok()
        .filter(|room| (1..=ROOM_MAX).contains(room));
    let room = room.ok_or(Errno(libc::EINVAL))?;
    pieces::check(events, room * size_of::<epoll_event>())?;
    if !entry.pin(outer, RefKind::Syscall) {
        return Err(Errno(libc::EBADF));
    }
    let outcome = match set_of(entry) {
        Some(set) => {
            // SAFETY: the program passed an array of `room` events.
            let out = unsafe { Events::new(events, room) };
            // SAFETY: the program gave the mask.
            unsafe { set.wait(outer, out, timeout, mask) }
        }
        None => Err(Errno(libc::EBADF)),
    };
    entry.release(RefKind::Syscall);
    outcome
}

/// Waits by the next definition, if this is no set that has other members than the kernel's.
///
/// # Errors
/// `Err` has the result of the call; `Ok` the set, in which the wait is to begin (again).
///
/// # Safety
/// As `epoll_wait` asks, of which `wait` is the call.
#[inline]
unsafe fn wait_plainly(
    fd: RawFd,
    events: *mut epoll_event,
    room: c_int,
    wait: impl Fn() -> c_int,
) -> Result<&'static Entry, c_int> {
    let entry = FDS
        .lookup(fd)
        .filter(|entry| entry.kind() == Kind::EpollSet);
    let Some((entry, set)) = entry.and_then(|entry| Some((entry, set_of(entry)?))) else {
        return Err(wait());
    };
    if set.is_ours() {
        return Ok(entry);
    }
    // Counted as asleep, so that a thread that adds a user-level member wakes it.
    let Some(result) = set.sleep_plainly(&wait) else {
        return Ok(entry);
    };
    let Ok(count) = usize::try_from(result) else {
        return Err(result);
    };
    if count == 0 || !set.is_ours() {
        return Err(result);
    }
    let room = usize::try_from(room).unwrap_or(0);
    // SAFETY: the kernel took the same array and room, and wrote `count` events.
    let out = unsafe { Events::new(events, room) };
    // SAFETY: the kernel wrote `count` events to that room, and none of them is counted yet.
    let left = unsafe { set.translate(fd, out, count) };
    match c_int::try_from(left) {
        Ok(left @ 1..) => Err(left),
        _ => Ok(entry),
    }
}

/// # Safety
/// The pointer meets the contract of `epoll_ctl`.
unsafe fn control(
    outer: RawFd,
    operation: c_int,
    fd: RawFd,
    event: *mut epoll_event,
) -> Outcome<usize> {
    let is_absent = pieces::check(event, size_of::<epoll_event>()).is_err();
    let event = if operation == libc::EPOLL_CTL_DEL || is_absent {
        None
    } else {
        // SAFETY: the program gave an event; it need not be aligned.
        Some(unsafe { event.read_unaligned() })
    };
    match operation {
        libc::EPOLL_CTL_DEL => {}
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD if event.is_none() => {
            return Err(Errno(libc::EFAULT));
        }
        libc::EPOLL_CTL_ADD | libc::EPOLL_CTL_MOD if outer != fd => {}
        _ => return Err(Errno(libc::EINVAL)),
    }
    if FDS.lookup(outer).is_none() {
        // The kernel checks that the number is a set; a set does not have the descriptor.
        match kernel::epoll_delete(outer, fd) {
            Ok(()) | Err(Errno(libc::ENOENT)) => adopt(outer, true),
            Err(error) => return Err(error),
        }
    }
    let Some(entry) = FDS
        .lookup(outer)
        .filter(|entry| entry.pin(outer, RefKind::Syscall))
    else {
        return Err(Errno(libc::EBADF));
    };
    let target = Entry::find(fd);
    let outcome = match set_of(entry) {
        Some(set) => set.control(outer, operation, fd, target, event),
        None => Err(Errno(libc::EINVAL)),
    };
    target.unpin();
    entry.release(RefKind::Syscall);
    outcome.map(|()| 0)
}

/// # Safety
/// The pointers meet the contract of `ppoll`.
unsafe fn poll_here(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: Outcome<Option<Duration>>,
    mask: *const sigset_t,
) -> Outcome<usize> {
    let count = usize::try_from(count).map_err(|_| Errno(libc::EINVAL))?;
    // SAFETY: the program passed an array of `count` members.
    let members = unsafe { slice::from_raw_parts_mut(fds, count) };
    // SAFETY: the program gave the mask.
    unsafe { poll_ours::<Entry>(members, timeout?, mask) }
}

/// Whether any member is user-level.
///
/// # Safety
/// `fds` points to `count` members.
#[inline]
unsafe fn has_ours(fds: *const pollfd, count: nfds_t) -> bool {
    let Ok(count) = usize::try_from(count) else {
        return false;
    };
    if count > NUMBERS || pieces::check(fds, count * size_of::<pollfd>()).is_err() {
        return false;
    }
    // SAFETY: `fds` are `count` members, as this function asks for.
    let members = unsafe { slice::from_raw_parts(fds, count) };
    members.iter().any(|member| is_ours(member.fd))
}

/// The sets of a select, if a number in them is not the kernel's alone.
///
/// # Safety
/// The pointers meet the contract of `select`.
#[inline]
unsafe fn asked(count: c_int, [read, write, except]: [*mut fd_set; 3]) -> Option<Asked> {
    let count = usize::try_from(count)
        .ok()
        .filter(|count| *count <= NUMBERS)?;
    let is_there =
        |set: *mut fd_set| set.is_null() || pieces::check(set, count.div_ceil(8)).is_ok();
    if ![read, write, except].into_iter().all(is_there) {
        return None;
    }
    // SAFETY: the program passed a set with a bit for each of `count` numbers, or null.
    let read = unsafe { Bits::new(read) };
    // SAFETY: the program passed a set with a bit for each of `count` numbers, or null.
    let write = unsafe { Bits::new(write) };
    // SAFETY: the program passed a set with a bit for each of `count` numbers, or null.
    let except = unsafe { Bits::new(except) };
    Some(Asked {
        count,
        read,
        write,
        except,
    })
    .filter(|asked| asked.any(is_ours))
}

export! {
    fn epoll_create(size: c_int) -> c_int {
        let made = real::epoll_create(size);
        adopt(made, false);
        made
    }

    fn epoll_create1(flags: c_int) -> c_int {
        let made = real::epoll_create1(flags);
        adopt(made, false);
        made
    }

    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        let concerns_us = match FDS.lookup(set) {
            Some(entry) => entry.kind() == Kind::EpollSet,
            None => is_ours(fd),
        };
        if !concerns_us {
            return real::epoll_ctl(set, operation, fd, event);
        }
        to_c_result(|| control(set, operation, fd, event))
    }
}

export_points! {
    fn epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int {
        let next = || real::epoll_wait(set, events, room, timeout);
        let entry = match wait_plainly(set, events, room, next) {
            Ok(entry) => entry,
            Err(result) => return result,
        };
        to_c_result(|| wait_in(set, entry, (events, room), timeout_of(timeout), ptr::null()))
    }

    fn epoll_pwait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int {
        let next = || real::epoll_pwait(set, events, room, timeout, mask);
        let entry = match wait_plainly(set, events, room, next) {
            Ok(entry) => entry,
            Err(result) => return result,
        };
        to_c_result(|| wait_in(set, entry, (events, room), timeout_of(timeout), mask))
    }

    fn epoll_pwait2(set: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        let next = || real::epoll_pwait2(set, events, room, timeout, mask);
        let entry = match wait_plainly(set, events, room, next) {
            Ok(entry) => entry,
            Err(result) => return result,
        };
        let timeout = timeout_at(timeout);
        to_c_result(|| wait_in(set, entry, (events, room), timeout?, mask))
    }

    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        if !has_ours(fds, count) {
            return real::poll(fds, count, timeout);
        }
        to_c_result(|| poll_here(fds, count, Ok(timeout_of(timeout)), ptr::null()))
    }

    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        if !has_ours(fds, count) {
            return real::ppoll(fds, count, timeout, mask);
        }
        let timeout = timeout_at(timeout);
        to_c_result(|| poll_here(fds, count, timeout, mask))
    }

    fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, size: size_t) -> c_int {
        if usize::try_from(count).is_ok_and(|count| size / size_of::<pollfd>() < count) {
            overflow();
        }
        poll(fds, count, timeout)
    }

    fn __ppoll_chk(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t, size: size_t) -> c_int {
        if usize::try_from(count).is_ok_and(|count| size / size_of::<pollfd>() < count) {
            overflow();
        }
        ppoll(fds, count, timeout, mask)
    }

    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        let Some(mut asked) = asked(count, [read, write, except]) else {
            return real::select(count, read, write, except, timeout);
        };
        let Some(time) = timeout.as_mut() else {
            return to_c_result(|| select_ours::<Entry>(&mut asked, None, ptr::null()));
        };
        to_c_result(|| {
            let limit = duration_of(*time)?;
            let deadline = Deadline::after(Some(limit));
            let outcome = select_ours::<Entry>(&mut asked, Some(limit), ptr::null());
            // As the kernel: the remaining time.
            let left = deadline.left().unwrap_or_default();
            time.tv_sec = libc::time_t::try_from(left.as_secs()).unwrap_or(libc::time_t::MAX);
            time.tv_usec = libc::suseconds_t::from(left.subsec_micros());
            outcome
        })
    }

    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int {
        let Some(mut asked) = asked(count, [read, write, except]) else {
            return real::pselect(count, read, write, except, timeout, mask);
        };
        let timeout = timeout_at(timeout);
        to_c_result(|| select_ours::<Entry>(&mut asked, timeout?, mask))
    }
}

/// Timeout of `select`; microseconds of a second or more are added up, as by the kernel.
fn duration_of(time: timeval) -> Outcome<Duration> {
    let seconds = u64::try_from(time.tv_sec).map_err(|_| Errno(libc::EINVAL))?;
    let micros = u64::try_from(time.tv_usec).map_err(|_| Errno(libc::EINVAL))?;
    Ok(Duration::from_secs(seconds).saturating_add(Duration::from_micros(micros)))
}

/// Aborts a program that passes a larger count than its array, as the C library does.
#[cold]
fn overflow() -> ! {
    std::process::abort()
}
