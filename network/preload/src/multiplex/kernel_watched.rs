//! Members of a set that the kernel's own set reports in part or in whole: listeners, which come by two
//! descriptors, and sets within the set.
//!
//! In the kernel's set these carry tagged words instead of the program's data: the secret of the set, a random number,
//! plus a small index. The probability that a word of the program equals a tagged one is about 2^-60.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::os::fd::RawFd;

use crate::errno::{Errno, Outcome};

use super::events::Events;
use super::interest::{Interest, Look};
use super::kernel;
use super::poll_target::PollTarget;
use super::set::Set;
use crate::readiness::{HUP, IN, ONCE, RDNORM};

/// Kind of a member.
#[derive(Debug)]
enum Link<S: 'static> {
    /// The kernel's listener and its channel, both in the kernel's set; the channel is -1 after its end.
    Listener { entry: &'static S, channel: RawFd },
    /// A set whose number is in the kernel's set, which sees the wake-ups of the inner set.
    Nested {
        entry: &'static S,
        set: &'static Set<S>,
    },
}

#[derive(Debug)]
struct KernelMember<S: 'static> {
    interest: Interest,
    link: Link<S>,
    /// Number of the pass that reported it last, so that no pass reports it twice.
    stamp: u64,
    /// Nested set: number of threads that sleep for it by way of this set.
    sleeps: usize,
}

impl<S: PollTarget> KernelMember<S> {
    fn entry(&self) -> &'static S {
        match self.link {
            Link::Listener { entry, .. } | Link::Nested { entry, .. } => entry,
        }
    }

    /// Removes the member from the kernel's set.
    fn leave(&self, outer: RawFd) {
        let _ = kernel::epoll_delete(outer, self.interest.fd);
        match self.link {
            Link::Listener { channel, .. } if channel >= 0 => {
                let _ = kernel::epoll_delete(outer, channel);
            }
            _ => {}
        }
    }
}

/// Meaning of a tagged word in the kernel's set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Word {
    /// The inner set is readable.
    Inner,
    /// The descriptor of an kernel-watched members has.
    Own(usize),
    /// The channel of an kernel-watched members has.
    Channel(usize),
}

/// A listener or a nested set that is to be added.
#[derive(Debug)]
pub(crate) enum NewMember<S: 'static> {
    Listener(&'static S),
    Nested(&'static S, &'static Set<S>),
}

/// All listeners and nested sets of one set.
#[derive(Debug)]
pub(crate) struct KernelWatched<S: 'static> {
    secret: u64,
    list: Vec<Option<KernelMember<S>>>,
}

impl<S: PollTarget> KernelWatched<S> {
    pub(crate) fn new() -> Self {
        Self {
            secret: RandomState::new().build_hasher().finish(),
            list: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.iter().all(Option::is_none)
    }

    /// The word of the inner set.
    pub(crate) fn inner_word(&self) -> u64 {
        self.secret
    }

    fn own_word(&self, index: usize) -> u64 {
        let index = u64::try_from(index).expect("fewer members than descriptors");
        self.secret.wrapping_add(1 + 2 * index)
    }

    fn channel_word(&self, index: usize) -> u64 {
        self.own_word(index).wrapping_add(1)
    }

    /// Meaning of a tagged word; `None` for a word of the program.
    #[inline]
    pub(crate) fn word(&self, data: u64) -> Option<Word> {
        let number = usize::try_from(data.wrapping_sub(self.secret)).ok()?;
        match number.checked_sub(1) {
            None => Some(Word::Inner),
            Some(rest) if rest / 2 >= self.list.len() => None,
            Some(rest) if rest % 2 == 0 => Some(Word::Own(rest / 2)),
            Some(rest) => Some(Word::Channel(rest / 2)),
        }
    }

    fn find(&self, fd: RawFd, entry: &'static S) -> Option<usize> {
        self.list.iter().position(|slot| {
            slot.as_ref()
                .is_some_and(|one| one.interest.fd == fd && std::ptr::eq(one.entry(), entry))
        })
    }

    /// Adds a member to the kernel's set and to this list.
    pub(crate) fn add(
        &mut self,
        outer: RawFd,
        new_member: &NewMember<S>,
        interest: Interest,
    ) -> Outcome<()> {
        let index = self.vacancy();
        kernel::epoll_add(outer, interest.fd, interest.asked(), self.own_word(index))?;
        self.admit(outer, index, new_member, interest)
    }

    fn vacancy(&mut self) -> usize {
        let vacant = self.list.iter().position(Option::is_none);
        vacant.unwrap_or_else(|| {
            self.list.push(None);
            self.list.len() - 1
        })
    }

    fn admit(
        &mut self,
        outer: RawFd,
        index: usize,
        new_member: &NewMember<S>,
        interest: Interest,
    ) -> Outcome<()> {
        let link = match *new_member {
            NewMember::Listener(entry) => {
                let channel = entry.channel();
                if channel >= 0 {
                    let events = interest.asked();
                    let added = kernel::epoll_add(outer, channel, events, self.channel_word(index));
                    // EEXIST: the listener is in the set under another number, which reports the channel.
                    if let Some(error) = added.err().filter(|error| *error != Errno(libc::EEXIST)) {
                        let _ = kernel::epoll_delete(outer, interest.fd);
                        return Err(error);
                    }
                }
                Link::Listener { entry, channel }
            }
            NewMember::Nested(entry, set) => Link::Nested { entry, set },
        };
        let member = KernelMember {
            interest,
            link,
            stamp: 0,
            sleeps: 0,
        };
        member.entry().hold(true);
        member.entry().watch(true);
        self.list[index] = Some(member);
        Ok(())
    }

    pub(crate) fn modify(
        &mut self,
        outer: RawFd,
        fd: RawFd,
        entry: &'static S,
        events: u32,
        data: u64,
    ) -> Outcome<()> {
        let index = self.find(fd, entry).ok_or(Errno(libc::ENOENT))?;
        kernel::epoll_modify(outer, fd, events, self.own_word(index))?;
        let word = self.channel_word(index);
        let Some(one) = self.list[index].as_mut() else {
            return Err(Errno(libc::ENOENT));
        };
        one.interest.modify(events, data);
        match one.link {
            Link::Listener { channel, .. }
                if channel >= 0
                    && kernel::epoll_modify(outer, channel, events, word)
                        == Err(Errno(libc::ENOENT)) =>
            {
                kernel::epoll_add(outer, channel, events, word)?;
            }
            _ => {}
        }
        Ok(())
    }

    pub(crate) fn remove(&mut self, outer: RawFd, fd: RawFd, entry: &'static S) -> Outcome<()> {
        let index = self.find(fd, entry).ok_or(Errno(libc::ENOENT))?;
        self.dismiss(Some(outer), index);
        Ok(())
    }

    fn dismiss(&mut self, outer: Option<RawFd>, index: usize) {
        if let Some(one) = self.list[index].take() {
            if let Some(outer) = outer {
                one.leave(outer);
            }
            if let Link::Nested { set, .. } = one.link {
                for _ in 0..one.sleeps {
                    set.end_sleep();
                }
            }
            one.entry().watch(false);
            one.entry().hold(false);
        }
    }

    /// Removes all that is known of this entry; from the kernel's set too, if that is this process's own.
    pub(crate) fn forget(&mut self, outer: Option<RawFd>, entry: &'static S) {
        for index in 0..self.list.len() {
            if self.list[index]
                .as_ref()
                .is_some_and(|one| std::ptr::eq(one.entry(), entry))
            {
                self.dismiss(outer, index);
            }
        }
    }

    /// Removes all that this process has closed.
    pub(crate) fn sweep(&mut self) {
        for index in 0..self.list.len() {
            let one = self.list[index].as_ref();
            if one.is_some_and(|one| one.entry().is_closed()) {
                // The kernel removes a closed file by itself; the number may be another file's.
                self.dismiss(None, index);
            }
        }
    }

    /// Removes all members.
    pub(crate) fn clear(&mut self) {
        for index in 0..self.list.len() {
            self.dismiss(None, index);
        }
    }

    /// Replaces the channel of a listener in the kernel's set.
    pub(crate) fn change_channel(&mut self, outer: RawFd, entry: &'static S) {
        let new = entry.channel();
        for index in 0..self.list.len() {
            let word = self.channel_word(index);
            let Some(one) = self.list[index].as_mut() else {
                continue;
            };
            let Link::Listener {
                entry: own,
                channel,
            } = &mut one.link
            else {
                continue;
            };
            if !std::ptr::eq(*own, entry) {
                continue;
            }
            if *channel >= 0 {
                let _ = kernel::epoll_delete(outer, *channel);
            }
            *channel = new;
            if new >= 0 && one.interest.is_enabled() {
                let _ = kernel::epoll_add(outer, new, one.interest.asked(), word);
            }
        }
    }

    /// Whether a listener has no channel in the kernel's set. Its next channel then wakes no sleeper.
    pub(crate) fn is_disconnected(&self) -> bool {
        let is_disconnected =
            |one: &KernelMember<S>| matches!(one.link, Link::Listener { channel: ..0, .. });
        self.list.iter().flatten().any(is_disconnected)
    }

    /// Counts the members' watchers again, in the child of a fork.
    pub(crate) fn count_anew(&self) {
        for one in self.list.iter().flatten() {
            one.entry().watch(true);
        }
    }

    /// In the child of a fork: all members, into a kernel's set of its own.
    pub(crate) fn start_over(&mut self, outer: RawFd) {
        for one in self.list.iter_mut().flatten() {
            one.sleeps = 0;
        }
        for index in 0..self.list.len() {
            let (own, other) = (self.own_word(index), self.channel_word(index));
            let Some(one) = self.list[index].as_mut() else {
                continue;
            };
            if let Link::Listener { entry, channel } = &mut one.link {
                // Another thread may have been about to update this set.
                *channel = entry.channel();
            }
            let events = if one.interest.is_enabled() {
                one.interest.asked()
            } else {
                ONCE
            };
            let _ = kernel::epoll_add(outer, one.interest.fd, events, own);
            match one.link {
                Link::Listener { channel, .. } if channel >= 0 && one.interest.is_enabled() => {
                    let _ = kernel::epoll_add(outer, channel, events, other);
                }
                _ => {}
            }
        }
    }

    /// Reports an event of a tagged word, unless the program has seen it.
    pub(crate) fn report(
        &mut self,
        outer: RawFd,
        word: Word,
        events: u32,
        stamp: u64,
        out: &mut Events,
    ) {
        let (Word::Own(index) | Word::Channel(index)) = word else {
            return;
        };
        let own_word = self.own_word(index);
        let Some(one) = self.list.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let ready = match &mut one.link {
            Link::Nested { set, .. } => nested_ready(set),
            Link::Listener { entry, channel } if word == Word::Channel(index) => {
                let mut ready = events & (IN | RDNORM);
                if *channel < 0 {
                    // Another thread reported the end already.
                    ready = 0;
                } else if events & HUP != 0 && ready & one.interest.asked() == 0 {
                    // The kernel reports a hang-up always; the program sees it only if it asked for input.
                    let _ = kernel::epoll_delete(outer, *channel);
                } else if events & HUP != 0 && entry.report_hangup_once(*channel) {
                    let _ = kernel::epoll_delete(outer, *channel);
                    *channel = -1;
                }
                ready
            }
            Link::Listener { .. } => events,
        };
        let ready = ready & one.interest.asked();
        if ready == 0 || one.stamp == stamp || !one.interest.is_enabled() {
            return;
        }
        one.stamp = stamp;
        one.interest.take(
            Look {
                progress: (0, 0),
                ready,
            },
            ready,
        );
        out.push(ready, one.interest.data);
        if one.interest.is_once() {
            Self::disarm_one_shot(outer, one, word == Word::Own(index), own_word);
        }
    }

    /// Disables the parts of a one-shot interest that the kernel did not disable by itself.
    fn disarm_one_shot(outer: RawFd, one: &KernelMember<S>, by_own: bool, own_word: u64) {
        match one.link {
            Link::Listener { channel, .. } if by_own => {
                let _ = kernel::epoll_delete(outer, channel);
            }
            Link::Nested { .. } if by_own => {}
            // An error is reported even so, once, and dropped, as the interest is off.
            _ => {
                let _ = kernel::epoll_modify(outer, one.interest.fd, ONCE, own_word);
            }
        }
    }

    /// Reports nested sets that have ready user-level members, which the kernel does not see.
    pub(crate) fn collect(&mut self, outer: RawFd, stamp: u64, out: &mut Events) {
        for index in 0..self.list.len() {
            let own_word = self.own_word(index);
            let Some(one) = self.list[index].as_mut() else {
                continue;
            };
            let Link::Nested { set, .. } = one.link else {
                continue;
            };
            if one.stamp == stamp || out.room() == 0 {
                continue;
            }
            let ready = if set.has_offer() { IN | RDNORM } else { 0 };
            let look = Look {
                progress: (0, 0),
                ready,
            };
            let ready = one.interest.offer(look);
            if ready != 0 {
                one.stamp = stamp;
                one.interest.take(look, ready);
                out.push(ready, one.interest.data);
                if one.interest.is_once() {
                    Self::disarm_one_shot(outer, one, false, own_word);
                }
            }
        }
    }

    /// True if a set within has something.
    pub(crate) fn has_offer(&mut self) -> bool {
        self.list.iter_mut().flatten().any(|one| {
            let Link::Nested { set, .. } = one.link else {
                return false;
            };
            let ready = if set.has_offer() { IN | RDNORM } else { 0 };
            one.interest.offer(Look {
                progress: (0, 0),
                ready,
            }) != 0
        })
    }

    /// Begins or ends a sleep in the nested sets; true if one has an event, or its lock is taken.
    pub(crate) fn sleep(&mut self, begins: bool) -> bool {
        let mut is_ready = false;
        for one in self.list.iter_mut().flatten() {
            let Link::Nested { set, .. } = one.link else {
                continue;
            };
            if begins {
                one.sleeps += 1;
                let ready = if set.begin_sleep() { IN | RDNORM } else { 0 };
                is_ready |= one.interest.offer(Look {
                    progress: (0, 0),
                    ready,
                }) != 0;
            } else if one.sleeps > 0 {
                one.sleeps -= 1;
                set.end_sleep();
            }
        }
        is_ready
    }
}

/// Readiness of a nested set that the kernel found readable: its wake-ups may have been spurious.
fn nested_ready<S: PollTarget>(set: &'static Set<S>) -> u32 {
    if set.absorb_and_look() {
        IN | RDNORM
    } else {
        0
    }
}
