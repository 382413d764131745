//! `syscall`: the same calls, by number.
//!
//! Numbers of other system calls go to the kernel. So does a raw `fork` or `clone`: the child shares connections with
//! its parent, but neither process has recorded that.

use std::ffi::{c_int, c_long, c_uint};

use libc::socklen_t;

use super::{bytes, copying, descriptors, messages, options, sockets};
use crate::errno::{Errno, to_c_result};
use crate::multiplex::calls as waiting;
use crate::{pristine_sockets, real};

/// The arguments of a call, as registers hold them.
type Arguments = [usize; 6];

export! {
    fn syscall(number: c_long, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> c_long {
        if number == libc::SYS_io_uring_setup {
            // Requests in an io_uring would bypass this library. Programs that probe for it fall back.
            return to_c_result(Err(Errno(libc::ENOSYS)));
        }
        let arguments = [a, b, c, d, e, f];
        transfers(number, arguments)
            .or_else(|| transfers_messages(number, arguments))
            .or_else(|| sets_up(number, arguments))
            .or_else(|| describes(number, arguments))
            .or_else(|| waits(number, arguments))
            .unwrap_or_else(|| real::syscall(number, a, b, c, d, e, f))
    }
}

/// Calls the function of a system call's number, or returns `None` for another number.
///
/// The expansion carries the `unsafe` blocks of all calls: the caller passes the arguments that the system call of this
/// number asks for, and each function here asks for the same ones.
macro_rules! by_number {
    ($number:expr; $($(#[$meta:meta])* $name:ident => $call:expr,)*) => {
        match $number {
            $(
                $(#[$meta])*
                // SAFETY: the arguments are those of the system call with this number.
                libc::$name => unsafe { $call },
            )*
            _ => return None,
        }
    };
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

/// System calls that move bytes through one descriptor or between two.
///
/// # Safety
/// The arguments are those of the system call with this number.
unsafe fn transfers(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, f] = arguments;
    let fd = int(a);
    let answer = by_number! { number;
        SYS_read => bytes::read(fd, b as *mut _, c),
        SYS_write => bytes::write(fd, b as *const _, c),
        SYS_readv => bytes::readv(fd, b as *const _, int(c)),
        SYS_writev => bytes::writev(fd, b as *const _, int(c)),
        SYS_pread64 => bytes::pread64(fd, b as *mut _, c, signed(d)),
        SYS_pwrite64 => bytes::pwrite64(fd, b as *const _, c, signed(d)),
        SYS_preadv => bytes::preadv(fd, b as *const _, int(c), signed(d)),
        SYS_pwritev => bytes::pwritev(fd, b as *const _, int(c), signed(d)),
        SYS_preadv2 => bytes::preadv2(fd, b as *const _, int(c), signed(d), int(f)),
        SYS_pwritev2 => bytes::pwritev2(fd, b as *const _, int(c), signed(d), int(f)),
        SYS_sendto => bytes::sendto(
                fd,
                b as *const _,
                c,
                int(d),
                e as *const _,
                unsigned(f) as socklen_t,
            ),
        SYS_recvfrom => bytes::recvfrom(fd, b as *mut _, c, int(d), e as *mut _, f as *mut _),
        SYS_sendmsg => messages::sendmsg(fd, b as *const _, int(c)),
        SYS_recvmsg => messages::recvmsg(fd, b as *mut _, int(c)),
        SYS_sendfile => copying::sendfile(fd, int(b), c as *mut _, d),
        SYS_splice => copying::splice(fd, b as *mut _, int(c), d as *mut _, e, unsigned(f)),
        SYS_tee => copying::tee(fd, int(b), c, unsigned(d)),
        SYS_vmsplice => copying::vmsplice(fd, b as *const _, c, unsigned(d)),
        SYS_copy_file_range => copying::copy_file_range(fd, b as *mut _, int(c), d as *mut _, e, unsigned(f)),
    };
    longest(answer)
}

/// System calls that move several messages at once.
///
/// # Safety
/// The arguments are those of the system call with this number.
unsafe fn transfers_messages(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    let answer = by_number! { number;
        SYS_sendmmsg => messages::sendmmsg(int(a), b as *mut _, unsigned(c), int(d)),
        SYS_recvmmsg => messages::recvmmsg(int(a), b as *mut _, unsigned(c), int(d), e as *mut _),
    };
    long(answer)
}

/// Calls by which connections come to be and end.
///
/// # Safety
/// The arguments are those of the system call with this number.
unsafe fn sets_up(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, ..] = arguments;
    let fd = int(a);
    let answer = by_number! { number;
        SYS_socket => pristine_sockets::socket(fd, int(b), int(c)),
        SYS_listen => sockets::listen(fd, int(b)),
        SYS_accept => sockets::accept(fd, b as *mut _, c as *mut _),
        SYS_accept4 => sockets::accept4(fd, b as *mut _, c as *mut _, int(d)),
        SYS_connect => sockets::connect(fd, b as *const _, unsigned(c) as socklen_t),
        SYS_shutdown => sockets::shutdown(fd, int(b)),
        SYS_close => descriptors::close(fd),
        SYS_close_range => descriptors::close_range(unsigned(a), unsigned(b), int(c)),
        SYS_dup => descriptors::dup(fd),
        #[cfg(target_arch = "x86_64")]
        SYS_dup2 => descriptors::dup2(fd, int(b)),
        SYS_dup3 => descriptors::dup3(fd, int(b), int(c)),
    };
    long(answer)
}

/// System calls that read or change properties of a descriptor.
///
/// # Safety
/// The arguments are those of the system call with this number.
unsafe fn describes(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    let fd = int(a);
    let answer = by_number! { number;
        SYS_fcntl => descriptors::fcntl(fd, int(b), c),
        SYS_ioctl => descriptors::ioctl(fd, b, c),
        SYS_getsockopt => options::getsockopt(fd, int(b), int(c), d as *mut _, e as *mut _),
        SYS_setsockopt => options::setsockopt(fd, int(b), int(c), d as *const _, unsigned(e) as socklen_t),
        SYS_getsockname => options::getsockname(fd, b as *mut _, c as *mut _),
        SYS_getpeername => options::getpeername(fd, b as *mut _, c as *mut _),
    };
    long(answer)
}

/// System calls that wait for several descriptors. Those with a signal mask of the kernel's own size go to the kernel.
///
/// # Safety
/// The arguments are those of the system call with this number.
unsafe fn waits(number: c_long, arguments: Arguments) -> Option<c_long> {
    let [a, b, c, d, e, _] = arguments;
    let fd = int(a);
    let answer = by_number! { number;
        SYS_epoll_ctl => waiting::epoll_ctl(fd, int(b), int(c), d as *mut _),
        #[cfg(target_arch = "x86_64")]
        SYS_epoll_wait => waiting::epoll_wait(fd, b as *mut _, int(c), int(d)),
        SYS_epoll_pwait => waiting::epoll_pwait(fd, b as *mut _, int(c), int(d), e as *const _),
        SYS_epoll_pwait2 => waiting::epoll_pwait2(fd, b as *mut _, int(c), d as *const _, e as *const _),
        SYS_epoll_create1 => waiting::epoll_create1(fd),
        #[cfg(target_arch = "x86_64")]
        SYS_poll => waiting::poll(a as *mut _, b as libc::nfds_t, int(c)),
        SYS_ppoll => waiting::ppoll(a as *mut _, b as libc::nfds_t, c as *const _, d as *const _),
        #[cfg(target_arch = "x86_64")]
        SYS_select => waiting::select(fd, b as *mut _, c as *mut _, d as *mut _, e as *mut _),
        SYS_pselect6 => pselect6(arguments),
    };
    long(answer)
}

/// `pselect6`: its last argument is the address of a structure with the address and the size of the mask.
///
/// # Safety
/// The arguments are those of that system call.
unsafe fn pselect6(arguments: Arguments) -> c_int {
    let [a, b, c, d, e, f] = arguments;
    let place = f as *const *const libc::sigset_t;
    let mask = if place.is_null() {
        std::ptr::null()
    } else {
        // SAFETY: the address is not null, and the system call asks for a readable word there.
        unsafe { place.read_unaligned() }
    };
    let (read, write, except) = (b as *mut _, c as *mut _, d as *mut _);
    // SAFETY: `pselect` asks for the same sets, time and mask as the system call.
    unsafe { waiting::pselect(int(a), read, write, except, e as *const _, mask) }
}
