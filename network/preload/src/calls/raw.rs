//! `syscall`: the same calls, by number.
//!
//! Numbers that this library has no part in go through. A raw `fork` or `clone` goes through too: its child shares
//! connections with its parent, but neither knows of that.

use std::ffi::{c_int, c_long, c_uint};

use libc::socklen_t;

use super::{bytes, copying, descriptors, messages, options, sockets};
use crate::errno::{Errno, told};
use crate::multiplex::calls as waiting;
use crate::{fresh, real};

/// The arguments of a call, as registers hold them.
type Arguments = [usize; 6];

export! {
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if number == libc::SYS_io_uring_setup {
            // A ring would reach descriptors past this library. Programs that ask go on without.
            return told(Err(Errno(libc::ENOSYS)));
        }
        let arguments = [a, b, c, d, e, f];
        // SAFETY: as the caller keeps it: the arguments are those of the call with this number.
        let answer = unsafe { transfers(number, arguments) }
            // SAFETY: as above.
            .or_else(|| unsafe { sets_up(number, arguments) })
            // SAFETY: as above.
            .or_else(|| unsafe { describes(number, arguments) })
            // SAFETY: as above.
            .or_else(|| unsafe { waits(number, arguments) });
        match answer {
            Some(answer) => answer,
            // SAFETY: as above.
            None => unsafe { real::syscall(number, a, b, c, d, e, f) },
        }
    }
}

/// An argument that is an `int`: a caller may have left anything in its upper half.
const fn int(argument: usize) -> c_int {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    c_int::from_le_bytes([a, b, c, d])
}

const fn unsigned(argument: usize) -> c_uint {
    let [a, b, c, d, ..] = argument.to_le_bytes();
    c_uint::from_le_bytes([a, b, c, d])
}

const fn signed(argument: usize) -> i64 {
    i64::from_le_bytes(argument.to_le_bytes())
}

fn long(answer: c_int) -> Option<c_long> {
    Some(c_long::from(answer))
}

fn longest(answer: isize) -> Option<c_long> {
    c_long::try_from(answer).ok()
}

/// Calls that move bytes.
///
/// # Safety
/// The arguments are those of the call with this number.
unsafe fn transfers(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = int(a);
    let answer = match number {
        // SAFETY: as the caller keeps it, for this and all that follow.
        libc::SYS_read => unsafe { bytes::read(fd, b as *mut _, c) },
        // SAFETY: as above.
        libc::SYS_write => unsafe { bytes::write(fd, b as *const _, c) },
        // SAFETY: as above.
        libc::SYS_readv => unsafe { bytes::readv(fd, b as *const _, int(c)) },
        // SAFETY: as above.
        libc::SYS_writev => unsafe { bytes::writev(fd, b as *const _, int(c)) },
        // SAFETY: as above.
        libc::SYS_pread64 => unsafe { bytes::pread64(fd, b as *mut _, c, signed(d)) },
        // SAFETY: as above.
        libc::SYS_pwrite64 => unsafe { bytes::pwrite64(fd, b as *const _, c, signed(d)) },
        // SAFETY: as above.
        libc::SYS_preadv => unsafe { bytes::preadv(fd, b as *const _, int(c), signed(d)) },
        // SAFETY: as above.
        libc::SYS_pwritev => unsafe { bytes::pwritev(fd, b as *const _, int(c), signed(d)) },
        // SAFETY: as above.
        libc::SYS_preadv2 => unsafe {
            bytes::preadv2(fd, b as *const _, int(c), signed(d), int(f))
        },
        // SAFETY: as above.
        libc::SYS_pwritev2 => unsafe {
            bytes::pwritev2(fd, b as *const _, int(c), signed(d), int(f))
        },
        // SAFETY: as above.
        libc::SYS_sendto => unsafe {
            bytes::sendto(
                fd,
                b as *const _,
                c,
                int(d),
                e as *const _,
                unsigned(f) as socklen_t,
            )
        },
        // SAFETY: as above.
        libc::SYS_recvfrom => unsafe {
            bytes::recvfrom(fd, b as *mut _, c, int(d), e as *mut _, f as *mut _)
        },
        // SAFETY: as above.
        libc::SYS_sendmsg => unsafe { messages::sendmsg(fd, b as *const _, int(c)) },
        // SAFETY: as above.
        libc::SYS_recvmsg => unsafe { messages::recvmsg(fd, b as *mut _, int(c)) },
        libc::SYS_sendmmsg => {
            // SAFETY: as above.
            return long(unsafe { messages::sendmmsg(fd, b as *mut _, unsigned(c), int(d)) });
        }
        libc::SYS_recvmmsg => {
            // SAFETY: as above.
            return long(unsafe {
                messages::recvmmsg(fd, b as *mut _, unsigned(c), int(d), e as *mut _)
            });
        }
        // SAFETY: as above.
        libc::SYS_sendfile => unsafe { copying::sendfile(fd, int(b), c as *mut _, d) },
        // SAFETY: as above.
        libc::SYS_splice => unsafe {
            copying::splice(fd, b as *mut _, int(c), d as *mut _, e, unsigned(f))
        },
        // SAFETY: as above.
        libc::SYS_tee => unsafe { copying::tee(fd, int(b), c, unsigned(d)) },
        // SAFETY: as above.
        libc::SYS_vmsplice => unsafe { copying::vmsplice(fd, b as *const _, c, unsigned(d)) },
        // SAFETY: as above.
        libc::SYS_copy_file_range => unsafe {
            copying::copy_file_range(fd, b as *mut _, int(c), d as *mut _, e, unsigned(f))
        },
        _ => return None,
    };
    longest(answer)
}

/// Calls by which connections come to be and end.
///
/// # Safety
/// The arguments are those of the call with this number.
unsafe fn sets_up(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, ..] = arguments;
    let fd = int(a);
    let answer = match number {
        // SAFETY: as the caller keeps it, for this and all that follow.
        libc::SYS_socket => unsafe { fresh::socket(fd, int(b), int(c)) },
        // SAFETY: as above.
        libc::SYS_listen => unsafe { sockets::listen(fd, int(b)) },
        // SAFETY: as above.
        libc::SYS_accept => unsafe { sockets::accept(fd, b as *mut _, c as *mut _) },
        // SAFETY: as above.
        libc::SYS_accept4 => unsafe { sockets::accept4(fd, b as *mut _, c as *mut _, int(d)) },
        // SAFETY: as above.
        libc::SYS_connect => unsafe {
            sockets::connect(fd, b as *const _, unsigned(c) as socklen_t)
        },
        // SAFETY: as above.
        libc::SYS_shutdown => unsafe { sockets::shutdown(fd, int(b)) },
        // SAFETY: as above.
        libc::SYS_close => unsafe { descriptors::close(fd) },
        // SAFETY: as above.
        libc::SYS_close_range => unsafe {
            descriptors::close_range(unsigned(a), unsigned(b), int(c))
        },
        // SAFETY: as above.
        libc::SYS_dup => unsafe { descriptors::dup(fd) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        libc::SYS_dup2 => unsafe { descriptors::dup2(fd, int(b)) },
        // SAFETY: as above.
        libc::SYS_dup3 => unsafe { descriptors::dup3(fd, int(b), int(c)) },
        _ => return None,
    };
    long(answer)
}

/// Calls about what a descriptor is.
///
/// # Safety
/// The arguments are those of the call with this number.
unsafe fn describes(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    let fd = int(a);
    let answer = match number {
        // SAFETY: as the caller keeps it, for this and all that follow.
        libc::SYS_fcntl => unsafe { descriptors::fcntl(fd, int(b), c) },
        // SAFETY: as above.
        libc::SYS_ioctl => unsafe { descriptors::ioctl(fd, b, c) },
        // SAFETY: as above.
        libc::SYS_getsockopt => unsafe {
            options::getsockopt(fd, int(b), int(c), d as *mut _, e as *mut _)
        },
        // SAFETY: as above.
        libc::SYS_setsockopt => unsafe {
            options::setsockopt(fd, int(b), int(c), d as *const _, unsigned(e) as socklen_t)
        },
        // SAFETY: as above.
        libc::SYS_getsockname => unsafe { options::getsockname(fd, b as *mut _, c as *mut _) },
        // SAFETY: as above.
        libc::SYS_getpeername => unsafe { options::getpeername(fd, b as *mut _, c as *mut _) },
        _ => return None,
    };
    long(answer)
}

/// Calls that wait for several descriptors. Those with a signal mask of the kernel's own size go through if they
/// have one.
///
/// # Safety
/// The arguments are those of the call with this number.
unsafe fn waits(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = int(a);
    let answer = match number {
        // SAFETY: as the caller keeps it, for this and all that follow.
        libc::SYS_epoll_ctl => unsafe { waiting::epoll_ctl(fd, int(b), int(c), d as *mut _) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        libc::SYS_epoll_wait => unsafe { waiting::epoll_wait(fd, b as *mut _, int(c), int(d)) },
        // SAFETY: as above.
        libc::SYS_epoll_pwait => unsafe {
            waiting::epoll_pwait(fd, b as *mut _, int(c), int(d), e as *const _)
        },
        // SAFETY: as above.
        libc::SYS_epoll_pwait2 => unsafe {
            waiting::epoll_pwait2(fd, b as *mut _, int(c), d as *const _, e as *const _)
        },
        // SAFETY: as above.
        libc::SYS_epoll_create1 => unsafe { waiting::epoll_create1(fd) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        libc::SYS_poll => unsafe { waiting::poll(a as *mut _, b as libc::nfds_t, int(c)) },
        // SAFETY: as above.
        libc::SYS_ppoll => unsafe {
            waiting::ppoll(a as *mut _, b as libc::nfds_t, c as *const _, d as *const _)
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: as above.
        libc::SYS_select => unsafe {
            waiting::select(fd, b as *mut _, c as *mut _, d as *mut _, e as *mut _)
        },
        libc::SYS_pselect6 => {
            // The kernel takes a place with the mask's address and size.
            let place = f as *const *const libc::sigset_t;
            let mask = if place.is_null() {
                std::ptr::null()
            } else {
                // SAFETY: as above.
                unsafe { place.read_unaligned() }
            };
            // SAFETY: as above.
            unsafe {
                waiting::pselect(
                    fd,
                    b as *mut _,
                    c as *mut _,
                    d as *mut _,
                    e as *const _,
                    mask,
                )
            }
        }
        _ => return None,
    };
    long(answer)
}
