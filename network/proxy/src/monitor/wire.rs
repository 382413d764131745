//! A TCP stream to another host's monitor.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::{Errno, Result};
use rustix::net::sockopt::{set_socket_reuseaddr, set_tcp_nodelay, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, connect, listen, recv,
    send, socket_with,
};

use crate::peer::Session;
use millrace_stream::sockets::packets::retry;

/// Bytes that are taken at once.
const CHUNK: usize = 16 << 10;
/// Peers that may wait to be answered.
const BACKLOG: i32 = 128;

/// The socket, and what is said over it.
#[derive(Debug)]
pub(super) struct Wire {
    socket: OwnedFd,
    pub(super) session: Session,
    /// The kernel has not connected it yet.
    is_connecting: bool,
}

/// What has become of a stream.
#[derive(Debug)]
pub(super) enum Heard {
    /// So many bytes came.
    Bytes(Vec<u8>),
    /// None for now.
    Nothing,
    /// The peer has ended it.
    End,
}

impl Wire {
    /// Dials.
    pub(super) fn dial(address: SocketAddr, session: Session) -> Result<Self> {
        let socket = tcp(address)?;
        let is_connecting = match connect(&socket, &address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(errno) => return Err(errno),
        };
        set_tcp_nodelay(&socket, true)?;
        Ok(Self {
            socket,
            session,
            is_connecting,
        })
    }

    /// A peer has dialled.
    pub(super) fn answer(socket: OwnedFd, session: Session) -> Result<Self> {
        set_tcp_nodelay(&socket, true)?;
        Ok(Self {
            socket,
            session,
            is_connecting: false,
        })
    }

    /// Sends what is to go out, as much as there is room for. Whether something is left.
    pub(super) fn flush(&mut self) -> Result<bool> {
        if self.is_connecting {
            socket_error(&self.socket)??;
            if rustix::net::getpeername(&self.socket).is_err() {
                return Ok(true);
            }
            self.is_connecting = false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !self.session.output().is_empty() {
            match retry(|| send(&self.socket, self.session.output(), flags)) {
                Ok(count) => self.session.sent(count),
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// Takes what came.
    pub(super) fn hear(&self) -> Result<Heard> {
        if self.is_connecting {
            return Ok(Heard::Nothing);
        }
        let mut bytes = vec![0; CHUNK];
        match retry(|| recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)) {
            Ok((0, _)) => Ok(Heard::End),
            Ok((count, _)) => {
                bytes.truncate(count);
                Ok(Heard::Bytes(bytes))
            }
            Err(Errno::AGAIN) => Ok(Heard::Nothing),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A socket that listens for peers.
pub(super) fn listener(address: SocketAddr) -> Result<OwnedFd> {
    let socket = tcp(address)?;
    set_socket_reuseaddr(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket)
}

fn tcp(address: SocketAddr) -> Result<OwnedFd> {
    let family = if address.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}
