//! Packets and the descriptors that come along with them, over sockets.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use millrace_stream::control::{ControlError, DESCRIPTORS_MAX, PACKET, Packet};
use rustix::io::{Errno, Result};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};

/// A packet that came.
#[derive(Debug)]
pub enum Received {
    /// A message with as many descriptors as it is to have.
    Packet(Packet, Vec<OwnedFd>),
    /// Something else. Descriptors that were along are closed.
    Wrong(Wrong),
    /// Nobody has the other end.
    End,
}

/// Why a packet is none that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Its bytes.
    Bytes(ControlError),
    /// More descriptors, or fewer, than its message has.
    Descriptors,
}

/// Sends a packet. Does not wait.
///
/// # Errors
/// `EAGAIN` if there is no room, `EPIPE` if nobody has the other end, and whatever else the kernel says.
pub fn send(socket: impl AsFd, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let bytes = packet.encode();
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry(|| sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, flags)).map(drop)
}

/// Takes the next packet.
///
/// # Errors
/// `EAGAIN` if there is none and the socket does not wait, and whatever else the kernel says.
pub fn receive(socket: impl AsFd) -> Result<Received> {
    // One byte more, so that a longer packet is seen to be one.
    let mut bytes = [0; PACKET + 1];
    // One more, too. The kernel closes those that do not fit.
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX + 1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC;
    let message = retry(|| {
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut buffers, &mut control, flags)
    })?;
    let mut descriptors = Vec::new();
    for part in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = part {
            descriptors.extend(rights);
        }
    }
    for socket in &descriptors {
        // The last close of a socket that lingers would wait; no stranger may have the monitor wait.
        if matches!(sockopt::socket_acceptconn(socket), Ok(false)) {
            let _no_socket = sockopt::set_socket_linger(socket, None);
        }
    }
    if message.bytes == 0 {
        return Ok(Received::End);
    }
    let packet = match Packet::decode(&bytes[..message.bytes]) {
        Ok(packet) => packet,
        Err(error) => return Ok(Received::Wrong(Wrong::Bytes(error))),
    };
    let all = !message.flags.contains(ReturnFlags::CTRUNC);
    if all && descriptors.len() == packet.message.descriptors() {
        Ok(Received::Packet(packet, descriptors))
    } else {
        Ok(Received::Wrong(Wrong::Descriptors))
    }
}

/// Again and again while a signal interrupts it.
pub(crate) fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}
