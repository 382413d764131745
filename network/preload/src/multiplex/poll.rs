//! `poll` with user-level members.
//!
//! User-level members are polled by loads. If one is ready, or the timeout is zero, the kernel is asked for its members
//! without waiting, so that the answer is complete. Otherwise: spin, arm, poll again, and one `ppoll` of the kernel
//! over the wake-up fds (for readability), the kernel's members as they are, channels of listeners, and an eventfd of
//! this thread, which other threads write after they read wake-ups.

use std::os::fd::RawFd;
use std::ptr;
use std::time::Duration;

use libc::{c_short, pollfd};

use crate::calls::cancel;
use crate::errno::Outcome;
use crate::lost_channels;
use crate::reregister;

use super::kernel;
use super::poll_target::{PollTarget, Target};
use super::sleepers::{ANY, Sleeper};
use super::spin::Spin;
use super::wait::{Deadline, SHORT};
use crate::readiness::{ALWAYS, IN, RDNORM};

/// Number of members that are kept on the stack.
const FEW: usize = 64;
/// Spins from one poll of the kernel's members to the next.
const LOOK_EVERY: u32 = 256;
const READABLE: c_short = libc::POLLIN;
const NOBODY: pollfd = pollfd {
    fd: -1,
    events: 0,
    revents: 0,
};

/// `poll`, `ppoll`: how many members have events. `None` waits for ever.
///
/// # Errors
/// `EINTR` after a signal; errors of the kernel's `ppoll`.
///
/// # Safety
/// `mask` is null or a signal mask.
pub(crate) unsafe fn poll<S: PollTarget>(
    members: &mut [pollfd],
    timeout: Option<Duration>,
    mask: *const libc::sigset_t,
) -> Outcome<usize> {
    if members.len() <= FEW {
        let mut targets = [Target::Kernel; FEW];
        let mut room = [NOBODY; 2 * FEW + 1];
        // SAFETY: `mask` is null or a signal mask, as this function asks for.
        return unsafe { Poll::<S>::new(members, &mut targets, &mut room).run(timeout, mask) };
    }
    let mut targets = vec![Target::Kernel; members.len()];
    let mut room = vec![NOBODY; 2 * members.len() + 1];
    // SAFETY: `mask` is null or a signal mask, as this function asks for.
    unsafe { Poll::<S>::new(members, &mut targets, &mut room).run(timeout, mask) }
}

/// State of one call.
struct Poll<'a, S: PollTarget> {
    members: &'a mut [pollfd],
    /// Targets of the members, pinned for the call.
    targets: &'a mut [Target<S>],
    /// Array for the kernel: one slot for each member, then the listeners' channels in their order, then the eventfd.
    room: &'a mut [pollfd],
    channels: usize,
    has_kernel: bool,
    has_sets: bool,
}

impl<'a, S: PollTarget> Poll<'a, S> {
    fn new(
        members: &'a mut [pollfd],
        targets: &'a mut [Target<S>],
        room: &'a mut [pollfd],
    ) -> Self {
        let mut channels = 0;
        let mut has_kernel = false;
        let mut has_sets = false;
        let count = members.len();
        for (place, member) in members.iter().enumerate() {
            let target = S::find(member.fd);
            targets[place] = target;
            let (fd, events) = match target {
                Target::Kernel => (member.fd, member.events),
                Target::Source(source) => (source.wakeup_fd(), READABLE),
                Target::Set(..) => (member.fd, READABLE),
                Target::Listener(entry) => {
                    room[count + channels] = pollfd {
                        fd: channel_of(member, entry),
                        events: READABLE,
                        revents: 0,
                    };
                    channels += 1;
                    (member.fd, member.events)
                }
            };
            room[place] = pollfd {
                fd,
                events,
                revents: 0,
            };
            has_kernel |= !matches!(target, Target::Source(_)) && fd >= 0;
            has_sets |= matches!(target, Target::Set(..));
        }
        Self {
            members,
            targets,
            room,
            channels,
            has_kernel,
            has_sets,
        }
    }

    unsafe fn run(
        mut self,
        timeout: Option<Duration>,
        mask: *const libc::sigset_t,
    ) -> Outcome<usize> {
        let is_patient = timeout != Some(Duration::ZERO);
        let found = self.look_at_users();
        if found > 0 || !is_patient {
            let found = if self.has_kernel {
                self.look_at_all()?
            } else {
                found
            };
            if found == 0 {
                reregister::announce();
            }
            return Ok(found);
        }
        let deadline = Deadline::after(timeout);
        if self.spin()? {
            return self.look_at_all();
        }
        loop {
            if self.channels > 0 || self.has_sets {
                reregister::announce();
                self.renew_channels();
            }
            // SAFETY: `poll` passes a mask that is null or valid.
            let found = unsafe { self.sleep(deadline, mask) }?;
            if found > 0 || deadline.is_over() {
                return Ok(found);
            }
        }
    }

    fn spin(&mut self) -> Outcome<bool> {
        if !self
            .targets
            .iter()
            .any(|target| matches!(target, Target::Source(_) | Target::Set(..)))
        {
            return Ok(false);
        }
        let mut spin = Spin::begin();
        let mut looks = 0;
        while spin.again() {
            looks += 1;
            let is_due = self.has_kernel && looks % LOOK_EVERY == 0;
            if self.look_at_users() > 0 || is_due && self.look_at_all()? > 0 {
                spin.hit();
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The answer by loads alone, for user-level members.
    fn look_at_users(&mut self) -> usize {
        let mut found = 0;
        for (member, target) in self.members.iter_mut().zip(self.targets.iter()) {
            let ready = match target {
                Target::Source(source) => source.ready(),
                Target::Set(_, set) if set.has_offer() => IN | RDNORM,
                _ => 0,
            };
            member.revents = answer(ready, member.events);
            found += usize::from(member.revents != 0);
        }
        found
    }

    /// Polls all members without waiting; the number of members with events.
    fn look_at_all(&mut self) -> Outcome<usize> {
        if !self.has_kernel {
            return Ok(self.look_at_users());
        }
        let count = self.members.len() + self.channels;
        // SAFETY: no mask.
        unsafe { kernel::poll(&mut self.room[..count], Some(Duration::ZERO), ptr::null()) }?;
        Ok(self.answer_all())
    }

    /// The whole answer, after the kernel polled.
    fn answer_all(&mut self) -> usize {
        let (own, others) = self.room.split_at(self.members.len());
        let mut channels = others.iter();
        let mut found = 0;
        for (place, member) in self.members.iter_mut().enumerate() {
            let revents = own[place].revents;
            member.revents = match self.targets[place] {
                Target::Kernel => revents,
                Target::Source(source) => answer(source.ready(), member.events),
                Target::Set(_, set) => {
                    let is_ready = set.has_offer() || revents != 0 && set.absorb_and_look();
                    answer(if is_ready { IN | RDNORM } else { 0 }, member.events)
                }
                Target::Listener(entry) => {
                    let (fd, channel) = channels.next().map_or((-1, 0), |c| (c.fd, c.revents));
                    let is_ready = channel & READABLE != 0;
                    if is_ready && channel & libc::POLLHUP != 0 {
                        entry.report_hangup_once(fd);
                    }
                    revents | answer(if is_ready { IN | RDNORM } else { 0 }, member.events)
                }
            };
            found += usize::from(member.revents != 0);
        }
        found
    }

    /// Sleeps once, unless something is there; how many members have events then.
    unsafe fn sleep(&mut self, deadline: Deadline, mask: *const libc::sigset_t) -> Outcome<usize> {
        let asleep = cancel::Sleep::begin()?;
        let sleeper = Sleeper::begin(ANY);
        let count = self.members.len() + self.channels;
        let eventfd = sleeper.as_ref().map_or(-1, Sleeper::eventfd);
        self.room[count] = pollfd {
            fd: eventfd,
            events: READABLE,
            revents: 0,
        };
        self.watch(true);
        // A thread that registers a listener again does not wake this thread.
        let is_disconnected = self.is_disconnected();
        let mut is_short = eventfd < 0;
        let mut is_ready = false;
        for (member, target) in self.members.iter().zip(self.targets.iter()) {
            let ready = match target {
                Target::Source(source) => {
                    is_short |= source.is_shared();
                    source.arm(events_of(member))
                }
                Target::Set(_, set) => {
                    is_short |= set.is_unsure();
                    if set.begin_sleep() { IN | RDNORM } else { 0 }
                }
                _ => 0,
            };
            is_ready |= answer(ready, member.events) != 0;
        }
        let left = if is_ready {
            Some(Duration::ZERO)
        } else {
            deadline.left()
        };
        let left = if is_short {
            Some(left.unwrap_or(SHORT).min(SHORT))
        } else if is_disconnected {
            Some(lost_channels::shortened(left))
        } else if self.has_sets {
            reregister::limit(left)
        } else {
            left
        };
        // SAFETY: the members are this call's own array, and `poll` passes a mask that is null or valid.
        let woken = asleep.ended(unsafe { kernel::poll(&mut self.room[..=count], left, mask) });
        if woken.is_ok_and(|woken| woken > 0) {
            self.take_wakeups();
            if let Some(sleeper) = sleeper.filter(|_| self.room[count].revents != 0) {
                sleeper.drain();
            }
        }
        self.watch(false);
        woken?;
        Ok(self.answer_all())
    }

    /// Listeners have other channels since their broker was found again.
    fn renew_channels(&mut self) {
        let channels = &mut self.room[self.members.len()..];
        let members = self.members.iter().zip(self.targets.iter());
        let listeners = members.filter_map(|(member, target)| match target {
            Target::Listener(entry) => Some((member, *entry)),
            _ => None,
        });
        for (place, (member, entry)) in channels.iter_mut().zip(listeners) {
            place.fd = channel_of(member, entry);
        }
    }

    /// Whether a listener is polled for connections whose channel is not polled.
    fn is_disconnected(&self) -> bool {
        let channels = &self.room[self.members.len()..];
        let members = self.members.iter().zip(self.targets.iter());
        let listeners = members.filter(|(_, target)| matches!(target, Target::Listener(_)));
        let mut pairs = channels.iter().zip(listeners);
        pairs.any(|(channel, (member, _))| channel.fd < 0 && wants_connections(member))
    }

    fn take_wakeups(&mut self) {
        for (place, entry) in self.room.iter_mut().enumerate() {
            match self.targets.get(place) {
                // Its wake-up fd stays readable for ever, and adds nothing to the loads.
                Some(Target::Source(source)) if entry.revents != 0 && source.take_wakeups() => {
                    entry.fd = -1;
                }
                _ => {}
            }
        }
    }

    fn watch(&self, begins: bool) {
        for target in self.targets.iter() {
            match target {
                Target::Source(source) => source.watch(begins),
                Target::Set(_, set) if !begins => set.end_sleep(),
                _ => {}
            }
        }
    }
}

impl<S: PollTarget> Drop for Poll<'_, S> {
    fn drop(&mut self) {
        for target in self.targets.iter_mut() {
            std::mem::replace(target, Target::Kernel).unpin();
        }
    }
}

/// Channel that is polled beside the number of a listener, or -1. The kernel reports the end of a channel also to a
/// caller that does not ask for connections.
fn channel_of<S: PollTarget>(member: &pollfd, entry: &'static S) -> RawFd {
    if wants_connections(member) {
        entry.channel()
    } else {
        -1
    }
}

fn wants_connections(member: &pollfd) -> bool {
    events_of(member) & (IN | RDNORM) != 0
}

fn events_of(member: &pollfd) -> u32 {
    u32::from(u16::from_ne_bytes(member.events.to_ne_bytes()))
}

/// Bits of `revents` for a member that asked for `events`.
fn answer(ready: u32, events: c_short) -> c_short {
    let wanted = u16::from_ne_bytes(events.to_ne_bytes());
    let bits = u16::try_from(ready & 0xffff).expect("masked to sixteen bits");
    let always = u16::try_from(ALWAYS).expect("`ALWAYS` has bits below the sixteenth alone");
    c_short::from_ne_bytes((bits & (wanted | always)).to_ne_bytes())
}
