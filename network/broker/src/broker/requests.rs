//! The requests of processes, and the replies.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::control::{ControlError, Message, Packet};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::report::Seen;
use super::slabs::ReportRequest;
use super::{Broker, View, proof, report, route};
use crate::registry::{ClientId, ConnectRequest, Credentials, Event, destination};
use millrace_stream::sockets::packets::{self, ControlPacket, Malformed, Received, retry};

/// Packets of one process that are read in a turn.
const PACKETS_PER_TURN: usize = 16;

impl Broker {
    /// Reads and handles packets of a process.
    pub(super) fn read(&mut self, id: ClientId) {
        for _ in 0..PACKETS_PER_TURN {
            let Some(socket) = self.clients.get(&id) else {
                return;
            };
            match retry(|| packets::receive(socket, RecvFlags::DONTWAIT)) {
                Ok(Received::Packet(parcel)) => self.take(id, parcel),
                Ok(Received::Malformed(Malformed::Bytes(ControlError::Version {
                    serial, ..
                }))) => {
                    self.refuse(id, serial, Errno::PROTONOSUPPORT);
                    return self.disconnect_client(id);
                }
                Ok(Received::Malformed(_) | Received::End) => return self.disconnect_client(id),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.disconnect_client(id),
            }
        }
    }

    fn take(&mut self, client: ClientId, parcel: ControlPacket) {
        let Some(sender) = parcel.sender else {
            return self.disconnect_client(client);
        };
        let credentials = Credentials {
            user: sender.user,
            process: sender.process,
        };
        let serial = parcel.packet.serial;
        let descriptor = parcel.descriptors.into_iter().next();
        match (parcel.packet.message, descriptor) {
            (Message::Hello, Some(slab)) => self.hello(client, serial, credentials, slab),
            (Message::Listen { backlog }, Some(socket)) => {
                let proof = proof::examine(socket.as_fd(), &mut self.sock_diag);
                drop(socket);
                match proof {
                    Ok(proof) => self.handle(Event::Listen {
                        client,
                        serial,
                        owner: credentials,
                        backlog,
                        proof,
                    }),
                    Err(errno) => self.refuse(client, serial, errno),
                }
            }
            (
                Message::Connect {
                    no_wait,
                    wants_lease,
                    local,
                    peer,
                },
                _,
            ) => {
                let request = ConnectRequest {
                    credentials,
                    serial,
                    no_wait,
                    wants_lease,
                    local: route::own(local),
                    peer,
                    source: route::source(destination(peer)),
                };
                self.handle(Event::Connect { client, request });
            }
            (Message::OfferForwarders { count }, _) => {
                self.handle_offer(client, serial, sender.user, count)
            }
            (Message::Status, _) => self.report(client, serial, sender.user, View::Totals),
            (Message::Top, _) => self.report(client, serial, sender.user, View::Processes),
            // Only the broker sends these messages.
            _ => self.disconnect_client(client),
        }
    }

    fn hello(&mut self, id: ClientId, serial: u32, credentials: Credentials, slab: OwnedFd) {
        if is_elsewhere(credentials.process) {
            self.refuse(id, serial, Errno::NETUNREACH);
            return self.disconnect_client(id);
        }
        // Only memory files have seals; a read of another file could block.
        if !fcntl_get_seals(&slab).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            self.refuse(id, serial, Errno::INVAL);
            return self.disconnect_client(id);
        }
        if self.registry.client(id).is_some_and(|known| !known.greeted) {
            self.slabs.insert(id, credentials, slab);
        }
        self.handle(Event::Hello { client: id, serial });
    }

    /// Queues a report until the slabs are read.
    fn report(&mut self, client: ClientId, serial: u32, user: u32, view: View) {
        let pending = ReportRequest {
            client,
            serial,
            view,
            user,
        };
        if !self.slabs.ask(pending) {
            self.refuse(client, serial, Errno::BUSY);
        }
    }

    /// Reads slabs for one turn, and answers the finished report requests.
    pub(super) fn read_slabs(&mut self) {
        if !self.slabs.is_busy() {
            return;
        }
        // Users with the same view get the same file.
        let mut files = HashMap::new();
        for pending in self.slabs.step() {
            let seen = Seen::by(pending.user);
            let file = files.entry((pending.view, seen)).or_insert_with(|| {
                let json = self.describe(pending.view, seen);
                report::file(&json).map(|file| (file, json.len() as u64))
            });
            match file {
                Ok((file, length)) => {
                    let message = Message::Report { length: *length };
                    let serial = pending.serial;
                    self.reply(pending.client, &Packet { serial, message }, &[file.as_fd()]);
                }
                Err(errno) => self.refuse(pending.client, pending.serial, *errno),
            }
        }
        self.perform_all();
    }

    pub(super) fn refuse(&mut self, id: ClientId, serial: u32, errno: Errno) {
        let errno = errno.raw_os_error().unsigned_abs();
        let message = Message::Refused { errno };
        self.reply(id, &Packet { serial, message }, &[]);
    }

    /// Sends a reply. A process whose socket is full is disconnected, which answers its requests as well.
    pub(super) fn reply(&mut self, id: ClientId, packet: &Packet, descriptors: &[BorrowedFd<'_>]) {
        let Some(socket) = self.clients.get(&id) else {
            return;
        };
        let sent = match packets::send(socket, packet, descriptors) {
            // Too many descriptors are in flight, which is not this process's fault.
            Err(Errno::TOOMANYREFS) => {
                let message = without_descriptors(packet.message);
                packets::send(socket, &Packet { message, ..*packet }, &[])
            }
            sent => sent,
        };
        if sent.is_err() {
            self.forget(id);
            self.apply(Event::Departed { client: id });
        }
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

/// Whether a process is in another or an unknown network namespace. Without `/proc` there is one namespace.
fn is_elsewhere(process: u32) -> bool {
    let Ok(own) = std::fs::read_link("/proc/thread-self/ns/net") else {
        return false;
    };
    let other = std::fs::read_link(format!("/proc/{process}/ns/net"));
    other.ok() != Some(own)
}
