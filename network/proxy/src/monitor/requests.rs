//! What processes ask of the monitor, and what it answers.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::control::{ControlError, Message, Packet};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;

use super::report::Seen;
use super::slabs::Asked;
use super::{Monitor, View, proof, report, route};
use crate::packets::{self, Received, Wrong};
use crate::registry::{ClientId, Event, Wish, destination};

/// Packets of one process in a turn.
const PACKETS_PER_TURN: usize = 16;

impl Monitor {
    /// Takes what a process says.
    pub(super) fn read(&mut self, id: ClientId) {
        for _ in 0..PACKETS_PER_TURN {
            let Some(client) = self.clients.get(&id) else {
                return;
            };
            match packets::receive(&client.socket) {
                Ok(Received::Packet(packet, descriptors)) => {
                    self.take(id, packet, descriptors);
                }
                Ok(Received::Wrong(Wrong::Bytes(ControlError::Version { serial, .. }))) => {
                    self.refuse(id, serial, Errno::PROTONOSUPPORT);
                    return self.hang(id);
                }
                Ok(Received::Wrong(_) | Received::End) => return self.hang(id),
                Err(Errno::AGAIN) => return,
                Err(_) => return self.hang(id),
            }
        }
    }

    fn take(&mut self, client: ClientId, packet: Packet, descriptors: Vec<OwnedFd>) {
        let serial = packet.serial;
        let descriptor = descriptors.into_iter().next();
        match (packet.message, descriptor) {
            (Message::Hello, Some(slab)) => self.hello(client, serial, slab),
            (Message::Listen { backlog }, Some(socket)) => {
                let proof = proof::examine(socket.as_fd(), &mut self.listening);
                drop(socket);
                match proof {
                    Ok(proof) => self.happened(Event::Listen {
                        client,
                        serial,
                        backlog,
                        proof,
                    }),
                    Err(errno) => self.refuse(client, serial, errno),
                }
            }
            (
                Message::Connect {
                    no_wait,
                    local,
                    peer,
                },
                _,
            ) => {
                let wish = Wish {
                    serial,
                    no_wait,
                    local: route::own(local),
                    peer,
                    source: route::source(destination(peer)),
                };
                self.happened(Event::Connect { client, wish });
            }
            (Message::Planes { count }, _) => self.offered(client, serial, count),
            (Message::Status, _) => self.report(client, serial, View::Totals),
            (Message::Top, _) => self.report(client, serial, View::Processes),
            // What only the monitor says.
            _ => self.hang(client),
        }
    }

    fn hello(&mut self, id: ClientId, serial: u32, slab: OwnedFd) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if is_elsewhere(client.credentials.process) {
            self.refuse(id, serial, Errno::NETUNREACH);
            return self.hang(id);
        }
        // Only files in memory have seals; others could make a read wait.
        if !fcntl_get_seals(&slab).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            self.refuse(id, serial, Errno::INVAL);
            return self.hang(id);
        }
        let credentials = client.credentials;
        if self.registry.client(id).is_some_and(|known| !known.greeted) {
            self.slabs.insert(id, credentials, slab);
        }
        self.happened(Event::Hello { client: id, serial });
    }

    /// Has slabs be read for a report.
    fn report(&mut self, client: ClientId, serial: u32, view: View) {
        let Some(found) = self.clients.get(&client) else {
            return;
        };
        let asked = Asked {
            client,
            serial,
            view,
            user: found.credentials.user,
        };
        if !self.slabs.ask(asked) {
            self.refuse(client, serial, Errno::BUSY);
        }
    }

    /// Reads slabs for a turn, and answers whoever has waited for it.
    pub(super) fn read_slabs(&mut self) {
        if !self.slabs.is_busy() {
            return;
        }
        // Those who see the same get the same.
        let mut files = HashMap::new();
        for asked in self.slabs.go_on() {
            let seen = Seen::by(asked.user);
            let file = files.entry((asked.view, seen)).or_insert_with(|| {
                let json = self.describe(asked.view, seen);
                report::file(&json).map(|file| (file, json.len() as u64))
            });
            match file {
                Ok((file, length)) => {
                    let message = Message::Report { length: *length };
                    let serial = asked.serial;
                    self.reply(asked.client, &Packet { serial, message }, &[file.as_fd()]);
                }
                Err(errno) => self.refuse(asked.client, asked.serial, *errno),
            }
        }
        self.perform_all();
    }

    pub(super) fn refuse(&mut self, id: ClientId, serial: u32, errno: Errno) {
        let errno = errno.raw_os_error().unsigned_abs();
        let message = Message::Refused { errno };
        self.reply(id, &Packet { serial, message }, &[]);
    }

    /// Sends a reply. A process that cannot take it is hung up on: then its requests have an answer too.
    pub(super) fn reply(&mut self, id: ClientId, packet: &Packet, descriptors: &[BorrowedFd<'_>]) {
        let Some(client) = self.clients.get(&id) else {
            return;
        };
        if packets::send(&client.socket, packet, descriptors).is_err() {
            self.forget(id);
            self.tell(Event::Departed { client: id });
        }
    }
}

/// Whether a process is known to be in another network namespace.
fn is_elsewhere(process: u32) -> bool {
    let own = std::fs::read_link("/proc/thread-self/ns/net");
    let other = std::fs::read_link(format!("/proc/{process}/ns/net"));
    matches!((own, other), (Ok(own), Ok(other)) if own != other)
}
