//! The sockets of the processes.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};

use millrace_stream::control::{Message, Packet};
use millrace_stream::sockets::packets::{self, Received, retry};
use rustix::event::epoll::EventFlags;
use rustix::io::{Errno, Result};
use rustix::net::sockopt::socket_peercred;
use rustix::net::{RecvFlags, Shutdown, shutdown};

use super::poller::{Poller, Token};
use crate::registry::{ClientId, Credentials};

/// Packets of disconnected processes that are discarded in one turn.
const DISCARDS_PER_TURN: usize = 64;

/// The sockets of the processes. Each packet carries its sender's credentials.
#[derive(Debug, Default)]
pub(super) struct Clients {
    sockets: HashMap<ClientId, OwnedFd>,
    /// The sockets of disconnected processes, with unread packets.
    leaving: VecDeque<OwnedFd>,
    last: u64,
}

impl Clients {
    /// Adds the socket of a process that has connected. `None` if the kernel does not report its credentials, or the
    /// epoll is full.
    pub(super) fn admit(
        &mut self,
        socket: OwnedFd,
        poller: &Poller,
    ) -> Option<(ClientId, Credentials)> {
        let peer = socket_peercred(&socket).ok()?;
        let credentials = Credentials {
            user: peer.uid.as_raw(),
            process: peer.pid.as_raw_pid().unsigned_abs(),
        };
        self.last += 1;
        let id = ClientId(self.last);
        poller
            .add(&socket, Token::Client(id), EventFlags::IN)
            .ok()?;
        self.sockets.insert(id, socket);
        Some((id, credentials))
    }

    /// The next packet of a process; `None` if the process is not connected.
    pub(super) fn receive(&self, id: ClientId) -> Option<Result<Received>> {
        let socket = self.sockets.get(&id)?;
        Some(retry(|| packets::receive(socket, RecvFlags::DONTWAIT)))
    }

    /// Sends a packet to a process that is connected. False if its socket is full or closed: the process is to be
    /// disconnected.
    pub(super) fn send(
        &self,
        id: ClientId,
        packet: &Packet,
        descriptors: &[BorrowedFd<'_>],
    ) -> bool {
        let Some(socket) = self.sockets.get(&id) else {
            return true;
        };
        let sent = match packets::send(socket, packet, descriptors) {
            // Too many descriptors are in flight, which is not this process's fault.
            Err(Errno::TOOMANYREFS) => {
                let message = without_descriptors(packet.message);
                packets::send(socket, &Packet { message, ..*packet }, &[])
            }
            sent => sent,
        };
        sent.is_ok()
    }

    /// Disconnects a process: it sees the end at once, and can send nothing more.
    pub(super) fn disconnect(&mut self, id: ClientId) {
        if let Some(socket) = self.sockets.remove(&id) {
            if shutdown(&socket, Shutdown::Both).is_ok() {
                self.leaving.push_back(socket);
            }
        }
    }

    /// Takes the socket of a process for another use.
    pub(super) fn take(&mut self, id: ClientId, poller: &Poller) -> Option<OwnedFd> {
        let socket = self.sockets.remove(&id)?;
        let deleted = poller.delete(&socket);
        debug_assert!(deleted.is_ok(), "a client is in the epoll");
        Some(socket)
    }

    /// Reads and discards the packets of disconnected processes. `close` would release their descriptors in one call of
    /// unbounded length, and a lingering TCP socket among them would block this thread.
    pub(super) fn discard(&mut self) {
        for _ in 0..DISCARDS_PER_TURN {
            let Some(socket) = self.leaving.front() else {
                return;
            };
            let received = retry(|| packets::receive(socket, RecvFlags::DONTWAIT));
            if !matches!(received, Ok(Received::Packet(_) | Received::Malformed(_))) {
                self.leaving.pop_front();
            }
        }
    }

    /// Whether packets of disconnected processes are left.
    pub(super) fn is_discarding(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Whether no process is connected.
    pub(super) fn is_empty(&self) -> bool {
        self.sockets.is_empty()
    }
}

/// The reply in place of one whose descriptors cannot be sent.
fn without_descriptors(message: Message) -> Message {
    match message {
        Message::Connected(_) => Message::Kernel,
        _ => Message::Refused {
            errno: Errno::NOBUFS.raw_os_error().unsigned_abs(),
        },
    }
}
