//! The kernel's own calls, past the names that this library stands before.

use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use libc::{c_int, c_long, epoll_event, pollfd};

use crate::errno::{Errno, Outcome};
use crate::{private_fds, real};

/// Bytes of the kernel's signal mask, which is smaller than the C library's.
const MASK_SIZE: usize = 8;

/// # Safety
/// As the system call `number` demands of its arguments.
unsafe fn call(number: c_long, arguments: [usize; 6]) -> Outcome<usize> {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the arguments are what the system call demands, as this function asks for.
    let result = unsafe { real::syscall(number, a, b, c, d, e, f) };
    usize::try_from(result).map_err(|_| last_error())
}

/// Error number of the calling thread.
pub(crate) fn last_error() -> Errno {
    // SAFETY: the address of this thread's own errno is always valid.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: the word is this thread's own, and no reference to it is kept.
    Errno(unsafe { place.read() })
}

/// A descriptor as a register holds it: sign-extended, so that -1 stays -1.
fn word(fd: RawFd) -> usize {
    fd as isize as usize
}

/// A duration in the kernel's type.
pub(crate) fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: libc::time_t::try_from(time.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: c_long::from(time.subsec_nanos()),
    }
}

pub(crate) fn epoll_create() -> Outcome<RawFd> {
    let flags = libc::EPOLL_CLOEXEC as usize;
    // SAFETY: takes no addresses.
    let made = unsafe { call(libc::SYS_epoll_create1, [flags, 0, 0, 0, 0, 0]) }?;
    hide(descriptor(made))
}

pub(crate) fn eventfd() -> Outcome<RawFd> {
    let flags = (libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) as usize;
    // SAFETY: takes no addresses.
    let made = unsafe { call(libc::SYS_eventfd2, [0, flags, 0, 0, 0, 0]) }?;
    hide(descriptor(made))
}

fn descriptor(made: usize) -> RawFd {
    RawFd::try_from(made).expect("the kernel's descriptors fit their type")
}

/// Moves a descriptor out of the program's sight.
fn hide(fd: RawFd) -> Outcome<RawFd> {
    let hidden = private_fds::hide_copy(private_fds::borrow(fd));
    private_fds::close_raw(fd);
    hidden
}

/// Duplicates `source` to the number `target`, as `dup3(2)`.
pub(crate) fn replace(source: RawFd, target: RawFd, flags: c_int) -> Outcome<()> {
    // SAFETY: takes no addresses.
    unsafe {
        call(
            libc::SYS_dup3,
            [word(source), word(target), flags as usize, 0, 0, 0],
        )
    }
    .map(drop)
}

/// Descriptor flags, as `F_GETFD` returns them.
pub(crate) fn descriptor_flags(fd: RawFd) -> c_int {
    // SAFETY: takes no addresses.
    let flags = unsafe {
        call(
            libc::SYS_fcntl,
            [word(fd), libc::F_GETFD as usize, 0, 0, 0, 0],
        )
    };
    flags
        .ok()
        .and_then(|flags| c_int::try_from(flags).ok())
        .unwrap_or(0)
}

pub(crate) fn signal_eventfd(fd: RawFd) {
    let one = 1_u64;
    // SAFETY: eight bytes to read.
    let _ = unsafe {
        call(
            libc::SYS_write,
            [word(fd), (&raw const one).addr(), 8, 0, 0, 0],
        )
    };
}

pub(crate) fn drain_eventfd(fd: RawFd) {
    let mut count = 0_u64;
    // SAFETY: eight bytes to write.
    let _ = unsafe {
        call(
            libc::SYS_read,
            [word(fd), (&raw mut count).addr(), 8, 0, 0, 0],
        )
    };
}

pub(crate) fn epoll_add(epoll: RawFd, fd: RawFd, events: u32, data: u64) -> Outcome<()> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: one event, which outlives the call.
    unsafe { epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) }
}

pub(crate) fn epoll_modify(epoll: RawFd, fd: RawFd, events: u32, data: u64) -> Outcome<()> {
    let mut event = epoll_event { events, u64: data };
    // SAFETY: one event, which outlives the call.
    unsafe { epoll_ctl(epoll, libc::EPOLL_CTL_MOD, fd, &raw mut event) }
}

pub(crate) fn epoll_delete(epoll: RawFd, fd: RawFd) -> Outcome<()> {
    // SAFETY: takes no event.
    unsafe { epoll_ctl(epoll, libc::EPOLL_CTL_DEL, fd, ptr::null_mut()) }
}

/// # Safety
/// `event` is valid, or null where the operation permits that.
pub(crate) unsafe fn epoll_ctl(
    epoll: RawFd,
    operation: c_int,
    fd: RawFd,
    event: *mut epoll_event,
) -> Outcome<()> {
    let arguments = [
        word(epoll),
        operation as usize,
        word(fd),
        event.addr(),
        0,
        0,
    ];
    // SAFETY: the event is valid or refused; the kernel checks its address.
    unsafe { call(libc::SYS_epoll_ctl, arguments) }.map(drop)
}

/// Waits; `None` is for ever. The mask stands as long as the call does.
///
/// # Safety
/// `first` is room for `room` events; `mask` is null or a signal mask.
pub(crate) unsafe fn epoll_wait(
    epoll: RawFd,
    first: *mut epoll_event,
    room: usize,
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Outcome<usize> {
    let time = timeout.map(timespec);
    let time = time.as_ref().map_or(0, |time| ptr::from_ref(time).addr());
    let arguments = [
        word(epoll),
        first.addr(),
        room,
        time,
        mask.addr(),
        MASK_SIZE,
    ];
    // SAFETY: there is room for `room` events, the mask is null or valid, and the time outlives the call.
    match unsafe { call(libc::SYS_epoll_pwait2, arguments) } {
        Err(Errno(libc::ENOSYS)) => {}
        result => return result,
    }
    // Kernels before 5.11: whole milliseconds, rounded up so that no wait ends early.
    let millis = timeout.map_or(-1, |time| {
        c_int::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(c_int::MAX)
    });
    let arguments = [
        word(epoll),
        first.addr(),
        room,
        millis as isize as usize,
        mask.addr(),
        MASK_SIZE,
    ];
    // SAFETY: there is room for `room` events, and the mask is null or valid.
    unsafe { call(libc::SYS_epoll_pwait, arguments) }
}

/// Looks without waiting at `room` events.
///
/// # Safety
/// `first` is room for `room` events.
pub(crate) unsafe fn epoll_look(
    epoll: RawFd,
    first: *mut epoll_event,
    room: usize,
) -> Outcome<usize> {
    let arguments = [word(epoll), first.addr(), room, 0, 0, MASK_SIZE];
    // SAFETY: there is room for `room` events; no mask is passed.
    unsafe { call(libc::SYS_epoll_pwait, arguments) }
}

/// Waits for some of `members`; `None` is for ever.
///
/// # Safety
/// `mask` is null or a signal mask.
pub(crate) unsafe fn poll(
    members: &mut [pollfd],
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Outcome<usize> {
    let mut time = timeout.map(timespec);
    let time = time.as_mut().map_or(0, |time| ptr::from_mut(time).addr());
    let arguments = [
        members.as_mut_ptr().addr(),
        members.len(),
        time,
        mask.addr(),
        MASK_SIZE,
        0,
    ];
    // SAFETY: the slice and the time outlive the call, and the mask is null or valid.
    unsafe { call(libc::SYS_ppoll, arguments) }
}

/// True if the descriptor is ready for some of `events` now.
pub(crate) fn is_ready(fd: RawFd, events: i16) -> i16 {
    let mut members = [pollfd {
        fd,
        events,
        revents: 0,
    }];
    // SAFETY: no mask.
    match unsafe { poll(&mut members, Some(Duration::ZERO), ptr::null()) } {
        Ok(1..) => members[0].revents,
        _ => 0,
    }
}

/// True if the descriptor is a stream socket of a family that may become user-level.
pub(crate) fn is_inet_stream(fd: RawFd) -> bool {
    matches!(
        option(fd, libc::SO_DOMAIN),
        Some(libc::AF_INET | libc::AF_INET6)
    ) && option(fd, libc::SO_TYPE) == Some(libc::SOCK_STREAM)
}

fn option(fd: RawFd, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut size: libc::socklen_t = 4;
    let arguments = [
        word(fd),
        libc::SOL_SOCKET as usize,
        name as usize,
        (&raw mut value).addr(),
        (&raw mut size).addr(),
        0,
    ];
    // SAFETY: room for a value of four bytes, and its size.
    unsafe { call(libc::SYS_getsockopt, arguments) }
        .ok()
        .map(|_| value)
}

/// Yields the processor, by `sched_yield`.
pub(crate) fn yield_now() {
    // SAFETY: takes no addresses.
    let _ = unsafe { call(libc::SYS_sched_yield, [0; 6]) };
}
