//! The user-level members of a set: those that are polled, and those whose peers notify.
//!
//! # States of a member
//! - *hot*: in the set that each pass polls, by loads. A member begins hot, and becomes hot again when its wake-up fd
//!   is readable, when its interest changes, or when another thread read its wake-ups.
//! - *armed*: its peer notifies at the next arrival (or freed room), and the private inner set of the kernel reports
//!   that. It was idle for many passes among many, or before its waiter slept.
//! - *parked*: neither polled nor armed, as after a one-shot report, or after its last interest was deleted. A
//!   modification makes it hot.
//!
//! # Invariants
//! 1. A member that is neither hot nor parked was armed after its last report, and a poll after that found nothing to
//!    report: any later event notifies.
//! 2. A pass without room for more ends before a member that it has not visited, and the next pass begins there: each
//!    of more ready members than the room has its turn.

use std::collections::HashMap;
use std::os::fd::RawFd;

use millrace_sync::HotSet;

use crate::errno::{Errno, Outcome};

use super::events::Events;
use super::interest::{Interest, Look};
use super::kernel;
use super::poll_target::PollTarget;
use crate::readiness::{EDGE, IN};

/// Number of hot members below which none is armed for idleness.
const SPARED: usize = 128;
/// Number of idle passes after which a member is armed, if there are more than [`SPARED`].
const IDLE_PASSES: u32 = 64;

/// A source and all interests in it, one for each number of the program's.
#[derive(Debug)]
struct Member<S: 'static> {
    source: &'static S,
    /// The number under which the inner set watches its wake-up fd.
    wakeup_fd: Option<RawFd>,
    idle: u32,
    /// Index of the interest that is reported next.
    turn: usize,
    /// Number of the last pass that reported it.
    stamp: u64,
    interests: Vec<Interest>,
}

impl<S: PollTarget> Member<S> {
    fn look(&self) -> Look {
        let is_edge = self.interests.iter().any(Interest::is_edge);
        let progress = if is_edge {
            self.source.progress()
        } else {
            (0, 0)
        };
        Look {
            progress,
            ready: self.source.ready(),
        }
    }

    fn is_parked(&self) -> bool {
        !self.interests.iter().any(Interest::is_enabled)
    }

    /// True if something is to be reported.
    fn has_offer(&mut self, look: Look) -> bool {
        // All interests see the look, as an edge begins where bits were cleared.
        let offers = self
            .interests
            .iter_mut()
            .map(|interest| interest.offer(look));
        offers.fold(0, |all, ready| all | ready) != 0
    }
}

/// Result of the visit to a hot member.
enum Visit {
    Reported,
    Idle,
    Parked,
    NoRoom,
}

/// Result of arming hot members before a sleep.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Armed {
    /// Something is to be reported: do not sleep.
    pub(crate) is_ready: bool,
    /// Whether a member could not be armed, or another process may read its wake-ups: the sleep must be short.
    pub(crate) is_unsure: bool,
}

/// All user-level members of a set.
#[derive(Debug)]
pub(crate) struct Members<S: 'static> {
    slots: Vec<Option<Member<S>>>,
    free: Vec<usize>,
    by_source: HashMap<usize, usize>,
    /// Indices of the hot members.
    hot: HotSet<usize>,
}

impl<S: PollTarget> Members<S> {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            by_source: HashMap::new(),
            hot: HotSet::new(),
        }
    }

    pub(crate) fn has_hot(&self) -> bool {
        !self.hot.is_empty()
    }

    /// True if some members are found through the kernel alone.
    pub(crate) fn has_cold(&self) -> bool {
        self.hot.len() < self.by_source.len()
    }

    fn member(&mut self, index: usize) -> Option<&mut Member<S>> {
        self.slots.get_mut(index)?.as_mut()
    }

    fn known(&mut self, index: usize) -> &mut Member<S> {
        self.member(index)
            .expect("lists hold indices of members alone")
    }

    /// True if there is an interest in this source under this number.
    pub(crate) fn has(&self, fd: RawFd, source: &'static S) -> bool {
        let slot = self
            .by_source
            .get(&source.key())
            .and_then(|index| self.slots.get(*index));
        slot.and_then(Option::as_ref)
            .is_some_and(|member| member.interests.iter().any(|interest| interest.fd == fd))
    }

    pub(crate) fn add(&mut self, source: &'static S, interest: Interest) -> Outcome<()> {
        if self.has(interest.fd, source) {
            return Err(Errno(libc::EEXIST));
        }
        let index = match self.by_source.get(&source.key()) {
            Some(index) => *index,
            None => self.admit(source),
        };
        self.known(index).interests.push(interest);
        self.heat(index);
        Ok(())
    }

    fn admit(&mut self, source: &'static S) -> usize {
        source.hold(true);
        source.watch(true);
        let member = Member {
            source,
            wakeup_fd: None,
            idle: 0,
            turn: 0,
            stamp: 0,
            interests: Vec::with_capacity(1),
        };
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(member);
        self.by_source.insert(source.key(), index);
        index
    }

    pub(crate) fn modify(
        &mut self,
        fd: RawFd,
        source: &'static S,
        events: u32,
        data: u64,
    ) -> Outcome<()> {
        let index = self.index(source)?;
        let interests = &mut self.known(index).interests;
        let interest = interests.iter_mut().find(|interest| interest.fd == fd);
        let interest = interest.ok_or(Errno(libc::ENOENT))?;
        if interest.is_exclusive() {
            return Err(Errno(libc::EINVAL));
        }
        interest.modify(events, data);
        self.heat(index);
        Ok(())
    }

    fn index(&self, source: &'static S) -> Outcome<usize> {
        self.by_source
            .get(&source.key())
            .copied()
            .ok_or(Errno(libc::ENOENT))
    }

    pub(crate) fn remove(&mut self, fd: RawFd, source: &'static S, inner: RawFd) -> Outcome<()> {
        let index = self.index(source)?;
        let interests = &mut self.known(index).interests;
        let place = interests.iter().position(|interest| interest.fd == fd);
        interests.remove(place.ok_or(Errno(libc::ENOENT))?);
        if interests.is_empty() {
            let member = self.known(index);
            if member.wakeup_fd == Some(member.source.wakeup_fd()) {
                // Programs delete and add in turns: the wake-up fd stays watched, the member is parked.
                self.hot.remove(index);
            } else {
                self.dismiss(index, inner);
            }
        }
        Ok(())
    }

    /// Removes all interests in the source.
    pub(crate) fn forget(&mut self, source: &'static S, inner: RawFd) {
        if let Ok(index) = self.index(source) {
            self.dismiss(index, inner);
        }
    }

    /// Removes all members that this process has closed.
    pub(crate) fn sweep(&mut self, inner: RawFd) {
        for index in 0..self.slots.len() {
            let member = self.slots[index].as_ref();
            if member.is_some_and(|member| member.source.is_closed()) {
                self.dismiss(index, inner);
            }
        }
    }

    /// Removes all members of the set.
    pub(crate) fn clear(&mut self) {
        for index in 0..self.slots.len() {
            if self.slots[index].is_some() {
                self.dismiss(index, -1);
            }
        }
    }

    fn dismiss(&mut self, index: usize, inner: RawFd) {
        self.hot.remove(index);
        let Some(member) = self.slots[index].take() else {
            return;
        };
        // If the wake-up fd has another number by now, this number may be another file's; the registration then ends
        // with the wake-up fd itself.
        if let Some(wakeup_fd) = member
            .wakeup_fd
            .filter(|wakeup_fd| inner >= 0 && *wakeup_fd == member.source.wakeup_fd())
        {
            let _ = kernel::epoll_delete(inner, wakeup_fd);
        }
        self.by_source.remove(&member.source.key());
        self.free.push(index);
        member.source.watch(false);
        member.source.hold(false);
    }

    /// Makes a member hot.
    pub(crate) fn heat(&mut self, index: usize) {
        let Some(member) = self.member(index) else {
            return;
        };
        member.idle = 0;
        self.hot.insert(index);
    }

    /// True if the source of this key is a member.
    pub(crate) fn has_key(&self, key: usize) -> bool {
        self.by_source.contains_key(&key)
    }

    pub(crate) fn heat_source(&mut self, key: usize) {
        if let Some(index) = self.by_source.get(&key) {
            self.heat(*index);
        }
    }

    pub(crate) fn heat_all(&mut self) {
        for index in 0..self.slots.len() {
            self.heat(index);
        }
    }

    /// Makes members hot whose wake-ups other processes may have read; true if there are any.
    pub(crate) fn heat_shared(&mut self) -> bool {
        let mut found = false;
        for index in 0..self.slots.len() {
            if self
                .member(index)
                .is_some_and(|member| member.source.is_shared())
            {
                self.heat(index);
                found = true;
            }
        }
        found
    }

    /// Counts the members' watchers again, in the child of a fork.
    pub(crate) fn count_anew(&self) {
        for member in self.slots.iter().flatten() {
            member.source.watch(true);
        }
    }

    /// In the child of a fork, with an inner set of its own.
    pub(crate) fn start_over(&mut self) {
        for member in self.slots.iter_mut().flatten() {
            member.wakeup_fd = None;
        }
        self.heat_all();
    }

    /// Makes a member hot whose wake-up fd is readable.
    pub(crate) fn notified(&mut self, index: usize) {
        let Some(member) = self.member(index) else {
            return;
        };
        let source = member.source;
        source.take_wakeups();
        self.heat(index);
    }

    /// One pass: reports ready members, as far as there is room.
    pub(crate) fn collect(&mut self, inner: RawFd, stamp: u64, out: &mut Events) {
        let is_crowded = self.hot.len() > SPARED && inner >= 0;
        for _ in 0..self.hot.len() {
            let Some(index) = self.hot.front() else {
                break;
            };
            let is_leaving = match self.visit(index, stamp, out) {
                Visit::NoRoom => break,
                Visit::Reported => false,
                Visit::Idle => is_crowded && self.known(index).idle >= IDLE_PASSES,
                Visit::Parked => true,
            };
            self.hot.rotate();
            if is_leaving {
                self.arm(index, inner);
            }
        }
    }

    fn visit(&mut self, index: usize, stamp: u64, out: &mut Events) -> Visit {
        if out.room() == 0 {
            return Visit::NoRoom;
        }
        let member = self.known(index);
        let look = member.look();
        let count = member.interests.len();
        let mut visit = Visit::Idle;
        for step in 0..count {
            let turn = (member.turn + step) % count;
            let interest = &mut member.interests[turn];
            let ready = interest.offer(look);
            if ready == 0 {
                continue;
            }
            if out.room() == 0 {
                member.turn = turn;
                return Visit::NoRoom;
            }
            interest.take(look, ready);
            out.push(ready, interest.data);
            member.stamp = stamp;
            visit = Visit::Reported;
        }
        match visit {
            Visit::Idle if member.is_parked() => Visit::Parked,
            Visit::Idle => {
                member.idle = member.idle.saturating_add(1);
                Visit::Idle
            }
            _ => {
                member.idle = 0;
                visit
            }
        }
    }

    /// Arms a hot member. It is hot no more if nothing was found, and its peer is sure to notify.
    fn arm(&mut self, index: usize, inner: RawFd) -> Armed {
        let member = self.known(index);
        if member.is_parked() {
            self.hot.remove(index);
            return Armed::default();
        }
        member.idle = 0;
        let wakeup_fd = member.source.wakeup_fd();
        if member.wakeup_fd != Some(wakeup_fd) {
            let data = u64::try_from(index).expect("fewer members than descriptors");
            match kernel::epoll_add(inner, wakeup_fd, IN | EDGE, data) {
                Ok(()) | Err(Errno(libc::EEXIST)) => member.wakeup_fd = Some(wakeup_fd),
                Err(_) => member.wakeup_fd = None,
            }
        }
        let before = member.source.ready();
        let awaited = member
            .interests
            .iter()
            .fold(0, |all, one| all | one.awaits(before));
        let progress = member.source.progress();
        let ready = member.source.arm(awaited);
        let found = Armed {
            is_ready: member.has_offer(Look { progress, ready }),
            is_unsure: member.wakeup_fd.is_none() || member.source.is_shared(),
        };
        if !found.is_ready && member.wakeup_fd.is_some() {
            self.hot.remove(index);
        }
        found
    }

    /// Arms all hot members, before a sleep, or for other sleepers while this thread leaves with the events of the pass
    /// `reported`, for which they need not wake.
    pub(crate) fn arm_all(&mut self, inner: RawFd, reported: Option<u64>) -> Armed {
        let mut found = Armed::default();
        for _ in 0..self.hot.len() {
            let Some(index) = self.hot.front() else {
                break;
            };
            self.hot.rotate();
            let is_known = reported == Some(self.known(index).stamp);
            let one = self.arm(index, inner);
            found.is_ready |= one.is_ready && !is_known;
            found.is_unsure |= one.is_unsure;
        }
        found
    }

    /// True if something is to be reported; nothing is taken as reported.
    pub(crate) fn has_offer(&mut self) -> bool {
        let Self { slots, hot, .. } = self;
        hot.iter().any(|index| {
            slots[index].as_mut().is_some_and(|member| {
                let look = member.look();
                member.has_offer(look)
            })
        })
    }
}
