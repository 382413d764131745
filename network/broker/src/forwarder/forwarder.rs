//! The loop of one forwarder thread.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::command::{Command, Event};
use super::contention::CpuContention;
use super::end::End;
use super::flows::{Flows, Route};
use super::links::Link;
use super::pool::EventSender;
use crate::{Error, ErrorKind, Result};

/// The time settings of a forwarder.
#[derive(Clone, Copy, Debug)]
pub struct ForwarderSettings {
    /// The time of busy polling before a sleep, in nanoseconds.
    pub spin_ns: u64,
    /// The idle time before a connection is armed, in nanoseconds.
    pub hot_ns: u64,
    /// The longest sleep where a window cannot notify reliably, in nanoseconds.
    pub nap_ns: u64,
}

/// The totals of a forwarder since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwarderTotals {
    /// The count of connections opened since the start.
    pub opened: u64,
    /// The count of connections ended since the start.
    pub ended: u64,
    /// Connections that other hosts or lost partitions have reset.
    pub resets: u64,
    /// Bytes of ended connections: from applications of this host, and to them.
    pub bytes: (u64, u64),
    /// Sleeps in the epoll since the start.
    pub sleeps: u64,
    /// The count of connections that are open now.
    pub connections: u64,
    /// Frames that its partitions have sent and received.
    pub frames: (u64, u64),
    /// Bytes that its partitions have sent and received.
    pub forwarded: (u64, u64),
    /// Connections in which another host broke the protocol.
    pub violations: u64,
}

/// The connections and partitions of one thread.
#[derive(Debug)]
pub struct Forwarder {
    settings: ForwarderSettings,
    pub(super) commands: Receiver<Command>,
    pub(super) events: EventSender,
    wake: Arc<OwnedFd>,
    load: Arc<AtomicU64>,
    pub(super) epoll: OwnedFd,
    pub(super) flows: Flows,
    pub(super) links: Vec<Link>,
    slice: Box<[u8]>,
    pub(super) totals: ForwarderTotals,
    passes: u64,
    idle_since_ns: Option<u64>,
    contention: CpuContention,
    is_contended: bool,
    pub(super) is_stopped: bool,
}

/// The epoll token of the forwarder's own eventfd. Tokens of connections are twice the key, plus one for a pipe's
/// second end.
const WAKE: u64 = u64::MAX;
/// The first epoll token of a partition's wake-up fd.
pub(super) const LINKS: u64 = 1 << 40;
/// Passes between two polls of the epoll without a timeout.
const PASSES: u64 = 16;
/// Events that one poll of the epoll returns at most.
const WAKEUPS_MAX: usize = 64;
/// Bytes of a slice: the most that one turn of a local connection moves in each direction.
const SLICE: usize = 8192;
/// Bytes moved within the host before the partitions are polled again; the last turn may exceed it.
const PASS_BYTES: usize = 128 * 1024;

impl Default for ForwarderSettings {
    fn default() -> Self {
        Self {
            spin_ns: 50_000,
            hot_ns: 50_000,
            nap_ns: 1_000_000,
        }
    }
}

impl ForwarderTotals {
    fn add(&mut self, link: &Link) {
        let totals = link.partition.totals();
        self.frames.0 += totals.frames_sent;
        self.frames.1 += totals.frames_received;
        self.forwarded.0 += totals.bytes_sent;
        self.forwarded.1 += totals.bytes_received;
        self.violations += totals.violations;
    }
}

impl Forwarder {
    pub(super) fn new(
        settings: ForwarderSettings,
        commands: Receiver<Command>,
        events: EventSender,
        wake: Arc<OwnedFd>,
        load: Arc<AtomicU64>,
    ) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&epoll, &*wake, data, epoll::EventFlags::IN).map_err(refused)?;
        Ok(Self {
            settings,
            commands,
            events,
            wake,
            load,
            epoll,
            flows: Flows::default(),
            links: Vec::new(),
            slice: vec![0; SLICE].into_boxed_slice(),
            totals: ForwarderTotals::default(),
            passes: 0,
            idle_since_ns: None,
            contention: CpuContention::default(),
            is_contended: false,
            is_stopped: false,
        })
    }

    /// Polls and sleeps until [`Command::Stop`]. `clock` returns monotonic nanoseconds.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if `epoll_wait` fails.
    pub fn run(&mut self, mut clock: impl FnMut() -> u64) -> Result<()> {
        while !self.is_stopped {
            let now_ns = clock();
            self.is_contended = self.contention.is_contended(now_ns);
            let (is_busy, due_ns) = self.poll(now_ns);
            if is_busy {
                self.idle_since_ns = None;
                continue;
            }
            let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
            let is_spinning = now_ns.saturating_sub(since_ns) < self.settings.spin_ns;
            if is_spinning && !self.is_contended {
                self.contention.on_yield(now_ns);
                std::thread::yield_now();
                continue;
            }
            self.sleep(now_ns, due_ns)?;
        }
        Ok(())
    }

    /// Runs one pass over commands, partitions and connections. Returns whether anything was moved, and the latest time
    /// of the next pass in nanoseconds.
    pub fn poll(&mut self, now_ns: u64) -> (bool, u64) {
        let mut is_busy = self.run_commands();
        self.passes += 1;
        if self.passes % PASSES == 0 {
            // An error shows again in the next sleep.
            is_busy |= self.drain_wakeups(Some(0)).unwrap_or(false);
        }
        let mut due_ns = u64::MAX;
        for link in &mut self.links {
            let (is_link_busy, link_due_ns, event) = link.poll(now_ns, &mut self.flows);
            is_busy |= is_link_busy;
            due_ns = due_ns.min(link_due_ns);
            if let Some(event) = event {
                let _ = self.events.send(event);
            }
        }
        let (totals, epoll) = (&mut self.totals, &self.epoll);
        self.links.retain(|link| {
            if link.is_lost() {
                totals.add(link);
                // Duplicates of the fd exist: closing it does not remove it from the epoll.
                if let Some(wakeup) = &link.wakeup {
                    let _ = epoll::delete(epoll, wakeup);
                }
            }
            !link.is_lost()
        });
        is_busy |= self.run_pass(now_ns);
        (is_busy, due_ns.min(self.flows.due_ns().unwrap_or(u64::MAX)))
    }

    /// The totals of the forwarder since its start.
    #[must_use]
    pub fn totals(&self) -> ForwarderTotals {
        let mut totals = self.totals;
        totals.resets = self.flows.resets;
        totals.connections = self.flows.count() as u64;
        for link in &self.links {
            totals.add(link);
        }
        totals
    }

    /// The count of connections that are open now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.flows.count()
    }

    /// Runs the turns of the hot connections, up to [`PASS_BYTES`]. True if bytes were moved or a connection ended.
    fn run_pass(&mut self, now_ns: u64) -> bool {
        self.flows.unpace(now_ns);
        let (mut is_busy, mut bytes) = (false, 0);
        for _ in 0..self.flows.hot() {
            let Some(key) = self.flows.next_hot() else {
                break;
            };
            match self.inspect(key, now_ns) {
                Inspected::Busy(moved) => {
                    is_busy = true;
                    bytes += moved;
                }
                Inspected::Idle => {}
                Inspected::Armed => self.flows.mark_cold(key),
                Inspected::Over => {
                    is_busy = true;
                    self.close_flow(key);
                }
            }
            if bytes >= PASS_BYTES {
                break;
            }
        }
        is_busy
    }

    fn inspect(&mut self, key: u32, now_ns: u64) -> Inspected {
        let Some(flow) = self.flows.get(key) else {
            return Inspected::Armed;
        };
        let (moved, is_over) = match &mut flow.route {
            Route::Pipe(pipe) => {
                for side in 0..2 {
                    let end = pipe.end(side);
                    if end.is_closing() && !end.is_gone() {
                        end.poll_hangup();
                    }
                }
                (pipe.step(&mut self.slice, now_ns), pipe.is_over())
            }
            Route::Remote(remote) => {
                let end = remote.end();
                if end.is_closing() && !end.is_gone() {
                    end.poll_hangup();
                }
                let number = remote.link;
                let link = self.links.iter_mut().find(|link| link.number == number);
                let partition = link.map(|link| &mut link.partition);
                (remote.step(partition).then_some(0), remote.is_over())
            }
        };
        if is_over {
            return Inspected::Over;
        }
        if let Some(moved) = moved {
            flow.idle_since_ns = None;
            return Inspected::Busy(moved);
        }
        let since_ns = *flow.idle_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < self.settings.hot_ns && !self.is_contended {
            return Inspected::Idle;
        }
        let is_due = match &mut flow.route {
            Route::Pipe(pipe) => pipe.arm(),
            Route::Remote(remote) => remote.arm(),
        };
        if is_due {
            Inspected::Idle
        } else {
            Inspected::Armed
        }
    }

    /// Closes a connection that is over.
    fn close_flow(&mut self, key: u32) {
        let Some(mut flow) = self.flows.remove(key) else {
            return;
        };
        // Duplicates of the descriptors exist: closing them does not remove them from the epoll.
        match &mut flow.route {
            Route::Pipe(pipe) => (0..2).for_each(|side| unwatch(&self.epoll, pipe.end(side))),
            Route::Remote(remote) => unwatch(&self.epoll, remote.end()),
        }
        let bytes = match &flow.route {
            Route::Pipe(pipe) => (pipe.bytes(), pipe.bytes()),
            Route::Remote(remote) => remote.bytes(),
        };
        self.totals.ended += 1;
        self.totals.bytes.0 += bytes.0;
        self.totals.bytes.1 += bytes.1;
        self.publish_load();
        let token = flow.token;
        drop(flow);
        let _ = self.events.send(Event::Ended { token, bytes });
    }

    /// Sleeps until a notification arrives or `due_ns`.
    fn sleep(&mut self, now_ns: u64, due_ns: u64) -> Result<()> {
        let mut wait_ns = due_ns.saturating_sub(now_ns);
        // Hot connections are not armed yet.
        if self.flows.hot() > 0 {
            return Ok(());
        }
        for link in &mut self.links {
            if link.partition.arm() {
                return Ok(());
            }
            if !link.can_sleep() {
                wait_ns = wait_ns.min(self.settings.nap_ns);
            }
        }
        self.totals.sleeps += 1;
        let wait_ns = (due_ns != u64::MAX || !self.links.is_empty()).then_some(wait_ns);
        self.drain_wakeups(wait_ns).map(drop)
    }

    /// Waits up to `wait_ns` for notifications and drains them. True if there was one.
    fn drain_wakeups(&mut self, wait_ns: Option<u64>) -> Result<bool> {
        let timeout = wait_ns.map(|wait_ns| Timespec {
            tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(wait_ns % 1_000_000_000).expect("less than a second"),
        });
        let mut found = [const { std::mem::MaybeUninit::uninit() }; WAKEUPS_MAX];
        let found = match epoll::wait(&self.epoll, &mut found, timeout.as_ref()) {
            Ok((found, _)) => &*found,
            Err(Errno::INTR) => &[],
            Err(errno) => return Err(refused(errno)),
        };
        for event in found {
            let (data, flags) = (event.data.u64(), event.flags);
            if data == WAKE {
                let _ = rustix::io::read(&*self.wake, &mut [0; 8]);
            } else if data >= LINKS {
                let number = u32::try_from(data - LINKS).unwrap_or(u32::MAX);
                let link = self.links.iter().find(|link| link.number == number);
                if let Some(wakeup) = link.and_then(|link| link.wakeup.as_ref()) {
                    let _ = rustix::io::read(wakeup, &mut [0; 8]);
                }
            } else {
                let key = u32::try_from(data / 2).expect("keys are numbers");
                let side = usize::from(data % 2 == 1);
                if let Some(end) = self.flows.end(key, side) {
                    end.drain_wakeups(flags.contains(epoll::EventFlags::HUP));
                }
                self.apply_service(key, side);
                self.flows.mark_hot(key);
            }
        }
        Ok(!found.is_empty())
    }

    /// Applies a changed service request of an application.
    pub(super) fn apply_service(&mut self, key: u32, side: usize) {
        let service = self.flows.end(key, side).and_then(End::changed_service);
        let Some(service) = service else {
            return;
        };
        self.flows.set_service(key, side, service);
        if let Some(Route::Remote(remote)) = self.flows.get(key).map(|flow| &mut flow.route) {
            let number = remote.link;
            if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
                remote.set_service(&mut link.partition, service);
            }
        }
    }

    pub(super) fn publish_load(&self) {
        // A statistic: it orders nothing.
        self.load
            .store(self.flows.count() as u64, Ordering::Relaxed);
    }
}

/// The result of a connection's turn.
enum Inspected {
    /// Bytes were moved; 0 if a partition counts them.
    Busy(usize),
    Idle,
    Armed,
    Over,
}

pub(super) fn watch(epoll: &OwnedFd, end: &End, key: u32, side: u64) -> Result<()> {
    let data = epoll::EventData::new_u64(u64::from(key) * 2 + side);
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(epoll, end.as_fd(), data, flags).map_err(refused)
}

pub(super) fn unwatch(epoll: &OwnedFd, end: &End) {
    // It was added when the connection was opened, and is removed here alone.
    let _ = epoll::delete(epoll, end.as_fd());
}

pub(super) fn refused(errno: Errno) -> Error {
    Error::new(ErrorKind::System, "waiting in the forwarder's epoll").caused_by(errno)
}
