//! Calls by which the kernel moves bytes between descriptors: with one end of ours, they are moved by copying.

use std::ffi::{c_int, c_uint, c_void};

use libc::{SPLICE_F_NONBLOCK, iovec, off_t, off64_t, size_t, ssize_t};
use rustix::fs::OFlags;

use super::bytes::counted;
use crate::connection::lookup;
use crate::entry::Entry;
use crate::errno::{Errno, Outcome};
use crate::receive::receive;
use crate::send::send;
use crate::{hidden, real};

/// Bytes that are copied at once.
const CHUNK: usize = 16_384;
/// As the kernel: one call moves no more.
const MOVED_MAX: usize = 0x7fff_f000;

export! {
    fn sendfile(to: c_int, from: c_int, offset: *mut off_t, count: size_t) -> ssize_t {
        if lookup(from).is_some() {
            // What is mapped nowhere cannot be sent from.
            return counted(Err(Errno(libc::EINVAL)));
        }
        match lookup(to) {
            // SAFETY: as the caller keeps it.
            None => unsafe { real::sendfile(to, from, offset, count) },
            // SAFETY: as the caller keeps it.
            Some(entry) => counted(unsafe { send_file(to, entry, from, offset, count) }),
        }
    }

    fn sendfile64(to: c_int, from: c_int, offset: *mut off64_t, count: size_t) -> ssize_t {
        // SAFETY: as the caller keeps it. Both kinds of offset have 64 bits.
        unsafe { sendfile(to, from, offset, count) }
    }

    fn splice(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t {
        let (source, target) = (lookup(from), lookup(to));
        if source.is_none() && target.is_none() {
            // SAFETY: as the caller keeps it.
            return unsafe { real::splice(from, from_offset, to, to_offset, count, flags) };
        }
        // A pipe has no places, and a socket neither; that is said differently.
        match (source, target) {
            (Some(_), None) if !to_offset.is_null() => counted(Err(Errno(libc::ESPIPE))),
            (None, Some(_)) if !from_offset.is_null() => counted(Err(Errno(libc::ESPIPE))),
            _ if !from_offset.is_null() || !to_offset.is_null() => counted(Err(Errno(libc::EINVAL))),
            (Some(entry), None) => counted(to_pipe(from, entry, to, count, flags)),
            (None, Some(entry)) => counted(from_pipe(from, to, entry, count, flags)),
            // One of them must be a pipe.
            _ => counted(Err(Errno(libc::EINVAL))),
        }
    }

    fn tee(from: c_int, to: c_int, count: size_t, flags: c_uint) -> ssize_t {
        if lookup(from).is_some() || lookup(to).is_some() {
            return counted(Err(Errno(libc::EINVAL)));
        }
        // SAFETY: as the caller keeps it.
        unsafe { real::tee(from, to, count, flags) }
    }

    fn vmsplice(fd: c_int, pieces: *const iovec, count: size_t, flags: c_uint) -> ssize_t {
        if lookup(fd).is_some() {
            return counted(Err(Errno(libc::EBADF)));
        }
        // SAFETY: as the caller keeps it.
        unsafe { real::vmsplice(fd, pieces, count, flags) }
    }

    fn copy_file_range(from: c_int, from_offset: *mut off64_t, to: c_int, to_offset: *mut off64_t, count: size_t, flags: c_uint) -> ssize_t {
        if lookup(from).is_some() || lookup(to).is_some() {
            // As for every socket.
            return counted(Err(Errno(libc::EINVAL)));
        }
        // SAFETY: as the caller keeps it.
        unsafe { real::copy_file_range(from, from_offset, to, to_offset, count, flags) }
    }
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
    let file = hidden::borrow(from);
    let start = if offset.is_null() {
        rustix::fs::tell(file).map_err(|_| Errno(libc::EINVAL))?
    } else {
        // SAFETY: as the caller keeps it.
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
        // SAFETY: as the caller keeps it.
        unsafe { offset.write(off_t::try_from(end).unwrap_or(off_t::MAX)) };
    }
    failed.filter(|_| done == 0).map_or(Ok(done), Err)
}

/// From a connection into a pipe: what was taken is put into the pipe as a whole, hence no more is taken than there
/// is room for.
fn to_pipe(
    from: c_int,
    entry: &'static Entry,
    to: c_int,
    count: usize,
    flags: c_uint,
) -> Outcome<usize> {
    let pipe = pipe_of(to)?;
    let is_patient = flags & SPLICE_F_NONBLOCK == 0 && !pipe.contains(OFlags::NONBLOCK);
    let room = free_in(to)?;
    if room == 0 && !is_patient {
        return Err(Errno(libc::EAGAIN));
    }
    let mut bytes = [0; CHUNK];
    let part = count.min(CHUNK).min(if room == 0 { CHUNK } else { room });
    // As the kernel: the flag is about the pipe alone.
    let taken = receive(from, entry, &mut bytes[..part], 0)?;
    let mut put = 0;
    while put < taken {
        // SAFETY: the bytes are there.
        let done = unsafe { real::write(to, bytes[put..].as_ptr().cast::<c_void>(), taken - put) };
        match usize::try_from(done) {
            Ok(done) => put += done,
            // The room that was there was taken by somebody else: it comes back.
            Err(_) if last() == Errno(libc::EAGAIN) => wait_for_room(to)?,
            Err(_) if last() == Errno(libc::EINTR) => {}
            Err(_) => return Err(last()),
        }
    }
    Ok(taken)
}

/// From a pipe into a connection.
fn from_pipe(
    from: c_int,
    to: c_int,
    entry: &'static Entry,
    count: usize,
    flags: c_uint,
) -> Outcome<usize> {
    let pipe = pipe_of(from)?;
    let waiting = rustix::io::ioctl_fionread(hidden::borrow(from))?;
    if waiting == 0 && flags & SPLICE_F_NONBLOCK != 0 && !pipe.contains(OFlags::NONBLOCK) {
        return Err(Errno(libc::EAGAIN));
    }
    let mut bytes = [0; CHUNK];
    let mut done = 0;
    // What was taken from the pipe must go: so no more is taken than goes, but for what must wait.
    while done < count {
        let part = (count - done).min(CHUNK);
        if done > 0 && rustix::io::ioctl_fionread(hidden::borrow(from))? == 0 {
            break;
        }
        if !crate::wait::is_writable(to, entry, flags & SPLICE_F_NONBLOCK != 0) {
            return if done > 0 {
                Ok(done)
            } else {
                Err(Errno(libc::EAGAIN))
            };
        }
        // SAFETY: there is room for so many.
        let read = unsafe { real::read(from, bytes.as_mut_ptr().cast::<c_void>(), part) };
        let Ok(read) = usize::try_from(read) else {
            return if done > 0 { Ok(done) } else { Err(last()) };
        };
        if read == 0 {
            break;
        }
        match send(to, entry, &bytes[..read], 0) {
            Ok(sent) => done += sent,
            Err(_) if done > 0 => break,
            Err(errno) => return Err(errno),
        }
    }
    Ok(done)
}

fn last() -> Errno {
    Errno(
        std::io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO),
    )
}

/// The flags of a pipe.
fn pipe_of(fd: c_int) -> Outcome<OFlags> {
    if fd < 0 {
        return Err(Errno(libc::EBADF));
    }
    let status = rustix::fs::fstat(hidden::borrow(fd))?;
    if rustix::fs::FileType::from_raw_mode(status.st_mode) != rustix::fs::FileType::Fifo {
        return Err(Errno(libc::EINVAL));
    }
    Ok(rustix::fs::fcntl_getfl(hidden::borrow(fd))?)
}

/// How much there is room for in a pipe.
fn free_in(pipe: c_int) -> Outcome<usize> {
    let size = rustix::pipe::fcntl_getpipe_size(hidden::borrow(pipe))?;
    let used = rustix::io::ioctl_fionread(hidden::borrow(pipe))?;
    Ok(size.saturating_sub(usize::try_from(used).unwrap_or(usize::MAX)))
}

fn wait_for_room(pipe: c_int) -> Outcome<()> {
    use rustix::event::{PollFd, PollFlags};
    let pipe = hidden::borrow(pipe);
    let mut fds = [PollFd::new(&pipe, PollFlags::OUT)];
    rustix::event::poll(&mut fds, None)?;
    Ok(())
}
