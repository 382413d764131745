//! The other end of a monitor's socket, for programs that speak to it by themselves.

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

/// The largest report that is read.
const REPORT_MAX: u64 = 64 << 20;

/// A connection to a monitor. Waits for its replies.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    serial: u32,
}

/// One side of a connection.
#[derive(Debug)]
pub struct Ends {
    /// The names, the mode, the size.
    pub link: Link,
    /// This side's end of the bell.
    pub bell: OwnedFd,
    /// The memory of both sides.
    pub memory: OwnedFd,
}

/// The answer to a connection that was wanted.
#[derive(Debug)]
pub enum Connected {
    /// It is made.
    User(Ends),
    /// This process is to make it, and others, itself; the listener's channel is along.
    Lease(Lease, OwnedFd),
    /// The kernel's TCP is to serve it.
    Kernel,
    /// It is refused, for this reason.
    Refused(Errno),
}

/// A connection that a listener got.
#[derive(Debug)]
pub struct Incoming {
    /// This side of it.
    pub ends: Ends,
    /// The user who connects.
    pub user: u32,
    /// The process that connects.
    pub process: u32,
}

impl Client {
    /// Connects to the monitor at a path.
    ///
    /// # Errors
    /// [`ErrorKind::NotRunning`] if none listens there; [`ErrorKind::System`] for what the kernel refuses.
    pub fn connect(path: &Path) -> Result<Self> {
        let attempted = || format!("connecting to the monitor at {}", path.display());
        let name = SocketAddrUnix::new(path).map_err(system(attempted()))?;
        let kind = SocketType::SEQPACKET;
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
            .map_err(system(attempted()))?;
        match connect(&socket, &name) {
            Ok(()) => Ok(Self { socket, serial: 0 }),
            Err(errno @ (Errno::NOENT | Errno::CONNREFUSED)) => {
                let context = format!("no monitor listens at {}", path.display());
                Err(Error::new(ErrorKind::NotRunning, context).caused_by(errno))
            }
            Err(errno) => Err(system(attempted())(errno)),
        }
    }

    /// The user whose monitor it is; none if the kernel does not say.
    #[must_use]
    pub fn owner(&self) -> Option<u32> {
        let peer = socket_peercred(&self.socket).ok()?;
        Some(peer.uid.as_raw())
    }

    /// Says HELLO; returns the lines of rings and for how long to spin, in microseconds.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] with the reason, [`ErrorKind::System`] if the monitor has gone.
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

    /// Announces a listening socket; returns the channel for [`accept`]. None: the kernel alone is to serve it.
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

    /// Asks for a connection and waits for the answer.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the monitor has gone.
    pub fn open(&mut self, local: Address, peer: Address, no_wait: bool) -> Result<Connected> {
        self.request(local, peer, no_wait)?;
        let (_, connected) = self.answer()?;
        Ok(connected)
    }

    /// Asks for a connection; returns the request's number.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the monitor has gone.
    pub fn request(&mut self, local: Address, peer: Address, no_wait: bool) -> Result<u32> {
        self.send(wanted(local, peer, no_wait, false), &[])
    }

    /// Asks for a connection, or for a lease by which this process makes it itself.
    ///
    /// # Errors
    /// [`ErrorKind::System`] if the monitor has gone.
    pub fn borrow(&mut self, local: Address, peer: Address) -> Result<Connected> {
        self.send(wanted(local, peer, false, true), &[])?;
        let (_, connected) = self.answer()?;
        Ok(connected)
    }

    /// Waits for an answer to [`Client::request`]; returns whose it is, too.
    ///
    /// # Errors
    /// [`ErrorKind::Refused`] if it is none, [`ErrorKind::System`] if the monitor has gone.
    pub fn answer(&mut self) -> Result<(u32, Connected)> {
        let (packet, descriptors) = receive(&self.socket)?;
        let connected = match packet.message {
            Message::Connected(link) => Connected::User(ends(link, descriptors)?),
            Message::Lease(lease) => Connected::Lease(lease, first(descriptors)?),
            Message::Kernel => Connected::Kernel,
            Message::Refused { errno } => Connected::Refused(errno_of(errno)),
            other => return Err(unexpected(other)),
        };
        Ok((packet.serial, connected))
    }

    /// Offers planes of this process; returns the socket over which the monitor gives orders to them
    /// ([`serve`](crate::plane::serve)).
    ///
    /// # Errors
    /// As [`Client::hello`]: `EBUSY` if there are planes already, `EPERM` for other users than the monitor's and root.
    pub fn offer(mut self, count: u16) -> Result<OwnedFd> {
        match self.ask(Message::Planes { count }, &[])? {
            (Message::Welcome { .. }, _) => Ok(self.socket),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// What the monitor says of itself, as JSON: sums ([`Message::Status`]) or processes ([`Message::Top`]).
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

    /// The connection, for polls.
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
            .map_err(system("asking the monitor"))?;
        Ok(serial)
    }
}

/// Takes the next connection from a listener's channel; waits for one.
///
/// # Errors
/// [`ErrorKind::System`] if the monitor has gone, [`ErrorKind::Refused`] if it said something else.
pub fn accept(channel: impl AsFd) -> Result<Incoming> {
    let (packet, descriptors) = receive(channel)?;
    match packet.message {
        Message::Incoming {
            link,
            user,
            process,
        } => Ok(Incoming {
            ends: ends(link, descriptors)?,
            user,
            process,
        }),
        other => Err(unexpected(other)),
    }
}

fn receive(socket: impl AsFd) -> Result<(Packet, Vec<OwnedFd>)> {
    let received = retry(|| packets::receive(&socket, RecvFlags::empty()))
        .map_err(system("hearing the monitor"))?;
    match received {
        Received::Packet(parcel) => Ok((parcel.packet, parcel.descriptors)),
        Received::Wrong(wrong) => {
            let context = format!("the monitor said what makes no sense: {wrong:?}");
            Err(Error::new(ErrorKind::Refused, context))
        }
        Received::End => Err(Error::new(ErrorKind::System, "the monitor has gone")),
    }
}

fn ends(link: Link, descriptors: Vec<OwnedFd>) -> Result<Ends> {
    let both: [OwnedFd; 2] = descriptors
        .try_into()
        .map_err(|_| Error::new(ErrorKind::Refused, "a connection without its descriptors"))?;
    let [bell, memory] = both;
    Ok(Ends { link, bell, memory })
}

fn first(descriptors: Vec<OwnedFd>) -> Result<OwnedFd> {
    let missing = || Error::new(ErrorKind::Refused, "a message without its descriptor");
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
            Error::new(ErrorKind::Refused, "the monitor refuses it").caused_by(errno_of(errno))
        }
        other => Error::new(
            ErrorKind::Refused,
            format!("the monitor said what makes no sense here: {other:?}"),
        ),
    }
}
