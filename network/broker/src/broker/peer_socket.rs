//! A TCP connection to another host's broker.

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

/// Bytes of one read.
const CHUNK: usize = 16 << 10;
/// Peers that the kernel queues before they are accepted.
const BACKLOG: i32 = 128;

/// The socket of a connection.
#[derive(Debug)]
pub(super) struct PeerSocket {
    socket: OwnedFd,
    /// Whether `connect` is still in progress.
    is_connecting: bool,
}

/// The result of a read.
#[derive(Debug)]
pub(super) enum Input {
    /// The received bytes, at least one.
    Bytes(Vec<u8>),
    /// No bytes are available now.
    Nothing,
    /// The peer has closed the connection.
    End,
}

impl PeerSocket {
    /// Starts a non-blocking connect to `address`.
    pub(super) fn dial(address: SocketAddr) -> Result<Self> {
        let socket = tcp(address)?;
        let is_connecting = match connect(&socket, &address) {
            Ok(()) => false,
            Err(Errno::INPROGRESS) => true,
            Err(errno) => return Err(errno),
        };
        set_tcp_nodelay(&socket, true)?;
        Ok(Self {
            socket,
            is_connecting,
        })
    }

    /// Wraps an accepted socket.
    pub(super) fn answer(socket: OwnedFd) -> Result<Self> {
        set_tcp_nodelay(&socket, true)?;
        Ok(Self {
            socket,
            is_connecting: false,
        })
    }

    /// Writes a session's output as far as the socket has room. True if output is left.
    pub(super) fn flush(&mut self, session: &mut Session) -> Result<bool> {
        if self.is_connecting {
            socket_error(&self.socket)??;
            if rustix::net::getpeername(&self.socket).is_err() {
                return Ok(true);
            }
            self.is_connecting = false;
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !session.output().is_empty() {
            match retry(|| send(&self.socket, session.output(), flags)) {
                Ok(count) => session.sent(count),
                Err(Errno::AGAIN) => return Ok(true),
                Err(errno) => return Err(errno),
            }
        }
        Ok(false)
    }

    /// Reads available bytes.
    pub(super) fn receive(&self) -> Result<Input> {
        if self.is_connecting {
            return Ok(Input::Nothing);
        }
        let mut bytes = vec![0; CHUNK];
        match retry(|| recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT)) {
            Ok((0, _)) => Ok(Input::End),
            Ok((count, _)) => {
                bytes.truncate(count);
                Ok(Input::Bytes(bytes))
            }
            Err(Errno::AGAIN) => Ok(Input::Nothing),
            Err(errno) => Err(errno),
        }
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A non-blocking listening socket for peers.
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
