//! Other names that the C library has for the same calls.

use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, fd_set, nfds_t, pid_t, pollfd, size_t, sockaddr, socklen_t, ssize_t, timeval};

use super::{bytes, descriptors, sockets, streams};
use crate::multiplex::calls as waiting;
use crate::process;

export! {
    fn __send(fd: c_int, bytes: *const c_void, size: size_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller keeps it.
        unsafe { bytes::send(fd, bytes, size, flags) }
    }

    fn __recv(fd: c_int, bytes: *mut c_void, size: size_t, flags: c_int) -> ssize_t {
        // SAFETY: as the caller keeps it.
        unsafe { bytes::recv(fd, bytes, size, flags) }
    }

    fn __write(fd: c_int, bytes: *const c_void, size: size_t) -> ssize_t {
        // SAFETY: as the caller keeps it.
        unsafe { bytes::write(fd, bytes, size) }
    }

    fn __read(fd: c_int, bytes: *mut c_void, size: size_t) -> ssize_t {
        // SAFETY: as the caller keeps it.
        unsafe { bytes::read(fd, bytes, size) }
    }

    fn eventfd_write(fd: c_int, value: libc::eventfd_t) -> c_int {
        // SAFETY: there are as many bytes.
        let written = unsafe { bytes::write(fd, (&raw const value).cast(), size_of_val(&value)) };
        if usize::try_from(written) == Ok(size_of_val(&value)) { 0 } else { -1 }
    }

    fn __connect(fd: c_int, address: *const sockaddr, size: socklen_t) -> c_int {
        // SAFETY: as the caller keeps it.
        unsafe { sockets::connect(fd, address, size) }
    }

    fn __close(fd: c_int) -> c_int {
        // SAFETY: as the caller keeps it.
        unsafe { descriptors::close(fd) }
    }

    fn __dup2(fd: c_int, to: c_int) -> c_int {
        // SAFETY: as the caller keeps it.
        unsafe { descriptors::dup2(fd, to) }
    }

    fn __fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
        // SAFETY: as the caller keeps it.
        unsafe { descriptors::fcntl(fd, command, argument) }
    }

    fn __poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
        // SAFETY: as the caller keeps it.
        unsafe { waiting::poll(fds, count, timeout) }
    }

    fn __select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int {
        // SAFETY: as the caller keeps it.
        unsafe { waiting::select(count, read, write, except, timeout) }
    }

    fn __vfork() -> pid_t {
        // SAFETY: as the caller keeps it.
        unsafe { process::vfork() }
    }

    #[cfg_attr(test, expect(non_snake_case, reason = "the C library's name"))]
    fn _IO_fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        // SAFETY: as the caller keeps it.
        unsafe { streams::fdopen(fd, mode) }
    }
}
