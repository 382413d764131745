//! Calls by which the kernel moves bytes between descriptors; with a user-level connection at one end they copy.

use std::ffi::{c_int, c_uint};
use std::os::fd::RawFd;

use libc::{SPLICE_F_NONBLOCK, iovec, off_t, off64_t, size_t, ssize_t};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::OFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};

use super::bytes::counted;
use super::cancel;
use crate::connection::lookup;
use crate::entry::Entry;
use crate::errno::{Errno, Outcome};
use crate::multiplex::touched::touched;
use crate::receive::receive;
use crate::send::send;
use crate::slab::option;
use crate::{private_fds, real};

/// Bytes that are copied at once.
const CHUNK: usize = 16_384;
/// Largest number of bytes that one call moves, as in the kernel.
const MOVED_MAX: usize = 0x7fff_f000;

export! {
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if let Some(entry) = lookup(from) {
            return touched(counted(cancel::never(|| send_stream(to, entry, from, offset, count))));
        }
        match lookup(to) {
            None => touched(real::sendfile(to, from, offset, count)),
            Some(entry) => counted(cancel::never(|| send_file(to, entry, from, offset, count))),
        }
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
        sendfile(to, from, offset, count)
    }

}

export_points! {
    fn splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t {
        let (source, target) = (lookup(from), lookup(to));
        if source.is_none() && target.is_none() {
            return touched(real::splice(from, from_offset, to, to_offset, count, flags));
        }
        // A pipe has no places, and a socket neither; that is said differently.
        match (source, target) {
            (Some(_), None) if !to_offset.is_null() => counted(Err(Errno(libc::ESPIPE))),
            (None, Some(_)) if !from_offset.is_null() => counted(Err(Errno(libc::ESPIPE))),
            _ if !from_offset.is_null() || !to_offset.is_null() => counted(Err(Errno(libc::EINVAL))),
            (Some(entry), None) => touched(counted(to_pipe(from, entry, to, count, flags))),
            (None, Some(entry)) => counted(from_pipe(from, to, entry, count, flags)),
            // One of them must be a pipe.
            _ => counted(Err(Errno(libc::EINVAL))),
        }
    }

    fn tee(from: c_int, to: c_int, count: size_t, flags: c_uint) -> ssize_t {
        if lookup(from).is_some() || lookup(to).is_some() {
            return counted(Err(Errno(libc::EINVAL)));
        }
        touched(real::tee(from, to, count, flags))
    }

    fn vmsplice(fd: c_int, pieces: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
        if lookup(fd).is_some() {
            return counted(Err(Errno(libc::EBADF)));
        }
        touched(real::vmsplice(fd, pieces, count, flags))
    }

}

export! {
    fn copy_file_range(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t {
        if lookup(from).is_some() || lookup(to).is_some() {
            // As for every socket.
            return counted(Err(Errno(libc::EINVAL)));
        }
        real::copy_file_range(from, from_offset, to, to_offset, count, flags)
    }
}

/// Sends from a connection, which only a pipe can receive, as by `splice`.
fn send_stream(
    to: c_int,
    entry: &'static Entry,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> Outcome<usize> {
    if !offset.is_null() {
        return Err(Errno(libc::ESPIPE));
    }
    let is_nonblocking = entry
        .record()
        .is_some_and(|record| record.options.has(option::NONBLOCK));
    let flags = if is_nonblocking { SPLICE_F_NONBLOCK } else { 0 };
    to_pipe(from, entry, to, count, flags)
}

/// Sends from a file: from `offset` on, or from where the file is.
///
/// # Safety
/// The offset is null or valid.
unsafe fn send_file(
    to: c_int,
    entry: &'static Entry,
    from: c_int,
    offset: *mut off_t,
    count: usize,
) -> Outcome<usize> {
    if from < 0 {
        return Err(Errno(libc::EBADF));
    }
    let file = private_fds::borrow(from);
    let start = if offset.is_null() {
        rustix::fs::tell(file).map_err(|_| Errno(libc::EINVAL))?
    } else {
        // SAFETY: the offset is null, which was excluded, or valid, as this function asks for.
        u64::try_from(unsafe { offset.read() }).map_err(|_| Errno(libc::EINVAL))?
    };
    let count = count.min(MOVED_MAX);
    let mut done = 0;
    let mut failed = None;
    let mut bytes = [0; CHUNK];
    while done < count {
        let part = (count - done).min(CHUNK);
        let read = match rustix::io::pread(file, &mut bytes[..part], start + done as u64) {
            Ok(0) => break,
            Ok(read) => read,
            Err(errno) => {
                failed = Some(Errno::from(errno));
                break;
            }
        };
        match send(to, entry, &bytes[..read], 0) {
            Ok(sent) => {
                done += sent;
                if sent < read {
                    break;
                }
            }
            Err(errno) => {
                failed = Some(errno);
                break;
            }
        }
    }
    let end = start + done as u64;
    if offset.is_null() {
        rustix::fs::seek(file, rustix::fs::SeekFrom::Start(end))?;
    } else {
        // SAFETY: the offset is null, which was excluded, or valid, as this function asks for.
        unsafe { offset.write(off_t::try_from(end).unwrap_or(off_t::MAX)) };
    }
    failed.filter(|_| done == 0).map_or(Ok(done), Err)
}

/// A pipe of this call's own, through which bytes are looked at, or put into another as far as there is room.
struct ScratchPipe {
    output: RawFd,
    input: RawFd,
}

impl ScratchPipe {
    fn new() -> Outcome<Self> {
        let (output, input) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        Ok(Self {
            output: private_fds::into_raw(output),
            input: private_fds::into_raw(input),
        })
    }

    /// Copies the contents of the pipe without removing them.
    fn look(&self, pipe: c_int, into: &mut [u8]) -> Outcome<usize> {
        let (pipe, input) = (private_fds::borrow(pipe), private_fds::borrow(self.input));
        let seen = rustix::pipe::tee(pipe, input, into.len(), SpliceFlags::NONBLOCK)?;
        take_all(self.output, &mut into[..seen])?;
        Ok(seen)
    }

    /// Puts as many bytes into the pipe as it takes; consumes the scratch pipe.
    fn put(self, pipe: c_int, bytes: &[u8]) -> Outcome<usize> {
        let written = rustix::io::write(private_fds::borrow(self.input), bytes)?;
        let (output, pipe) = (private_fds::borrow(self.output), private_fds::borrow(pipe));
        let flags = SpliceFlags::NONBLOCK;
        Ok(rustix::pipe::splice(
            output, None, pipe, None, written, flags,
        )?)
    }
}

impl Drop for ScratchPipe {
    fn drop(&mut self) {
        private_fds::close_raw(self.output);
        private_fds::close_raw(self.input);
    }
}

/// Takes bytes out of a pipe that are known to be there.
fn take_all(pipe: c_int, into: &mut [u8]) -> Outcome<()> {
    let mut done = 0;
    while done < into.len() {
        match rustix::io::read(private_fds::borrow(pipe), &mut into[done..]) {
            Ok(0) => break,
            Ok(taken) => done += taken,
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

/// From a connection into a pipe: bytes are looked at, and taken once the pipe has them.
fn to_pipe(
    from: c_int,
    entry: &'static Entry,
    to: c_int,
    count: usize,
    flags: c_uint,
) -> Outcome<usize> {
    let pipe = pipe_of(to)?;
    if count == 0 {
        return Ok(0);
    }
    let is_patient = flags & SPLICE_F_NONBLOCK == 0 && !pipe.contains(OFlags::NONBLOCK);
    let mut bytes = [0; CHUNK];
    loop {
        // As the kernel: the flag is about the pipe alone.
        let seen = receive(from, entry, &mut bytes[..count.min(CHUNK)], libc::MSG_PEEK)?;
        if seen == 0 {
            return Ok(0);
        }
        match ScratchPipe::new()?.put(to, &bytes[..seen]) {
            Ok(put) => return receive(from, entry, &mut bytes[..put], libc::MSG_DONTWAIT),
            Err(Errno(libc::EAGAIN)) if is_patient => wait_for(to, PollFlags::OUT)?,
            Err(errno) => return Err(errno),
        }
    }
}

/// From a pipe into a connection: bytes are looked at, and taken once they were sent.
fn from_pipe(
    from: c_int,
    to: c_int,
    entry: &'static Entry,
    count: usize,
    flags: c_uint,
) -> Outcome<usize> {
    let is_at_once = flags & SPLICE_F_NONBLOCK != 0;
    let is_patient = !is_at_once && !pipe_of(from)?.contains(OFlags::NONBLOCK);
    let how = if is_at_once { libc::MSG_DONTWAIT } else { 0 };
    let scratch = ScratchPipe::new()?;
    let mut bytes = [0; CHUNK];
    let mut done = 0;
    while done < count {
        let part = (count - done).min(CHUNK);
        let sent = match scratch.look(from, &mut bytes[..part]) {
            Ok(0) => break,
            Ok(seen) => send(to, entry, &bytes[..seen], how).map(|sent| (sent, sent < seen)),
            Err(Errno(libc::EAGAIN)) if is_patient && done == 0 => {
                wait_for(from, PollFlags::IN)?;
                continue;
            }
            Err(errno) => Err(errno),
        };
        match sent {
            Ok((sent, is_less)) => {
                take_all(from, &mut bytes[..sent])?;
                done += sent;
                if is_less {
                    break;
                }
            }
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

/// Status flags of a pipe; `EINVAL` for another kind of descriptor.
fn pipe_of(fd: c_int) -> Outcome<OFlags> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    let status = rustix::fs::fstat(private_fds::borrow(fd))?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::Fifo {
        return Err(Errno(libc::EINVAL));
    }
    Ok(rustix::fs::fcntl_getfl(private_fds::borrow(fd))?)
}

/// Waits for a pipe that has bytes, or room.
fn wait_for(pipe: c_int, events: PollFlags) -> Outcome<()> {
    let pipe = private_fds::borrow(pipe);
    let mut fds = [PollFd::new(&pipe, events)];
    rustix::event::poll(&mut fds, None)?;
    Ok(())
}
