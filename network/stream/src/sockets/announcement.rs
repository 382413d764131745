//! Listening sockets that a monitor is told of, for a program that must not wait.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::net::{RecvFlags, SocketFlags};

use super::channel::{Listener, socket_to};
use super::packets::{self, Parcel, refusal};
use super::tally::Tally;
use crate::control::{Message, Packet};

/// Listening sockets that a monitor is told of. All is asked for at once; the answers come when they come. The
/// monitor takes the program for dead when it is dropped.
#[derive(Debug)]
pub struct Announcement {
    socket: OwnedFd,
    /// What has no answer yet, in the order of the requests: the serial number, and which socket it is for.
    awaited: VecDeque<(u32, Option<usize>)>,
}

/// What the monitor makes of one socket.
#[derive(Debug)]
pub struct Announced {
    /// Which of the sockets.
    pub index: usize,
    /// Where its connections arrive; `None` if they are left to the kernel. As an error, why it is refused.
    pub outcome: io::Result<Option<Listener>>,
}

impl Announcement {
    /// Tells the monitor that listens at `path` of this program and its sockets.
    ///
    /// # Errors
    /// What the system says; [`io::ErrorKind::WouldBlock`] if the monitor has too much to do.
    pub fn begin<'a>(
        path: &Path,
        tally: &Tally,
        backlog: u32,
        sockets: impl IntoIterator<Item = BorrowedFd<'a>>,
    ) -> io::Result<Self> {
        let socket = socket_to(path, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        let mut announcement = Self {
            socket,
            awaited: VecDeque::new(),
        };
        announcement.request(Message::Hello, None, tally.as_fd())?;
        for (index, socket) in sockets.into_iter().enumerate() {
            announcement.request(Message::Listen { backlog }, Some(index), socket)?;
        }
        Ok(announcement)
    }

    /// Whether every answer has come.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.awaited.is_empty()
    }

    /// The next answer about a socket. To be called until it would block, when the descriptor is readable.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`] if there is none now. After any other the announcement is void:
    /// [`io::ErrorKind::UnexpectedEof`] if the monitor is gone, what it says if it refuses the program,
    /// [`io::ErrorKind::InvalidData`] if it says what is no answer.
    pub fn next_answer(&mut self) -> io::Result<Announced> {
        loop {
            let Parcel {
                packet,
                descriptors,
                ..
            } = packets::parcel(&self.socket, RecvFlags::DONTWAIT)?;
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
    /// Readable when an answer has come, or the monitor is gone.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
