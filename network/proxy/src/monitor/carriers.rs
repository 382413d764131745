//! What planes carry.

use std::os::fd::OwnedFd;

use millrace_stream::control::{Link, Message, Packet};
use millrace_stream::partition::Opened;
use millrace_stream::{Geometry, Side};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_passcred;

use super::carried::Carried;
use super::connection::Connection;
use super::{Monitor, Token};
use crate::Result;
use crate::error::system;
use crate::plane::{Command, DataPlane, Endpoint, Event, Token as Number};
use crate::registry::{ClientId, Event as Departed, ListenerId, Refusal};

/// The planes, and the connections that they carry.
#[derive(Debug)]
pub(super) struct Carriers {
    pub(super) planes: DataPlane,
    last: Number,
    pub(super) flows: Carried,
    /// Connections that are over.
    pub(super) ended: u64,
    /// Bytes of these, from processes here and to them.
    pub(super) bytes: (u64, u64),
}

/// How far a connection is.
#[derive(Debug)]
pub(super) enum Flow {
    /// Carried, between two processes of this host.
    Within,
    /// A process here wants it.
    Asking(Box<Asking>),
    /// Another host's monitor wants it.
    Asked(Box<Asked>),
    /// Carried, with another host.
    Across,
}

/// A connection that a process here wants.
#[derive(Debug)]
pub(super) struct Asking {
    /// The stream to the other monitor.
    pub(super) session: u64,
    pub(super) partition: u16,
    pub(super) client: ClientId,
    pub(super) serial: u32,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) link: Link,
    pub(super) bell: OwnedFd,
    pub(super) memory: OwnedFd,
    /// How long it has waited.
    pub(super) ticks: u32,
    /// The other monitor was asked, and knows its number here.
    pub(super) is_asked: bool,
    /// The process has its answer: it has waited for too long. The number stays taken until the other monitor has
    /// answered, as frames that name it may come.
    pub(super) is_given_up: bool,
}

/// A connection that another host's monitor wants.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) session: u64,
    pub(super) partition: u16,
    /// How the other monitor calls it.
    pub(super) theirs: Number,
    pub(super) listener: ListenerId,
    pub(super) user: u32,
    pub(super) process: u32,
    pub(super) link: Link,
    pub(super) bell: OwnedFd,
    pub(super) memory: OwnedFd,
    pub(super) peer: Opened,
}

impl Carriers {
    /// A number for a connection.
    pub(super) const fn next(&mut self) -> Number {
        self.last += 1;
        self.last
    }

    /// Tells the plane of a partition something. False if it is gone.
    pub(super) fn tell(&self, partition: u16, command: Command) -> bool {
        self.planes.plane(partition).tell(command)
    }

    /// How many connections are carried: within this host, and with others.
    pub(super) fn counts(&self) -> (usize, usize) {
        let within = |flow: &Flow| matches!(flow, Flow::Within);
        let across = |flow: &Flow| matches!(flow, Flow::Across);
        let count = |of: &dyn Fn(&Flow) -> bool| self.flows.iter().filter(|it| of(it.1)).count();
        (count(&within), count(&across))
    }
}

impl Monitor {
    /// Has planes carry what processes cannot move themselves. Threads run them; they are stopped by
    /// [`Monitor::dismiss`].
    ///
    /// # Errors
    /// [`ErrorKind::System`](crate::ErrorKind::System) if the kernel refuses to watch them.
    pub fn carry(&mut self, planes: DataPlane) -> Result<()> {
        let (data, flags) = (Token::Planes.data(), epoll::EventFlags::IN);
        epoll::add(&self.epoll, planes.bell(), data, flags)
            .map_err(system("watching the planes"))?;
        self.registry.set_planes(!planes.planes().is_empty());
        self.carriers = Some(Carriers {
            planes,
            last: 0,
            flows: Carried::default(),
            ended: 0,
            bytes: (0, 0),
        });
        Ok(())
    }

    /// Stops the planes: what they carry ends in resets.
    pub fn dismiss(&mut self) {
        self.registry.set_planes(false);
        for plane in self.carriers.iter().flat_map(|found| found.planes.planes()) {
            plane.tell(Command::Stop);
        }
    }

    /// Has the plane with the fewest connections carry one between two processes. If there is none any more, both get
    /// a reset, as their bells hang up.
    pub(super) fn carry_within(&mut self, user: u32, first: Connection, second: Connection) {
        let geometry = self.geometry;
        let Some(carriers) = &mut self.carriers else {
            return;
        };
        let token = carriers.next();
        let ends = Box::new([
            endpoint(first.accepting, first.memory, geometry, Side::Connecting),
            endpoint(second.connecting, second.memory, geometry, Side::Accepting),
        ]);
        let planes = carriers.planes.planes().iter();
        if let Some(plane) = planes.min_by_key(|plane| plane.load()) {
            if plane.tell(Command::Loop { token, ends }) {
                carriers.flows.insert(token, user, Flow::Within);
            }
        }
    }

    /// Whether planes may carry one more connection of a user.
    pub(super) fn may_carry(&mut self, user: u32) -> bool {
        let limits = self.registry.settings().limits;
        let carriers = self.carriers.as_mut();
        carriers.is_some_and(|it| it.flows.has_room(user, &limits))
    }

    /// Hears what planes have to say.
    pub(super) fn hear_planes(&mut self) {
        let Some(carriers) = &self.carriers else {
            return;
        };
        let (events, is_there) = carriers.planes.told();
        for (_, event) in events {
            match event {
                Event::Joined { link } => self.joined(link),
                Event::Lost { link, loss } => self.lost(link, loss),
                Event::Opened { token, opened } => self.opened(token, opened),
                Event::Refused { token } => self.unopened(token, Refusal::Kernel),
                Event::Ended { token, bytes } => {
                    if let Some(carriers) = &mut self.carriers {
                        carriers.ended += 1;
                        carriers.bytes.0 += bytes.0;
                        carriers.bytes.1 += bytes.1;
                    }
                    self.unopened(token, Refusal::Kernel);
                }
                // Nobody has asked for one.
                Event::Report(_) => {}
            }
        }
        if !is_there {
            self.lose_planes();
        }
    }

    /// The process of the planes is gone, and all that they carried with it.
    fn lose_planes(&mut self) {
        self.registry.set_planes(false);
        self.part_all("the planes are gone");
        self.give_up(|_| true);
        if let Some(carriers) = self.carriers.take() {
            let deleted = epoll::delete(&self.epoll, carriers.planes.bell());
            debug_assert!(deleted.is_ok(), "it is in the epoll until now");
        }
    }

    /// A process offers its planes. They are taken if there are none, and it is the monitor's own user or root.
    pub(super) fn offered(&mut self, id: ClientId, serial: u32, user: u32, count: u16) {
        let own = rustix::process::geteuid().as_raw();
        let refusal = if ![0, own].contains(&user) {
            Some(Errno::PERM)
        } else if self.carriers.is_some() {
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
        // From here on it is no client any more.
        let Some(socket) = self.clients.remove(&id) else {
            return;
        };
        // The planes' reports need no sender.
        let told = set_socket_passcred(&socket, false);
        debug_assert!(told.is_ok(), "it is a socket of this machine");
        let deleted = epoll::delete(&self.epoll, &socket);
        debug_assert!(deleted.is_ok(), "a client is in the epoll");
        self.happened(Departed::Departed { client: id });
        // Not watched, it is dropped, which its process notices.
        let _ = self.carry(DataPlane::distant(socket, count));
    }
}

pub(super) const fn endpoint(
    bell: OwnedFd,
    memory: OwnedFd,
    geometry: Geometry,
    application: Side,
) -> Endpoint {
    Endpoint {
        bell,
        memory,
        geometry,
        application,
    }
}
