//! The forwarded connections, without any I/O.
//!
//! ```text
//! process: CONNECT -> forwarder opens -> Opened -> CONNECT to the peer -> ACCEPT -> establish, CONNECTED
//! peer: CONNECT -> listener -> forwarder opens -> Opened -> INCOMING, establish -> ACCEPT
//! ```
//!
//! # Invariants
//! 1. *Every request has one answer*: the process's, or the other broker's.
//! 2. *A token is never reused*, and is kept until both the forwarder and the other broker are finished with it.

use millrace_stream::Side;
use millrace_stream::control::{Message, Packet};
use millrace_stream::partition::OpenReply;
use rustix::io::Errno;

use super::flow::{Flow, IncomingConnect, OutgoingConnect, Progress};
use super::forward_table::ForwardTable;
use crate::forwarder::Token;
use crate::peer::PeerMessage;
use crate::registry::{ClientId, Limits, ListenerId, Refusal};

/// Ticks for which a process waits for another host's answer.
const ANSWER_TICKS_MAX: u32 = 40;

/// The forwarded connections.
#[derive(Debug)]
pub(super) struct Forwarded {
    limits: Limits,
    last: Token,
    table: ForwardTable,
    totals: ForwardTotals,
}

/// The totals of connections that have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardTotals {
    pub(super) ended: u64,
    /// Bytes sent by processes of this host, and received by them.
    pub(super) bytes: (u64, u64),
}

/// An event that the forwarded connections are to handle.
#[derive(Clone, Debug)]
pub(super) enum ForwardEvent {
    /// A process of this host is to be connected with another host. The limits allow it.
    Connect(Box<OutgoingConnect>),
    /// A process of another host is to be connected with a listener. The limits allow it.
    Accept(Box<IncomingConnect>),
    /// A forwarder was asked to serve a connection of two processes of this host.
    Local { token: Token, user: u32 },
    /// [`ForwardAction::Open`] has failed: no forwarder knows the token.
    OpenFailed { token: Token },
    /// A forwarder has opened an endpoint.
    Opened { token: Token, opened: OpenReply },
    /// A forwarder could not open an endpoint.
    Refused { token: Token },
    /// A connection is over.
    Ended { token: Token, bytes: (u64, u64) },
    /// The result of [`ForwardAction::Deliver`].
    Delivered {
        token: Token,
        opened: OpenReply,
        is_delivered: bool,
    },
    /// ACCEPT of another host's broker.
    PeerAccepted {
        session: u64,
        token: Token,
        opened: OpenReply,
    },
    /// REFUSE of another host's broker.
    PeerRefused {
        session: u64,
        token: Token,
        errno: u32,
    },
    /// The connection to another host's broker is closed.
    SessionClosed { session: u64 },
    /// The forwarders' process has exited.
    ForwardersExited,
    /// The timer has expired.
    Tick,
}

/// An action for the broker; actions run in order.
#[derive(Clone, Debug)]
pub(super) enum ForwardAction {
    /// Make the descriptors of a connection, keep the program's for the token, and ask the forwarder of the partition
    /// for an endpoint with the others. Report a failure by [`ForwardEvent::OpenFailed`].
    Open {
        token: Token,
        partition: u16,
        /// The forwarders' number of the partition.
        link: u32,
        application: Side,
    },
    /// Have the forwarder start the transfer.
    Establish {
        token: Token,
        partition: u16,
        peer: OpenReply,
    },
    /// Have the forwarder close an endpoint, and drop the descriptors that are kept for the token.
    Close { token: Token, partition: u16 },
    /// Send a message to another host's broker.
    Send { session: u64, message: PeerMessage },
    /// Answer a process with the descriptors that are kept for the token.
    Connected {
        token: Token,
        client: ClientId,
        packet: Packet,
    },
    /// Answer a process whose connection failed.
    Refuse {
        client: ClientId,
        serial: u32,
        refusal: Refusal,
    },
    /// Send the descriptors that are kept for the token into a listener's channel, and report the result by
    /// [`ForwardEvent::Delivered`].
    Deliver {
        token: Token,
        listener: ListenerId,
        packet: Packet,
        opened: OpenReply,
    },
}

impl Forwarded {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            last: 0,
            table: ForwardTable::default(),
            totals: ForwardTotals::default(),
        }
    }

    /// A new token; tokens are never reused.
    pub(super) const fn next_token(&mut self) -> Token {
        self.last += 1;
        self.last
    }

    /// Whether the limits allow one more forwarded connection of a user.
    pub(super) fn has_room(&mut self, user: u32) -> bool {
        self.table.has_room(user, &self.limits)
    }

    pub(super) const fn table(&self) -> &ForwardTable {
        &self.table
    }

    pub(super) const fn totals(&self) -> ForwardTotals {
        self.totals
    }

    /// The count of established connections: within this host, and with other hosts.
    pub(super) fn counts(&self) -> (usize, usize) {
        let within = |flow: &Flow| matches!(flow, Flow::Local);
        let across = |flow: &Flow| matches!(flow, Flow::Remote);
        let count = |of: &dyn Fn(&Flow) -> bool| self.table.iter().filter(|it| of(it.1)).count();
        (count(&within), count(&across))
    }

    /// Applies an event, and appends the resulting actions. Events of unknown tokens change nothing.
    pub(super) fn handle(&mut self, event: ForwardEvent, actions: &mut Vec<ForwardAction>) {
        match event {
            ForwardEvent::Connect(outgoing) => self.connect(outgoing, actions),
            ForwardEvent::Accept(incoming) => self.accept(incoming, actions),
            ForwardEvent::Local { token, user } => self.table.insert(token, user, Flow::Local),
            ForwardEvent::OpenFailed { token } => {
                if let Some(flow) = self.table.remove(token) {
                    answer(flow, Refusal::Kernel, actions);
                }
            }
            ForwardEvent::Opened { token, opened } => self.opened(token, opened, actions),
            ForwardEvent::Refused { token } => self.fail(token, Refusal::Kernel, actions),
            ForwardEvent::Ended { token, bytes } => {
                self.totals.ended += 1;
                self.totals.bytes.0 += bytes.0;
                self.totals.bytes.1 += bytes.1;
                self.fail(token, Refusal::Kernel, actions);
            }
            ForwardEvent::Delivered {
                token,
                opened,
                is_delivered,
            } => self.delivered(token, opened, is_delivered, actions),
            ForwardEvent::PeerAccepted {
                session,
                token,
                opened,
            } => self.peer_accepted(session, token, opened, actions),
            ForwardEvent::PeerRefused {
                session,
                token,
                errno,
            } => {
                if is_outgoing(self.table.get(token), session) {
                    self.fail(token, refusal(errno), actions);
                }
            }
            ForwardEvent::SessionClosed { session } => {
                self.fail_pending(|it| it == session, actions);
            }
            ForwardEvent::ForwardersExited => self.fail_pending(|_| true, actions),
            ForwardEvent::Tick => self.tick(actions),
        }
    }

    /// Asks a forwarder for an endpoint, as the first step of a connection to another host.
    fn connect(&mut self, outgoing: Box<OutgoingConnect>, actions: &mut Vec<ForwardAction>) {
        let token = self.next_token();
        actions.push(ForwardAction::Open {
            token,
            partition: outgoing.partition,
            link: outgoing.forwarder_link,
            application: Side::Connecting,
        });
        let user = outgoing.user;
        self.table.insert(token, user, Flow::Outgoing(outgoing));
    }

    /// Asks a forwarder for an endpoint, as the first step of a connection from another host.
    fn accept(&mut self, incoming: Box<IncomingConnect>, actions: &mut Vec<ForwardAction>) {
        let token = self.next_token();
        actions.push(ForwardAction::Open {
            token,
            partition: incoming.partition,
            link: incoming.forwarder_link,
            application: Side::Accepting,
        });
        let owner = incoming.owner;
        self.table.insert(token, owner, Flow::Incoming(incoming));
    }

    fn opened(&mut self, token: Token, opened: OpenReply, actions: &mut Vec<ForwardAction>) {
        match self.table.get_mut(token) {
            Some(Flow::Outgoing(outgoing)) => {
                let Progress::Opening { ticks } = outgoing.progress else {
                    return;
                };
                outgoing.progress = Progress::Asking { ticks };
                let message = PeerMessage::Connect {
                    token,
                    partition: outgoing.partition,
                    user: outgoing.user,
                    process: outgoing.process,
                    opened,
                    name: outgoing.name,
                };
                let session = outgoing.session;
                actions.push(ForwardAction::Send { session, message });
            }
            Some(Flow::Incoming(incoming)) => {
                let message = Message::Incoming {
                    link: incoming.link,
                    user: incoming.user,
                    process: incoming.process,
                };
                actions.push(ForwardAction::Deliver {
                    token,
                    listener: incoming.listener,
                    packet: Packet { serial: 0, message },
                    opened,
                });
            }
            // It was abandoned, and the forwarder got `Close`.
            Some(Flow::Local | Flow::Remote) | None => {}
        }
    }

    fn delivered(
        &mut self,
        token: Token,
        opened: OpenReply,
        is_delivered: bool,
        actions: &mut Vec<ForwardAction>,
    ) {
        if !is_delivered {
            return self.fail(token, Refusal::Kernel, actions);
        }
        if !matches!(self.table.get(token), Some(Flow::Incoming(_))) {
            return;
        }
        let Some(Flow::Incoming(incoming)) = self.table.set_remote(token) else {
            return;
        };
        actions.push(ForwardAction::Establish {
            token,
            partition: incoming.partition,
            peer: incoming.peer,
        });
        let message = PeerMessage::Accept {
            token: incoming.theirs,
            opened,
        };
        let session = incoming.session;
        actions.push(ForwardAction::Send { session, message });
    }

    fn peer_accepted(
        &mut self,
        session: u64,
        token: Token,
        peer: OpenReply,
        actions: &mut Vec<ForwardAction>,
    ) {
        if !is_outgoing(self.table.get(token), session) {
            return;
        }
        let Some(Flow::Outgoing(outgoing)) = self.table.set_remote(token) else {
            return;
        };
        let partition = outgoing.partition;
        actions.push(ForwardAction::Establish {
            token,
            partition,
            peer,
        });
        if outgoing.progress == Progress::Abandoned {
            // Both sides know the number now, and release it together.
            actions.push(ForwardAction::Close { token, partition });
            return;
        }
        actions.push(ForwardAction::Connected {
            token,
            client: outgoing.client,
            packet: Packet {
                serial: outgoing.serial,
                message: Message::Connected(outgoing.link),
            },
        });
    }

    /// Ends a connection that failed or is over, and answers the waiting side.
    fn fail(&mut self, token: Token, refusal: Refusal, actions: &mut Vec<ForwardAction>) {
        let Some(flow) = self.table.remove(token) else {
            return;
        };
        let partition = match &flow {
            Flow::Outgoing(outgoing) => outgoing.partition,
            Flow::Incoming(incoming) => incoming.partition,
            Flow::Local | Flow::Remote => return,
        };
        actions.push(ForwardAction::Close { token, partition });
        answer(flow, refusal, actions);
    }

    /// Fails the pending connections of closed sessions.
    fn fail_pending(&mut self, is_closed: impl Fn(u64) -> bool, actions: &mut Vec<ForwardAction>) {
        let waits = |flow: &Flow| match flow {
            Flow::Outgoing(outgoing) => is_closed(outgoing.session),
            Flow::Incoming(incoming) => is_closed(incoming.session),
            Flow::Local | Flow::Remote => false,
        };
        for token in self.tokens(waits) {
            self.fail(token, Refusal::Kernel, actions);
        }
    }

    /// A process that waits too long for another host is left to the kernel.
    fn tick(&mut self, actions: &mut Vec<ForwardAction>) {
        let mut late = Vec::new();
        for (token, flow) in self.table.iter_mut() {
            let Flow::Outgoing(outgoing) = flow else {
                continue;
            };
            match &mut outgoing.progress {
                Progress::Opening { ticks } | Progress::Asking { ticks } => {
                    *ticks += 1;
                    if *ticks <= ANSWER_TICKS_MAX {
                        continue;
                    }
                }
                Progress::Abandoned => continue,
            }
            if matches!(outgoing.progress, Progress::Opening { .. }) {
                late.push(token);
                continue;
            }
            outgoing.progress = Progress::Abandoned;
            actions.push(ForwardAction::Refuse {
                client: outgoing.client,
                serial: outgoing.serial,
                refusal: Refusal::Kernel,
            });
        }
        for token in late {
            self.fail(token, Refusal::Kernel, actions);
        }
    }

    fn tokens(&self, fits: impl Fn(&Flow) -> bool) -> Vec<Token> {
        let fitting = self.table.iter().filter(|(_, flow)| fits(flow));
        fitting.map(|(token, _)| token).collect()
    }
}

/// Answers the side that waits for a connection which failed.
fn answer(flow: Flow, refusal: Refusal, actions: &mut Vec<ForwardAction>) {
    match flow {
        Flow::Outgoing(outgoing) => {
            if outgoing.progress != Progress::Abandoned {
                actions.push(ForwardAction::Refuse {
                    client: outgoing.client,
                    serial: outgoing.serial,
                    refusal,
                });
            }
        }
        Flow::Incoming(incoming) => actions.push(ForwardAction::Send {
            session: incoming.session,
            message: refuse(incoming.theirs, refusal),
        }),
        Flow::Local | Flow::Remote => {}
    }
}

/// REFUSE for another host's broker.
pub(super) fn refuse(token: Token, refusal: Refusal) -> PeerMessage {
    let errno = match refusal {
        Refusal::Kernel => 0,
        Refusal::Errno(errno) => errno.raw_os_error().unsigned_abs(),
    };
    PeerMessage::Refuse { token, errno }
}

/// The refusal of another host's broker.
fn refusal(errno: u32) -> Refusal {
    match i32::try_from(errno) {
        Ok(errno @ 1..) => Refusal::Errno(Errno::from_raw_os_error(errno)),
        _ => Refusal::Kernel,
    }
}

/// Whether a process waits for the host at the other end of `session`.
fn is_outgoing(flow: Option<&Flow>, session: u64) -> bool {
    matches!(flow, Some(Flow::Outgoing(outgoing)) if outgoing.session == session)
}

#[cfg(test)]
mod tests;
