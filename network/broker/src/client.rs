//! A client of the broker's control socket.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use millrace_stream::Address;
use millrace_stream::control::{Lease, Link, Message, Packet};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::net::{
    AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with,
};

use crate::error::system;
use crate::{Error, ErrorKind, Result};
use millrace_stream::sockets::packets::{self, Received, retry};

/// The largest report that is read, in bytes.
const REPORT_MAX: u64 = 64 << 20;

/// A blocking connection to a broker.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    serial: u32,
}

/// The descriptors of one side of a connection.
#[derive(Debug)]
pub struct ConnectionFds {
    /// The addresses, the mode and the ring size.
    pub link: Link,
    /// This side's end of the wake-up socket pair.
    pub wakeup: OwnedFd,
    /// The memory file that both sides map.
    pub memory: OwnedFd,
}

/// The answer to a connect request.
#[derive(Debug)]
pub enum Connected {
    /// The connection is made at user level.
    User(ConnectionFds),
    /// A lease: this process creates the connection, and others, itself. With the listener's channel.
    Lease(Lease, OwnedFd),
    /// The connection is left to the kernel's TCP.
    Kernel,
    /// The request is refused with this errno.
    Refused(Errno),
}

/// A connection that arrived on a listener's channel.
#[derive(Debug)]
pub struct Incoming {
    /// The accepting side's wake-up fd and memory.
    pub fds: ConnectionFds,
    /// The user id of the connecting process.
    pub user: u32,
    /// The process id of the connecting process.
    pub process: u32,
}

impl Client {
    /// Connects to the broker at a path.
    ///
    /// # Errors
    /// [`ErrorKind::NotRunning`] if no broker listens there; [`ErrorKind::System`] if a system call fails.
    pub fn connect(path: &Path) -> Result<Self> {
        let attempted = || format!("connecting to the broker at {}", path.display());
        let name = SocketAddrUnix::new(path).map_err(system(attempted()))?;
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(system(attempted()))?;
        match connect(&socket, &name) {
            Ok(()) => Ok(Self { socket, serial: 0 }),
            Err(errno @ (Errno::NOENT | Errno::CONNREFUSED)) => {
                let context = format!("no broker listens at {}", path.display());
                Err(Error::new(ErrorKind::NotRunning, context).caused_by(errno))
            }
            Err(errno) => Err(system(attempted())(errno)),
        }
    }

    /// The user id of the broker's process; `None` if the kernel does not report it.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        let peer = socket_peercred(&self.socket).ok()?;
        Some(peer.uid.as_raw())
    }

    /// Registers this process by HELLO. Returns the lines of each ring, and the longest spin in microseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] with the errno; [`ErrorKind::System`] if the broker has closed the connection.
    pub fn hello(&mut self, slab: impl AsFd) -> Result<(u32, u32)> {
        match self.ask(Message::Hello, &[slab.as_fd()])? {
            (
                Message::Welcome {
                    ring_lines,
                    spin_us_max,
                },
                _,
            ) => Ok((ring_lines, spin_us_max)),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// Announces a listening socket. Returns the channel for [`accept`], or `None` if the kernel alone serves it.
    ///
    /// # Errors
    /// As [`Client::hello`].
    pub fn listen(&mut self, socket: impl AsFd, backlog: u32) -> Result<Option<OwnedFd>> {
        match self.ask(Message::Listen { backlog }, &[socket.as_fd()])? {
            (Message::Listening, descriptors) => Ok(descriptors.into_iter().next()),
            (Message::Kernel, _) => Ok(None),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// Requests a connection, and waits for the answer.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the broker has closed the connection.
    pub fn open(&mut self, local: Address, peer: Address, no_wait: bool) -> Result<Connected> {
        self.request(local, peer, no_wait)?;
        let (_, connected) = self.answer()?;
        Ok(connected)
    }

    /// Requests a connection without waiting. Returns the request's serial number.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the broker has closed the connection.
    pub fn request(&mut self, local: Address, peer: Address, no_wait: bool) -> Result<u32> {
        self.send(wanted(local, peer, no_wait, false), &[])
    }

    /// Requests a connection or a lease, and waits for the answer.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the broker has closed the connection.
    pub fn lease(&mut self, local: Address, peer: Address) -> Result<Connected> {
        self.send(wanted(local, peer, false, true), &[])?;
        let (_, connected) = self.answer()?;
        Ok(connected)
    }

    /// Waits for the answer to a [`Client::request`]. Returns the request's serial number and the answer.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if the packet is not an answer; [`ErrorKind::System`] if the broker has closed the
    /// connection.
    pub fn answer(&mut self) -> Result<(u32, Connected)> {
        let (packet, descriptors) = receive(&self.socket)?;
        let connected = match packet.message {
            Message::Connected(link) => Connected::User(connection_fds(link, descriptors)?),
            Message::Lease(lease) => Connected::Lease(lease, first(descriptors)?),
            Message::Kernel => Connected::Kernel,
            Message::Refused { errno } => Connected::Refused(errno_of(errno)),
            other => return Err(unexpected(other)),
        };
        Ok((packet.serial, connected))
    }

    /// Offers forwarders of this process. Returns the socket on which the broker sends them commands
    /// ([`serve`](crate::forwarder::serve)).
    ///
    /// # Errors
    /// As [`Client::hello`]: `EBUSY` if forwarders are attached; `EPERM` for users other than the broker's and root.
    pub fn offer_forwarders(mut self, count: u16) -> Result<OwnedFd> {
        match self.ask(Message::OfferForwarders { count }, &[])? {
            (Message::Welcome { .. }, _) => Ok(self.socket),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// The broker's report as JSON: sums ([`Message::Status`]) or processes ([`Message::Top`]).
    ///
    /// # Errors
    /// As [`Client::hello`].
    pub fn report(&mut self, of: Message) -> Result<String> {
        let (length, file) = match self.ask(of, &[])? {
            (Message::Report { length }, descriptors) => (length, descriptors.into_iter().next()),
            (other, _) => return Err(unexpected(other)),
        };
        let file = file.ok_or_else(|| unexpected(Message::Report { length }))?;
        rustix::fs::seek(&file, rustix::fs::SeekFrom::Start(0))
            .map_err(system("reading a report"))?;
        let mut text = String::new();
        File::from(file)
            .take(length.min(REPORT_MAX))
            .read_to_string(&mut text)
            .map_err(|error| Error::new(ErrorKind::System, "reading a report").caused_by(error))?;
        Ok(text)
    }

    /// The control socket, for `poll` and `fcntl`.
    #[must_use]
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn ask(
        &mut self,
        message: Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> Result<(Message, Vec<OwnedFd>)> {
        self.send(message, descriptors)?;
        let (packet, descriptors) = receive(&self.socket)?;
        Ok((packet.message, descriptors))
    }

    fn send(&mut self, message: Message, descriptors: &[BorrowedFd<'_>]) -> Result<u32> {
        self.serial = self.serial.wrapping_add(1);
        let serial = self.serial;
        packets::send(&self.socket, &Packet { serial, message }, descriptors)
            .map_err(system("outgoing the broker"))?;
        Ok(serial)
    }
}

/// Accepts the next connection from a listener's channel; blocks until one arrives.
///
/// # Errors
/// [`ErrorKind::System`] if the broker has closed the channel; [`ErrorKind::Refused`] if the packet is malformed.
pub fn accept(channel: impl AsFd) -> Result<Incoming> {
    let (packet, descriptors) = receive(channel)?;
    match packet.message {
        Message::Incoming {
            link,
            user,
            process,
        } => Ok(Incoming {
            fds: connection_fds(link, descriptors)?,
            user,
            process,
        }),
        other => Err(unexpected(other)),
    }
}

fn receive(socket: impl AsFd) -> Result<(Packet, Vec<OwnedFd>)> {
    let received = retry(|| packets::receive(&socket, RecvFlags::empty()))
        .map_err(system("receiving from the broker"))?;
    match received {
        Received::Packet(parcel) => Ok((parcel.packet, parcel.descriptors)),
        Received::Malformed(wrong) => {
            let context = format!("malformed packet of the broker: {wrong:?}");
            Err(Error::new(ErrorKind::Refused, context))
        }
        Received::End => Err(Error::new(
            ErrorKind::System,
            "the broker has closed the connection",
        )),
    }
}

fn connection_fds(link: Link, descriptors: Vec<OwnedFd>) -> Result<ConnectionFds> {
    let both: [OwnedFd; 2] = descriptors.try_into().map_err(|_| {
        Error::new(
            ErrorKind::Refused,
            "protocol error: a connection without its two descriptors",
        )
    })?;
    let [wakeup, memory] = both;
    Ok(ConnectionFds {
        link,
        wakeup,
        memory,
    })
}

fn first(descriptors: Vec<OwnedFd>) -> Result<OwnedFd> {
    let missing = || {
        Error::new(
            ErrorKind::Refused,
            "protocol error: a message without its descriptor",
        )
    };
    descriptors.into_iter().next().ok_or_else(missing)
}

fn wanted(local: Address, peer: Address, no_wait: bool, wants_lease: bool) -> Message {
    Message::Connect {
        no_wait,
        wants_lease,
        local,
        peer,
    }
}

fn errno_of(number: u32) -> Errno {
    i32::try_from(number).map_or(Errno::IO, Errno::from_raw_os_error)
}

fn unexpected(message: Message) -> Error {
    match message {
        Message::Refused { errno } => {
            Error::new(ErrorKind::Refused, "the broker refused the request")
                .caused_by(errno_of(errno))
        }
        other => Error::new(
            ErrorKind::Refused,
            format!("protocol error: unexpected reply {other:?}"),
        ),
    }
}
