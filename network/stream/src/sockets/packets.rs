//! Packets and the descriptors that come along with them, over sockets.

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::io::{Errno, Result};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg, sockopt,
};

pub use super::ancillary::Sender;
use super::ancillary::take;
use crate::control::{ControlError, DESCRIPTORS_MAX, Message, PACKET, Packet};

/// A packet that came.
#[derive(Debug)]
pub enum Received {
    /// A message with as many descriptors as it is to have.
    Packet(Parcel),
    /// Something else. Descriptors that were along are closed.
    Wrong(Wrong),
    /// Nobody has the other end.
    End,
}

/// A packet, what came along, and by whom.
#[derive(Debug)]
pub struct Parcel {
    /// The message.
    pub packet: Packet,
    /// As many as the message has.
    pub descriptors: Vec<OwnedFd>,
    /// Who has sent it, if the socket asks for it (`SO_PASSCRED`).
    pub sender: Option<Sender>,
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
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    retry(|| send_with(&socket, packet, descriptors, flags))
}

/// The same, with flags of one's own.
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

/// Takes the next packet.
///
/// # Errors
/// `EAGAIN` if there is none and the socket or the flags do not wait, and whatever else the kernel says.
pub fn receive(socket: impl AsFd, flags: RecvFlags) -> Result<Received> {
    // One byte more, so that a longer packet is seen to be one.
    let mut bytes = [0; PACKET + 1];
    let taken = take(&socket, &mut bytes, flags)?;
    for descriptor in &taken.descriptors {
        // The last close of a socket that lingers would wait; no stranger may have the receiver wait.
        if matches!(sockopt::socket_acceptconn(descriptor), Ok(false)) {
            let _no_socket = sockopt::set_socket_linger(descriptor, None);
        }
    }
    if taken.bytes == 0 && taken.descriptors.is_empty() {
        return Ok(Received::End);
    }
    let packet = match Packet::decode(&bytes[..taken.bytes]) {
        Ok(packet) => packet,
        Err(error) => return Ok(Received::Wrong(Wrong::Bytes(error))),
    };
    if taken.is_cut || taken.descriptors.len() != packet.message.descriptors() {
        return Ok(Received::Wrong(Wrong::Descriptors));
    }
    Ok(Received::Packet(Parcel {
        packet,
        descriptors: taken.descriptors,
        sender: taken.sender,
    }))
}

/// Again and again while a signal interrupts it.
///
/// # Errors
/// Any other that the call gives.
pub fn retry<T>(mut call: impl FnMut() -> Result<T>) -> Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// The next packet, for whoever can do nothing with anything else.
pub(super) fn parcel(socket: impl AsFd, flags: RecvFlags) -> io::Result<Parcel> {
    match receive(socket, flags)? {
        Received::Packet(parcel) => Ok(parcel),
        Received::Wrong(wrong) => Err(io::Error::new(
            io::ErrorKind::InvalidData,
            format!("what came is no message: {wrong:?}"),
        )),
        Received::End => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The error that a refusal stands for.
pub(super) fn refusal(message: &Message) -> io::Error {
    match message {
        Message::Refused { errno } => {
            io::Error::from_raw_os_error(i32::try_from(*errno).unwrap_or(i32::MAX))
        }
        other => io::Error::new(
            io::ErrorKind::InvalidData,
            format!("{other:?} is no answer to that"),
        ),
    }
}
