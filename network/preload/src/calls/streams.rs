//! `fdopen`: streams of the C library read and write past the names that this library defines, so that the stream of a
//! connection is one with functions of this library.
//!
//! The same becomes of `stdin`, `stdout` and `stderr` while their numbers are connections, in a program that inetd
//! starts or that has put a connection there: the C library takes them from variables, which are changed. Such a
//! stream cannot be reopened, and `fileno(stderr)` is -1 then.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{FILE, off64_t, size_t, ssize_t};

use super::bytes;
use super::descriptors::close;
use crate::connection::lookup;
use crate::real;

/// How a stream reads, writes, seeks and closes.
#[repr(C)]
struct Functions {
    read: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut c_char, size_t) -> ssize_t>,
    write: Option<unsafe extern "C-unwind" fn(*mut c_void, *const c_char, size_t) -> ssize_t>,
    seek: Option<unsafe extern "C-unwind" fn(*mut c_void, *mut off64_t, c_int) -> c_int>,
    close: Option<unsafe extern "C-unwind" fn(*mut c_void) -> c_int>,
}

/// The beginning of the C library's `FILE`, which its header shows.
#[repr(C)]
struct Head {
    flags: c_int,
    read: [*mut c_char; 3],
    write_base: *mut c_char,
    write_place: *mut c_char,
    others: [*mut c_void; 8],
    number: c_int,
}

const _: () = assert!(std::mem::offset_of!(Head, number) == 112);

/// Values of the variables `stdin`, `stdout` and `stderr` before connections had their numbers.
static BEFORE: [AtomicPtr<FILE>; 3] = [const { AtomicPtr::new(ptr::null_mut()) }; 3];

unsafe extern "C" {
    static stdin: AtomicPtr<FILE>;
    static stdout: AtomicPtr<FILE>;
    static stderr: AtomicPtr<FILE>;
    fn __fpurge(stream: *mut FILE) -> ();
    fn fopencookie(cookie: *mut c_void, mode: *const c_char, functions: Functions) -> *mut FILE;
}

export! {
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut FILE {
        if lookup(fd).is_none() {
            return real::fdopen(fd, mode).cast();
        }
        open(fd, mode)
    }
}

/// # Safety
/// The mode ends in a zero byte.
unsafe fn open(fd: c_int, mode: *const c_char) -> *mut FILE {
    let functions = Functions {
        read: Some(read_some),
        write: Some(write_all),
        seek: None,
        close: Some(close_it),
    };
    // SAFETY: the mode ends in a zero byte, as this function asks for; the functions take the cookie that is passed
    // here.
    let stream = unsafe { fopencookie(ptr::without_provenance_mut(number(fd)), mode, functions) };
    if fd != libc::STDERR_FILENO && !stream.is_null() {
        // The number that `fileno` returns. (`perror` copies that number, and writes to it directly.)
        // SAFETY: `FILE` begins with these fields, and no other thread has the new stream.
        let head = unsafe { &mut *stream.cast::<Head>() };
        head.number = fd;
    }
    stream
}

/// Variable of a standard stream, its mode, and its index.
fn standard(fd: c_int) -> Option<(&'static AtomicPtr<FILE>, &'static CStr, usize)> {
    // SAFETY: the C library defines it, as a word that is aligned.
    let [first, second, third] = unsafe { [&stdin, &stdout, &stderr] };
    match fd {
        libc::STDIN_FILENO => Some((first, c"r", 0)),
        libc::STDOUT_FILENO => Some((second, c"w", 1)),
        libc::STDERR_FILENO => Some((third, c"w", 2)),
        _ => None,
    }
}

/// Redirects a standard stream whose number became a connection's to that connection.
#[cold]
pub(crate) fn redirect_stdio(fd: c_int) {
    let Some((variable, mode, place)) = standard(fd).filter(|_| lookup(fd).is_some()) else {
        return;
    };
    if !BEFORE[place].load(Ordering::Relaxed).is_null() {
        return;
    }
    // SAFETY: the mode ends in a zero byte.
    let stream = unsafe { open(fd, mode.as_ptr()) };
    if stream.is_null() {
        return;
    }
    if fd == libc::STDERR_FILENO {
        // SAFETY: the stream was just opened; no room is given.
        unsafe { libc::setvbuf(stream, ptr::null_mut(), libc::_IONBF, 0) };
    }
    let before = variable.swap(stream, Ordering::Relaxed);
    BEFORE[place].store(before, Ordering::Relaxed);
    if !before.is_null() && fd != libc::STDIN_FILENO {
        // SAFETY: what the variable held is a stream.
        unsafe { take_unwritten(before, stream) };
    }
}

/// Moves the unwritten bytes of a stream to the stream that replaces it.
///
/// # Safety
/// Both are streams of the program's.
unsafe fn take_unwritten(before: *mut FILE, stream: *mut FILE) {
    // SAFETY: a stream begins so.
    let head = unsafe { before.cast::<Head>().read() };
    let size = head
        .write_place
        .addr()
        .saturating_sub(head.write_base.addr());
    if size > 0 {
        // SAFETY: the two pointers of the stream delimit the bytes that were not written.
        unsafe { libc::fwrite(head.write_base.cast(), 1, size, stream) };
        // SAFETY: the stream is the program's, as this function asks for.
        unsafe { __fpurge(before) };
    }
}

/// Restores a standard stream whose number is about to leave its connection.
#[cold]
pub(crate) fn restore_stdio(fd: c_int) {
    let Some((variable, _, place)) = standard(fd) else {
        return;
    };
    let before = BEFORE[place].swap(ptr::null_mut(), Ordering::Relaxed);
    if before.is_null() {
        return;
    }
    let stream = variable.swap(before, Ordering::Relaxed);
    if fd != libc::STDIN_FILENO && !stream.is_null() {
        // The stream stays open, as other threads may use it.
        // SAFETY: the variable held two streams in turn.
        unsafe { take_unwritten(stream, before) };
    }
}

/// A number that is a connection's is not negative.
fn number(fd: c_int) -> usize {
    usize::try_from(fd).unwrap_or(usize::MAX)
}

fn descriptor(cookie: *mut c_void) -> c_int {
    c_int::try_from(cookie.addr()).unwrap_or(-1)
}

unsafe extern "C-unwind" fn read_some(
    cookie: *mut c_void,
    into: *mut c_char,
    size: size_t,
) -> ssize_t {
    // SAFETY: the C library passes a buffer of `size` bytes.
    unsafe { bytes::read(descriptor(cookie), into.cast(), size) }
}

/// The C library takes less than all for an error.
unsafe extern "C-unwind" fn write_all(
    cookie: *mut c_void,
    from: *const c_char,
    size: size_t,
) -> ssize_t {
    let mut done = 0;
    while done < size {
        // SAFETY: `done` is less than `size`, the length of the buffer that the C library passes.
        let rest = unsafe { from.add(done) };
        // SAFETY: `size - done` bytes follow `rest` in the buffer that the C library passes.
        let sent = unsafe { bytes::write(descriptor(cookie), rest.cast(), size - done) };
        match usize::try_from(sent) {
            Ok(sent) => done += sent,
            Err(_) => break,
        }
    }
    ssize_t::try_from(done).unwrap_or(0)
}

unsafe extern "C-unwind" fn close_it(cookie: *mut c_void) -> c_int {
    // SAFETY: the stream has the descriptor.
    unsafe { close(descriptor(cookie)) }
}
