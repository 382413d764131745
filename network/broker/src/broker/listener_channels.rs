//! The channels of the listeners.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::control::Packet;
use rustix::event::epoll::EventFlags;
use rustix::io::Result;

use super::channel::{Channel, PacketCost};
use super::poller::{Poller, Token};
use crate::registry::ListenerId;

/// The channels of the listeners.
#[derive(Debug)]
pub(super) struct ListenerChannels {
    channels: HashMap<ListenerId, Channel>,
    cost: PacketCost,
}

impl ListenerChannels {
    pub(super) fn new() -> Result<Self> {
        Ok(Self {
            channels: HashMap::new(),
            cost: PacketCost::measure()?,
        })
    }

    /// Opens the channel of a listener, and returns the listener's end.
    pub(super) fn open(
        &mut self,
        listener: ListenerId,
        backlog: u32,
        poller: &Poller,
    ) -> Result<OwnedFd> {
        let (channel, theirs) = Channel::open(backlog, self.cost)?;
        // EPOLLHUP is always reported.
        poller.add(&channel, Token::Channel(listener), EventFlags::empty())?;
        self.channels.insert(listener, channel);
        Ok(theirs)
    }

    /// Closes the channel of a listener.
    pub(super) fn close(&mut self, listener: ListenerId) {
        self.channels.remove(&listener);
    }

    /// Sends a connection to a listener. Returns the result, and whether the channel has room for another; `None` if
    /// there is no channel.
    pub(super) fn send(
        &self,
        listener: ListenerId,
        packet: &Packet,
        descriptors: &[BorrowedFd<'_>],
    ) -> Option<(Result<()>, bool)> {
        let channel = self.channels.get(&listener)?;
        let sent = channel.send(packet, descriptors);
        Some((sent, channel.has_room()))
    }

    /// Whether a channel has room; `None` if there is no channel.
    pub(super) fn has_room(&self, listener: ListenerId) -> Option<bool> {
        self.channels.get(&listener).map(Channel::has_room)
    }

    /// A duplicate of the broker's end of a channel; `None` if there is no channel.
    pub(super) fn duplicate(&self, listener: ListenerId) -> Option<std::io::Result<OwnedFd>> {
        let channel = self.channels.get(&listener)?;
        Some(channel.as_fd().try_clone_to_owned())
    }

    /// Whether the epoll reports that a channel has room.
    pub(super) fn watch_room(&self, listener: ListenerId, watch: bool, poller: &Poller) {
        let Some(channel) = self.channels.get(&listener) else {
            return;
        };
        let flags = if watch {
            EventFlags::OUT
        } else {
            EventFlags::empty()
        };
        poller.modify(channel, Token::Channel(listener), flags);
    }

    /// Whether no listener has a channel.
    pub(super) fn is_empty(&self) -> bool {
        self.channels.is_empty()
    }
}
