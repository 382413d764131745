//! Clients that come through windows: user-level sockets of this host, next to kernel TCP.
//!
//! A [`WindowListener`] announces listening TCP sockets to the host's broker. The broker hands over each
//! connection as shared memory and a wake-up fd; from then on it has no part in it.
//!
//! Without a broker there is kernel TCP alone. The listener tries to connect again once a second, and then
//! announces the sockets to a broker that was started or restarted; open connections go on meanwhile.
//!
//! # Memory
//! A connection is a mapping of its rings, which the broker has made and charged: 520 KiB of addresses, of which the
//! client decides how much is ever touched. A request is copied out of it into a buffer of the server's before any
//! of it is interpreted.
//!
//! # Threads
//! The worker that accepts drives the listener, by one descriptor: a poller of its own that holds the connection to
//! the broker, the channels on which clients come, and a timer. Totals are counted by every worker.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use millrace_stream::slab::Totals;
use millrace_stream::sockets::{
    self, Announcement, Interest as StreamInterest, SharedCounters, Stream,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::poller::Poller;
use super::{Interest, Listener, TcpListener, Transport};
use crate::clock::Clock;

/// How many clients may wait to be accepted on each socket; others wait at the broker.
const BACKLOG: u32 = 128;

/// How long it takes until a broker is asked for again, and what was counted is reported.
const TICK: Timespec = Timespec {
    tv_sec: 1,
    tv_nsec: 0,
};

/// Keys of the listener's poller. The channel of each socket has the socket's number.
const TIMER_KEY: u64 = u64::MAX;
const BROKER_KEY: u64 = u64::MAX - 1;

/// What all connections through windows have done, and where the broker reads it.
#[derive(Debug)]
pub struct WindowTotals {
    sent: AtomicU64,
    received: AtomicU64,
    accepts: AtomicU64,
    kernel_accepts: AtomicU64,
    notifications: AtomicU64,
    sleeps: AtomicU64,
    resets: AtomicU64,
    /// Whether something was counted that the next tick is to report.
    is_unreported: AtomicBool,
    counters: Mutex<SharedCounters>,
    timer: OwnedFd,
}

impl WindowTotals {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        Ok(Self {
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            accepts: AtomicU64::new(0),
            kernel_accepts: AtomicU64::new(0),
            notifications: AtomicU64::new(0),
            sleeps: AtomicU64::new(0),
            resets: AtomicU64::new(0),
            is_unreported: AtomicBool::new(false),
            counters: Mutex::new(SharedCounters::new()?),
            timer: timerfd_create(TimerfdClockId::Monotonic, flags)?,
        })
    }

    /// What was counted up to now.
    #[must_use]
    pub fn read(&self) -> Totals {
        Totals {
            sent: self.sent.load(Ordering::SeqCst),
            received: self.received.load(Ordering::SeqCst),
            accepts: self.accepts.load(Ordering::SeqCst),
            kernel_accepts: self.kernel_accepts.load(Ordering::SeqCst),
            notifications: self.notifications.load(Ordering::SeqCst),
            sleeps: self.sleeps.load(Ordering::SeqCst),
            resets: self.resets.load(Ordering::SeqCst),
            ..Totals::default()
        }
    }

    pub(super) fn count_kernel_accept(&self) {
        self.count(&self.kernel_accepts, 1);
    }

    /// Counts, and sees to it that it is reported: either [`WindowTotals::report`] finds it counted, or it is found
    /// here that a report is over. That holds in the one order of all these accesses, so each is `SeqCst`.
    fn count(&self, counter: &AtomicU64, more: u64) {
        counter.fetch_add(more, Ordering::SeqCst);
        if !self.is_unreported.load(Ordering::SeqCst)
            && !self.is_unreported.swap(true, Ordering::SeqCst)
        {
            self.set_timer();
        }
    }

    fn set_timer(&self) {
        let once = Itimerspec {
            it_interval: Timespec {
                tv_sec: 0,
                tv_nsec: 0,
            },
            it_value: TICK,
        };
        // The timer and the time are sound: there is nothing that could fail.
        let _ = timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once);
    }

    fn report(&self) {
        let counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_unreported.store(false, Ordering::SeqCst);
        // Numbers that the broker does not get are shown as they were.
        let _ = counters.report(&self.read());
    }
}

/// Where clients come from by windows. It accepts for several TCP sockets at once.
#[derive(Debug)]
pub struct WindowListener {
    path: PathBuf,
    sockets: Vec<(OwnedFd, String)>,
    totals: Arc<WindowTotals>,
    poller: Poller,
    announcement: Option<Announcement>,
    /// By the number of the socket.
    channels: Vec<Option<sockets::Listener>>,
    /// Whether it was said that there is no broker.
    is_missing: bool,
}

impl WindowListener {
    /// Announces the sockets to the broker that listens at `path`, and waits for its answers for as long as
    /// `patience`. Without a broker they are announced later.
    ///
    /// # Errors
    /// What the system says when it has no more descriptors.
    pub fn start(
        path: &Path,
        sockets: &mut [TcpListener],
        patience: Duration,
        clock: &dyn Clock,
    ) -> io::Result<Self> {
        let totals = Arc::new(WindowTotals::new()?);
        let poller = Poller::new()?;
        poller.add(&totals.timer, TIMER_KEY, Interest::Read)?;
        let sockets = sockets
            .iter_mut()
            .map(|socket| Ok((socket.announced(&totals)?, socket.address())))
            .collect::<io::Result<Vec<_>>>()?;
        let mut listener = Self {
            path: path.to_owned(),
            channels: sockets.iter().map(|_| None).collect(),
            sockets,
            totals,
            poller,
            announcement: None,
            is_missing: false,
        };
        listener.announce();
        listener.wait_for_answers(patience, clock);
        Ok(listener)
    }

    /// The counters of the listener's connections, since the start.
    #[must_use]
    pub const fn totals(&self) -> &Arc<WindowTotals> {
        &self.totals
    }

    fn wait_for_answers(&mut self, patience: Duration, clock: &dyn Clock) {
        let until = clock.now() + patience;
        while let Some(announcement) = self.announcement.as_ref().filter(|a| !a.is_complete()) {
            let left = until.saturating_sub(clock.now());
            let (Ok(left), false) = (Timespec::try_from(left), left.is_zero()) else {
                return;
            };
            let mut watched = [PollFd::new(announcement, PollFlags::IN)];
            // If it fails, or times out, the remaining answers are read later.
            if poll(&mut watched, Some(&left)).is_ok_and(|ready| ready > 0) {
                self.hear();
            }
        }
    }

    /// Begins to announce the sockets; later again if it cannot.
    fn announce(&mut self) {
        let counters = self.totals.counters.lock();
        let begun = Announcement::begin(
            &self.path,
            &counters.unwrap_or_else(PoisonError::into_inner),
            BACKLOG,
            self.sockets.iter().map(|(socket, _)| socket.as_fd()),
        )
        .and_then(|announcement| {
            self.poller.add(&announcement, BROKER_KEY, Interest::Read)?;
            Ok(announcement)
        });
        match begun {
            Ok(announcement) => self.announcement = Some(announcement),
            Err(error) => self.detach(&error),
        }
    }

    /// Forgets the broker. Connections go on.
    fn detach(&mut self, error: &io::Error) {
        let had_some = self.channels.iter().any(Option::is_some);
        self.announcement = None;
        self.channels.fill_with(|| None);
        self.totals.set_timer();
        if had_some || !self.is_missing {
            tracing::warn!(
                target: "NETWORK",
                id = 23_308_u32,
                broker = %self.path.display(),
                %error,
                "No broker of user-level sockets; new connections are the kernel's alone"
            );
        }
        self.is_missing = true;
    }

    /// Takes the broker's answers.
    fn hear(&mut self) {
        while let Some(announcement) = &mut self.announcement {
            let answer = match announcement.next_answer() {
                Ok(answer) => answer,
                Err(error) if is_transient(&error) => return,
                Err(error) => return self.detach(&error),
            };
            let index = answer.index;
            let address = &self.sockets[index].1;
            let channel = match answer.outcome {
                Ok(Some(channel)) => channel,
                Ok(None) => {
                    tracing::info!(
                        target: "NETWORK",
                        id = 23_312_u32,
                        address,
                        "The broker leaves an address to the kernel"
                    );
                    continue;
                }
                Err(error) => {
                    tracing::warn!(
                        target: "NETWORK",
                        id = 23_309_u32,
                        address,
                        %error,
                        "The broker refuses user-level sockets for an address"
                    );
                    continue;
                }
            };
            tracing::info!(
                target: "NETWORK",
                id = 23_310_u32,
                address,
                broker = %self.path.display(),
                "Listening by user-level sockets"
            );
            self.is_missing = false;
            match self.poller.add(&channel, key(index), Interest::Read) {
                Ok(()) => self.channels[index] = Some(channel),
                Err(error) => return self.detach(&error),
            }
        }
    }

    fn on_tick(&mut self) {
        // What it says is how often it has rung: no matter.
        let _ = rustix::io::read(&self.totals.timer, &mut [0_u8; 8]);
        self.totals.report();
        if self.announcement.is_none() {
            self.announce();
        }
    }

    /// The next client on the channel of a socket, if there is one.
    fn accept_on(&mut self, index: usize) -> io::Result<Option<Box<dyn Transport>>> {
        let Some(Some(channel)) = self.channels.get(index) else {
            return Ok(None);
        };
        match channel.accept() {
            Ok(stream) => {
                self.totals.count(&self.totals.accepts, 1);
                Ok(Some(Box::new(WindowTransport {
                    stream,
                    notifications: 0,
                    totals: Arc::clone(&self.totals),
                })))
            }
            Err(error) if is_transient(&error) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                self.detach(&error);
                Ok(None)
            }
            Err(error) => {
                tracing::warn!(
                    target: "NETWORK",
                    id = 23_311_u32,
                    address = self.sockets[index].1,
                    %error,
                    "A connection by user-level sockets could not be taken"
                );
                // Its client sees the end; the next one may be better.
                Err(io::ErrorKind::ConnectionAborted.into())
            }
        }
    }
}

impl Listener for WindowListener {
    fn accept(&mut self) -> io::Result<Box<dyn Transport>> {
        let mut ready = Vec::new();
        self.poller.wait(Some(Duration::ZERO), &mut ready)?;
        for event in ready {
            match event.key {
                TIMER_KEY => self.on_tick(),
                BROKER_KEY => self.hear(),
                index => {
                    let index = usize::try_from(index).unwrap_or(usize::MAX);
                    if let Some(transport) = self.accept_on(index)? {
                        return Ok(transport);
                    }
                }
            }
        }
        Err(io::ErrorKind::WouldBlock.into())
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.poller.as_fd()
    }

    fn address(&self) -> String {
        format!("user-level sockets by {}", self.path.display())
    }
}

/// A connection through a window.
#[derive(Debug)]
struct WindowTransport {
    stream: Stream,
    /// How many of its rings are counted.
    notifications: u64,
    totals: Arc<WindowTotals>,
}

impl WindowTransport {
    fn count_notifications(&mut self) {
        let notifications = self.stream.total_notifications();
        if notifications > self.notifications {
            self.totals.count(
                &self.totals.notifications,
                notifications - self.notifications,
            );
            self.notifications = notifications;
        }
    }

    fn count_reset<T>(&self, result: io::Result<T>) -> io::Result<T> {
        if let Err(error) = &result {
            if error.kind() == io::ErrorKind::ConnectionReset {
                self.totals.count(&self.totals.resets, 1);
            }
        }
        result
    }
}

impl Transport for WindowTransport {
    fn read(&mut self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        let start = buffer.len();
        // One byte is enough to find the end.
        let wanted = self.stream.pending().max(1).min(buffer.capacity() - start);
        buffer.resize(start + wanted, 0);
        let received = self.stream.receive(&mut buffer[start..]);
        let count = received.as_ref().map_or(0, |count| *count);
        buffer.truncate(start + count);
        if count > 0 {
            self.totals.count(&self.totals.received, as_u64(count));
        }
        self.count_notifications();
        self.count_reset(received)
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.stream.send(bytes);
        if let Ok(count) = &sent {
            self.totals.count(&self.totals.sent, as_u64(*count));
        }
        self.count_notifications();
        self.count_reset(sent)
    }

    fn readiness(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    fn peer(&self) -> String {
        self.stream.peer().to_string()
    }

    fn is_ready(&self, interest: Interest) -> Option<bool> {
        Some(match wanted(interest) {
            None => false,
            Some(wanted) => {
                self.stream.is_ready(wanted)
                    && (interest != Interest::HangUp || self.stream.is_at_end())
            }
        })
    }

    fn arm_wakeup(&mut self, interest: Interest) -> bool {
        let Some(wanted) = wanted(interest) else {
            return false;
        };
        // For Interest::HangUp received bytes are not enough: only the end of the stream is.
        let is_there =
            self.stream.arm(wanted) && (interest != Interest::HangUp || self.stream.is_at_end());
        if !is_there {
            self.totals.count(&self.totals.sleeps, 1);
        }
        is_there
    }

    fn drain_wakeup(&mut self) -> bool {
        self.stream.drain_wakeups();
        self.stream.is_gone()
    }
}

impl Drop for WindowTransport {
    fn drop(&mut self) {
        self.totals.report();
    }
}

const fn wanted(interest: Interest) -> Option<StreamInterest> {
    let (readable, writable) = match interest {
        Interest::None => return None,
        Interest::Read | Interest::HangUp => (true, false),
        Interest::Write => (false, true),
    };
    Some(StreamInterest { readable, writable })
}

fn key(index: usize) -> u64 {
    u64::try_from(index).unwrap_or(BROKER_KEY - 1)
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

fn is_transient(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
