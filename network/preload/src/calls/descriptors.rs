//! Calls on descriptors of any kind: close, copy, `fcntl` and `ioctl`.

use std::ffi::{c_int, c_uint};

use libc::{F_DUPFD, F_DUPFD_CLOEXEC, F_SETFL, O_ASYNC, O_NONBLOCK};

use super::streams;
use crate::connection::{self, begin_close};
use crate::entry::{Entry, FDS, RefKind};
use crate::errno::{Errno, Outcome, to_c_result};
use crate::multiplex::kernel;
use crate::multiplex::touched::touched;
use crate::slab::option;
use crate::{pieces, pristine_sockets, private_fds, real};

/// Commands of `fcntl` that the bindings of glibc lack, by `fcntl.h` of Linux.
const F_SETSIG: c_int = 10;
const F_SETOWN_EX: c_int = 15;
/// Asks whether the next byte is urgent.
const SIOCATMARK: usize = 0x8905;
/// Questions about interfaces, which any socket answers.
const INTERFACES: std::ops::RangeInclusive<usize> = 0x8910..=0x894f;

export! {
    fn close(fd: c_int) -> c_int {
        if private_fds::is_hidden(fd) {
            return to_c_result(Err(Errno(libc::EBADF)));
        }
        if fd <= libc::STDERR_FILENO {
            streams::restore_stdio(fd);
        }
        pristine_sockets::forget(fd);
        let closing = begin_close(fd);
        match closing {
            None => touched(real::close(fd)),
            Some(closing) => {
                // `close` of a connection is no cancellation point.
                private_fds::close_raw(fd);
                closing.finish();
                touched(0)
            }
        }
    }

    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        if first > last {
            return to_c_result(Err(Errno(libc::EINVAL)));
        }
        if flags.unsigned_abs() & libc::CLOSE_RANGE_CLOEXEC != 0 {
            // private descriptors are closed on exec already.
            return real::close_range(first, last, flags);
        }
        pristine_sockets::forget_all(first as usize, last as usize);
        for (fd, _) in FDS.numbers(first as usize, last as usize) {
            close(fd);
        }
        close_gaps(first, last, flags)
    }

    fn closefrom(first: c_int) -> () {
        let first = c_uint::try_from(first).unwrap_or(0);
        close_range(first, c_uint::MAX, 0);
    }

    fn dup(fd: c_int) -> c_int {
        kept(fd, 0, || real::dup(fd))
    }

    fn dup2(fd: c_int, to: c_int) -> c_int {
        if fd == to {
            return real::dup2(fd, to);
        }
        replaced(fd, to, || real::dup2(fd, to))
    }

    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int {
        if fd == to || flags & !libc::O_CLOEXEC != 0 {
            // The call fails before it closes a descriptor.
            return real::dup3(fd, to, flags);
        }
        replaced(fd, to, || real::dup3(fd, to, flags))
    }

    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        controlled(fd, command, argument, || real::fcntl(fd, command, argument))
    }

    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
        controlled(fd, command, argument, || real::fcntl64(fd, command, argument))
    }

    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int {
        match connection::lookup(fd) {
            None => {
                if !is_harmless(request) {
                    pristine_sockets::mark_modified(fd);
                }
                real::ioctl(fd, request, argument)
            }
            Some(entry) => asked(fd, entry, request, argument),
        }
    }
}

/// Closes the kernel's descriptors between private ones.
fn close_gaps(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    let mut start = first;
    for hidden in private_fds::numbers(first as usize, last as usize) {
        let hidden = hidden.unsigned_abs();
        if start < hidden {
            // SAFETY: the program asked to close these numbers.
            let closed = unsafe { real::close_range(start, hidden - 1, flags) };
            if closed != 0 {
                return closed;
            }
        }
        start = hidden + 1;
    }
    if start > last {
        return 0;
    }
    // SAFETY: the program asked to close these numbers.
    unsafe { real::close_range(start, last, flags) }
}

/// Copies a number, and gives the copy the same entry. `own` is the number of closes that the caller itself has begun.
fn kept(fd: c_int, own: u32, work: impl Fn() -> c_int) -> c_int {
    for tries in 0.. {
        let Some(entry) = FDS.lookup(fd) else {
            match copied_plainly(fd, own, &work, tries) {
                Some(copy) => return copy,
                None => continue,
            }
        };
        if !entry.pin(fd, RefKind::Syscall) {
            continue;
        }
        let copy = work();
        let is_other = copy >= 0 && copy != fd;
        // A number that is too high to be kept is a mere wake-up fd.
        let is_known = is_other && entry.add_number(copy);
        // If the number was closed meanwhile, the copy may be of another file.
        let is_sure = !is_known || FDS.holds(fd, entry);
        if !is_sure {
            let closing = begin_close(copy);
            private_fds::close_raw(copy);
            if let Some(closing) = closing {
                closing.finish();
            }
        } else if is_other && copy <= libc::STDERR_FILENO {
            streams::redirect_stdio(copy);
        }
        entry.release(RefKind::Syscall);
        if is_sure {
            return copy;
        }
    }
    -1
}

/// Copies a number of the kernel; `None` if it may have been a connection's that another thread is closing.
fn copied_plainly(fd: c_int, own: u32, work: impl Fn() -> c_int, tries: u32) -> Option<c_int> {
    /// Bound on the retries: the closing thread may be one that a signal handler, this call, has interrupted.
    const TRIES_MAX: u32 = 1000;
    let before = connection::fd_table_consistent(own);
    if before.is_none() && tries < TRIES_MAX {
        // The closing thread may have lost its processor.
        if tries < TRIES_MAX / 10 {
            kernel::yield_now();
        } else {
            let brief = std::time::Duration::from_millis(1);
            // SAFETY: nothing is polled, and there is no mask.
            let _late = unsafe { kernel::poll(&mut [], Some(brief), std::ptr::null()) };
        }
        return None;
    }
    let copy = work();
    if copy < 0 || tries >= TRIES_MAX || connection::fd_table_consistent(own) == before {
        if copy >= 0 && copy != fd {
            pristine_sockets::copied(fd, copy);
        }
        return Some(copy);
    }
    private_fds::close_raw(copy);
    None
}

/// Replaces a number, which may be user-level, by a copy.
fn replaced(fd: c_int, to: c_int, work: impl Fn() -> c_int) -> c_int {
    if private_fds::is_hidden(to) || private_fds::is_hidden(fd) {
        return to_c_result(Err(Errno(libc::EBADF)));
    }
    let is_open = fd >= 0 && rustix::io::fcntl_getfd(private_fds::borrow(fd)).is_ok();
    if is_open && to <= libc::STDERR_FILENO {
        streams::restore_stdio(to);
    }
    if is_open {
        pristine_sockets::forget(to);
    }
    let closing = if is_open { begin_close(to) } else { None };
    let copy = kept(fd, u32::from(closing.is_some()), work);
    if let Some(closing) = closing {
        closing.finish();
    }
    copy
}

fn controlled(fd: c_int, command: c_int, argument: usize, work: impl Fn() -> c_int) -> c_int {
    let Some(entry) = FDS.lookup(fd) else {
        return match command {
            F_DUPFD | F_DUPFD_CLOEXEC => kept(fd, 0, work),
            // The owner of signals is no socket option.
            libc::F_SETOWN | F_SETSIG | F_SETOWN_EX => {
                pristine_sockets::mark_modified(fd);
                work()
            }
            _ => work(),
        };
    };
    match command {
        F_DUPFD | F_DUPFD_CLOEXEC => kept(fd, 0, work),
        F_SETFL => match entry.record() {
            Some(_) if flags_of(argument) & O_ASYNC != 0 => to_c_result(Err(Errno(libc::EINVAL))),
            Some(record) => {
                let done = work();
                if done == 0 {
                    record
                        .options
                        .set(option::NONBLOCK, flags_of(argument) & O_NONBLOCK != 0);
                }
                done
            }
            None => work(),
        },
        // Signals when something comes are not sent.
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX if entry.record().is_some() => {
            to_c_result(Err(Errno(libc::EINVAL)))
        }
        _ => work(),
    }
}

/// Whether a request leaves the options of a socket as they are, but for `O_NONBLOCK`, which is read before the socket
/// is replaced.
fn is_harmless(request: usize) -> bool {
    [libc::FIONBIO, libc::FIONREAD, libc::FIOCLEX, libc::FIONCLEX]
        .into_iter()
        .any(|known| usize::try_from(known).is_ok_and(|known| known == request & 0xffff_ffff))
}

/// An argument that is an `int`; a caller may have left anything in its upper half.
fn flags_of(argument: usize) -> c_int {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    c_int::from_le_bytes([a, b, c, d])
}

/// `ioctl` on a connection: the result of the C function, with `errno` set.
///
/// # Safety
/// The argument is of the type that the request demands.
unsafe fn asked(fd: c_int, entry: &'static Entry, request: usize, argument: usize) -> c_int {
    // A caller that declares the request as `int` may leave anything in the upper half.
    let request = request & 0xffff_ffff;
    let place = argument as *mut c_int;
    let tell = |value: Outcome<c_int>| match value {
        Ok(_) if pieces::check(place, size_of::<c_int>()).is_err() => {
            to_c_result(Err(Errno(libc::EFAULT)))
        }
        Ok(value) => {
            // SAFETY: the request takes a place for a number.
            unsafe { place.write_unaligned(value) };
            0
        }
        Err(errno) => to_c_result(Err(errno)),
    };
    let is = |known: libc::Ioctl| usize::try_from(known).is_ok_and(|known| known == request);
    if is(libc::FIONREAD) {
        return tell(pending(fd, entry));
    }
    if is(libc::TIOCOUTQ) {
        // All that was sent is in the peer's reach.
        return tell(Ok(0));
    }
    if request == SIOCATMARK {
        return tell(is_at_mark(fd, entry));
    }
    if is(libc::FIONBIO) {
        // SAFETY: the argument is what the request asks for.
        let done = unsafe { real::ioctl(fd, request, argument) };
        if let Some(record) = entry.record().filter(|_| done == 0) {
            // SAFETY: the kernel has read it.
            let on = unsafe { place.read_unaligned() } != 0;
            record.options.set(option::NONBLOCK, on);
        }
        return done;
    }
    if is(libc::FIOCLEX) || is(libc::FIONCLEX) || INTERFACES.contains(&request) {
        // SAFETY: the argument is what the request asks for.
        return unsafe { real::ioctl(fd, request, argument) };
    }
    to_c_result(Err(Errno(libc::ENOTTY)))
}

/// 1 if the next byte is the urgent one, else 0.
fn is_at_mark(fd: c_int, entry: &'static Entry) -> Outcome<c_int> {
    if !entry.pin(fd, RefKind::Syscall) {
        return Err(Errno(libc::EBADF));
    }
    let is_there = match (entry.record(), entry.peer_state()) {
        (Some(record), Some(peer_state)) => peer_state.is_at_mark(&record.receive.receive_cursor()),
        _ => false,
    };
    entry.release(RefKind::Syscall);
    Ok(c_int::from(is_there))
}

/// How many bytes can be received at once.
fn pending(fd: c_int, entry: &'static Entry) -> Outcome<c_int> {
    if !entry.pin(fd, RefKind::Syscall) {
        return Err(Errno(libc::EBADF));
    }
    let pending = entry.record().map_or(0, |record| {
        let Ok(_guard) = record.receive.take() else {
            return 0;
        };
        // SAFETY: the lock is held, and the entry is pinned.
        match (entry.peer_state(), unsafe { entry.receiver() }) {
            (Some(peer_state), Some(receiver)) => {
                receiver.pending(peer_state, &record.receive.receive_cursor())
            }
            _ => 0,
        }
    });
    entry.release(RefKind::Syscall);
    Ok(c_int::try_from(pending).unwrap_or(c_int::MAX))
}
