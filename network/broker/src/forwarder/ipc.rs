//! The protocol between a broker and the forwarders of another process.
//!
//! Both ends run the same program for the same user and trust each other. A packet is one command or one event:
//! forwarder u16 | kind u8 | fields of the kind, little-endian. When a process exits, the other sees the hang-up: the
//! broker then treats all forwarded connections as reset, as the kernel hangs up the wake-up sockets of the exited
//! process.

use std::ffi::OsStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use millrace_stream::partition::{Class, ConnectionId, OpenReply, PartitionGeometry, SessionError};
use millrace_stream::{Geometry, Side};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::command::{Command, Event, JoinAt, Open};
use super::end::Endpoint;
use super::pool::ForwarderPool;
use crate::Result;
use crate::error::system;
use millrace_stream::sockets::{ancillary, packets::retry};

/// Bytes of the longest packet: a path has at most 4,096.
const PACKET_MAX: usize = 8192;
const DESCRIPTORS_MAX: usize = 4;
/// The time for which a full socket may block a send.
const SEND_TIMEOUT: Timespec = Timespec {
    tv_sec: 2,
    tv_nsec: 0,
};

const JOIN_AT: u8 = 1;
const LEAVE: u8 = 2;
const OPEN: u8 = 3;
const ESTABLISH: u8 = 4;
const LOOP: u8 = 5;
const CLOSE: u8 = 6;
const STOP: u8 = 7;
const JOINED: u8 = 8;
const LOST: u8 = 9;
const OPENED: u8 = 10;
const REFUSED: u8 = 11;
const ENDED: u8 = 12;

/// Executes the broker's commands from `socket` on the forwarders of this process, until the broker disconnects.
///
/// # Errors
/// [`ErrorKind::System`](crate::ErrorKind::System) if `poll` fails.
pub fn serve(socket: impl AsFd, pool: &ForwarderPool) -> Result<()> {
    loop {
        let (events, _) = pool.take_events();
        for (forwarder, event) in events {
            let bytes = encode_event(forwarder, event);
            if bytes.is_some_and(|bytes| !send(&socket, &bytes, &[])) {
                return Ok(());
            }
        }
        let wakeup = pool.wakeup_fd();
        let mut watched = [
            PollFd::new(&socket, PollFlags::IN),
            PollFd::new(&wakeup, PollFlags::IN),
        ];
        retry(|| poll(&mut watched, None)).map_err(system("waiting for commands of the broker"))?;
        if watched[0].revents().is_empty() {
            continue;
        }
        match receive(&socket) {
            Packet::Nothing => {}
            Packet::End => return Ok(()),
            Packet::Bytes(bytes, descriptors) => {
                let command = decode_command(&bytes, descriptors);
                let Some((forwarder, command)) = command else {
                    return Ok(());
                };
                if let Some(forwarder) = pool.forwarders().get(usize::from(forwarder)) {
                    forwarder.send(command);
                }
            }
        }
    }
}

/// Sends a command. False if the process has exited or the command cannot be encoded.
pub(super) fn send_command(socket: impl AsFd, forwarder: u16, command: &Command) -> bool {
    let mut bytes = forwarder.to_le_bytes().to_vec();
    let descriptors = encode_command(command, &mut bytes);
    descriptors.is_some_and(|descriptors| send(socket, &bytes, &descriptors))
}

/// Receives the pending events. The flag is false if the process has exited.
pub(super) fn receive_events(socket: impl AsFd) -> (Vec<(u16, Event)>, bool) {
    let mut events = Vec::new();
    loop {
        match receive(&socket) {
            Packet::Nothing => return (events, true),
            Packet::End => return (events, false),
            Packet::Bytes(bytes, _) => match decode_event(&bytes) {
                Some(event) => events.push(event),
                None => return (events, false),
            },
        }
    }
}

enum Packet {
    Bytes(Vec<u8>, Vec<OwnedFd>),
    Nothing,
    End,
}

fn send(socket: impl AsFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> bool {
    loop {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
            return false;
        }
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match sendmsg(&socket, &[IoSlice::new(bytes)], &mut control, flags) {
            Ok(_) => return true,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut watched = [PollFd::new(&socket, PollFlags::OUT)];
                if !matches!(
                    poll(&mut watched, Some(&SEND_TIMEOUT)),
                    Ok(1..) | Err(Errno::INTR)
                ) {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
}

fn receive(socket: impl AsFd) -> Packet {
    let mut bytes = vec![0; PACKET_MAX];
    match retry(|| ancillary::receive(&socket, &mut bytes, RecvFlags::DONTWAIT)) {
        Ok(received) if received.bytes > 0 && !received.is_cut => {
            bytes.truncate(received.bytes);
            Packet::Bytes(bytes, received.descriptors)
        }
        Err(Errno::AGAIN) => Packet::Nothing,
        _ => Packet::End,
    }
}

fn encode_command<'a>(command: &'a Command, out: &mut Vec<u8>) -> Option<Vec<BorrowedFd<'a>>> {
    let mut descriptors = Vec::new();
    match command {
        Command::JoinAt(join) => {
            out.push(JOIN_AT);
            out.extend(join.link.to_le_bytes());
            out.extend(join.geometry.partitions.to_le_bytes());
            out.extend(join.geometry.ring_lines.to_le_bytes());
            out.extend(join.index.to_le_bytes());
            out.push(number_of(join.side));
            out.extend(join.incarnation.to_le_bytes());
            out.extend(join.lost_after_ns.to_le_bytes());
            out.extend(join.path.as_os_str().as_bytes());
        }
        Command::Leave { link } => {
            out.push(LEAVE);
            out.extend(link.to_le_bytes());
        }
        Command::Open(open) if open.rate.is_none() => {
            out.push(OPEN);
            out.extend(open.token.to_le_bytes());
            out.extend(open.link.to_le_bytes());
            out.push(open.class.number());
            out.extend(open.room.to_le_bytes());
            encode_end(&open.endpoint, out, &mut descriptors);
        }
        Command::Establish { token, peer } => {
            out.push(ESTABLISH);
            out.extend(token.to_le_bytes());
            out.extend(peer.id.number().to_le_bytes());
            out.extend(peer.credit.to_le_bytes());
        }
        Command::Loop { token, ends } => {
            out.push(LOOP);
            out.extend(token.to_le_bytes());
            for end in &**ends {
                encode_end(end, out, &mut descriptors);
            }
        }
        Command::Close { token, errno } => {
            out.push(CLOSE);
            out.extend(token.to_le_bytes());
            out.extend(errno.to_le_bytes());
        }
        Command::Stop => out.push(STOP),
        // A mapping cannot be sent; rates and reports are not encoded yet.
        Command::Join(_) | Command::Open(_) | Command::Report => return None,
    }
    (out.len() <= PACKET_MAX).then_some(descriptors)
}

fn encode_end<'a>(end: &'a Endpoint, out: &mut Vec<u8>, descriptors: &mut Vec<BorrowedFd<'a>>) {
    out.extend(end.geometry.ring_lines.to_le_bytes());
    out.push(number_of(end.application));
    descriptors.extend([end.wakeup.as_fd(), end.memory.as_fd()]);
}

fn decode_command(bytes: &[u8], descriptors: Vec<OwnedFd>) -> Option<(u16, Command)> {
    let mut reader = Reader(bytes, descriptors.into_iter());
    let (forwarder, [kind]) = (reader.u16()?, reader.take()?);
    let command = match kind {
        JOIN_AT => Command::JoinAt(Box::new(JoinAt {
            link: reader.u32()?,
            geometry: PartitionGeometry {
                partitions: reader.u16()?,
                ring_lines: reader.u32()?,
            },
            index: reader.u16()?,
            side: reader.side()?,
            incarnation: reader.u64()?,
            lost_after_ns: reader.u64()?,
            path: OsStr::from_bytes(reader.0).into(),
        })),
        LEAVE => Command::Leave {
            link: reader.u32()?,
        },
        OPEN => Command::Open(Box::new(Open {
            token: reader.u64()?,
            link: reader.u32()?,
            class: reader.take().and_then(|[class]| Class::new(class))?,
            room: reader.u64()?,
            endpoint: reader.end()?,
            rate: None,
        })),
        ESTABLISH => Command::Establish {
            token: reader.u64()?,
            peer: reader.opened()?,
        },
        LOOP => Command::Loop {
            token: reader.u64()?,
            ends: Box::new([reader.end()?, reader.end()?]),
        },
        CLOSE => Command::Close {
            token: reader.u64()?,
            errno: reader.u16()?,
        },
        STOP => Command::Stop,
        _ => return None,
    };
    Some((forwarder, command))
}

fn encode_event(forwarder: u16, event: Event) -> Option<Vec<u8>> {
    let mut out = forwarder.to_le_bytes().to_vec();
    match event {
        Event::Joined { link } => {
            out.push(JOINED);
            out.extend(link.to_le_bytes());
        }
        Event::Lost { link, loss } => {
            out.push(LOST);
            out.extend(link.to_le_bytes());
            let number = LOSSES.iter().position(|it| *it == loss);
            out.push(number.and_then(|it| u8::try_from(it).ok()).unwrap_or(0));
        }
        Event::Opened { token, opened } => {
            out.push(OPENED);
            out.extend(token.to_le_bytes());
            out.extend(opened.id.number().to_le_bytes());
            out.extend(opened.credit.to_le_bytes());
        }
        Event::Refused { token } => {
            out.push(REFUSED);
            out.extend(token.to_le_bytes());
        }
        // The broker sends no `Report` to another process.
        Event::Report(_) => return None,
        Event::Ended { token, bytes } => {
            out.push(ENDED);
            for number in [token, bytes.0, bytes.1] {
                out.extend(number.to_le_bytes());
            }
        }
    }
    Some(out)
}

fn decode_event(bytes: &[u8]) -> Option<(u16, Event)> {
    let mut reader = Reader(bytes, Vec::new().into_iter());
    let (forwarder, [kind]) = (reader.u16()?, reader.take()?);
    let event = match kind {
        JOINED => Event::Joined {
            link: reader.u32()?,
        },
        LOST => Event::Lost {
            link: reader.u32()?,
            loss: reader
                .take()
                .and_then(|[loss]| LOSSES.get(usize::from(loss)))
                .copied()?,
        },
        OPENED => Event::Opened {
            token: reader.u64()?,
            opened: reader.opened()?,
        },
        REFUSED => Event::Refused {
            token: reader.u64()?,
        },
        ENDED => Event::Ended {
            token: reader.u64()?,
            bytes: (reader.u64()?, reader.u64()?),
        },
        _ => return None,
    };
    Some((forwarder, event))
}

/// The codes of session errors in a packet: the index.
const LOSSES: [SessionError; 9] = [
    SessionError::Window,
    SessionError::Closed,
    SessionError::Handshake,
    SessionError::PeerRestarted,
    SessionError::HeartbeatTimeout,
    SessionError::InvalidSlot,
    SessionError::Checksum,
    SessionError::UnknownConnection,
    SessionError::InvalidCredit,
];

const fn number_of(side: Side) -> u8 {
    match side {
        Side::Connecting => 0,
        Side::Accepting => 1,
    }
}

/// A reader of a packet: the rest of its bytes and descriptors.
struct Reader<'a>(&'a [u8], std::vec::IntoIter<OwnedFd>);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn side(&mut self) -> Option<Side> {
        match self.take()? {
            [0] => Some(Side::Connecting),
            [1] => Some(Side::Accepting),
            _ => None,
        }
    }

    fn opened(&mut self) -> Option<OpenReply> {
        Some(OpenReply {
            id: ConnectionId::from_number(self.u32()?),
            credit: self.u32()?,
        })
    }

    fn end(&mut self) -> Option<Endpoint> {
        Some(Endpoint {
            geometry: Geometry {
                ring_lines: self.u32()?,
            },
            application: self.side()?,
            wakeup: self.1.next()?,
            memory: self.1.next()?,
        })
    }
}
