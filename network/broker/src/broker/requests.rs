//! The requests of processes, and the replies.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};

use millrace_stream::control::{ControlError, Message, Packet};
use rustix::fs::{SealFlags, fcntl_get_seals};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;

use super::slabs::ReportRequest;
use super::view::{Seen, View};
use super::{Broker, proof, report, route};
use crate::forwarder::ForwarderPool;
use crate::registry::{ClientId, ConnectRequest, Credentials, Event, destination};
use millrace_stream::sockets::packets::{ControlPacket, Malformed, Received};

/// Packets of one process that are read in a turn.
const PACKETS_PER_TURN: usize = 16;

impl Broker {
    /// Reads and handles packets of a process.
    pub(super) fn read(&mut self, id: ClientId) {
        for _ in 0..PACKETS_PER_TURN {
            let Some(received) = self.clients.receive(id) else {
                return;
            };
            match received {
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

    fn sources(&self) -> report::Sources<'_> {
        report::Sources {
            registry: &self.registry,
            slabs: &self.slabs,
            forwarded: self.forwarders.as_ref().map(|forwarders| {
                let loads = forwarders.loads();
                (&self.forwarded, loads)
            }),
            peers: self.peers.as_ref(),
        }
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
                let json = report::describe(&self.sources(), pending.view, seen);
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

    /// Attaches the forwarders that a process offers. It refuses with EPERM if the process is neither root's nor the
    /// broker's user's, and with EBUSY if forwarders are attached.
    fn handle_offer(&mut self, id: ClientId, serial: u32, user: u32, count: u16) {
        let own = rustix::process::geteuid().as_raw();
        let refusal = if ![0, own].contains(&user) {
            Some(Errno::PERM)
        } else if self.forwarders.is_some() {
            Some(Errno::BUSY)
        } else {
            None
        };
        if let Some(errno) = refusal {
            return self.refuse(id, serial, errno);
        }
        let message = Message::Welcome {
            ring_lines: self.registry.settings().ring_lines,
            spin_us_max: self.registry.settings().spin_us_max,
        };
        self.reply(id, &Packet { serial, message }, &[]);
        // The socket carries commands and events from here on; it is no client's.
        let Some(socket) = self.clients.take(id, &self.poller) else {
            return;
        };
        // Events of forwarders carry no credentials.
        let disabled = set_socket_passcred(&socket, false);
        debug_assert!(disabled.is_ok(), "the descriptor is a socket");
        self.handle(Event::Departed { client: id });
        // If `epoll_ctl` fails, the socket is dropped and its process sees the hang-up.
        let _ = self.attach_forwarders(ForwarderPool::ipc(socket, count));
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
