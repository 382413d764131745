//! The announcement of listening sockets, for a program that must not block.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvFlags, SocketFlags};

use super::channel::{Listener, socket_to};
use super::packets::{self, ControlPacket, refusal};
use super::shared_counters::SharedCounters;
use crate::control::{Message, Packet};

/// A non-blocking announcement of listening sockets to a broker. All requests are sent at once; the answers arrive
/// later. Dropping it disconnects the program from the broker.
#[derive(Debug)]
pub struct Announcement {
    socket: OwnedFd,
    /// The unanswered requests in order: the serial number, and the index of the socket.
    awaited: VecDeque<(u32, Option<usize>)>,
}

/// The broker's answer for one socket.
#[derive(Debug)]
pub struct Announced {
    /// The index of the socket, in the order of the announcement.
    pub index: usize,
    /// The listener for its connections; `None` if they are left to the kernel. An error if the broker refuses.
    pub outcome: io::Result<Option<Listener>>,
}

impl Announcement {
    /// Announces this program and its sockets to the broker at `path`.
    ///
    /// # Errors
    /// The error of a failed system call; [`io::ErrorKind::WouldBlock`] if the broker's queue is full.
    pub fn begin<'a>(
        path: &Path,
        counters: &SharedCounters,
        backlog: u32,
        sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Self> {
        let socket = socket_to(path, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let mut announcement = Self {
            socket,
            awaited: VecDeque::new(),
        };
        announcement.request(Message::Hello, None, counters.as_fd())?;
        for (index, socket) in sockets.into_iter().enumerate() {
            announcement.request(Message::Listen { backlog }, Some(index), socket)?;
        }
        Ok(announcement)
    }

    /// Whether the answer to every request has arrived.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// The next answer for a socket. The caller calls it until it would block, when the descriptor is readable.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if no answer is available. Any other error ends the announcement:
    /// [`io::ErrorKind::UnexpectedEof`] if the broker has disconnected, the broker's errno if it refuses the program,
    /// [`io::ErrorKind::InvalidData`] if it breaks the protocol.
    pub fn next_answer(&mut self) -> io::Result<Announced> {
        loop {
            let ControlPacket {
                packet,
                descriptors,
                ..
            } = packets::receive_valid(&self.socket, RecvFlags::DONTWAIT)?;
            let place = self.awaited.iter().position(|(s, _)| *s == packet.serial);
            let Some((_, about)) = place.and_then(|place| self.awaited.remove(place)) else {
                return Err(refusal(&packet.message));
            };
            match (about, packet.message) {
                (None, Message::Welcome { .. }) => {}
                (None, other) => return Err(refusal(&other)),
                (Some(index), Message::Listening) => {
                    let listener = descriptors.into_iter().next();
                    return Ok(Announced {
                        index,
                        outcome: Ok(listener.map(|channel| Listener { channel })),
                    });
                }
                (Some(index), Message::Kernel) => {
                    return Ok(Announced {
                        index,
                        outcome: Ok(None),
                    });
                }
                (Some(index), message @ Message::Refused { .. }) => {
                    return Ok(Announced {
                        index,
                        outcome: Err(refusal(&message)),
                    });
                }
                (Some(_), other) => return Err(refusal(&other)),
            }
        }
    }

    fn request(
        &mut self,
        message: Message,
        about: Option<usize>,
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<()> {
        let serial = u32::try_from(self.awaited.len()).expect("requests are few") + 1;
        packets::send(
            self.socket.as_fd(),
            &Packet { serial, message },
            &[descriptor],
        )?;
        self.awaited.push_back((serial, about));
        Ok(())
    }
}

impl AsFd for Announcement {
    /// Readable when an answer has arrived, or the broker has disconnected.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
