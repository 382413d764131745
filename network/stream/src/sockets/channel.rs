//! A program's channel to its monitor.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect,
    socket_with,
};

use super::packets::{self, refusal};
use super::stream::Stream;
use super::tally::Tally;
use crate::address::Address;
use crate::control::{Message, Packet};
use crate::lane::Side;
use crate::slab::Totals;

/// A program's channel to its monitor. The monitor takes the program for dead when it is dropped.
#[derive(Debug)]
pub struct Channel {
    socket: OwnedFd,
    serial: u32,
    tally: Tally,
}

/// Where connections for one listening socket arrive.
#[derive(Debug)]
pub struct Listener {
    pub(super) channel: OwnedFd,
}

impl Channel {
    /// Opens a channel to the monitor that listens at `path`.
    ///
    /// # Errors
    /// What the system says; what the monitor says if it refuses; [`io::ErrorKind::InvalidData`] if it is none.
    pub fn open(path: &Path) -> io::Result<Self> {
        let socket = socket_to(path, SocketFlags::CLOEXEC)?;
        let mut channel = Self {
            socket,
            serial: 0,
            tally: Tally::new()?,
        };
        let slab = channel.tally.as_fd().try_clone_to_owned()?;
        match channel.request(Message::Hello, &[slab.as_fd()])? {
            (Message::Welcome { .. }, _) => Ok(channel),
            (other, _) => Err(refusal(&other)),
        }
    }

    /// Has connections to where `socket` listens arrive here, too. `None` if the monitor leaves them to the
    /// kernel.
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

    /// Connects to `peer`. `None` if nobody listens there that the monitor knows: the kernel may know somebody.
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

    /// Has the monitor know what this program has counted.
    ///
    /// # Errors
    /// What the system says.
    pub fn report(&self, totals: &Totals) -> io::Result<()> {
        self.tally.report(totals)
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
            match packets::parcel(&self.socket, RecvFlags::empty()) {
                // Requests are made one at a time: an answer to an earlier one came too late.
                Ok(answer) if answer.packet.serial != self.serial => {}
                Ok(answer) => return Ok((answer.packet.message, answer.descriptors)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Channel {
    /// Readable without a request: the monitor is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Listener {
    /// The next client.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none; [`io::ErrorKind::UnexpectedEof`] if the monitor is gone;
    /// [`io::ErrorKind::InvalidData`] if what came is no connection.
    pub fn accept(&self) -> io::Result<Stream> {
        let parcel = packets::parcel(&self.channel, RecvFlags::DONTWAIT)?;
        match parcel.packet.message {
            Message::Incoming { link, .. } => {
                Stream::new(link, Side::Accepting, parcel.descriptors)
            }
            other => Err(refusal(&other)),
        }
    }
}

impl AsFd for Listener {
    /// Readable when there is a client, or the monitor is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.channel.as_fd()
    }
}

/// A socket that is connected to the monitor at `path`.
pub(super) fn socket_to(path: &Path, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}
