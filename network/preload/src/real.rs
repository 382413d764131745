//! The next definitions of the names that this library defines, mostly the C library's.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    epoll_event, fd_set, gid_t, iovec, mmsghdr, msghdr, nfds_t, off_t, off64_t, pid_t, pollfd,
    sigset_t, size_t, sockaddr, socklen_t, ssize_t, timespec, timeval, uid_t,
};

use crate::errno;

/// A name and the address of its next definition, once found.
struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    const fn new(name: &'static CStr) -> Self {
        Self {
            name,
            address: AtomicPtr::new(ptr::null_mut()),
        }
    }

    #[inline]
    fn get(&self) -> *mut c_void {
        // Relaxed: the value is an address of code, there since before the program began.
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() {
            self.find()
        } else {
            address
        }
    }

    #[cold]
    fn find(&self) -> *mut c_void {
        // SAFETY: the name ends in a zero byte.
        let address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.address.store(address, Ordering::Relaxed);
        address
    }
}

/// Failure value of a function's return type.
trait Failure {
    const FAILURE: Self;
}

impl Failure for c_int {
    const FAILURE: Self = -1;
}

impl Failure for isize {
    const FAILURE: Self = -1;
}

impl Failure for i64 {
    const FAILURE: Self = -1;
}

impl Failure for *mut c_void {
    const FAILURE: Self = ptr::null_mut();
}

/// Functions that call the next definition of their name.
macro_rules! next {
    ($(fn $name:ident($($arg:ident: $type:ty),* $(,)?) -> $ret:ty;)*) => {
        $(
            /// The next definition of this name; fails with `ENOSYS` without one.
            ///
            /// # Safety
            /// The arguments meet the contract of the C function.
            #[inline]
            pub(crate) unsafe fn $name($($arg: $type),*) -> $ret {
                let address = names::$name.get();
                if address.is_null() {
                    errno::set(libc::ENOSYS);
                    return <$ret as Failure>::FAILURE;
                }
                // SAFETY: the libraries of a process agree on what a function of this name takes and gives.
                let function = unsafe {
                    mem::transmute::<*mut c_void, unsafe extern "C-unwind" fn($($type),*) -> $ret>(address)
                };
                // SAFETY: the arguments meet the contract of the C function, as this function asks for.
                unsafe { function($($arg),*) }
            }
        )*

        /// Finds all definitions, so that no signal handler has to.
        pub(crate) fn find_all() {
            $( names::$name.find(); )*
        }

        /// The cached definition of each name.
        #[expect(non_upper_case_globals, reason = "they are called as the functions are")]
        mod names {
            use super::Next;
            $( pub(super) static $name: Next = Next::new(match std::ffi::CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero byte but at its end"),
            }); )*
        }
    };
}

next! {
    fn setuid(user: uid_t) -> c_int;
    fn seteuid(user: uid_t) -> c_int;
    fn setreuid(real: uid_t, effective: uid_t) -> c_int;
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int;
    fn setgid(group: gid_t) -> c_int;
    fn setegid(group: gid_t) -> c_int;
    fn setregid(real: gid_t, effective: gid_t) -> c_int;
    fn setresgid(real: gid_t, effective: gid_t, saved: gid_t) -> c_int;
    fn setgroups(count: size_t, groups: *const gid_t) -> c_int;
    fn initgroups(user: *const c_char, group: gid_t) -> c_int;
    fn chroot(path: *const c_char) -> c_int;
    fn pthread_cancel(thread: libc::pthread_t) -> c_int;
    fn unshare(flags: c_int) -> c_int;
    fn setns(fd: c_int, kind: c_int) -> c_int;
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int;
    fn listen(fd: c_int, backlog: c_int) -> c_int;
    fn accept(fd: c_int, address: *mut sockaddr, size: *mut socklen_t) -> c_int;
    fn accept4(fd: c_int, address: *mut sockaddr, size: *mut socklen_t, flags: c_int) -> c_int;
    fn connect(fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int;
    fn getsockname(fd: c_int, address: *mut sockaddr, size: *mut socklen_t) -> c_int;
    fn getpeername(fd: c_int, address: *mut sockaddr, size: *mut socklen_t) -> c_int;
    fn shutdown(fd: c_int, how: c_int) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, size: *mut socklen_t) -> c_int;
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, size: socklen_t) -> c_int;
    fn send(fd: c_int, bytes: *const c_void, size: size_t, flags: c_int) -> ssize_t;
    fn recv(fd: c_int, bytes: *mut c_void, size: size_t, flags: c_int) -> ssize_t;
    fn sendto(fd: c_int, bytes: *const c_void, size: size_t, flags: c_int, to: *const sockaddr, to_size: socklen_t) -> ssize_t;
    fn recvfrom(fd: c_int, bytes: *mut c_void, size: size_t, flags: c_int, from: *mut sockaddr, from_size: *mut socklen_t) -> ssize_t;
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    fn read(fd: c_int, bytes: *mut c_void, size: size_t) -> ssize_t;
    fn write(fd: c_int, bytes: *const c_void, size: size_t) -> ssize_t;
    fn readv(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn writev(fd: c_int, pieces: *const iovec, count: c_int) -> ssize_t;
    fn pread(fd: c_int, bytes: *mut c_void, size: size_t, offset: off_t) -> ssize_t;
    fn pread64(fd: c_int, bytes: *mut c_void, size: size_t, offset: off64_t) -> ssize_t;
    fn pwrite(fd: c_int, bytes: *const c_void, size: size_t, offset: off_t) -> ssize_t;
    fn pwrite64(fd: c_int, bytes: *const c_void, size: size_t, offset: off64_t) -> ssize_t;
    fn preadv(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn preadv64(fd: c_int, pieces: *const iovec, count: c_int, offset: off64_t) -> ssize_t;
    fn pwritev(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t) -> ssize_t;
    fn pwritev64(fd: c_int, pieces: *const iovec, count: c_int, offset: off64_t) -> ssize_t;
    fn preadv2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn preadv64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    fn pwritev2(fd: c_int, pieces: *const iovec, count: c_int, offset: off_t, flags: c_int) -> ssize_t;
    fn pwritev64v2(fd: c_int, pieces: *const iovec, count: c_int, offset: off64_t, flags: c_int) -> ssize_t;
    fn __read_chk(fd: c_int, bytes: *mut c_void, size: size_t, room: size_t) -> ssize_t;
    fn __recv_chk(fd: c_int, bytes: *mut c_void, size: size_t, room: size_t, flags: c_int) -> ssize_t;
    fn __recvfrom_chk(fd: c_int, bytes: *mut c_void, size: size_t, room: size_t, flags: c_int, from: *mut sockaddr, from_size: *mut socklen_t) -> ssize_t;
    fn __pread_chk(fd: c_int, bytes: *mut c_void, size: size_t, offset: off_t, room: size_t) -> ssize_t;
    fn __pread64_chk(fd: c_int, bytes: *mut c_void, size: size_t, offset: off64_t, room: size_t) -> ssize_t;
    fn close(fd: c_int) -> c_int;
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn dup2(fd: c_int, to: c_int) -> c_int;
    fn dup3(fd: c_int, to: c_int, flags: c_int) -> c_int;
    fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int;
    fn ioctl(fd: c_int, request: usize, argument: usize) -> c_int;
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t;
    fn splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t;
    fn tee(from: c_int, to: c_int, count: size_t, flags: c_uint) -> ssize_t;
    fn vmsplice(fd: c_int, pieces: *const iovec, count: size_t, flags: c_uint) -> ssize_t;
    fn copy_file_range(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t;
    fn execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execvpe(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn fexecve(fd: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn execveat(folder: c_int, path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char, flags: c_int) -> c_int;
    fn vdprintf(fd: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    fn __vdprintf_chk(fd: c_int, flag: c_int, format: *const c_char, list: *mut c_void) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn posix_spawnp(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
    fn syscall(number: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> i64;
    fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int;
    fn ppoll(fds: *mut pollfd, count: nfds_t, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int;
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int;
    fn epoll_create(size: c_int) -> c_int;
    fn epoll_create1(flags: c_int) -> c_int;
    fn epoll_ctl(set: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int;
    fn epoll_wait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int) -> c_int;
    fn epoll_pwait(set: c_int, events: *mut epoll_event, room: c_int, timeout: c_int, mask: *const sigset_t) -> c_int;
    fn epoll_pwait2(set: c_int, events: *mut epoll_event, room: c_int, timeout: *const timespec, mask: *const sigset_t) -> c_int;
}
