//! Control packets with descriptors over sockets.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::{Errno, Result};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt,
};

use super::ancillary;
pub use super::ancillary::Sender;
use crate::control::{ControlError, DESCRIPTORS_MAX, Message, PACKET, Packet};

/// The result of a receive call, without an error.
#[derive(Debug)]
pub enum Received {
    /// A well-formed packet with the descriptors of its message.
    Packet(ControlPacket),
    /// A malformed packet. Its descriptors are closed.
    Malformed(Malformed),
    /// The other end of the socket is closed.
    End,
}

/// A control packet with its descriptors and its sender.
#[derive(Debug)]
pub struct ControlPacket {
    /// The message with its serial number.
    pub packet: Packet,
    /// The descriptors, as many as the message has.
    pub descriptors: Vec<OwnedFd>,
    /// The sender's credentials, if the socket has `SO_PASSCRED`.
    pub sender: Option<Sender>,
}

/// The reason for which a packet is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Malformed {
    /// The bytes do not decode to a message.
    Bytes(ControlError),
    /// The packet has more or fewer descriptors than its message.
    Descriptors,
}

/// Sends a packet without blocking.
///
/// # Errors
/// `EAGAIN` if the socket is full, `EPIPE` if the other end is closed, and any other errno of `sendmsg`.
pub fn send(socket: impl AsFd, packet: &Packet, descriptors: &[BorrowedFd<'_>]) -> Result<()> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry(|| send_with(&socket, packet, descriptors, flags))
}

/// Sends a packet with the given flags.
pub(super) fn send_with(
    socket: impl AsFd,
    packet: &Packet,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> Result<()> {
    let bytes = packet.encode();
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::INVAL);
    }
    sendmsg(&socket, &[IoSlice::new(&bytes)], &mut control, flags).map(drop)
}

/// Receives the next packet.
///
/// # Errors
/// `EAGAIN` if there is none and the socket or the flags do not block, and any other errno of `recvmsg`.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Received> {
    // One byte more, so that a longer packet is detected.
    let mut bytes = [0; PACKET + 1];
    let taken = ancillary::receive(&socket, &mut bytes, flags)?;
    for descriptor in &taken.descriptors {
        // The last close of a lingering socket blocks; an untrusted sender must not block the receiver.
        if matches!(sockopt::socket_acceptconn(descriptor), Ok(false)) {
            let _no_socket = sockopt::set_socket_linger(descriptor, None);
        }
    }
    if taken.bytes == 0 && taken.descriptors.is_empty() {
        return Ok(Received::End);
    }
    let packet = match Packet::decode(&bytes[..taken.bytes]) {
        Ok(packet) => packet,
        Err(error) => return Ok(Received::Malformed(Malformed::Bytes(error))),
    };
    if taken.is_cut || taken.descriptors.len() != packet.message.descriptors() {
        return Ok(Received::Malformed(Malformed::Descriptors));
    }
    Ok(Received::Packet(ControlPacket {
        packet,
        descriptors: taken.descriptors,
        sender: taken.sender,
    }))
}

/// Repeats a call while a signal interrupts it (`EINTR`).
///
/// # Errors
/// Any other errno of the call.
pub fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The next packet, with an error for a malformed one.
pub(super) fn receive_valid(socket: impl AsFd, flags: RecvFlags) -> io::Result<ControlPacket> {
    match receive(socket, flags)? {
        Received::Packet(received) => Ok(received),
        Received::Malformed(wrong) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("malformed packet: {wrong:?}"),
        )),
        Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The error for a refusal or an unexpected message.
pub(super) fn refusal(message: &Message) -> io::Error {
    match message {
        Message::Refused { errno } => {
            io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(i32::MAX))
        }
        other => io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{other:?} is not an answer to the request"),
        ),
    }
}
