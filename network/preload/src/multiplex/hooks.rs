//! The link between the table of descriptors and the epoll sets: the events of the rest of the library that sets act
//! on.

use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use crate::broker_link;
use crate::entry::{Entry, FDS, Kind, RefKind};

use super::poll_target::{PollTarget, Target};
use super::set::Set;
use super::sets::Sets;

static SETS: Sets<Entry> = Sets::new();

impl PollTarget for Entry {
    fn sets() -> &'static Sets<Self> {
        &SETS
    }

    fn find(fd: RawFd) -> Target<Self> {
        let Some(entry) = FDS
            .lookup(fd)
            .filter(|entry| entry.pin(fd, RefKind::Syscall))
        else {
            return Target::Kernel;
        };
        match entry.kind() {
            Kind::Connection => return Target::Source(entry),
            Kind::Listener => return Target::Listener(entry),
            Kind::EpollSet => {
                if let Some(set) = set_of(entry) {
                    return Target::Set(entry, set);
                }
            }
            Kind::Free => {}
        }
        entry.release(RefKind::Syscall);
        Target::Kernel
    }

    fn unpin(&'static self) {
        self.release(RefKind::Syscall);
    }

    fn hold(&'static self, more: bool) {
        if more {
            Self::hold(self, RefKind::Interest);
        } else {
            self.release(RefKind::Interest);
        }
    }

    fn watch(&self, more: bool) {
        if more {
            self.watchers.fetch_add(1, Ordering::SeqCst);
        } else {
            self.watchers.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn watchers(&self) -> u32 {
        self.watchers.load(Ordering::SeqCst)
    }

    fn is_closed(&self) -> bool {
        self.numbers() == 0
    }

    fn channel(&self) -> RawFd {
        let channel = Self::channel(self).unwrap_or(-1);
        if channel == self.listener.hangup_reported.load(Ordering::Relaxed) {
            return -1;
        }
        channel
    }

    fn report_hangup_once(&self, channel: RawFd) -> bool {
        let is_dead = broker_link::is_dead(channel);
        if is_dead {
            self.listener
                .hangup_reported
                .store(channel, Ordering::Relaxed);
        }
        is_dead
    }

    fn is_shared(&self) -> bool {
        let (Some(record), Some(slab)) = (self.record(), self.slab()) else {
            return false;
        };
        record.is_shared(slab)
    }
}

/// The set of an entry of that kind.
#[inline]
pub(crate) fn set_of(entry: &'static Entry) -> Option<&'static Set<Entry>> {
    let set = entry.set().cast::<Set<Entry>>();
    // SAFETY: what is stored came from a set, and these live for ever.
    unsafe { set.as_ref() }.filter(|_| entry.kind() == Kind::EpollSet)
}

/// Adopts a number of the program as an epoll set; `has_members` if it may have members already. After a failure the
/// set stays the kernel's alone.
pub(crate) fn adopt(outer: RawFd, has_members: bool) {
    if outer < 0 {
        return;
    }
    let Some(set) = SETS.make(outer, has_members) else {
        return;
    };
    match Entry::epoll_set(std::ptr::from_ref(set).cast_mut().cast(), end) {
        Ok(entry) => {
            if !entry.add_number(outer) {
                set.close();
            }
        }
        Err(_) => set.close(),
    }
}

/// Closes a set after the last reference to its entry was released.
fn end(set: *mut std::ffi::c_void) {
    // SAFETY: what an entry stores came from a set, and these live for ever.
    if let Some(set) = unsafe { set.cast::<Set<Entry>>().as_ref() } {
        set.close();
    }
}

/// Ends all interests of sets in an entry, before its last number closes.
pub(crate) fn forget(entry: &'static Entry) {
    SETS.forget(entry);
}

/// Runs `change`, by which a kernel socket's number gets an entry in the kernel and in the table. Interests of sets in
/// the number move to the entry.
pub(crate) fn moved<T>(fd: RawFd, change: impl FnOnce() -> T) -> T {
    let mut outcome = None;
    let mut target = Target::Kernel;
    SETS.moved(fd, || {
        outcome = Some(change());
        target = Entry::find(fd);
        target
    });
    target.unpin();
    outcome.expect("the change was made")
}

/// Notifies the other watchers of an entry, after a thread read its wake-ups or found no room to send.
pub(crate) fn broadcast(entry: &'static Entry) {
    SETS.broadcast(entry.key());
}

/// Updates the sets after a listener got another channel, or none; the last one is still open.
pub(crate) fn change_channel(entry: &'static Entry) {
    SETS.change_channel(entry);
}

/// Whether this thread holds the lock of a set, so that the caller is a signal handler above it.
pub(crate) fn has_own() -> bool {
    SETS.has_own()
}

/// Takes the locks of all sets before a fork.
pub(crate) fn before_fork() {
    SETS.before_fork();
}

/// After a fork, in the parent.
pub(crate) fn after_fork_in_parent() {
    SETS.after_fork_in_parent();
}

/// After a fork, in the child.
pub(crate) fn after_fork_in_child() {
    SETS.after_fork_in_child();
}
