//! A call that must wait: it spins for a while, then sleeps.

use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::ptr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use millrace_stream::slab::header::counter;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::time::{ClockId, clock_gettime};

use crate::entry::{Entry, Hold};
use crate::errno::{Errno, Outcome};
use crate::hidden;
use crate::slab::{self, option};
use crate::source::{ERR, HUP, OUT, Ready, Source};
use crate::multiplex::sleepers::Sleeper;
use crate::multiplex::{Kept, spin};

/// How long a sleep is, when somebody else may take the ring that was for this thread.
const SLICE: Duration = Duration::from_millis(10);

/// The waiting of one call.
#[derive(Debug)]
pub(crate) struct Wait {
    events: Ready,
    deadline: Option<Duration>,
    /// What is there is not enough: only what comes counts.
    pub(crate) is_for_more: bool,
}

impl Wait {
    pub(crate) const fn new(events: Ready) -> Self {
        Self {
            events,
            deadline: None,
            is_for_more: false,
        }
    }

    /// Waits until the connection is ready. `timeout` is in nanoseconds from the first call on, 0 for ever.
    ///
    /// # Errors
    /// `EAGAIN` when time is up; `EINTR` after a signal; `EBADF` if the number is no more.
    #[cold]
    pub(crate) fn wait(&mut self, fd: c_int, entry: &'static Entry, timeout: u64) -> Outcome<()> {
        if !entry.pin(fd, Hold::Call) {
            return Err(Errno(libc::EBADF));
        }
        let wanted = self.events | ERR | HUP;
        let outcome = if !self.is_for_more && spin::spin(|| entry.ready() & wanted != 0) {
            Ok(())
        } else {
            entry.watchers.fetch_add(1, Ordering::Relaxed);
            let outcome = self.sleep(fd, entry, timeout);
            entry.watchers.fetch_sub(1, Ordering::Relaxed);
            outcome
        };
        entry.release(Hold::Call);
        outcome
    }

    fn sleep(&mut self, fd: c_int, entry: &'static Entry, timeout: u64) -> Outcome<()> {
        if timeout != 0 && self.deadline.is_none() {
            self.deadline = Some(now() + Duration::from_nanos(timeout));
        }
        let wanted = self.events | ERR | HUP;
        let mut has_come = false;
        let sleeper = Sleeper::begin(entry.key());
        loop {
            if entry.arm(self.events) & wanted != 0
                && (!self.is_for_more || has_come || is_over(entry))
            {
                return Ok(());
            }
            let left = self.deadline.map(|deadline| deadline.saturating_sub(now()));
            if left == Some(Duration::ZERO) {
                return Err(Errno(libc::EAGAIN));
            }
            let is_shared = sleeper.is_none() || entry.is_shared();
            let left = if is_shared {
                Some(left.unwrap_or(SLICE).min(SLICE))
            } else {
                left
            };
            slab::count(counter::SLEEPS);
            match poll(fd, sleeper.as_ref(), left) {
                Ok(true) => {
                    entry.take_rings();
                    has_come = true;
                }
                Ok(false) => has_come |= is_shared,
                Err(Errno(libc::EINTR)) if timeout == 0 && handlers_restart() => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

fn is_over(entry: &Entry) -> bool {
    use crate::slab::flag;
    entry
        .record()
        .is_none_or(|record| record.has(flag::END_SEEN | flag::RESET | flag::HUNG_UP))
}

/// Sleeps until the bell rings, another thread says that it took the ring, the peer is gone, or time is up: then
/// false.
fn poll(bell: c_int, sleeper: Option<&Sleeper>, timeout: Option<Duration>) -> Outcome<bool> {
    let bell = hidden::borrow(bell);
    let told = hidden::borrow(sleeper.map_or(bell.as_raw_fd(), Sleeper::eventfd));
    let mut fds = [
        PollFd::new(&bell, PollFlags::IN),
        PollFd::new(&told, PollFlags::IN),
    ];
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let is_woken = rustix::event::poll(&mut fds, timeout.as_ref())? > 0;
    if let Some(sleeper) = sleeper.filter(|_| !fds[1].revents().is_empty()) {
        sleeper.drain();
    }
    Ok(is_woken)
}

/// The time since the machine started.
pub(crate) fn now() -> Duration {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(
        u64::try_from(now.tv_sec).unwrap_or(0),
        u32::try_from(now.tv_nsec).unwrap_or(0),
    )
}

/// Whether a call that a handler of a signal broke goes on, as `SA_RESTART` asks for. The kernel does not say which
/// signal it was: one handler that does not ask for it speaks for all.
pub(crate) fn handlers_restart() -> bool {
    (1..=64).all(|signal| {
        // SAFETY: all bytes zero are a `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: asks only, into a place of its own.
        let asked = unsafe { libc::sigaction(signal, ptr::null(), &raw mut action) };
        let is_handled = asked == 0
            && action.sa_sigaction != libc::SIG_DFL
            && action.sa_sigaction != libc::SIG_IGN;
        !is_handled || action.sa_flags & libc::SA_RESTART != 0
    })
}

/// Waits until a connection has room, unless it must not wait. True if it has, or a send would tell why not.
pub(crate) fn is_writable(fd: c_int, entry: &'static Entry, must_not_wait: bool) -> bool {
    if !entry.pin(fd, Hold::Call) {
        return true;
    }
    let is_writable = entry.ready() & (OUT | ERR | HUP) != 0;
    let is_patient = entry
        .record()
        .is_some_and(|record| !record.options.has(option::NONBLOCK));
    entry.release(Hold::Call);
    if is_writable || must_not_wait || !is_patient {
        return is_writable;
    }
    Wait::new(OUT).wait(fd, entry, 0).is_ok()
}

/// Sends this thread `SIGPIPE`.
pub(crate) fn raise_pipe() {
    // SAFETY: a signal that the program has not asked to be kept from, by a flag of its own.
    unsafe { libc::raise(libc::SIGPIPE) };
}
