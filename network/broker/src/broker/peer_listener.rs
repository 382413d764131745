//! The TCP listener for other hosts' brokers.
//!
//! Any host can connect, stay silent, and repeat that. A connection that has not authenticated lives for two seconds.
//! At most [`UNAUTHENTICATED_MAX`] of them exist; beyond that the oldest connection of the address with the most is
//! closed. At most [`ANSWERS_A_TICK`] are accepted between two ticks, so a peer has at least that time to authenticate
//! under any load.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;

use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use super::peer_socket::PeerSocket;
use super::{Broker, Token};
use crate::peer::Role;

/// The most connections that have not authenticated.
const UNAUTHENTICATED_MAX: usize = 64;
/// The most connections that are accepted between two ticks.
const ANSWERS_A_TICK: usize = 32;
/// The mask of the IPv6 prefix that counts as one source.
const PREFIX: u128 = u128::MAX << 64;

/// The listening socket.
#[derive(Debug)]
pub(super) struct PeerListener {
    socket: OwnedFd,
    /// The count of connections accepted since the last tick.
    answered: usize,
}

impl PeerListener {
    pub(super) const fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            answered: 0,
        }
    }
}

impl Broker {
    /// Accepts waiting peers, at most [`ANSWERS_A_TICK`] between two ticks.
    pub(super) fn accept_peers(&mut self) {
        loop {
            let Some(peers) = &mut self.peers else {
                return;
            };
            let Some(peer_listener) = &mut peers.peer_listener else {
                return;
            };
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let accepted = if peer_listener.answered < ANSWERS_A_TICK {
                acceptfrom_with(&peer_listener.socket, flags)
            } else {
                Err(Errno::BUSY)
            };
            let (socket, from) = match accepted {
                Ok(accepted) => accepted,
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                // The limit is reached or no descriptor is free: accepting resumes at the next tick.
                Err(_) => return self.watch_peer_listener(false),
            };
            peer_listener.answered += 1;
            let from = from.and_then(|from| SocketAddr::try_from(from).ok());
            if let Ok(socket) = PeerSocket::answer(socket, peers.session(Role::Responder)) {
                self.watch(socket, None, from.map(|from| rate_limit_key(from.ip())));
            }
            self.evict_unauthenticated();
        }
    }

    /// Resumes accepting after a tick.
    pub(super) fn resume_accepting(&mut self) {
        if let Some(peer_listener) = self.peers.as_mut().and_then(|it| it.peer_listener.as_mut()) {
            peer_listener.answered = 0;
            self.watch_peer_listener(true);
        }
    }

    fn watch_peer_listener(&self, watch: bool) {
        let Some(peer_listener) = self.peers.as_ref().and_then(|it| it.peer_listener.as_ref())
        else {
            return;
        };
        let flags = if watch {
            EventFlags::IN
        } else {
            EventFlags::empty()
        };
        let changed = epoll::modify(
            &self.epoll,
            &peer_listener.socket,
            Token::Dialled.data(),
            flags,
        );
        debug_assert!(changed.is_ok(), "it is in the epoll while it is open");
    }

    /// Closes one unauthenticated connection if there are too many.
    fn evict_unauthenticated(&mut self) {
        let streams = self.peers.iter().flat_map(|peers| peers.streams.iter());
        let unauthenticated = streams.filter(|(_, stream)| stream.is_unauthenticated());
        let unauthenticated: Vec<(u64, Option<IpAddr>)> = unauthenticated
            .map(|(number, stream)| (*number, stream.from))
            .collect();
        if unauthenticated.len() <= UNAUTHENTICATED_MAX {
            return;
        }
        if let Some(number) = eviction_candidate(&unauthenticated) {
            self.disconnect_peer(number, "too many unauthenticated peers (limit 64)");
        }
    }
}

/// The oldest connection of the address with the most connections; numbers grow with time.
fn eviction_candidate(unauthenticated: &[(u64, Option<IpAddr>)]) -> Option<u64> {
    let mut counts: BTreeMap<Option<IpAddr>, usize> = BTreeMap::new();
    for (_, from) in unauthenticated {
        *counts.entry(*from).or_default() += 1;
    }
    let most = counts.values().copied().max()?;
    let mut of_most = unauthenticated
        .iter()
        .filter(|(_, from)| counts.get(from) == Some(&most));
    of_most.next().map(|(number, _)| *number)
}

/// The source that connections are counted by: an IPv4 address or an IPv6 /64 prefix.
fn rate_limit_key(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & PREFIX).into()),
        ip @ IpAddr::V4(_) => ip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Option<IpAddr> {
        Some(rate_limit_key(text.parse().expect("an address")))
    }

    #[test]
    fn the_oldest_of_the_busiest_address_is_evicted() {
        let one = (1, from("192.0.2.1"));
        let unauthenticated = [one, (2, from("2001:db8::1")), (3, from("2001:db8::2"))];
        assert_eq!(eviction_candidate(&unauthenticated), Some(2));
        assert_eq!(eviction_candidate(&unauthenticated[..2]), Some(1));
        assert_eq!(eviction_candidate(&[]), None);
    }
}
