//! A futex lock, after U. Drepper, "Futexes are tricky", section 5, whose word is its owner's thread id: in memory that
//! processes share, or of one process.
//!
//! # Protocol
//! 1. 0 is free; otherwise the low bits are the owner's thread id, and the highest bit says that a thread sleeps.
//! 2. A waiter for a shared lock sleeps for at most 100 ms, then checks whether the owner has exited. The lock of an
//!    exited owner is taken over; the data may be half changed, which [`Guard::taken_over`] says. A lock of one process
//!    has no such check: no owner exits without the process.
//! 3. A thread that finds its own lock taken by itself is a signal handler above the holder: it gets [`Refused`] and
//!    must not wait.

use std::ffi::CStr;
use std::io::Write;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{Pid, test_kill_process};
use rustix::thread::futex;

use crate::{private_fds, thread};

/// Flag of a lock with a sleeping waiter.
const CONTENDED: u32 = 1 << 31;
/// How often a taken lock is looked at before the thread sleeps.
const LOOKS: u32 = 100;
/// How long a sleep is, before the owner is looked for.
const PATIENCE: futex::Timespec = futex::Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// A lock between threads: of several processes if `SHARED`, else of one.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lock<const SHARED: bool = true>(AtomicU32);

/// The thread holds the lock already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a, const SHARED: bool = true> {
    lock: &'a Lock<SHARED>,
    /// Whether the last owner exited while it held the lock.
    pub(crate) taken_over: bool,
}

impl<const SHARED: bool> Lock<SHARED> {
    const FLAGS: futex::Flags = if SHARED {
        futex::Flags::empty()
    } else {
        futex::Flags::PRIVATE
    };
    const SLEEP_MAX: Option<&'static futex::Timespec> = if SHARED { Some(&PATIENCE) } else { None };

    /// A free lock.
    pub(crate) const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Releases a lock whose guard was forgotten.
    pub(crate) fn release(&self) {
        drop(self.guard(false));
    }

    /// Frees the lock in the child of a fork, which lacks its owner.
    pub(crate) fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Makes this thread the owner, in the child of a fork, of a lock that it held all along: the thread has another id
    /// now.
    pub(crate) fn keep(&self) {
        self.0.store(thread::tid(), Ordering::Relaxed);
    }

    /// Whether this thread holds the lock.
    pub(crate) fn is_own(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !CONTENDED == thread::tid()
    }

    /// Takes the lock, and waits for it if another thread holds it.
    #[inline]
    pub(crate) fn take(&self) -> Result<Guard<'_, SHARED>, Refused> {
        let own = thread::tid();
        if self.change(0, own) {
            return Ok(self.guard(false));
        }
        self.wait(own)
    }

    /// Takes the lock within [`LOOKS`] looks, or returns `None`.
    pub(crate) fn try_take(&self) -> Option<Guard<'_, SHARED>> {
        let own = thread::tid();
        for _ in 0..LOOKS {
            if self.change(0, own) {
                return Some(self.guard(false));
            }
            std::hint::spin_loop();
        }
        None
    }

    /// Changes the word of a lock that is free, or whose owner has exited.
    #[inline]
    fn change(&self, from: u32, to: u32) -> bool {
        // Acquire pairs with the release of `Guard::drop`.
        self.0
            .compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    fn guard(&self, taken_over: bool) -> Guard<'_, SHARED> {
        Guard {
            lock: self,
            taken_over,
        }
    }

    #[cold]
    fn wait(&self, own: u32) -> Result<Guard<'_, SHARED>, Refused> {
        let mut looks = 0;
        // After a sleep this thread cannot know whether others sleep.
        let mut taken = own;
        loop {
            let word = self.0.load(Ordering::Relaxed);
            if word & !CONTENDED == own {
                return Err(Refused);
            }
            if word == 0 {
                if self.change(0, taken) {
                    return Ok(self.guard(false));
                }
                continue;
            }
            if looks < LOOKS {
                looks += 1;
                std::hint::spin_loop();
                continue;
            }
            let marked = word | CONTENDED;
            if word != marked
                && self
                    .0
                    .compare_exchange(word, marked, Ordering::Relaxed, Ordering::Relaxed)
                    .is_err()
            {
                continue;
            }
            taken = own | CONTENDED;
            let slept = futex::wait(&self.0, Self::FLAGS, marked, Self::SLEEP_MAX);
            if slept == Err(Errno::TIMEDOUT)
                && is_dead(word & !CONTENDED)
                && self.change(marked, taken)
            {
                return Ok(self.guard(true));
            }
        }
    }
}

impl<const SHARED: bool> Drop for Guard<'_, SHARED> {
    #[inline]
    fn drop(&mut self) {
        // Release pairs with the acquire of the next owner.
        if self.lock.0.swap(0, Ordering::Release) & CONTENDED != 0 {
            let _woken = futex::wake(&self.lock.0, Lock::<SHARED>::FLAGS, 1);
        }
    }
}

/// Whether the thread with this id has exited, is a zombie, or is another program's thread that has the id now: one
/// without a slab.
pub(crate) fn is_dead(tid: u32) -> bool {
    let is_gone = i32::try_from(tid)
        .ok()
        .and_then(Pid::from_raw)
        .is_none_or(|tid| test_kill_process(tid) == Err(Errno::SRCH));
    // A process of another user, whose files are not readable, counts as running.
    is_gone || is_zombie(tid) || has_text(tid, "maps", SLAB) == Some(false)
}

/// Name of a slab's mapping in `/proc/*/maps`.
const SLAB: &[u8] = b"/memfd:millrace-slab";

fn is_zombie(tid: u32) -> bool {
    let mut bytes = [0; 512];
    let read = open(tid, "stat").and_then(|file| read(&file, &mut bytes));
    let text = bytes.get(..read.unwrap_or(0)).unwrap_or_default();
    // The name before the state may have any characters.
    let state = text.iter().rposition(|byte| *byte == b')');
    state.is_some_and(|place| matches!(text.get(place + 2), Some(b'Z' | b'X' | b'x')))
}

/// Whether a file of a thread has these bytes.
fn has_text(tid: u32, name: &str, wanted: &[u8]) -> Option<bool> {
    let file = open(tid, name)?;
    let mut bytes = [0; 4096];
    let mut kept = 0;
    loop {
        let end = kept + read(&file, bytes.get_mut(kept..)?)?;
        if end == kept {
            return Some(false);
        }
        if bytes[..end]
            .windows(wanted.len())
            .any(|part| part == wanted)
        {
            return Some(true);
        }
        // It may lie across two reads.
        kept = end.min(wanted.len() - 1);
        bytes.copy_within(end - kept..end, 0);
    }
}

/// Opens a file of a thread, past the C library and without a name on the heap.
fn open(tid: u32, name: &str) -> Option<Owned> {
    let mut path = [0; 32];
    write!(path.as_mut_slice(), "/proc/{tid}/{name}").ok()?;
    let path = CStr::from_bytes_until_nul(&path).ok()?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    Some(Owned(private_fds::into_raw(file)))
}

fn read(file: &Owned, into: &mut [u8]) -> Option<usize> {
    rustix::io::read(private_fds::borrow(file.0), into).ok()
}

/// A descriptor that is closed by the kernel's own call.
struct Owned(RawFd);

impl Drop for Owned {
    fn drop(&mut self) {
        private_fds::close_raw(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;

    struct Shared<const SHARED: bool>(Lock<SHARED>, UnsafeCell<u64>);

    // SAFETY: the cell is accessed under the lock.
    unsafe impl<const SHARED: bool> Sync for Shared<SHARED> {}

    #[test]
    fn one_at_a_time() {
        one_at_a_time_in::<true>();
        one_at_a_time_in::<false>();
    }

    fn one_at_a_time_in<const SHARED: bool>() {
        let shared = Shared::<SHARED>(Lock::new(), UnsafeCell::new(0));
        let whole = &shared;
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(move || {
                    let shared: &Shared<SHARED> = whole;
                    for _ in 0..20_000 {
                        let _guard = shared.0.take().expect("the thread holds no lock");
                        // SAFETY: the lock is held.
                        unsafe { *shared.1.get() += 1 };
                    }
                });
            }
        });
        assert_eq!(shared.1.into_inner(), 80_000);
    }

    #[test]
    fn a_lock_of_the_same_thread_is_refused() {
        let lock = Lock::<true>::new();
        assert!(!lock.is_own());
        let guard = lock.take().expect("it is free");
        assert!(lock.is_own());
        assert_eq!(lock.take().err(), Some(Refused));
        assert!(lock.try_take().is_none());
        drop(guard);
        assert!(lock.try_take().is_some());
        assert!(lock.take().is_ok());
    }

    #[test]
    fn a_zombie_has_exited() {
        let mut child = std::process::Command::new("true")
            .spawn()
            .expect("`true` is installed");
        while !is_zombie(child.id()) {
            std::thread::yield_now();
        }
        assert!(is_dead(child.id()));
        child.wait().expect("it has ended");
    }

    #[test]
    fn text_in_a_file_of_a_thread() {
        let text = has_text(std::process::id(), "maps", b"[stack]");
        assert_eq!(text, Some(true));
        let text = has_text(std::process::id(), "maps", b"[not there]");
        assert_eq!(text, Some(false));
    }

    #[test]
    fn the_lock_of_an_exited_owner_is_taken_over() {
        let tid = std::thread::spawn(thread::tid)
            .join()
            .expect("it does not panic");
        let lock = Lock::<true>(AtomicU32::new(tid));
        let guard = lock.take().expect("the owner has exited");
        assert!(guard.taken_over);
    }
}
