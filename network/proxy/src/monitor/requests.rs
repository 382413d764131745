//! What processes ask of the monitor, and what it answers.

use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::control::{ControlError, Message, Packet};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::report::Seen;
use super::slabs::Asked;
use super::{Monitor, View, proof, report, route};
use crate::registry::{ClientId, Credentials, Event, Wish, destination};
use millrace_stream::sockets::packets::{self, Parcel, Received, Wrong, retry};

/// Packets of one process in a turn.
const PACKETS_PER_TURN: usize = 16;

impl Monitor {
    /// Takes what a process says.
    pub(super) fn read(&mut self, id: ClientId) {
        for _ in 0..PACKETS_PER_TURN {
            let Some(socket) = self.clients.get(&id) else {
                return;
            };
            match retry(|| packets::receive(socket, RecvFlags::DONTWAIT)) {
                Ok(Received::Packet(parcel)) => self.take(id, parcel),
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

    fn take(&mut self, client: ClientId, parcel: Parcel) {
        let Some(sender) = parcel.sender else {
            return self.hang(client);
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
                let proof = proof::examine(socket.as_fd(), &mut self.listening);
                drop(socket);
                match proof {
                    Ok(proof) => self.happened(Event::Listen {
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
                let wish = Wish {
                    credentials,
                    serial,
                    no_wait,
                    wants_lease,
                    local: route::own(local),
                    peer,
                    source: route::source(destination(peer)),
                };
                self.happened(Event::Connect { client, wish });
            }
            (Message::Planes { count }, _) => self.offered(client, serial, sender.user, count),
            (Message::Status, _) => self.report(client, serial, sender.user, View::Totals),
            (Message::Top, _) => self.report(client, serial, sender.user, View::Processes),
            // What only the monitor says.
            _ => self.hang(client),
        }
    }

    fn hello(&mut self, id: ClientId, serial: u32, credentials: Credentials, slab: OwnedFd) {
        if is_elsewhere(credentials.process) {
            self.refuse(id, serial, Errno::NETUNREACH);
            return self.hang(id);
        }
        // Only files in memory have seals; others could make a read wait.
        if !fcntl_get_seals(&slab).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            self.refuse(id, serial, Errno::INVAL);
            return self.hang(id);
        }
        if self.registry.client(id).is_some_and(|known| !known.greeted) {
            self.slabs.insert(id, credentials, slab);
        }
        self.happened(Event::Hello { client: id, serial });
    }

    /// Has slabs be read for a report.
    fn report(&mut self, client: ClientId, serial: u32, user: u32, view: View) {
        let asked = Asked {
            client,
            serial,
            view,
            user,
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
        let Some(socket) = self.clients.get(&id) else {
            return;
        };
        let sent = match packets::send(socket, packet, descriptors) {
            // Too many descriptors are under way, which is not this process's fault.
            Err(Errno::TOOMANYREFS) => {
                let message = without_descriptors(packet.message);
                packets::send(socket, &Packet { message, ..*packet }, &[])
            }
            sent => sent,
        };
        if sent.is_err() {
            self.forget(id);
            self.tell(Event::Departed { client: id });
        }
    }
}

/// What is answered where descriptors cannot be sent.
fn without_descriptors(message: Message) -> Message {
    match message {
        Message::Connected(_) => Message::Kernel,
        _ => Message::Refused {
            errno: Errno::NOBUFS.raw_os_error().unsigned_abs(),
        },
    }
}

/// Whether a process is in another network namespace, or cannot be seen to be in this one. A system without `/proc`
/// is taken to have one.
fn is_elsewhere(process: u32) -> bool {
    let Ok(own) = std::fs::read_link("/proc/thread-self/ns/net") else {
        return false;
    };
    let other = std::fs::read_link(format!("/proc/{process}/ns/net"));
    other.ok() != Some(own)
}
