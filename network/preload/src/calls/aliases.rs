//! Other names that the C library has for the same calls.

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, fd_set, nfds_t, pid_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};

use super::{bytes, descriptors, sockets, streams};
use crate::multiplex::calls as waiting;
use crate::process;

export! {
    fn __send(fd: c_int, bytes: *const c_void, size: size_t, flags: c_int) -> ssize_t {
        bytes::send(fd, bytes, size, flags)
    }

    fn __recv(fd: c_int, bytes: *mut c_void, size: size_t, flags: c_int) -> ssize_t {
        bytes::recv(fd, bytes, size, flags)
    }

    fn __write(fd: c_int, bytes: *const c_void, size: size_t) -> ssize_t {
        bytes::write(fd, bytes, size)
    }

    fn __read(fd: c_int, bytes: *mut c_void, size: size_t) -> ssize_t {
        bytes::read(fd, bytes, size)
    }

    fn eventfd_write(fd: c_int, value: libc::eventfd_t) -> c_int {
        let written = bytes::write(fd, (&raw const value).cast(), size_of_val(&value));
        if usize::try_from(written) == Ok(size_of_val(&value)) { 0 } else { -1 }
    }

    fn __connect(fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int {
        sockets::connect(fd, address, size)
    }

    fn __close(fd: c_int) -> c_int {
        descriptors::close(fd)
    }

    fn __dup2(fd: c_int, to: c_int) -> c_int {
        descriptors::dup2(fd, to)
    }

    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        descriptors::fcntl(fd, command, argument)
    }

    fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        waiting::poll(fds, count, timeout)
    }

    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        waiting::select(count, read, write, except, timeout)
    }

    fn __vfork() -> pid_t {
        process::vfork()
    }

    #[cfg_attr(test, expect(non_snake_case, reason = "the C library's name"))]
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        streams::fdopen(fd, mode)
    }
}
