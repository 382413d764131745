//! Packets with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::cmsg_space;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::control::{DESCRIPTORS_MAX, Message, PACKET, Packet};

/// What came: a message and as many descriptors as belong to it.
pub(super) type Parcel = (Packet, Vec<OwnedFd>);

/// Sends one packet.
pub(super) fn send(
    socket: BorrowedFd<'_>,
    packet: &Packet,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let bytes = packet.encode();
    let slices = [IoSlice::new(&bytes)];
    sendmsg(socket, &slices, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Receives one packet. Descriptors that do not belong to it are closed.
pub(super) fn receive(socket: BorrowedFd<'_>, flags: RecvFlags) -> io::Result<Parcel> {
    let mut bytes = [0; PACKET + 1];
    // A few more than can come, so that those are seen and closed.
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(2 * DESCRIPTORS_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(&mut bytes)];
    let received = recvmsg(
        socket,
        &mut slices,
        &mut ancillary,
        flags | RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::with_capacity(DESCRIPTORS_MAX);
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.bytes == 0 {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let wrong = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let packet =
        Packet::decode(&bytes[..received.bytes]).map_err(|error| wrong(error.to_string()))?;
    let is_cut = received.flags.contains(ReturnFlags::CTRUNC);
    if is_cut || descriptors.len() != packet.message.descriptors() {
        return Err(wrong(format!(
            "{} descriptors with {:?}",
            descriptors.len(),
            packet.message
        )));
    }
    Ok((packet, descriptors))
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
