//! The blocking connection of a program to its broker.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};

use super::packets::{self, refusal};
use super::shared_counters::SharedCounters;
use super::stream::Stream;
use crate::address::Address;
use crate::control::{Message, Packet};
use crate::layout::Side;
use crate::slab::Totals;

/// A program's connection to its broker. Dropping it disconnects the program.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    serial: u32,
    counters: SharedCounters,
}

/// The channel on which one listening socket's connections arrive.
#[derive(Debug)]
pub struct Listener {
    pub(super) channel: OwnedFd,
}

impl Channel {
    /// Connects to the broker at `path`.
    ///
    /// # Errors
    /// The error of a failed system call; the broker's errno if it refuses; [`io::ErrorKind::InvalidData`] if it breaks
    /// the protocol.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = socket_to(path, SocketFlags::CLOEXEC)?;
        let mut channel = Self {
            socket,
            serial: 0,
            counters: SharedCounters::new()?,
        };
        let slab = channel.counters.as_fd().try_clone_to_owned()?;
        match channel.request(Message::Hello, &[slab.as_fd()])? {
            (Message::Welcome { .. }, _) => Ok(channel),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// Announces `socket`, so that its connections arrive here as well. `None` if the broker leaves them to the kernel.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn listen(&mut self, socket: impl AsFd, backlog: u32) -> io::Result<Option<Listener>> {
        let (answer, descriptors) = self.request(Message::Listen { backlog }, &[socket.as_fd()])?;
        match (answer, descriptors.into_iter().next()) {
            (Message::Listening, Some(channel)) => Ok(Some(Listener { channel })),
            (Message::Kernel, _) => Ok(None),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// Connects to `peer`. `None` if the broker knows no listener there; the kernel may know one.
    ///
    /// # Errors
    /// As [`Channel::open`].
    pub fn connect(&mut self, peer: SocketAddr) -> io::Result<Option<Stream>> {
        let any: SocketAddr = match peer {
            SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
            SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
        };
        let wanted = Message::Connect {
            no_wait: false,
            wants_lease: false,
            local: Address::from(any),
            peer: Address::from(peer),
        };
        let (answer, descriptors) = self.request(wanted, &[])?;
        match answer {
            Message::Connected(link) => Stream::new(link, Side::Connecting, descriptors).map(Some),
            Message::Kernel => Ok(None),
            other => Err(refusal(&other)),
        }
    }

    /// Publishes this program's counters to the broker.
    ///
    /// # Errors
    /// The error of the failed system call.
    pub fn report(&self, totals: &Totals) -> io::Result<()> {
        self.counters.report(totals)
    }

    fn request(
        &mut self,
        message: Message,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<(Message, Vec<OwnedFd>)> {
        self.serial = self.serial.wrapping_add(1);
        let packet = Packet {
            serial: self.serial,
            message,
        };
        let flags = SendFlags::NOSIGNAL;
        packets::retry(|| packets::send_with(&self.socket, &packet, descriptors, flags))?;
        loop {
            match packets::receive_valid(&self.socket, RecvFlags::empty()) {
                // Requests are sequential: this is a late answer to an earlier one.
                Ok(answer) if answer.packet.serial != self.serial => {}
                Ok(answer) => return Ok((answer.packet.message, answer.descriptors)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Channel {
    /// Readable without a request when the broker has disconnected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listener {
    /// Accepts the next connection without blocking.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none; [`io::ErrorKind::UnexpectedEof`] if the broker has disconnected;
    /// [`io::ErrorKind::InvalidData`] if the packet is not a connection.
    pub fn accept(&self) -> io::Result<Stream> {
        let received = packets::receive_valid(&self.channel, RecvFlags::DONTWAIT)?;
        match received.packet.message {
            Message::Incoming { link, .. } => {
                Stream::new(link, Side::Accepting, received.descriptors)
            }
            other => Err(refusal(&other)),
        }
    }
}

impl AsFd for Listener {
    /// Readable when a connection waits, or the broker has disconnected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// A socket connected to the broker at `path`.
pub(super) fn socket_to(path: &Path, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
