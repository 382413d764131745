//! The target of a descriptor number, as waiters see it.

use std::os::fd::RawFd;

use super::set::Set;
use super::sets::Sets;
use crate::readiness::Source;

/// Target of a descriptor number: the kernel's, or a pinned entry.
#[derive(Debug)]
pub(crate) enum Target<S: 'static> {
    /// A descriptor of the kernel's alone.
    Kernel,
    /// A user-level connection, to be polled by loads.
    Source(&'static S),
    /// A listener: the kernel's, which may have a channel by which connections come besides.
    Listener(&'static S),
    /// An epoll set that this library knows.
    Set(&'static S, &'static Set<S>),
}

impl<S> Clone for Target<S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S> Copy for Target<S> {}

impl<S: PollTarget> Target<S> {
    /// Releases the pin of [`PollTarget::find`].
    pub(crate) fn unpin(self) {
        match self {
            Self::Kernel => {}
            Self::Source(entry) | Self::Listener(entry) | Self::Set(entry, _) => entry.unpin(),
        }
    }

    pub(crate) fn is_kernel(&self) -> bool {
        matches!(self, Self::Kernel)
    }
}

/// A source in a table of descriptors, with reference counts.
pub(crate) trait PollTarget: Source + Sync + Sized + 'static {
    /// The sets which hold sources of this type.
    fn sets() -> &'static Sets<Self>;

    /// Target of the number, pinned until [`Target::unpin`].
    fn find(fd: RawFd) -> Target<Self>;

    /// Releases one pin.
    fn unpin(&'static self);

    /// Adds or drops a reference of a set, which keeps the target from being freed.
    fn hold(&'static self, more: bool);

    /// Changes the number of its sleeping threads and sets by one.
    fn watch(&self, more: bool);

    /// Number of sleeping threads and sets that watch it.
    fn watchers(&self) -> u32;

    /// Whether all its numbers in this process are closed.
    fn is_closed(&self) -> bool;

    /// Whether other processes hold it too, and may read its wake-ups.
    fn is_shared(&self) -> bool;

    /// Private descriptor of a listener's channel; -1 without one, or after its end was reported.
    fn channel(&self) -> RawFd;

    /// Whether this channel of a listener has ended, with nothing left in it. The end is reported once, like a hang-up
    /// of a connection: a process that then accepts finds it. A process that leaves accepting to others is not woken
    /// again.
    fn report_hangup_once(&self, channel: RawFd) -> bool;

    /// Key in lists of watchers: the address of the target.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Reads all wake-ups and notifies the other watchers; true if the peer has hung up.
    fn take_wakeups(&self) -> bool {
        let is_gone = self.drain();
        if self.watchers() > 1 {
            Self::sets().broadcast(self.key());
        }
        is_gone
    }
}
