//! An epoll set with user-level members.
//!
//! The program's number is the kernel's *outer* set, which has all kernel descriptors, with the program's data. A
//! private *inner* set of the kernel watches the wake-up fds of user-level members, and lies in the outer one: so one
//! wait in the kernel ends by either, and a watcher of the program's number sees the wake-ups too. Beside the wake-up
//! fds the inner set has an eventfd, the *waker*, by which a thread of this process wakes those that sleep in the set.
//!
//! # Access rules
//! `asleep` counts threads blocked or about to block; it is incremented before the final check and decremented after
//! the wake. All else is behind the lock. Locks of nested sets are only tried: the hooks of fork hold all of them, in
//! any order.
//!
//! A signal handler may need a lock that its own thread holds. It records what it cannot leave undone as
//! [`deferred_work`], which the holder of the lock runs at the release.

use std::collections::HashMap;
use std::fs;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicUsize, Ordering};
use std::time::Duration;

use libc::{c_int, epoll_event};

use crate::errno::{Errno, Outcome};
use crate::private_fds;

use super::interest::Interest;
use super::kernel;
use super::kernel_watched::{KernelWatched, NewMember, Word};
use super::lock::Mutex;
use super::members::Members;
use super::poll_target::{PollTarget, Target};
use super::set_guard::deferred_work;
use crate::readiness::{EDGE, ERR, EXCLUSIVE, HUP, IN, OUT, WAKEUP};

/// The inner set's word of the waker.
pub(super) const WAKER: u64 = u64::MAX;

/// An epoll set that this library knows. It lives for ever, and is used again after its end.
#[derive(Debug)]
pub(crate) struct Set<S: 'static> {
    /// Whether the set has, or had, user-level members: then the kernel's set alone does not serve it.
    is_ours: AtomicBool,
    pub(super) asleep: AtomicUsize,
    /// The kernel's sets are the parent's of a fork too.
    pub(super) is_inherited: AtomicBool,
    pub(super) is_open: AtomicBool,
    /// Copy of the waker for threads without the lock; -1 without one.
    waker: AtomicI32,
    pub(super) state: Mutex<State<S>>,
    /// Bits of the module [`deferred_work`] that the next release runs.
    pub(super) deferred: AtomicU32,
    /// The thread that forks has taken the lock for that.
    pub(super) is_kept: AtomicBool,
    pub(super) next: AtomicPtr<Self>,
}

/// State of a set under its lock.
#[derive(Debug)]
pub(super) struct State<S: 'static> {
    /// Number of the set, as last used by the program.
    pub(super) outer: RawFd,
    /// -1 before the first user-level member, as for the waker.
    pub(super) inner: RawFd,
    pub(super) waker: RawFd,
    pub(super) members: Members<S>,
    pub(super) kernel_watched: KernelWatched<S>,
    /// Interests in stream sockets of the kernel's, which may become user-level: by number, events and data.
    pub(super) remembered: HashMap<RawFd, (u32, u64)>,
    /// There may be descriptors in the outer set that only the kernel knows.
    pub(super) has_kernel: bool,
    /// Some members are other processes' too: sleeps are short.
    pub(super) has_shared: bool,
    /// Waits that began since the kernel was looked at, and when that was.
    pub(super) waits: u32,
    pub(super) looked_at: Duration,
    /// Calls of this process that the last look saw.
    pub(super) touched: u32,
    /// The number of the current pass.
    pub(super) stamp: u64,
    /// The last broadcast that was heeded.
    pub(super) seen_note: u64,
}

impl<S: PollTarget> Set<S> {
    pub(super) fn new() -> Self {
        Self {
            is_ours: AtomicBool::new(false),
            asleep: AtomicUsize::new(0),
            is_inherited: AtomicBool::new(false),
            is_open: AtomicBool::new(true),
            waker: AtomicI32::new(-1),
            state: Mutex::new(State::new()),
            deferred: AtomicU32::new(0),
            is_kept: AtomicBool::new(false),
            next: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Prepares a free set. `has_kernel` says that the kernel's set may have members already.
    pub(super) fn open(&self, outer: RawFd, has_kernel: bool) {
        // No other thread uses a set before it is open.
        if let Ok(mut state) = self.lock() {
            state.outer = outer;
            state.has_kernel = has_kernel;
            state.seen_note = S::sets().last_note();
        }
    }

    /// Whether waits must come here; if not, the kernel's set is all there is.
    #[inline]
    pub(crate) fn is_ours(&self) -> bool {
        self.is_ours.load(Ordering::SeqCst)
    }

    /// Closes the set, after its last number closed and the last call returned.
    pub(crate) fn close(&self) {
        // In a signal handler above a pass of another set: the set leaks.
        let Ok(mut state) = self.lock() else {
            return;
        };
        state.members.clear();
        state.kernel_watched.clear();
        self.waker.store(-1, Ordering::Release);
        state.close_hidden();
        *state = State::new();
        drop(state);
        self.is_ours.store(false, Ordering::Relaxed);
        self.is_inherited.store(false, Ordering::Relaxed);
        self.asleep.store(0, Ordering::Relaxed);
        self.is_open.store(false, Ordering::Release);
    }

    /// `epoll_ctl`. The event is there unless the operation is to delete.
    ///
    /// # Errors
    /// As the kernel's: `EEXIST`, `ENOENT`, `EINVAL`, and its own errors for its descriptors.
    pub(crate) fn control(
        &self,
        outer: RawFd,
        operation: c_int,
        fd: RawFd,
        target: Target<S>,
        event: Option<epoll_event>,
    ) -> Outcome<()> {
        let mut state = self.lock()?;
        state.outer = outer;
        if target.is_kernel() && !self.is_ours() {
            return state.control_kernel(operation, fd, event);
        }
        self.own(&mut state)?;
        match target {
            Target::Kernel => state.control_kernel(operation, fd, event)?,
            Target::Source(source) => {
                check_events(operation, event)?;
                if operation == libc::EPOLL_CTL_ADD {
                    state.make_inner()?;
                    self.waker.store(state.waker, Ordering::Release);
                    self.is_ours.store(true, Ordering::SeqCst);
                }
                state.control_source(operation, fd, source, event)?;
            }
            Target::Listener(entry) => {
                self.is_ours.store(true, Ordering::SeqCst);
                let new_member = NewMember::Listener(entry);
                state.control_kernel_watched(operation, fd, entry, &new_member, event)?;
            }
            Target::Set(entry, set) => {
                self.is_ours.store(true, Ordering::SeqCst);
                let new_member = NewMember::Nested(entry, set);
                state.control_kernel_watched(operation, fd, entry, &new_member, event)?;
                // Threads that sleep here do not sleep for the members of the new set yet.
                if self.asleep.load(Ordering::SeqCst) > 0 {
                    state.wake();
                }
            }
        }
        self.settle(&mut state, None);
        Ok(())
    }

    /// Arms hot members for the threads that sleep in this set, and wakes one if an event is there.
    pub(super) fn settle(&self, state: &mut State<S>, reported: Option<u64>) {
        if self.asleep.load(Ordering::SeqCst) == 0 || !state.members.has_hot() {
            return;
        }
        let found = state.members.arm_all(state.inner, reported);
        state.has_shared |= found.is_unsure;
        if found.is_ready {
            state.wake();
        }
    }

    /// In the child of a fork: kernel's sets of its own, under the same number.
    pub(super) fn own(&self, state: &mut State<S>) -> Outcome<()> {
        if self.is_inherited.load(Ordering::Relaxed) {
            self.waker.store(-1, Ordering::Release);
            state.take_over()?;
            self.waker.store(state.waker, Ordering::Release);
            self.is_inherited.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether a sleep for this set must be short.
    pub(crate) fn is_unsure(&self) -> bool {
        self.try_lock().is_none_or(|state| state.has_shared)
    }

    /// Signals the waker without the lock, which another thread or this one holds.
    pub(super) fn wake_unlocked(&self) {
        let waker = self.waker.load(Ordering::Acquire);
        if waker >= 0 {
            kernel::signal_eventfd(waker);
        }
    }

    /// Removes all interests in an entry whose last number is about to close.
    pub(super) fn forget(&self, entry: &'static S) {
        let Ok(mut state) = self.lock() else {
            self.defer(deferred_work::SWEEP);
            return;
        };
        let (inner, outer) = self.own_sets(&state);
        state.members.forget(entry, inner);
        state.kernel_watched.forget(outer, entry);
    }

    /// Removes the kernel's interest in this number; returns its events and data, if there was one.
    pub(super) fn withdraw(&self, fd: RawFd) -> Option<(u32, u64)> {
        let mut state = self.lock().ok()?;
        let interest = state.remembered.remove(&fd)?;
        self.own(&mut state).ok()?;
        // The interest may be of an earlier descriptor with this number.
        kernel::epoll_delete(state.outer, fd).ok()?;
        Some(interest)
    }

    /// Adds a withdrawn interest to the new target of the number.
    pub(super) fn restore(&self, fd: RawFd, target: Target<S>, interest: (u32, u64)) {
        let event = epoll_event {
            events: interest.0,
            u64: interest.1,
        };
        let Ok(outer) = self.lock().map(|state| state.outer) else {
            return;
        };
        // The interest was there before, so that no caller waits for an error.
        let _ = self.control(outer, libc::EPOLL_CTL_ADD, fd, target, Some(event));
    }

    /// Whether this thread has the lock.
    pub(super) fn is_own(&self) -> bool {
        self.state.is_own()
    }

    /// Updates the channel of a listener, or removes it.
    pub(super) fn change_channel(&self, entry: &'static S) {
        let Ok(mut state) = self.lock() else {
            return;
        };
        if self.own(&mut state).is_ok() {
            let outer = state.outer;
            state.kernel_watched.change_channel(outer, entry);
        }
    }
}

impl<S: PollTarget> State<S> {
    fn new() -> Self {
        Self {
            outer: -1,
            inner: -1,
            waker: -1,
            members: Members::new(),
            kernel_watched: KernelWatched::new(),
            remembered: HashMap::new(),
            has_kernel: false,
            has_shared: false,
            waits: 0,
            looked_at: Duration::ZERO,
            touched: 0,
            stamp: 0,
            seen_note: 0,
        }
    }

    fn close_hidden(&mut self) {
        for fd in [self.inner, self.waker] {
            if fd >= 0 {
                private_fds::close(fd);
            }
        }
        (self.inner, self.waker) = (-1, -1);
    }

    /// Signals the waker: one thread that sleeps in the set makes another pass.
    pub(super) fn wake(&self) {
        if self.waker >= 0 {
            kernel::signal_eventfd(self.waker);
        }
    }

    fn make_inner(&mut self) -> Outcome<()> {
        if self.inner >= 0 {
            return Ok(());
        }
        let made = self.try_make_inner();
        if made.is_err() {
            self.close_hidden();
        }
        made
    }

    fn try_make_inner(&mut self) -> Outcome<()> {
        self.inner = kernel::epoll_create()?;
        self.waker = kernel::eventfd()?;
        kernel::epoll_add(self.inner, self.waker, IN | EDGE, WAKER)?;
        kernel::epoll_add(self.outer, self.inner, IN, self.kernel_watched.inner_word())
    }

    fn control_source(
        &mut self,
        operation: c_int,
        fd: RawFd,
        source: &'static S,
        event: Option<epoll_event>,
    ) -> Outcome<()> {
        match (operation, event) {
            (libc::EPOLL_CTL_ADD, Some(event)) => self
                .members
                .add(source, Interest::new(fd, event.events, event.u64)),
            (libc::EPOLL_CTL_MOD, Some(event)) => {
                self.members.modify(fd, source, event.events, event.u64)
            }
            (libc::EPOLL_CTL_DEL, _) => self.members.remove(fd, source, self.inner),
            _ => Err(Errno(libc::EINVAL)),
        }
    }

    fn control_kernel_watched(
        &mut self,
        operation: c_int,
        fd: RawFd,
        entry: &'static S,
        new_member: &NewMember<S>,
        event: Option<epoll_event>,
    ) -> Outcome<()> {
        let result = match (operation, event) {
            (libc::EPOLL_CTL_ADD, Some(event)) => {
                let interest = Interest::new(fd, event.events, event.u64);
                return self.kernel_watched.add(self.outer, new_member, interest);
            }
            (libc::EPOLL_CTL_MOD, Some(event)) => {
                self.kernel_watched
                    .modify(self.outer, fd, entry, event.events, event.u64)
            }
            (libc::EPOLL_CTL_DEL, _) => self.kernel_watched.remove(self.outer, fd, entry),
            _ => Err(Errno(libc::EINVAL)),
        };
        if result == Err(Errno(libc::ENOENT)) {
            // The descriptor may have joined the kernel's set before it became user-level.
            return self.control_kernel(operation, fd, event);
        }
        result
    }

    fn control_kernel(
        &mut self,
        operation: c_int,
        fd: RawFd,
        event: Option<epoll_event>,
    ) -> Outcome<()> {
        let mut copy = event;
        let place = copy.as_mut().map_or(ptr::null_mut(), ptr::from_mut);
        // SAFETY: an event of our own, or none.
        unsafe { kernel::epoll_ctl(self.outer, operation, fd, place) }?;
        match (operation, event) {
            (libc::EPOLL_CTL_ADD, Some(event)) => {
                self.has_kernel = true;
                if kernel::is_inet_stream(fd) {
                    self.remembered.insert(fd, (event.events, event.u64));
                } else {
                    self.remembered.remove(&fd);
                }
            }
            (libc::EPOLL_CTL_MOD, Some(event)) => {
                if let Some(known) = self.remembered.get_mut(&fd) {
                    *known = (event.events, event.u64);
                }
            }
            _ => {
                self.remembered.remove(&fd);
            }
        }
        Ok(())
    }

    /// Makes the kernel's sets this process's own, from the kernel's list of the outer one. Interests in descriptors
    /// that are closed here are not carried over.
    fn take_over(&mut self) -> Outcome<()> {
        let list = fs::read_to_string(format!("/proc/self/fdinfo/{}", self.outer));
        let list = list.map_err(|error| Errno(error.raw_os_error().unwrap_or(libc::EIO)))?;
        let flags = kernel::descriptor_flags(self.outer) & libc::FD_CLOEXEC;
        let flags = if flags == 0 { 0 } else { libc::O_CLOEXEC };
        let new = kernel::epoll_create()?;
        let replaced = kernel::replace(new, self.outer, flags);
        private_fds::close(new);
        replaced?;
        for (fd, events, data) in list.lines().filter_map(parse_interest) {
            if self.kernel_watched.word(data).is_none() {
                let _ = kernel::epoll_add(self.outer, fd, events, data);
            }
        }
        self.kernel_watched.start_over(self.outer);
        let had_inner = self.inner >= 0;
        self.close_hidden();
        if had_inner {
            self.make_inner()?;
        }
        self.members.start_over();
        Ok(())
    }

    /// Reads the events of the inner set.
    pub(super) fn absorb(&mut self) {
        const ROOM: usize = 32;
        if self.inner < 0 {
            return;
        }
        loop {
            let mut news = [epoll_event { events: 0, u64: 0 }; ROOM];
            // SAFETY: the array is as long as it says.
            let count = unsafe { kernel::epoll_look(self.inner, news.as_mut_ptr(), ROOM) };
            let count = count.unwrap_or(0);
            for event in &news[..count.min(ROOM)] {
                match event.u64 {
                    WAKER => kernel::drain_eventfd(self.waker),
                    index => self
                        .members
                        .notified(usize::try_from(index).unwrap_or(usize::MAX)),
                }
            }
            if count < ROOM {
                return;
            }
        }
    }

    /// Meaning of a word from the kernel, if it is a tagged one.
    #[inline]
    pub(super) fn word(&self, data: u64) -> Option<Word> {
        self.kernel_watched.word(data)
    }
}

/// A line of the kernel's list: `tfd:        5 events:       19 data:               2a  pos:0 ino:2 sdev:9`.
fn parse_interest(line: &str) -> Option<(RawFd, u32, u64)> {
    let mut words = line.split_whitespace();
    let mut after = |name: &str| words.next().filter(|word| *word == name).and(words.next());
    let fd = after("tfd:")?.parse().ok()?;
    let events = u32::from_str_radix(after("events:")?, 16).ok()?;
    let data = u64::from_str_radix(after("data:")?, 16).ok()?;
    Some((fd, events, data))
}

/// Checks an event as the kernel does, before a search for the descriptor in the set.
fn check_events(operation: c_int, event: Option<epoll_event>) -> Outcome<()> {
    const WITH_EXCLUSIVE: u32 = IN | OUT | ERR | HUP | WAKEUP | EDGE | EXCLUSIVE;
    let events = event.map_or(0, |event| event.events);
    if events & EXCLUSIVE == 0 || operation == libc::EPOLL_CTL_DEL {
        return Ok(());
    }
    if operation == libc::EPOLL_CTL_MOD || events & !WITH_EXCLUSIVE != 0 {
        return Err(Errno(libc::EINVAL));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let line = "tfd:        5 events: 80000019 data: ffffffff00000005  pos:0 ino:2 sdev:9";
        assert_eq!(
            parse_interest(line),
            Some((5, 0x8000_0019, 0xffff_ffff_0000_0005))
        );
        assert_eq!(parse_interest("flags:\t02"), None);
    }
}
