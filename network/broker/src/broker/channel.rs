//! A listener's channel: a pair of SEQPACKET sockets whose capacity is the backlog.
//!
//! The kernel bounds the channel. It reports a socket as writable while the unread packets fill at most a quarter of
//! its send buffer (`unix_writable` in Linux). The buffer size is chosen so that `backlog` packets fill at most that
//! quarter. As in kernel TCP, one connection more than the backlog fits.
//!
//! The kernel bounds buffers (`net.core.wmem_max`): with its default, a backlog is at most about 138.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::control::{Message, Packet};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{
    set_socket_passcred, set_socket_send_buffer_size, socket_send_buffer_size,
};
use rustix::net::{AddressFamily, Shutdown, SocketFlags, SocketType, shutdown, socketpair};

use millrace_stream::sockets::packets;

/// The broker's end of a channel.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

/// The bytes of a socket's send buffer that this kernel charges for one packet.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketCost(usize);

impl PacketCost {
    /// Measures the cost: fills a pair of sockets until the kernel reports it as not writable.
    pub(super) fn measure() -> Result<Self> {
        let (ours, _theirs) = pair(SocketFlags::NONBLOCK)?;
        let quarter = socket_send_buffer_size(&ours)? / 4;
        let packet = Packet {
            serial: 0,
            message: Message::Kernel,
        };
        let mut sent = 0;
        while is_writable(&ours)? {
            match packets::send(&ours, &packet, &[]) {
                Ok(()) => sent += 1,
                Err(Errno::AGAIN) => break,
                Err(errno) => return Err(errno),
            }
        }
        // `sent` packets exceed a quarter and `sent - 1` do not. The result lies in between; `sent` is at least 1.
        Ok(Self(quarter / sent.max(1) + 1))
    }

    /// The value for `SO_SNDBUF`: `backlog` packets fill at most a quarter of the buffer, `backlog + 1` exceed it.
    fn buffer(self, backlog: u32) -> usize {
        let packets = usize::try_from(backlog).unwrap_or(usize::MAX);
        let wanted = self.0.saturating_mul(packets).saturating_add(self.0 / 2);
        // The kernel doubles the requested value.
        wanted.saturating_mul(2).min(i32::MAX as usize)
    }
}

impl Channel {
    /// A channel for `backlog` packets, and the listener's socket of it.
    pub(super) fn open(backlog: u32, cost: PacketCost) -> Result<(Self, OwnedFd)> {
        let (socket, theirs) = pair(SocketFlags::empty())?;
        set_socket_send_buffer_size(&socket, cost.buffer(backlog))?;
        // This side never receives. If a program sends the socket into its own channel, the shutdown still lets it
        // close.
        shutdown(&socket, Shutdown::Read)?;
        // The accepting process reads the sender's credentials.
        set_socket_passcred(&theirs, true)?;
        Ok((Self { socket }, theirs))
    }

    /// Sends a connection into the channel.
    pub(super) fn send(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        packets::send(&self.socket, packet, descriptors)
    }

    /// Whether fewer than `backlog` packets wait.
    pub(super) fn has_room(&self) -> bool {
        // On an error the next send reports it.
        is_writable(&self.socket).unwrap_or(true)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // A process with a lease may keep a descriptor of it: the shutdown ends the channel for all holders.
        let _is_gone = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// A pair of connected SEQPACKET sockets.
pub(super) fn pair(flags: SocketFlags) -> Result<(OwnedFd, OwnedFd)> {
    let flags = flags | SocketFlags::CLOEXEC;
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

fn is_writable(socket: &OwnedFd) -> Result<bool> {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let mut polled = [PollFd::new(socket, PollFlags::OUT)];
    packets::retry(|| poll(&mut polled, Some(&now)))?;
    Ok(polled[0].revents().contains(PollFlags::OUT))
}
