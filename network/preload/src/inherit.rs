//! Connections and listeners that go on in another program: by `exec`, or in a process that was spawned.
//!
//! The kernel hands descriptors over by itself, but not the memory that belongs to them. So the memory and the slabs go
//! along under their private numbers, and the environment variable `MILLRACE_INHERIT` holds the descriptor of a file
//! that describes them. The new program finds the descriptors by their inodes.
//!
//! ```text
//! the file: for each entry six u64
//!   kind: 1 connection, 2 listener | inode of the descriptor | its memory, or channel
//!   slab's descriptor | number of the record | token of the process
//! ```
//! Both sides are this library in programs of one user; still, entries that do not fit are skipped and never trusted.
//!
//! Epoll sets are not handed on: in the new program they are the kernel's, and have no user-level members.

use std::ffi::{CString, c_char};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::Ordering;

use millrace_stream::{Geometry, Side};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::FdFlags;

use crate::broker::variable;
use crate::calls::streams;
use crate::connection::attach;
use crate::entry::{Entry, FDS, Kind};
use crate::lock::{Guard, Lock};
use crate::slab::{Record, Slab};
use crate::{holders, private_fds};

const NAME: &str = "MILLRACE_INHERIT";
const CONNECTION: u64 = 1;
const LISTENER: u64 = 2;
/// Words of an entry in the file.
const WORDS: usize = 6;
/// Lock of a handover: two at a time would close each other's descriptors.
static HANDOVER: Lock = Lock::new();
/// Largest number of entries that are read from the file.
const ENTRIES_MAX: usize = 1 << 16;

/// Descriptors and records on their way into another program. The drop undoes all of it: the program was not replaced.
#[derive(Debug)]
pub(crate) struct Handover {
    /// The file that describes the descriptors.
    file: Option<RawFd>,
    /// Private descriptors without `FD_CLOEXEC` during the handover.
    open: Vec<RawFd>,
    /// Held until the drop.
    _alone: Option<Guard<'static>>,
    /// Token of the new process or program.
    token: u32,
    /// Records that the new process holds, too.
    held: Vec<&'static Record>,
    /// Records that this process releases by executing another program.
    left: Vec<(Slab, &'static Record)>,
    word: CString,
    environment: Vec<*const c_char>,
}

impl Handover {
    /// Prepares for an `exec`, after which this process keeps its references, or for a new process.
    ///
    /// # Safety
    /// `environment` is an array of C strings that a null ends, or null.
    pub(crate) unsafe fn begin(environment: *const *const c_char, is_new_process: bool) -> Self {
        // A signal handler above a handover of its own thread proceeds without the lock.
        let alone = HANDOVER.take().ok();
        let token = if is_new_process {
            holders::make()
        } else {
            holders::own()
        };
        let mut handover = Self {
            file: None,
            open: Vec::new(),
            _alone: alone,
            token,
            held: Vec::new(),
            left: Vec::new(),
            word: CString::default(),
            environment: Vec::new(),
        };
        let mut words = Vec::new();
        for (fd, entry) in FDS.numbers(0, usize::MAX) {
            let is_closed = flags(fd).contains(FdFlags::CLOEXEC);
            if entry.wakeup_fd() == fd && is_new_process || !is_closed {
                handover.add(fd, entry, is_new_process, &mut words);
            }
        }
        if !is_new_process {
            handover.leave_behind();
        }
        handover.file = store(&words);
        // SAFETY: the environment is one, or null, as this function asks for.
        unsafe { handover.extend(environment) };
        handover
    }

    /// The environment of the new program. It is the handover's.
    pub(crate) fn environment(&self) -> *const *const c_char {
        self.environment.as_ptr()
    }

    /// Keeps the references of the new process, after it was started.
    pub(crate) fn is_done(&mut self) {
        self.held.clear();
    }

    /// Releases connections that are closed on exec.
    fn leave_behind(&mut self) {
        let all = FDS.numbers(0, usize::MAX);
        for (_, entry) in all.filter(|(fd, entry)| entry.wakeup_fd() == *fd) {
            let is_open = |fd| !flags(fd).contains(FdFlags::CLOEXEC);
            let is_kept = is_open(entry.wakeup_fd())
                || entry.numbers() > 1
                    && FDS
                        .numbers(0, usize::MAX)
                        .any(|(fd, other)| ptr::eq(entry, other) && is_open(fd));
            if let (Some(record), Some(slab), false) = (entry.record(), entry.slab(), is_kept) {
                record.release_on_exit();
                self.left.push((slab, record));
            }
        }
    }

    fn add(
        &mut self,
        fd: RawFd,
        entry: &'static Entry,
        is_new_process: bool,
        words: &mut Vec<u64>,
    ) {
        let Some(hidden) = entry.private_fd() else {
            return;
        };
        let (Ok(hidden_word), Ok(status)) = (u64::try_from(hidden), fstat(private_fds::borrow(fd)))
        else {
            return;
        };
        let inode = status.st_ino;
        if words.chunks_exact(WORDS).any(|entry| entry[1] == inode) {
            return;
        }
        match (entry.kind(), entry.record(), entry.slab()) {
            (Kind::Connection, Some(record), Some(slab)) => {
                let (Ok(file), Some(number)) = (u64::try_from(slab.file), slab.number_of(record))
                else {
                    return;
                };
                if is_new_process {
                    holders::lock(slab, holders::own());
                    record.reserve_ref(slab, self.token);
                    self.held.push(record);
                }
                self.let_pass(slab.file);
                let token = u64::from(self.token);
                words.extend([CONNECTION, inode, hidden_word, file, number as u64, token]);
            }
            (Kind::Listener, ..) => {
                entry.listener.is_shared.store(true, Ordering::Relaxed);
                words.extend([LISTENER, inode, hidden_word, 0, 0, 0]);
            }
            _ => return,
        }
        self.let_pass(hidden);
    }

    fn let_pass(&mut self, fd: RawFd) {
        if !self.open.contains(&fd)
            && rustix::io::fcntl_setfd(private_fds::borrow(fd), FdFlags::empty()).is_ok()
        {
            self.open.push(fd);
        }
    }

    /// Copies the environment, with the variable of this handover and without that of an earlier one.
    unsafe fn extend(&mut self, environment: *const *const c_char) {
        let mut place = environment;
        while !place.is_null() {
            // SAFETY: the pointer lies in the array; the null that ends the array was not reached.
            let variable = unsafe { place.read() };
            if variable.is_null() {
                break;
            }
            // SAFETY: a variable of an environment ends in a zero byte.
            let text = unsafe { std::ffi::CStr::from_ptr(variable) }.to_bytes();
            let is_word = text
                .strip_prefix(NAME.as_bytes())
                .is_some_and(|rest| rest.starts_with(b"="));
            if !is_word {
                self.environment.push(variable);
            }
            // SAFETY: the element was not null, so that another one follows.
            place = unsafe { place.add(1) };
        }
        let word = self.file.map(|file| format!("{NAME}={file}"));
        if let Some(word) = word.and_then(|word| CString::new(word).ok()) {
            self.word = word;
            self.environment.push(self.word.as_ptr());
        }
        self.environment.push(ptr::null());
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        for record in &self.held {
            record.cancel_ref(self.token);
        }
        for (slab, record) in &self.left {
            record.reacquire(*slab);
        }
        for fd in &self.open {
            // It was open a moment ago.
            let _closed_on_exec =
                rustix::io::fcntl_setfd(private_fds::borrow(*fd), FdFlags::CLOEXEC);
        }
        if let Some(file) = self.file {
            private_fds::close(file);
        }
    }
}

/// In the child of a fork: nothing is on its way.
pub(crate) fn after_fork() {
    HANDOVER.reset();
}

fn flags(fd: RawFd) -> FdFlags {
    rustix::io::fcntl_getfd(private_fds::borrow(fd)).unwrap_or(FdFlags::CLOEXEC)
}

/// Writes words into a file that is inherited; `None` without words.
fn store(words: &[u64]) -> Option<RawFd> {
    if words.is_empty() {
        return None;
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let file =
        private_fds::hide(memfd_create(c"millrace-inherit", MemfdFlags::empty()).ok()?).ok()?;
    let written = rustix::io::pwrite(private_fds::borrow(file), &bytes, 0);
    if written != Ok(bytes.len())
        || rustix::io::fcntl_setfd(private_fds::borrow(file), FdFlags::empty()).is_err()
    {
        private_fds::close(file);
        return None;
    }
    Some(file)
}

/// Takes over the descriptors and records that the previous program handed over.
pub(crate) fn take_over() {
    let Some(word) = variable(c"MILLRACE_INHERIT") else {
        return;
    };
    let file = word
        .to_str()
        .ok()
        .and_then(|word| word.parse::<RawFd>().ok())
        .filter(|file| *file > 2);
    // SAFETY: the name ends in a zero byte, and the program has not begun.
    unsafe { libc::unsetenv(c"MILLRACE_INHERIT".as_ptr()) };
    let Some(file) = file else {
        return;
    };
    let words = claim(file);
    private_fds::adopt(file);
    private_fds::close(file);
    let numbers = sockets();
    let mut slabs = Vec::new();
    for entry in words.chunks_exact(WORDS) {
        let found: Vec<RawFd> = numbers
            .iter()
            .filter(|(inode, _)| *inode == entry[1])
            .map(|(_, number)| *number)
            .collect();
        let made = match entry[0] {
            CONNECTION => connection(entry, &mut slabs, &found),
            LISTENER => listener(entry, &found),
            _ => None,
        };
        for number in found {
            if let Some(entry) = made {
                entry.add_number(number);
                streams::redirect_stdio(number);
            }
        }
    }
    for (file, slab) in slabs {
        if slab.is_none() {
            private_fds::close(file);
        }
    }
}

/// Words of the file, for the first process that asks: a program without this library may pass the file on to several.
fn claim(file: RawFd) -> Vec<u64> {
    // A lock between processes, which ends with the last descriptor of the file.
    let lock = rustix::fs::FlockOperation::LockExclusive;
    if rustix::fs::fcntl_lock(private_fds::borrow(file), lock).is_err() {
        return Vec::new();
    }
    let words = load(file);
    match rustix::fs::ftruncate(private_fds::borrow(file), 0) {
        Ok(()) => words,
        Err(_) => Vec::new(),
    }
}

fn load(file: RawFd) -> Vec<u64> {
    let Ok(status) = fstat(private_fds::borrow(file)) else {
        return Vec::new();
    };
    let size = usize::try_from(status.st_size)
        .unwrap_or(0)
        .min(ENTRIES_MAX * WORDS * 8);
    let mut bytes = vec![0; size];
    let read = rustix::io::pread(private_fds::borrow(file), &mut bytes, 0).unwrap_or(0);
    bytes[..read]
        .chunks_exact(8)
        .map(|word| u64::from_ne_bytes(word.try_into().unwrap_or_default()))
        .collect()
}

/// The inodes and numbers of all sockets of this process.
fn sockets() -> Vec<(u64, RawFd)> {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else {
        return Vec::new();
    };
    folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok())
        .filter_map(|fd| {
            let status = fstat(private_fds::borrow(fd)).ok()?;
            let kind = rustix::fs::FileType::from_raw_mode(status.st_mode);
            (kind == rustix::fs::FileType::Socket && !private_fds::is_hidden(fd))
                .then_some((status.st_ino, fd))
        })
        .collect()
}

fn descriptor(word: u64) -> Option<RawFd> {
    let fd = RawFd::try_from(word).ok()?;
    rustix::io::fcntl_getfd(private_fds::borrow(fd)).ok()?;
    private_fds::adopt(fd);
    Some(fd)
}

fn connection(
    entry: &[u64],
    slabs: &mut Vec<(RawFd, Option<Slab>)>,
    found: &[RawFd],
) -> Option<&'static Entry> {
    let memory = descriptor(entry[2])?;
    let made = record_of(entry, slabs).and_then(|(slab, record)| {
        let token = u32::try_from(entry[5]).unwrap_or(0);
        holders::take(token);
        if token != 0 && !(holders::lock(slab, token) && record.claim(token)) {
            // It comes too late.
            return None;
        }
        let made = if found.is_empty() {
            None
        } else {
            enter(memory, slab, record)
        };
        if made.is_none() && record.release_ref(slab) {
            slab.release(record);
        }
        made
    });
    if made.is_none() {
        private_fds::close(memory);
    }
    made
}

fn record_of(
    entry: &[u64],
    slabs: &mut Vec<(RawFd, Option<Slab>)>,
) -> Option<(Slab, &'static Record)> {
    let file = RawFd::try_from(entry[3]).ok()?;
    let known = slabs
        .iter()
        .find(|(known, _)| *known == file)
        .map(|(_, slab)| *slab);
    let slab = match known {
        Some(slab) => slab?,
        None => {
            let slab = descriptor(entry[3]).and_then(|file| Slab::attach(file).ok());
            slabs.push((file, slab));
            slab?
        }
    };
    Some((slab, slab.record(usize::try_from(entry[4]).ok()?)?))
}

fn enter(memory: RawFd, slab: Slab, record: &'static Record) -> Option<&'static Entry> {
    let geometry = Geometry {
        ring_lines: record.options.ring_lines.load(Ordering::Relaxed),
    };
    let is_accepting = record.side.load(Ordering::Relaxed) != 0;
    let side = if is_accepting {
        Side::Accepting
    } else {
        Side::Connecting
    };
    let lane = attach(memory, geometry, side).ok()?;
    // A reservation of the previous program is void.
    record.void_own();
    Entry::connection(lane, slab, record, Some(memory)).ok()
}

fn listener(entry: &[u64], found: &[RawFd]) -> Option<&'static Entry> {
    let channel = descriptor(entry[2])?;
    let made = if found.is_empty() {
        None
    } else {
        Entry::listener(channel).ok()
    };
    if let Some(made) = made {
        made.listener.is_shared.store(true, Ordering::Relaxed);
    }
    if made.is_none() {
        private_fds::close(channel);
    }
    made
}
