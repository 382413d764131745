//! What a descriptor number means to those who wait.

use std::os::fd::RawFd;

use super::set::Set;
use super::sets::Sets;
use crate::readiness::Source;

/// What a number means.
#[derive(Debug)]
pub(crate) enum Target<S: 'static> {
    /// A descriptor of the kernel's alone.
    Kernel,
    /// A user-level connection.
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
    /// Lets go of what [`Kept::find`] pinned.
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

/// A source in a table of descriptors, with the counts that keep it.
pub(crate) trait PollTarget: Source + Sync + Sized + 'static {
    /// The sets which hold sources of this type.
    fn sets() -> &'static Sets<Self>;

    /// What the number means, pinned until [`Target::unpin`].
    fn find(fd: RawFd) -> Target<Self>;

    /// Ends a pin.
    fn unpin(&'static self);

    /// A set holds it, or does so no more: it is not torn down meanwhile.
    fn hold(&'static self, more: bool);

    /// One more sleeps for it, or holds it in a set, or one less.
    fn watch(&self, more: bool);

    /// How many do.
    fn watchers(&self) -> u32;

    /// True if no number of this process means it any more.
    fn is_closed(&self) -> bool;

    /// True if other processes hold it too, and may take its rings.
    fn is_shared(&self) -> bool;

    /// The hidden channel of a listener; -1 if it has none, or the end of that was told.
    fn channel(&self) -> RawFd;

    /// Whether this channel of a listener has ended, with nothing left in it. That is told once, as a connection would
    /// be: who accepts then finds it out. Who leaves that to other processes is not told for ever.
    fn report_hangup_once(&self, channel: RawFd) -> bool;

    /// What others know it by.
    fn key(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Takes all rings and tells the others who watch it; true if the peer is gone.
    fn take_wakeups(&self) -> bool {
        let is_gone = self.drain();
        if self.watchers() > 1 {
            Self::sets().broadcast(self.key());
        }
        is_gone
    }
}
