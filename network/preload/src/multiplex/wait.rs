//! The loop of `epoll_wait`.
//!
//! A wait is: a pass (the hot members by loads; the kernel now and then); spinning passes; then a sleep: arm the hot
//! members, check once more, wait in the kernel for all of them, read the wake-ups, and pass again.
//!
//! The kernel is looked at before anything is reported in every sixteenth wait, 50 microseconds after the last time,
//! or if this process has done something to a descriptor of the kernel's since; so user-level members which are always
//! ready do not hide the kernel's. Half of the room is the kernel's then.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::calls::cancel;
use crate::clock;
use crate::errno::Outcome;
use crate::lost_channels;
use crate::reregister;

use super::events::Events;
use super::kernel_watched::Word;
use super::poll_target::PollTarget;
use super::set::{Set, State};
use super::sets::{Note, Sets};
use super::spin::Spin;
use super::{kernel, touched};

/// Number of waits from one look at the kernel to the next, and the longest time between two.
const LOOK_EVERY: u32 = 16;
const LOOK_AFTER: Duration = Duration::from_micros(50);
/// The same for spinning passes, which lose only time by a look.
const SPIN_LOOK_EVERY: u32 = 16;
const SPIN_LOOK_AFTER: Duration = Duration::from_micros(10);
/// Longest sleep while other processes may read the wake-ups, or without a wake-up fd.
pub(super) const SHORT: Duration = Duration::from_millis(10);

/// End of a wait; `None` is never.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline(Option<Duration>);

impl Deadline {
    pub(crate) fn after(timeout: Option<Duration>) -> Self {
        Self(timeout.and_then(|timeout| clock::now().checked_add(timeout)))
    }

    /// Remaining time; zero at the end.
    pub(crate) fn left(self) -> Option<Duration> {
        self.0.map(|end| end.saturating_sub(clock::now()))
    }

    pub(crate) fn is_over(self) -> bool {
        self.left() == Some(Duration::ZERO)
    }
}

/// Kind of a pass.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PollMode {
    First,
    Spinning,
    /// The kernel is looked at in any case.
    Full,
}

/// How long a sleep may be.
#[derive(Clone, Copy)]
struct Sleep {
    /// Other processes may read the wake-ups.
    is_short: bool,
    /// A listener is without a channel, and its next one does not wake the thread.
    is_disconnected: bool,
}

/// State after a pass.
#[derive(Clone, Copy)]
struct Passed {
    has_hot: bool,
    has_looked: bool,
}

impl<S: PollTarget> Set<S> {
    /// `epoll_wait` and its like: the count of events.
    ///
    /// # Errors
    /// `EINTR` after a signal; errors of the kernel's `epoll_pwait2`.
    ///
    /// # Safety
    /// `mask` is null or a signal mask.
    pub(crate) unsafe fn wait(
        &self,
        outer: RawFd,
        mut out: Events,
        timeout: Option<Duration>,
        mask: *const libc::sigset_t,
    ) -> Outcome<usize> {
        let passed = self.pass(outer, &mut out, PollMode::First)?;
        if out.count() > 0 {
            return Ok(out.count());
        }
        if timeout == Some(Duration::ZERO) {
            if !passed.has_looked {
                self.pass(outer, &mut out, PollMode::Full)?;
            }
            if out.count() == 0 {
                reregister::announce();
            }
            return Ok(out.count());
        }
        let deadline = Deadline::after(timeout);
        if passed.has_hot {
            let mut spin = Spin::begin();
            while spin.again() {
                self.pass(outer, &mut out, PollMode::Spinning)?;
                if out.count() > 0 {
                    spin.hit();
                    return Ok(out.count());
                }
            }
        }
        loop {
            reregister::announce();
            // SAFETY: `mask` is null or a signal mask, as this function asks for.
            unsafe { self.sleep(outer, &mut out, deadline, mask) }?;
            if out.count() > 0 || deadline.is_over() {
                return Ok(out.count());
            }
        }
    }

    fn pass(&self, outer: RawFd, out: &mut Events, kind: PollMode) -> Outcome<Passed> {
        let mut state = self.lock()?;
        state.outer = outer;
        self.own(&mut state)?;
        state.begin_pass();
        if state.has_shared && kind != PollMode::Spinning {
            state.members.heat_shared();
        }
        let has_looked = state.is_look_due(kind);
        if has_looked {
            let room = if state.members.has_hot() {
                out.room().div_ceil(2)
            } else {
                out.room()
            };
            // SAFETY: not more than the room there is.
            let count = unsafe { kernel::epoll_look(outer, out.next(), room) }?;
            state.report(out, count);
        }
        state.collect(out);
        let stamp = state.stamp;
        if kind != PollMode::Spinning || out.count() > 0 {
            self.settle(&mut state, Some(stamp));
        }
        Ok(Passed {
            has_hot: state.members.has_hot(),
            has_looked,
        })
    }

    /// Sleeps once, unless an event is there, and reports the events after it.
    ///
    /// # Safety
    /// `mask` is null or a signal mask.
    unsafe fn sleep(
        &self,
        outer: RawFd,
        out: &mut Events,
        deadline: Deadline,
        mask: *const libc::sigset_t,
    ) -> Outcome<()> {
        let asleep = cancel::Sleep::begin()?;
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let sleep = self.prepare();
        let woken = match sleep {
            // Something is there already.
            None => Ok(0),
            Some(sleep) => {
                let left = deadline.left();
                let left = if sleep.is_short {
                    Some(left.unwrap_or(SHORT).min(SHORT))
                } else if sleep.is_disconnected {
                    Some(lost_channels::shortened(left))
                } else {
                    reregister::limit(left)
                };
                // SAFETY: the room is that of the program's array, and `wait` passes a mask that is null or valid.
                asleep
                    .ended(unsafe { kernel::epoll_wait(outer, out.next(), out.room(), left, mask) })
            }
        };
        let state = self.lock();
        self.wake_up();
        let mut state = state?;
        state.kernel_watched.sleep(false);
        let woken = woken?;
        state.begin_pass();
        if sleep.is_some_and(|sleep| sleep.is_short) && woken == 0 {
            state.absorb();
        }
        state.report(out, woken);
        state.looked_at = if state.is_mixed() {
            clock::now()
        } else {
            Duration::ZERO
        };
        state.collect(out);
        let stamp = state.stamp;
        self.settle(&mut state, Some(stamp));
        Ok(())
    }

    /// Arms all members; `None` if an event is there, otherwise the kind of sleep.
    fn prepare(&self) -> Option<Sleep> {
        let Ok(mut state) = self.lock() else {
            return None;
        };
        // After `asleep` was counted: a later note finds this sleeper.
        state.apply_notes();
        if state.has_shared {
            state.has_shared = state.members.heat_shared();
            if !state.has_shared {
                // The other processes exited, perhaps after they read wake-ups.
                state.members.heat_all();
            }
        }
        let inner = state.inner;
        let found = state.members.arm_all(inner, None);
        state.has_shared |= found.is_unsure;
        let is_ready = state.kernel_watched.sleep(true) | found.is_ready;
        let sleep = Sleep {
            is_short: found.is_unsure,
            is_disconnected: state.kernel_watched.is_disconnected(),
        };
        (!is_ready).then_some(sleep)
    }

    /// Waits in the kernel's set alone; a thread that adds a user-level member meanwhile finds a sleeper. `None` if the
    /// set has one already.
    pub(crate) fn sleep_plainly<T>(&self, wait: impl Fn() -> T) -> Option<T> {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        // After the increment, as the other thread stores the flag before it loads the count.
        let result = (!self.is_ours()).then(wait);
        self.wake_up();
        result
    }

    /// Number of events that remain of those that the kernel wrote, without tagged words.
    ///
    /// # Safety
    /// The kernel wrote `count` events to the room, none of which is counted yet.
    pub(crate) unsafe fn translate(&self, outer: RawFd, mut out: Events, count: usize) -> usize {
        let Ok(mut state) = self.lock() else {
            return 0;
        };
        state.outer = outer;
        state.begin_pass();
        state.report(&mut out, count);
        out.count()
    }

    /// Whether a user-level member has an event to report, without reporting it; for watchers of the set's number.
    pub(crate) fn has_offer(&self) -> bool {
        let Some(mut state) = self.try_lock() else {
            return false;
        };
        state.apply_notes();
        state.members.has_offer() || state.kernel_watched.has_offer()
    }

    /// Whether any member has something, the kernel's included.
    pub(crate) fn absorb_and_look(&self) -> bool {
        let Some(mut state) = self.try_lock() else {
            return true;
        };
        state.absorb();
        state.apply_notes();
        let is_ready = state.members.has_offer() || state.kernel_watched.has_offer();
        is_ready || kernel::is_ready(state.outer, libc::POLLIN) != 0
    }

    /// Begins a sleep of a watcher of this set's number; true if an event is there.
    pub(crate) fn begin_sleep(&self) -> bool {
        self.asleep.fetch_add(1, Ordering::SeqCst);
        let Some(mut state) = self.try_lock() else {
            return true;
        };
        if self.own(&mut state).is_err() {
            return false;
        }
        state.apply_notes();
        let inner = state.inner;
        let found = state.members.arm_all(inner, None);
        state.has_shared |= found.is_unsure;
        state.kernel_watched.sleep(true) | found.is_ready
    }

    /// Ends the sleep that [`Self::begin_sleep`] began.
    pub(crate) fn end_sleep(&self) {
        self.wake_up();
        if let Some(mut state) = self.try_lock() {
            state.kernel_watched.sleep(false);
        }
    }
}

impl<S: PollTarget> State<S> {
    fn begin_pass(&mut self) {
        self.stamp += 1;
        self.apply_notes();
    }

    /// Makes members hot whose wake-ups other threads read.
    fn apply_notes(&mut self) {
        let last = S::sets().last_note();
        if self.seen_note == last {
            return;
        }
        let missed = last - self.seen_note > Sets::<S>::KEPT;
        for number in self.seen_note + 1..=last {
            let note = if missed {
                Note::Missed
            } else {
                S::sets().note(number)
            };
            match note {
                Note::Of(key) => self.members.heat_source(key),
                Note::Missed => {
                    self.members.heat_all();
                    break;
                }
            }
        }
        self.seen_note = last;
    }

    /// True if some members are found through the kernel alone.
    fn is_mixed(&self) -> bool {
        self.has_kernel || self.members.has_cold() || !self.kernel_watched.is_empty()
    }

    fn is_look_due(&mut self, kind: PollMode) -> bool {
        if !self.is_mixed() {
            return false;
        }
        self.waits += 1;
        let (every, after) = match kind {
            PollMode::First => (LOOK_EVERY, LOOK_AFTER),
            PollMode::Spinning if self.waits % SPIN_LOOK_EVERY != 0 => return false,
            PollMode::Spinning => (u32::MAX, SPIN_LOOK_AFTER),
            PollMode::Full => (0, Duration::ZERO),
        };
        let (now, touched) = (clock::now(), touched::calls());
        let is_due = self.waits >= every
            || now.saturating_sub(self.looked_at) >= after
            || touched != self.touched;
        if is_due {
            self.looked_at = now;
            self.waits = 0;
            self.touched = touched;
        }
        is_due
    }

    fn collect(&mut self, out: &mut Events) {
        self.kernel_watched.collect(self.outer, self.stamp, out);
        self.members.collect(self.inner, self.stamp, out);
    }

    /// Counts the events that the kernel wrote, except for tagged words, which are processed.
    fn report(&mut self, out: &mut Events, count: usize) {
        let first = out.count();
        for place in first..first + count {
            // SAFETY: the kernel wrote `count` events; `push` writes only to slots before this one.
            let (events, data) = unsafe { out.at(place) };
            match self.word(data) {
                None => out.push(events, data),
                Some(Word::Inner) => self.absorb(),
                Some(word) => self
                    .kernel_watched
                    .report(self.outer, word, events, self.stamp, out),
            }
        }
    }
}
