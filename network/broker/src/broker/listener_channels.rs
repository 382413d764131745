//! Listeners' channels, and the connections that are sent into them.

use std::os::fd::AsFd;

use millrace_stream::control::{Lease, Message, Mode, Packet};
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;

use super::channel::Channel;
use super::connection::Connection;
use super::{Broker, Token};
use crate::registry::{Attempt, ClientId, Event, ListenerId, Outcome};

/// The duration of a lease in microseconds.
const LEASE_LASTS_US: u32 = 10_000;

impl Broker {
    pub(super) fn open(
        &mut self,
        listener: ListenerId,
        client: ClientId,
        serial: u32,
        backlog: u32,
    ) {
        let opened = Channel::open(backlog, self.cost).and_then(|(channel, theirs)| {
            let token = Token::Channel(listener).data();
            // EPOLLHUP is always reported.
            epoll::add(&self.epoll, &channel, token, EventFlags::empty())?;
            Ok((channel, theirs))
        });
        match opened {
            Ok((channel, theirs)) => {
                self.channels.insert(listener, channel);
                let message = Message::Listening;
                self.reply(client, &Packet { serial, message }, &[theirs.as_fd()]);
            }
            Err(errno) => {
                self.refuse(client, serial, errno);
                self.apply(Event::Silent { listener });
            }
        }
    }

    pub(super) fn link(&mut self, attempt: &Attempt) -> Outcome {
        if !self.listens(attempt.listener) {
            return Outcome::Gone;
        }
        let is_forwarded = attempt.connecting.mode == Mode::Forwarded;
        let user = attempt.request.credentials.user;
        if is_forwarded && !self.may_forward(user) {
            return Outcome::Failed;
        }
        let Some(channel) = self.channels.get(&attempt.listener) else {
            return Outcome::Gone;
        };
        let looks = attempt.request.no_wait || attempt.lent > 0;
        let has_room = !looks || channel.has_room();
        if attempt.request.no_wait && !has_room {
            // Processes with leases may have filled it unseen by the registry.
            self.watch_room(attempt.listener, true);
            return Outcome::Full;
        }
        if attempt.lent > 0 && has_room {
            return self.lend(attempt);
        }
        let made = Connection::new(self.geometry).and_then(|first| {
            let second = is_forwarded.then(|| Connection::new(self.geometry));
            Ok((first, second.transpose()?))
        });
        let Ok((first, second)) = made else {
            return Outcome::Failed;
        };
        let accepting = second.as_ref().unwrap_or(&first);
        let incoming = Packet {
            serial: 0,
            message: Message::Incoming {
                link: attempt.accepting,
                user,
                process: attempt.request.credentials.process,
            },
        };
        let descriptors = [accepting.accepting.as_fd(), accepting.memory.as_fd()];
        let sent = channel.send(&incoming, &descriptors);
        let room = channel.has_room();
        match sent {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                self.watch_room(attempt.listener, true);
                return Outcome::Full;
            }
            Err(Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN | Errno::CONNREFUSED) => {
                return Outcome::Gone;
            }
            Err(_) => return Outcome::Failed,
        }
        let connected = Packet {
            serial: attempt.request.serial,
            message: Message::Connected(attempt.connecting),
        };
        let descriptors = [first.connecting.as_fd(), first.memory.as_fd()];
        self.reply(attempt.client, &connected, &descriptors);
        if let Some(second) = second {
            self.forward_locally(user, first, second);
        }
        if !room {
            self.watch_room(attempt.listener, true);
        }
        Outcome::Done { room }
    }

    /// Grants a process a lease: for [`LEASE_LASTS_US`] it creates its connections to a listener itself. The broker's
    /// checks hold for that long.
    fn lend(&mut self, attempt: &Attempt) -> Outcome {
        let Some(channel) = self.channels.get(&attempt.listener) else {
            return Outcome::Gone;
        };
        // A duplicate, as the reply may disconnect the process.
        let Ok(channel) = channel.as_fd().try_clone_to_owned() else {
            return Outcome::Failed;
        };
        let lease = Lease {
            ring_lines: attempt.connecting.ring_lines,
            mapped: attempt.accepting.local.is_mapped(),
            local: attempt.connecting.local.canonical(),
            peer: attempt.connecting.peer.canonical(),
            ports: attempt.lent,
            lasts_us: LEASE_LASTS_US,
        };
        let packet = Packet {
            serial: attempt.request.serial,
            message: Message::Lease(lease),
        };
        self.reply(attempt.client, &packet, &[channel.as_fd()]);
        Outcome::Lent
    }

    /// Whether the listener's TCP socket still listens, as the kernel reports.
    pub(super) fn listens(&mut self, listener: ListenerId) -> bool {
        let proof = self.registry.listener(listener).map(|found| found.proof);
        proof.is_some_and(|proof| self.sock_diag.has(&proof))
    }

    /// Whether the epoll reports that a channel has room.
    pub(super) fn watch_room(&self, id: ListenerId, watch: bool) {
        let Some(channel) = self.channels.get(&id) else {
            return;
        };
        let flags = if watch {
            EventFlags::OUT
        } else {
            EventFlags::empty()
        };
        let changed = epoll::modify(&self.epoll, channel, Token::Channel(id).data(), flags);
        debug_assert!(
            changed.is_ok(),
            "a channel is in the epoll while it is open"
        );
    }

    pub(super) fn serve_channel(&mut self, listener: ListenerId, flags: EventFlags) {
        if flags.intersects(EventFlags::HUP | EventFlags::ERR) {
            self.channels.remove(&listener);
            self.handle(Event::Silent { listener });
        } else if flags.contains(EventFlags::OUT) {
            self.watch_room(listener, false);
            self.handle(Event::Room { listener });
        }
    }
}
