//! The part of an entry that a listener has.

use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::channel_owner::ChannelOwner;
use crate::kernel_options::Model;
use crate::private_fds;

/// Connection of a listener to a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListenerState {
    /// Connected by the channel with this private descriptor.
    Connected(RawFd),
    /// The channel is at its end; the next broker may make another.
    Disconnected,
    /// No channel, now or later: it was shut down, or is no listener.
    Closed,
}

/// Word of a listener without a channel; else the low half is the channel's descriptor.
const CLOSED: u64 = u64::MAX;
/// Flag of a channel at its end, whose descriptor stays open.
const DISCONNECTED: u64 = 1 << 32;

/// State of a listener: its channel, and the options of its socket.
///
/// All fields are atomic. Threads that change the channel hold the lock of all channels.
#[derive(Debug)]
pub(crate) struct Listener {
    /// [`ListenerState`] and channel in one word.
    state: AtomicU64,
    /// Private descriptor of the previous channel; -1 without one.
    previous: AtomicI32,
    /// Channel whose `EPOLLHUP` was delivered; -1 if none.
    pub(crate) hangup_reported: AtomicI32,
    /// Whether other processes may have the listener, too.
    pub(crate) is_shared: AtomicBool,
    /// Options of the kernel's socket, cached.
    pub(crate) model: Model,
    /// Owner of the channel, which may put connections into it.
    pub(crate) channel_owner: ChannelOwner,
}

/// Descriptor in a word; `None` if there is none.
fn descriptor(word: u64) -> Option<RawFd> {
    RawFd::try_from(word & (DISCONNECTED - 1)).ok()
}

impl Listener {
    /// A listener without a channel.
    pub(crate) const fn new() -> Self {
        Self {
            state: AtomicU64::new(CLOSED),
            previous: AtomicI32::new(-1),
            hangup_reported: AtomicI32::new(-1),
            is_shared: AtomicBool::new(false),
            model: Model::new(),
            channel_owner: ChannelOwner::new(),
        }
    }

    /// Resets the fields for another listener. All descriptors are closed by then.
    pub(crate) fn reset(&self) {
        self.state.store(CLOSED, Ordering::Relaxed);
        self.previous.store(-1, Ordering::Relaxed);
        self.hangup_reported.store(-1, Ordering::Relaxed);
        self.is_shared.store(false, Ordering::Relaxed);
        self.model.change();
    }

    /// Current state. A thread that makes a set user-level before it loads this, and a thread that walks such sets after
    /// it stored this, see each other's stores.
    pub(crate) fn state(&self) -> ListenerState {
        let word = self.state.load(Ordering::SeqCst);
        match descriptor(word) {
            None => ListenerState::Closed,
            Some(_) if word & DISCONNECTED != 0 => ListenerState::Disconnected,
            Some(channel) => ListenerState::Connected(channel),
        }
    }

    /// Private descriptor of the channel, also at its end; `None` without one.
    pub(crate) fn channel_fd(&self) -> Option<RawFd> {
        descriptor(self.state.load(Ordering::Relaxed))
    }

    /// Attaches a channel. The previous channel, which is at its end, stays open until the next call, so that two
    /// channels in a row have different numbers.
    pub(crate) fn attach_channel(&self, channel: RawFd) {
        // The number of a reported channel is free again after two more.
        self.hangup_reported.store(-1, Ordering::Relaxed);
        let word = u64::from(channel.unsigned_abs());
        let last = descriptor(self.state.swap(word, Ordering::SeqCst));
        let ended = self.previous.swap(last.unwrap_or(-1), Ordering::Relaxed);
        if ended >= 0 {
            private_fds::close(ended);
        }
    }

    /// Marks the channel as being at its end. A closed listener stays closed.
    pub(crate) fn disconnect(&self) {
        self.state.fetch_or(DISCONNECTED, Ordering::SeqCst);
    }

    /// Closes the listener; the private descriptor of its channel, which the caller closes.
    pub(crate) fn close(&self) -> Option<RawFd> {
        descriptor(self.state.swap(CLOSED, Ordering::SeqCst))
    }

    /// Closes all descriptors, when the entry is freed.
    pub(crate) fn destroy(&self) {
        if let Some(channel) = self.close() {
            private_fds::close(channel);
        }
        let previous = self.previous.swap(-1, Ordering::Relaxed);
        if previous >= 0 {
            private_fds::close(previous);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_listener_stays_closed() {
        let listener = Listener::new();
        assert_eq!(listener.state(), ListenerState::Closed);
        listener.disconnect();
        assert_eq!(listener.state(), ListenerState::Closed);
        assert_eq!(listener.close(), None);
    }

    #[test]
    fn a_disconnected_listener_keeps_its_descriptor() {
        let listener = Listener::new();
        listener.attach_channel(900_002);
        assert_eq!(listener.state(), ListenerState::Connected(900_002));
        listener.disconnect();
        assert_eq!(listener.state(), ListenerState::Disconnected);
        assert_eq!(listener.channel_fd(), Some(900_002));
        assert_eq!(listener.close(), Some(900_002));
        assert_eq!(listener.state(), ListenerState::Closed);
    }
}
