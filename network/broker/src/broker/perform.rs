//! The actions of the states, performed.

use std::os::fd::AsFd;
use std::path::Path;

use millrace_stream::control::{Message, Packet};

use super::forwarded::{ForwardAction, ForwardEvent, refuse};
use super::links::PeerRequest;
use super::peer_event::{PeerAction, PeerEvent, Purpose};
use super::{Broker, Todo, addresses};
use crate::forwarder::{Command, Token, open_window};
use crate::peer::PeerMessage;
use crate::registry::{Action, ClientId, Event, ListenerId, Refusal};

impl Broker {
    /// Performs an action of the registry.
    pub(super) fn perform(&mut self, action: Action) {
        match action {
            Action::Reply { client, packet } => self.reply(client, &packet, &[]),
            Action::Open {
                listener,
                client,
                serial,
                backlog,
            } => self.open(listener, client, serial, backlog),
            Action::Link(attempt) => {
                let outcome = self.link(&attempt);
                self.apply(Event::Linked { attempt, outcome });
            }
            Action::ConnectRemote {
                client,
                request,
                host,
            } => match self.outgoing(client, request, host) {
                Some(outgoing) => self.apply_forwarded(ForwardEvent::Connect(outgoing)),
                None => self.no_connection(client, request.serial, Refusal::Kernel),
            },
            Action::Disconnect { client } => self.forget(client),
            Action::Close { listener } => self.channels.close(listener),
        }
    }

    /// Performs an action of the peers.
    pub(super) fn perform_of_peers(&mut self, action: PeerAction) {
        match action {
            PeerAction::Dial { dial, address } => {
                let Some(sockets) = &mut self.peer_sockets else {
                    return;
                };
                let connected = match sockets.dial(address, &self.poller) {
                    Ok(Some(number)) => Ok(number),
                    // Without a number there is no reason either: the next attempt may succeed.
                    Ok(None) => return,
                    Err(errno) => Err(errno.to_string()),
                };
                self.apply_peers(PeerEvent::Dialled { dial, connected });
            }
            PeerAction::Flush { number } => self.flush(number),
            PeerAction::Close { number } => {
                if let Some(sockets) = &mut self.peer_sockets {
                    sockets.close(number);
                }
            }
            PeerAction::ReadAddresses => self.apply_peers(PeerEvent::Addresses(addresses::own())),
            PeerAction::Measure {
                number,
                path,
                purpose,
            } => self.measure(number, &path, purpose),
            PeerAction::HostUp {
                number,
                host,
                addresses,
            } => {
                let addresses = self.registry.host_up(host, &addresses);
                self.apply_peers(PeerEvent::Taken { number, addresses });
            }
            PeerAction::HostDown { host } => self.registry.host_down(host),
            PeerAction::Join(join) => {
                if let Some(forwarders) = &self.forwarders {
                    forwarders.send(join.index, Command::JoinAt(join));
                }
            }
            PeerAction::Leave { partition, link } => {
                if let Some(forwarders) = &self.forwarders {
                    forwarders.send(partition, Command::Leave { link });
                }
            }
            PeerAction::Message { number, message } => self.take_message(number, &message),
            PeerAction::Fail { number } => {
                let session = number;
                self.apply_forwarded(ForwardEvent::SessionClosed { session });
            }
        }
    }

    /// Performs an action of the forwarded connections.
    pub(super) fn perform_of_forwarded(&mut self, action: ForwardAction) {
        match action {
            ForwardAction::Open {
                token,
                partition,
                link,
                application,
            } => {
                let geometry = self.geometry;
                let forwarders = self.forwarders.as_mut();
                let is_open = forwarders
                    .is_some_and(|it| it.open(token, partition, link, application, geometry));
                if !is_open {
                    self.apply_forwarded(ForwardEvent::OpenFailed { token });
                }
            }
            ForwardAction::Establish {
                token,
                partition,
                peer,
            } => {
                if let Some(forwarders) = &self.forwarders {
                    forwarders.send(partition, Command::Establish { token, peer });
                }
            }
            ForwardAction::Close { token, partition } => {
                if let Some(forwarders) = &mut self.forwarders {
                    forwarders.close(token, partition);
                }
            }
            ForwardAction::Send { session, message } => {
                let number = session;
                self.apply_peers(PeerEvent::Send { number, message });
            }
            ForwardAction::Connected {
                token,
                client,
                packet,
            } => self.connected(token, client, &packet),
            ForwardAction::Refuse {
                client,
                serial,
                refusal,
            } => self.no_connection(client, serial, refusal),
            ForwardAction::Deliver {
                token,
                listener,
                packet,
                opened,
            } => {
                let is_delivered = self.deliver(token, listener, &packet);
                self.apply_forwarded(ForwardEvent::Delivered {
                    token,
                    opened,
                    is_delivered,
                });
            }
        }
    }

    /// Opens the channel of a listener.
    fn open(&mut self, listener: ListenerId, client: ClientId, serial: u32, backlog: u32) {
        match self.channels.open(listener, backlog, &self.poller) {
            Ok(theirs) => {
                let message = Message::Listening;
                self.reply(client, &Packet { serial, message }, &[theirs.as_fd()]);
            }
            Err(errno) => {
                self.refuse(client, serial, errno);
                self.apply(Event::Silent { listener });
            }
        }
    }

    /// Writes the output of a connection to a peer.
    fn flush(&mut self, number: u64) {
        let (Some(peers), Some(sockets)) = (&mut self.peers, &mut self.peer_sockets) else {
            return;
        };
        let Some(session) = peers.session(number) else {
            return;
        };
        if let Err(errno) = sockets.flush(number, session, &self.poller) {
            let why = errno.to_string();
            self.apply_peers(PeerEvent::Closed { number, why });
        }
    }

    /// Looks at the size of a window.
    fn measure(&mut self, number: u64, path: &Path, purpose: Purpose) {
        let size = open_window(path)
            .map(|window| window.size() as u64)
            .map_err(|error| error.chain());
        self.apply_peers(PeerEvent::Measured {
            number,
            purpose,
            size,
        });
    }

    /// Handles CONNECT, ACCEPT or REFUSE of another host's broker.
    fn take_message(&mut self, session: u64, message: &PeerMessage) {
        match *message {
            PeerMessage::Connect {
                token,
                partition,
                user,
                process,
                opened,
                name,
            } => {
                let request = PeerRequest {
                    session,
                    token,
                    partition,
                    user,
                    process,
                    opened,
                    name,
                };
                match self.incoming(&request) {
                    Ok(incoming) => self.apply_forwarded(ForwardEvent::Accept(incoming)),
                    Err(refusal) => self.apply_peers(PeerEvent::Send {
                        number: session,
                        message: refuse(token, refusal),
                    }),
                }
            }
            PeerMessage::Accept { token, opened } => {
                self.apply_forwarded(ForwardEvent::PeerAccepted {
                    session,
                    token,
                    opened,
                });
            }
            PeerMessage::Refuse { token, errno } => {
                self.apply_forwarded(ForwardEvent::PeerRefused {
                    session,
                    token,
                    errno,
                });
            }
            PeerMessage::Names { .. } | PeerMessage::Beat => {}
        }
    }

    /// Answers a process whose connection to another host is established.
    fn connected(&mut self, token: Token, client: ClientId, packet: &Packet) {
        let Some(end) = self.forwarders.as_mut().and_then(|it| it.take(token)) else {
            return self.no_connection(client, packet.serial, Refusal::Kernel);
        };
        self.registry.connected_across();
        self.reply(client, packet, &[end.wakeup.as_fd(), end.memory.as_fd()]);
    }

    /// Answers a process whose connection to another host failed.
    fn no_connection(&mut self, client: ClientId, serial: u32, refusal: Refusal) {
        let mut actions = Vec::new();
        self.registry
            .refused_across(client, serial, refusal, &mut actions);
        self.todo.extend(actions.into_iter().map(Todo::Registry));
    }

    /// Sends a connection of another host into its listener's channel.
    fn deliver(&mut self, token: Token, listener: ListenerId, packet: &Packet) -> bool {
        let Some(end) = self.forwarders.as_mut().and_then(|it| it.take(token)) else {
            return false;
        };
        let descriptors = [end.wakeup.as_fd(), end.memory.as_fd()];
        let Some((sent, has_room)) = self.channels.send(listener, packet, &descriptors) else {
            return false;
        };
        if sent.is_ok() {
            self.registry.accepted_across(listener, has_room);
        }
        if !has_room {
            self.channels.watch_room(listener, true, &self.poller);
        }
        sent.is_ok()
    }
}
