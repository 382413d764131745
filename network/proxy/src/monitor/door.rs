//! Where other hosts' monitors dial, and strangers too.
//!
//! Anybody may connect, say nothing, and do so again and again. A stream that has not proven the secret lives for two
//! seconds; of those there may be so many, and of one more the oldest is sent away, of the address that has the most. So
//! many are answered between two ticks: a peer has that time at least, whatever strangers do.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::wire::Wire;
use super::{Monitor, Token};
use crate::peer::Role;

/// Streams that were dialled and have not proven the secret.
const STRANGERS_MAX: usize = 64;
/// Streams that are answered between two ticks.
const ANSWERS_A_TICK: usize = 32;
/// The first bits of an address of IPv6 that one stranger may have all of.
const PREFIX: u128 = u128::MAX << 64;

/// The socket that listens.
#[derive(Debug)]
pub(super) struct Door {
    socket: OwnedFd,
    /// How many were answered since the last tick.
    answered: usize,
}

impl Door {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            answered: 0,
        }
    }
}

impl Monitor {
    /// Answers those who dial.
    pub(super) fn answer_peers(&mut self) {
        loop {
            let Some(peers) = &mut self.peers else {
                return;
            };
            let Some(door) = &mut peers.door else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = if door.answered < ANSWERS_A_TICK {
                acceptfrom_with(&door.socket, flags)
            } else {
                Err(Errno::BUSY)
            };
            let (socket, from) = match accepted {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // Too many, or no descriptor is free: not before the next tick.
                Err(_) => return self.watch_door(false),
            };
            door.answered += 1;
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            if let Ok(wire) = Wire::answer(socket, peers.session(Role::Answers)) {
                self.watch(wire, None, from.map(|from| whose(from.ip())));
            }
            self.make_room();
        }
    }

    /// Time has passed.
    pub(super) fn open_door(&mut self) {
        if let Some(door) = self.peers.as_mut().and_then(|it| it.door.as_mut()) {
            door.answered = 0;
            self.watch_door(true);
        }
    }

    fn watch_door(&self, watch: bool) {
        let Some(door) = self.peers.as_ref().and_then(|it| it.door.as_ref()) else {
            return;
        };
        let flags = if watch {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        let changed = epoll::modify(&self.epoll, &door.socket, Token::Dialled.data(), flags);
        debug_assert!(changed.is_ok(), "it is in the epoll while it is open");
    }

    /// Sends a stranger away if there are too many.
    fn make_room(&mut self) {
        let streams = self.peers.iter().flat_map(|peers| peers.streams.iter());
        let strangers = streams.filter(|(_, stream)| stream.is_stranger());
        let strangers: Vec<(u64, Option<IpAddr>)> = strangers
            .map(|(number, stream)| (*number, stream.from))
            .collect();
        if strangers.len() <= STRANGERS_MAX {
            return;
        }
        if let Some(number) = surplus(&strangers) {
            self.part(number, "others dial who are strangers, too");
        }
    }
}

/// The oldest of those whose address has the most; numbers grow.
fn surplus(strangers: &[(u64, Option<IpAddr>)]) -> Option<u64> {
    let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    for (_, from) in strangers {
        *counts.entry(*from).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let mut of_most = strangers
        .iter()
        .filter(|(_, from)| counts.get(from) == Some(&most));
    of_most.next().map(|(number, _)| *number)
}

/// What one stranger may have all of: an address of IPv4, a network of IPv6.
fn whose(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & PREFIX).into()),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Option<IpAddr> {
        Some(whose(text.parse().expect("an address")))
    }

    #[test]
    fn whoever_has_the_most_loses_the_oldest() {
        let one = (1, from("192.0.2.1"));
        let strangers = [one, (2, from("2001:db8::1")), (3, from("2001:db8::2"))];
        assert_eq!(surplus(&strangers), Some(2));
        assert_eq!(surplus(&strangers[..2]), Some(1));
        assert_eq!(surplus(&[]), None);
    }
}
