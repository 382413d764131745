//! What one thread carries.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Receiver;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;

use super::command::{Command, Event};
use super::crowd::Crowd;
use super::end::End;
use super::flows::{Flows, Route};
use super::links::Link;
use super::planes::Voice;
use crate::{Error, ErrorKind, Result};

/// How a plane works.
#[derive(Clone, Copy, Debug)]
pub struct PlaneSettings {
    /// For how long it looks at everything again and again before it sleeps, in nanoseconds.
    pub spin_ns: u64,
    /// For how long a connection on which nothing happens is looked at, in nanoseconds.
    pub hot_ns: u64,
    /// For how long it sleeps at most where a window cannot tell a sleeping side for certain, in nanoseconds.
    pub nap_ns: u64,
}

/// What a plane has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaneTotals {
    /// Connections that were opened.
    pub opened: u64,
    /// Connections that are over.
    pub ended: u64,
    /// Connections that other hosts or lost partitions have reset.
    pub resets: u64,
    /// Bytes that ended connections brought from applications of this host, and to them.
    pub bytes: (u64, u64),
    /// How often it slept.
    pub sleeps: u64,
    /// Connections that there are.
    pub connections: u64,
    /// Frames that its partitions have sent, and received.
    pub frames: (u64, u64),
    /// Bytes of connections that they have sent, and received.
    pub carried: (u64, u64),
    /// Connections in which another host broke the protocol.
    pub breaches: u64,
}

/// The connections and partitions that one thread serves.
#[derive(Debug)]
pub struct Plane {
    settings: PlaneSettings,
    pub(super) commands: Receiver<Command>,
    pub(super) events: Voice,
    wake: Arc<OwnedFd>,
    load: Arc<AtomicU64>,
    pub(super) bells: OwnedFd,
    pub(super) flows: Flows,
    pub(super) links: Vec<Link>,
    slice: Box<[u8]>,
    pub(super) totals: PlaneTotals,
    passes: u64,
    idle_since_ns: Option<u64>,
    crowd: Crowd,
    is_crowded: bool,
    pub(super) is_stopped: bool,
}

/// What of the bells is the plane's own: the rest are keys of connections, twice, and one more for the second end.
const WAKE: u64 = u64::MAX;
/// The bells of partitions, from this number on.
pub(super) const LINKS: u64 = 1 << 40;
/// Every so many passes the bells are looked at without waiting.
const PASSES: u64 = 16;
/// So many bells are answered at once.
const BELLS_MAX: usize = 64;
/// A slice: bytes of a connection within the host that are moved in its turn each way.
const SLICE: usize = 8192;
/// Bytes that are moved within the host before partitions are looked at again, and a turn more.
const PASS_BYTES: usize = 128 * 1024;

impl Default for PlaneSettings {
    fn default() -> Self {
        Self {
            spin_ns: 50_000,
            hot_ns: 50_000,
            nap_ns: 1_000_000,
        }
    }
}

impl PlaneTotals {
    fn add(&mut self, link: &Link) {
        let totals = link.partition.totals();
        self.frames.0 += totals.frames_sent;
        self.frames.1 += totals.frames_received;
        self.carried.0 += totals.bytes_sent;
        self.carried.1 += totals.bytes_received;
        self.breaches += totals.breaches;
    }
}

impl Plane {
    pub(super) fn new(
        settings: PlaneSettings,
        commands: Receiver<Command>,
        events: Voice,
        wake: Arc<OwnedFd>,
        load: Arc<AtomicU64>,
    ) -> Result<Self> {
        let bells = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(refused)?;
        let data = epoll::EventData::new_u64(WAKE);
        epoll::add(&bells, &*wake, data, epoll::EventFlags::IN).map_err(refused)?;
        Ok(Self {
            settings,
            commands,
            events,
            wake,
            load,
            bells,
            flows: Flows::default(),
            links: Vec::new(),
            slice: vec![0; SLICE].into_boxed_slice(),
            totals: PlaneTotals::default(),
            passes: 0,
            idle_since_ns: None,
            crowd: Crowd::default(),
            is_crowded: false,
            is_stopped: false,
        })
    }

    /// Works and sleeps until it is told to stop. `clock` gives nanoseconds that do not go back.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the bells cannot be waited for.
    pub fn run(&mut self, mut clock: impl FnMut() -> u64) -> Result<()> {
        while !self.is_stopped {
            let now_ns = clock();
            self.is_crowded = self.crowd.look(now_ns);
            let (is_busy, due_ns) = self.poll(now_ns);
            if is_busy {
                self.idle_since_ns = None;
                continue;
            }
            let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
            let is_spinning = now_ns.saturating_sub(since_ns) < self.settings.spin_ns;
            if is_spinning && !self.is_crowded {
                self.crowd.leave(now_ns);
                std::thread::yield_now();
                continue;
            }
            self.sleep(now_ns, due_ns)?;
        }
        Ok(())
    }

    /// Does what there is to do, once round. Whether there was anything, and when there will be at the latest.
    pub fn poll(&mut self, now_ns: u64) -> (bool, u64) {
        let mut is_busy = self.obey();
        self.passes += 1;
        if self.passes % PASSES == 0 {
            // What cannot be waited for here is told by the next sleep.
            is_busy |= self.answer(Some(0)).unwrap_or(false);
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
        let (totals, bells) = (&mut self.totals, &self.bells);
        self.links.retain(|link| {
            if link.is_lost() {
                totals.add(link);
                // Others have this bell, too: closing it is not enough.
                if let Some(bell) = &link.bell {
                    let _ = epoll::delete(bells, bell);
                }
            }
            !link.is_lost()
        });
        is_busy |= self.pass(now_ns);
        (is_busy, due_ns.min(self.flows.due_ns().unwrap_or(u64::MAX)))
    }

    /// What it has done.
    #[must_use]
    pub fn totals(&self) -> PlaneTotals {
        let mut totals = self.totals;
        totals.resets = self.flows.resets;
        totals.connections = self.flows.count() as u64;
        for link in &self.links {
            totals.add(link);
        }
        totals
    }

    /// How many connections it has.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.flows.count()
    }

    /// Gives all hot connections their turns; or some, and the others the next time, when many bytes were moved.
    fn pass(&mut self, now_ns: u64) -> bool {
        self.flows.unpace(now_ns);
        let (mut is_busy, mut bytes) = (false, 0);
        for _ in 0..self.flows.hot() {
            let Some(key) = self.flows.next_hot() else {
                break;
            };
            match self.look(key, now_ns) {
                Look::Busy(moved) => {
                    is_busy = true;
                    bytes += moved;
                    self.flows.line_up(key);
                }
                Look::Idle => self.flows.line_up(key),
                Look::Armed => self.flows.let_go(key),
                Look::Over => {
                    is_busy = true;
                    self.end(key);
                }
            }
            if bytes >= PASS_BYTES {
                break;
            }
        }
        is_busy
    }

    fn look(&mut self, key: u32, now_ns: u64) -> Look {
        let Some(flow) = self.flows.get(key) else {
            return Look::Armed;
        };
        let (moved, is_over) = match &mut flow.route {
            Route::Pipe(pipe) => {
                for side in 0..2 {
                    let end = pipe.end(side);
                    if end.is_closing() && !end.is_gone() {
                        end.look_gone();
                    }
                }
                (pipe.step(&mut self.slice, now_ns), pipe.is_over())
            }
            Route::Remote(remote) => {
                let end = remote.end();
                if end.is_closing() && !end.is_gone() {
                    end.look_gone();
                }
                let number = remote.link;
                let link = self.links.iter_mut().find(|link| link.number == number);
                let partition = link.map(|link| &mut link.partition);
                (remote.step(partition).then_some(0), remote.is_over())
            }
        };
        if is_over {
            return Look::Over;
        }
        if let Some(moved) = moved {
            flow.idle_since_ns = None;
            return Look::Busy(moved);
        }
        let since_ns = *flow.idle_since_ns.get_or_insert(now_ns);
        if now_ns.saturating_sub(since_ns) < self.settings.hot_ns && !self.is_crowded {
            return Look::Idle;
        }
        let is_due = match &mut flow.route {
            Route::Pipe(pipe) => pipe.arm(),
            Route::Remote(remote) => remote.arm(),
        };
        if is_due { Look::Idle } else { Look::Armed }
    }

    /// Forgets a connection.
    fn end(&mut self, key: u32) {
        let Some(mut flow) = self.flows.remove(key) else {
            return;
        };
        // Others may hold the same descriptors: closing them is not enough.
        match &mut flow.route {
            Route::Pipe(pipe) => (0..2).for_each(|side| unwatch(&self.bells, pipe.end(side))),
            Route::Remote(remote) => unwatch(&self.bells, remote.end()),
        }
        let bytes = match &flow.route {
            Route::Pipe(pipe) => (pipe.bytes(), pipe.bytes()),
            Route::Remote(remote) => remote.bytes(),
        };
        self.totals.ended += 1;
        self.totals.bytes.0 += bytes.0;
        self.totals.bytes.1 += bytes.1;
        self.count();
        let token = flow.token;
        drop(flow);
        let _ = self.events.send(Event::Ended { token, bytes });
    }

    /// Sleeps until a bell rings or something is due.
    fn sleep(&mut self, now_ns: u64, due_ns: u64) -> Result<()> {
        let mut wait_ns = due_ns.saturating_sub(now_ns);
        // Whoever is hot still is armed, or there is something to do.
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
        self.answer(wait_ns).map(drop)
    }

    /// Answers the bells that ring, waiting so long for one.
    fn answer(&mut self, wait_ns: Option<u64>) -> Result<bool> {
        let timeout = wait_ns.map(|wait_ns| Timespec {
            tv_sec: i64::try_from(wait_ns / 1_000_000_000).unwrap_or(i64::MAX),
            tv_nsec: i64::try_from(wait_ns % 1_000_000_000).expect("less than a second"),
        });
        let mut found = [const { std::mem::MaybeUninit::uninit() }; BELLS_MAX];
        let found = match epoll::wait(&self.bells, &mut found, timeout.as_ref()) {
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
                if let Some(bell) = link.and_then(|link| link.bell.as_ref()) {
                    let _ = rustix::io::read(bell, &mut [0; 8]);
                }
            } else {
                let key = u32::try_from(data / 2).expect("keys are numbers");
                let side = usize::from(data % 2 == 1);
                if let Some(end) = self.flows.end(key, side) {
                    end.answer(flags.contains(epoll::EventFlags::HUP));
                }
                self.serve(key, side);
                self.flows.touch(key);
            }
        }
        Ok(!found.is_empty())
    }

    /// Serves an application as it wants, if it has said something new.
    pub(super) fn serve(&mut self, key: u32, side: usize) {
        let service = self.flows.end(key, side).and_then(End::new_service);
        let Some(service) = service else {
            return;
        };
        self.flows.serve(key, side, service);
        if let Some(Route::Remote(remote)) = self.flows.get(key).map(|flow| &mut flow.route) {
            let number = remote.link;
            if let Some(link) = self.links.iter_mut().find(|link| link.number == number) {
                remote.serve(&mut link.partition, service);
            }
        }
    }

    pub(super) fn count(&self) {
        // A count alone: nothing is ordered by it.
        self.load
            .store(self.flows.count() as u64, Ordering::Relaxed);
    }
}

/// What became of a connection that was looked at.
enum Look {
    /// So many bytes were moved; a partition counts its own.
    Busy(usize),
    Idle,
    Armed,
    Over,
}

pub(super) fn watch(bells: &OwnedFd, end: &End, key: u32, side: u64) -> Result<()> {
    let data = epoll::EventData::new_u64(u64::from(key) * 2 + side);
    let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
    epoll::add(bells, end.as_fd(), data, flags).map_err(refused)
}

pub(super) fn unwatch(bells: &OwnedFd, end: &End) {
    // It was added when the connection was opened, and nobody else takes it out.
    let _ = epoll::delete(bells, end.as_fd());
}

pub(super) fn refused(errno: Errno) -> Error {
    Error::new(ErrorKind::System, "waiting for bells").caused_by(errno)
}
