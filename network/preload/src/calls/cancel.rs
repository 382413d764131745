//! `pthread_cancel`, and cancellation points.
//!
//! The C library cancels a waiting thread by unwinding its stack from within the system call. Waiting calls of this
//! library hold pins, counts and locks, and frames of Rust must not be unwound by force while values are to be dropped.
//! So a request is handled in steps:
//!
//! 1. [`pthread_cancel`] calls the C library's, which records the request. Then it counts the request, and signals the
//!    thread, by the C library's own signal for this, until it has left the sleep in which it was found.
//! 2. A sleep that a signal ends while an unseen request is pending returns [`CANCELLED`], and so does a sleep that
//!    would begin then. The call releases its pins and locks on the way out.
//! 3. [`point`], the frame of the C library's name, has nothing to drop. There the C library is asked to act on the
//!    request. If the request was for another thread, or is disabled or deferred, the call begins again.
//!
//! # Invariants
//! 1. A sleeper is published before it checks for requests; a request is counted before sleepers are searched. Both
//!    with sequential consistency: one sees the other.
//! 2. A slot belongs to the thread whose id it holds; its serial number changes with every sleep.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::pthread_t;

use crate::errno::{self, Errno, Outcome};
use crate::multiplex::kernel;
use crate::{real, thread};

/// Pseudo error of a sleep that a request ends; no kernel returns it, and no program sees it.
pub(crate) const CANCELLED: Errno = Errno(1 << 16);

/// Signal by which the C library makes a thread check for requests. Its handler does nothing while cancellation is
/// disabled.
const SIGCANCEL: usize = 32;
/// Number of threads that can sleep with a slot; a thread without one sees requests when it wakes.
const PLACES: usize = 1024;

struct Place {
    /// Thread id of the owner; 0 if the slot is free.
    owner: AtomicU32,
    serial: AtomicU32,
    /// `pthread_t` of the sleeping thread; 0 if it does not sleep.
    thread: AtomicU64,
}

static PLACE: [Place; PLACES] = [const {
    Place {
        owner: AtomicU32::new(0),
        serial: AtomicU32::new(0),
        thread: AtomicU64::new(0),
    }
}; PLACES];
/// Number of slots that were ever taken.
static USED: AtomicUsize = AtomicUsize::new(0);
/// Number of requests in this process, for any thread.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// The requests that this thread has looked at.
    static SEEN: Cell<u32> = const { Cell::new(0) };
}

unsafe extern "C-unwind" {
    fn pthread_testcancel();
}

/// Whether a request is pending that this thread has not checked; it may be another thread's.
fn is_asked() -> bool {
    REQUESTS.load(Ordering::SeqCst) != SEEN.get()
}

/// A thread that is about to sleep, or sleeps.
#[derive(Debug)]
pub(crate) struct Sleep(Option<usize>);

impl Sleep {
    /// # Errors
    /// [`CANCELLED`], if the thread must look for a request first.
    pub(crate) fn begin() -> Outcome<Self> {
        let own = thread::tid();
        let vacant = PLACE.iter().position(|place| {
            place.owner.load(Ordering::Relaxed) == 0
                && place
                    .owner
                    .compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        });
        if let Some(index) = vacant {
            USED.fetch_max(index + 1, Ordering::SeqCst);
            PLACE[index].serial.fetch_add(1, Ordering::SeqCst);
            // SAFETY: a thread may ask for its name at any time.
            let thread = unsafe { libc::pthread_self() };
            PLACE[index].thread.store(thread, Ordering::SeqCst);
        }
        let sleep = Self(vacant);
        if is_asked() {
            Err(CANCELLED)
        } else {
            Ok(sleep)
        }
    }

    /// Outcome of a sleep: [`CANCELLED`] if a signal ended it while a request is pending.
    pub(crate) fn ended<T>(&self, outcome: Outcome<T>) -> Outcome<T> {
        match outcome {
            Err(Errno(libc::EINTR)) if is_asked() => Err(CANCELLED),
            outcome => outcome,
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(index) = self.0 {
            PLACE[index].thread.store(0, Ordering::SeqCst);
            PLACE[index].owner.store(0, Ordering::Release);
        }
    }
}

/// In the child of a fork: the other threads are not there.
pub(crate) fn after_fork() {
    for place in PLACE.iter().take(USED.load(Ordering::Relaxed)) {
        place.thread.store(0, Ordering::Relaxed);
        place.owner.store(0, Ordering::Relaxed);
    }
}

/// A call under the C library's name that is a point of cancellation. Nothing is to be dropped in the caller.
#[inline]
pub(crate) fn point<T: PartialEq + From<i8>>(call: impl Fn() -> T) -> T {
    loop {
        if REQUESTS.load(Ordering::Relaxed) != 0 {
            look();
        }
        let result = call();
        if result != T::from(-1) || kernel::last_error() != CANCELLED {
            return result;
        }
        errno::set(libc::EINTR);
    }
}

/// Makes the C library act on a request for this thread: then this does not return.
#[cold]
fn look() {
    SEEN.set(REQUESTS.load(Ordering::SeqCst));
    // SAFETY: if this unwinds, then through frames that have nothing to drop: `point` and its callers.
    unsafe { pthread_testcancel() };
}

/// Runs a call that may sleep, but is no cancellation point.
pub(crate) fn never<T>(mut call: impl FnMut() -> Outcome<T>) -> Outcome<T> {
    loop {
        match call() {
            Err(CANCELLED) => SEEN.set(REQUESTS.load(Ordering::SeqCst)),
            outcome => return outcome,
        }
    }
}

export! {
    fn pthread_cancel(thread: pthread_t) -> c_int {
        let result = real::pthread_cancel(thread);
        if result == 0 {
            REQUESTS.fetch_add(1, Ordering::SeqCst);
            interrupt_sleep(thread);
        }
        result
    }
}

/// Ends the sleep in which a thread is found. It may be on the way into its system call, which a signal does not end.
fn interrupt_sleep(thread: pthread_t) {
    for place in PLACE.iter().take(USED.load(Ordering::SeqCst)) {
        let serial = place.serial.load(Ordering::SeqCst);
        let is_there = || {
            place.thread.load(Ordering::SeqCst) == thread
                && place.serial.load(Ordering::SeqCst) == serial
        };
        while is_there() && signal(place.owner.load(Ordering::SeqCst)) {
            kernel::yield_now();
        }
    }
}

/// Sends the cancellation signal; false if the thread has exited.
fn signal(thread: u32) -> bool {
    let process = std::process::id() as usize;
    // SAFETY: the call takes integers alone; the C library installed the handler of the signal with the first request.
    let sent = unsafe {
        real::syscall(
            libc::SYS_tgkill,
            process,
            thread as usize,
            SIGCANCEL,
            0,
            0,
            0,
        )
    };
    sent == 0
}
