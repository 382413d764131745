//! The wait of a blocking call: a spin, then a sleep.

use std::ffi::c_int;
use std::ptr;
use std::time::Duration;

use millrace_stream::slab::header::counter;
use rustix::event::{PollFd, PollFlags, Timespec};

use crate::calls::cancel;
use crate::clock::now;
use crate::entry::{Entry, FDS, RefKind};
use crate::errno::{Errno, Outcome};
use crate::multiplex::hooks;
use crate::multiplex::poll_target::PollTarget;
use crate::multiplex::sleepers::Sleeper;
use crate::multiplex::spin::spin;
use crate::private_fds;
use crate::readiness::{ERR, HUP, Ready, Source};
use crate::slab;

/// Longest sleep while another process may read the wake-up that is meant for this thread.
const SLICE: Duration = Duration::from_millis(10);

/// Events of a wake-up fd whose peer has hung up, or that is closed.
const GONE: PollFlags = PollFlags::HUP
    .union(PollFlags::RDHUP)
    .union(PollFlags::ERR)
    .union(PollFlags::NVAL);

/// Events, deadline and mode of one waiting call.
#[derive(Debug)]
pub(crate) struct Wait {
    events: Ready,
    deadline: Option<Duration>,
    /// Whether the present bytes are not enough, and only new ones end the wait.
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
    /// `EAGAIN` after the timeout; `EINTR` after a signal; `EBADF` if the number was closed.
    #[cold]
    pub(crate) fn wait(&mut self, fd: c_int, entry: &'static Entry, timeout: u64) -> Outcome<()> {
        if !entry.pin(fd, RefKind::Syscall) {
            return Err(Errno(libc::EBADF));
        }
        let outcome = if self.spin(entry) {
            Ok(())
        } else {
            entry.watch(true);
            let outcome = self.sleep(entry, timeout);
            entry.watch(false);
            outcome
        };
        entry.release(RefKind::Syscall);
        outcome
    }

    fn spin(&self, entry: &'static Entry) -> bool {
        if self.is_for_more {
            return false;
        }
        let wanted = self.events | ERR | HUP;
        spin(|| entry.ready() & wanted != 0)
    }

    fn sleep(&mut self, entry: &'static Entry, timeout: u64) -> Outcome<()> {
        if timeout != 0 && self.deadline.is_none() {
            self.deadline = Some(now() + Duration::from_nanos(timeout));
        }
        let wanted = self.events | ERR | HUP;
        let asleep = cancel::Sleep::begin()?;
        let sleeper = Sleeper::begin(entry.key());
        let mut has_come = false;
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
            // Other processes read wake-ups without a broadcast.
            let is_sliced = entry.is_shared() || sleeper.is_none();
            let left = if is_sliced {
                Some(left.unwrap_or(SLICE).min(SLICE))
            } else {
                left
            };
            slab::count(counter::SLEEPS);
            let wakeup_fd = entry.wakeup_fd();
            if wakeup_fd < 0 {
                return Err(Errno(libc::EBADF));
            }
            match asleep.ended(poll(wakeup_fd, sleeper.as_ref(), left)) {
                Ok(WakeReason::Notified) => {
                    entry.take_wakeup();
                    if entry.watchers() > 1 {
                        hooks::broadcast(entry);
                    }
                    has_come = true;
                }
                Ok(WakeReason::PeerGone) => {
                    // Without a hang-up of the peer, the number was closed.
                    if !entry.check_peer() && !FDS.holds(wakeup_fd, entry) {
                        return Err(Errno(libc::EBADF));
                    }
                    has_come = true;
                }
                Ok(WakeReason::Broadcast) => has_come = true,
                Ok(WakeReason::TimedOut) => has_come |= is_sliced,
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

/// Reason for the end of a sleep.
enum WakeReason {
    /// A byte-free packet on the wake-up fd.
    Notified,
    /// Hang-up of the wake-up fd, by the peer's exit.
    PeerGone,
    /// A broadcast by another thread of this process.
    Broadcast,
    /// End of the caller's timeout.
    TimedOut,
}

/// Sleeps until a wake-up, a hang-up, a broadcast or the timeout.
fn poll(
    wakeup_fd: c_int,
    sleeper: Option<&Sleeper>,
    timeout: Option<Duration>,
) -> Outcome<WakeReason> {
    let wakeup_fd = private_fds::borrow(wakeup_fd);
    let broadcast_fd = sleeper.map_or(wakeup_fd, |sleeper| private_fds::borrow(sleeper.eventfd()));
    let mut fds = [
        PollFd::new(&wakeup_fd, PollFlags::IN | PollFlags::RDHUP),
        PollFd::new(&broadcast_fd, PollFlags::IN),
    ];
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    rustix::event::poll(&mut fds, timeout.as_ref())?;
    let [wakeup, broadcast] = [0, 1].map(|fd: usize| fds[fd].revents());
    let (is_notified, is_broadcast) = (!wakeup.is_empty(), !broadcast.is_empty());
    let is_gone = wakeup.intersects(GONE);
    if let Some(sleeper) = sleeper.filter(|_| is_broadcast) {
        sleeper.drain();
    }
    Ok(match (is_notified, is_broadcast) {
        _ if is_gone => WakeReason::PeerGone,
        (true, _) => WakeReason::Notified,
        (false, true) => WakeReason::Broadcast,
        (false, false) => WakeReason::TimedOut,
    })
}

/// Whether an interrupted call is restarted, as `SA_RESTART` asks for. The kernel does not return the signal's number:
/// one handler without the flag decides for all.
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

/// Sends `SIGPIPE` to this thread.
pub(crate) fn raise_pipe() {
    // SAFETY: a signal that the program has not asked to be kept from, by a flag of its own.
    unsafe { libc::raise(libc::SIGPIPE) };
}
