//! A listener's channel: a pair of sockets that takes as many packets as the backlog says.
//!
//! Nobody counts. The kernel says that a socket is writable while what it has sent and the other side has not taken
//! fills no more than a quarter of its send buffer (`unix_writable` of Linux); the buffer is made so large that this is
//! so while no more than `backlog` packets wait. As with the kernel's TCP, one more than the backlog fits.
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

/// The monitor's end of a channel.
#[derive(Debug)]
pub(super) struct Channel {
    socket: OwnedFd,
}

/// What one packet takes of a socket's send buffer, as this kernel counts.
#[derive(Clone, Copy, Debug)]
pub(super) struct PacketCost(usize);

impl PacketCost {
    /// Fills a pair of sockets until it is not writable any more.
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
        // `sent` packets are more than a quarter, one less are not: in between, with `sent` at least 1.
        Ok(Self(quarter / sent.max(1) + 1))
    }

    /// The send buffer, as the kernel is asked for it, in which `backlog` packets fill no quarter, and one more does.
    fn buffer(self, backlog: u32) -> usize {
        let packets = usize::try_from(backlog).unwrap_or(usize::MAX);
        let wanted = self.0.saturating_mul(packets).saturating_add(self.0 / 2);
        // The kernel takes twice of what it is asked for.
        wanted.saturating_mul(2).min(i32::MAX as usize)
    }
}

impl Channel {
    /// A channel for so many packets, and the listener's end of it.
    pub(super) fn open(backlog: u32, cost: PacketCost) -> Result<(Self, OwnedFd)> {
        let (socket, theirs) = pair(SocketFlags::empty())?;
        set_socket_send_buffer_size(&socket, cost.buffer(backlog))?;
        // Nothing is received: an end that is sent into its own channel would keep it open for ever.
        shutdown(&socket, Shutdown::Read)?;
        // Who accepts learns who has sent.
        set_socket_passcred(&theirs, true)?;
        Ok((Self { socket }, theirs))
    }

    /// Puts a connection into it.
    pub(super) fn send(&self, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
        packets::send(&self.socket, packet, descriptors)
    }

    /// Whether fewer wait than may.
    pub(super) fn has_room(&self) -> bool {
        // What is wrong with it will be seen by whoever sends.
        is_writable(&self.socket).unwrap_or(true)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        // Whoever was lent it may keep a descriptor of it: it ends for all of them.
        let _is_gone = shutdown(&self.socket, Shutdown::Both);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Two connected sockets.
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
