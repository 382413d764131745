//! The window between this host and a peer.

use std::net::IpAddr;
use std::path::PathBuf;

use millrace_stream::Side;
use millrace_stream::partition::PartitionGeometry;

use super::Broker;
use super::peer_addresses::PeerAddresses;
use super::peers::Peers;
use crate::forwarder::{Command, JoinAt, open_window};
use crate::peer::{PeerMessage, Role, host_number};
use crate::{Error, ErrorKind, Result};

/// A window that is shared with a peer.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) host: u128,
    pub(super) window: PathBuf,
    pub(super) partitions: u16,
    pub(super) ring_lines: u32,
    pub(super) first_link: u32,
    /// The count of partitions in which the peer has answered.
    joined: u16,
    pub(super) addresses: PeerAddresses,
}

/// The most lines of a ring; a longer ring only uses more cache.
const RING_LINES_MAX: u32 = 16_384;
const RING_LINES_MIN: u32 = 64;
/// The time without a heartbeat after which a peer is lost, in nanoseconds.
const LOST_AFTER_NS: u64 = 5_000_000_000;

impl PeerLink {
    pub(super) const fn is_alive(&self) -> bool {
        self.joined == self.partitions
    }

    pub(super) const fn has(&self, link: u32) -> bool {
        self.first_link <= link && link < self.first_link + self.partitions as u32
    }
}

impl Broker {
    /// Sends NAMES once: the initiator sends it after the greeting, the responder after the initiator has
    /// authenticated.
    pub(super) fn send_names_once(&mut self, number: u64) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        let session = &stream.socket.session;
        let is_turn = session.role() == Role::Initiator || session.is_proven();
        if session.peer().is_some() && is_turn && !stream.is_named {
            stream.is_named = true;
            self.send_names(number);
        }
    }

    pub(super) fn send_names(&mut self, number: u64) {
        let Some(peers) = &self.peers else {
            return;
        };
        match peers.window(number).and_then(|path| open_window(&path)) {
            Ok(window) => {
                let message = PeerMessage::Names {
                    partitions: peers.settings.partitions,
                    window: window.size() as u64,
                    addresses: peers.addresses.clone(),
                };
                self.send_to_peer(number, &message);
            }
            Err(error) => self.disconnect_peer(number, &error_chain(&error)),
        }
    }

    /// Handles NAMES. The first joins the window; later ones update the peer's addresses.
    pub(super) fn peer_names(
        &mut self,
        number: u64,
        partitions: u16,
        size: u64,
        names: Vec<IpAddr>,
    ) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        if let Some(peer_link) = &mut stream.peer_link {
            peer_link.addresses = PeerAddresses::new(names);
            return self.announce(number);
        }
        if let Err(error) = self.join(number, partitions, size, names) {
            self.disconnect_peer(number, &error_chain(&error));
        }
    }

    fn join(&mut self, number: u64, theirs: u16, size: u64, names: Vec<IpAddr>) -> Result<()> {
        let refused = |why: &str| Error::new(ErrorKind::Refused, why);
        let (Some(peers), Some(forwarders)) = (&self.peers, &self.forwarders) else {
            return Err(refused(
                "no forwarders are attached: use --forwarders 1, or run `millrace sockets forwarder`",
            ));
        };
        let stream = peers.streams.get(&number);
        let session = stream.map(|stream| &stream.socket.session);
        let (Some(name), Some(role)) = (
            session.and_then(|it| it.peer()),
            session.map(crate::peer::Session::role),
        ) else {
            return Err(refused("the peer has disconnected"));
        };
        let (own, host) = (peers.own, host_number(name));
        if own == host {
            return Err(refused(
                "the peer has the same name as this host: give each host a different --host",
            ));
        }
        let path = peers.window(number)?;
        let is_first = (own < host) == (role == Role::Initiator);
        let old = peers.of_host(host).map(|(old, _)| old);
        if old.is_some() && !is_first {
            return Err(refused("a connection to this host exists already"));
        }
        let own_size = open_window(&path)?.size() as u64;
        let partitions = theirs.min(peers.settings.partitions).max(1);
        let geometry = fit(own_size.min(size), partitions)
            .ok_or_else(|| refused("the window is too small: a partition needs 16 KiB"))?;
        let mut drawn = [0; 8];
        (peers.settings.fill_random)(&mut drawn);
        let first_link = peers.last_link;
        let side = if own < host {
            Side::Connecting
        } else {
            Side::Accepting
        };
        let mut joins = Vec::new();
        for index in 0..partitions {
            joins.push(JoinAt {
                link: first_link.wrapping_add(u32::from(index)),
                path: path.clone(),
                geometry,
                index,
                side,
                incarnation: u64::from_le_bytes(drawn) | 1,
                lost_after_ns: LOST_AFTER_NS,
            });
        }
        // The old partitions are left before the new ones are joined.
        if let Some(old) = old {
            self.disconnect_peer(old, "replaced by a new connection of the same host");
            return self.join(number, theirs, size, names);
        }
        for join in joins {
            forwarders.send(join.index, Command::JoinAt(Box::new(join)));
        }
        let peer_link = PeerLink {
            host,
            window: path,
            partitions,
            ring_lines: geometry.ring_lines,
            first_link,
            joined: 0,
            addresses: PeerAddresses::new(names),
        };
        if let Some(peers) = &mut self.peers {
            peers.last_link = first_link.wrapping_add(u32::from(partitions));
        }
        if let Some(stream) = self.stream(number) {
            stream.peer_link = Some(peer_link);
            stream.age = 0;
        }
        Ok(())
    }

    /// Counts a partition in which the peer has answered.
    pub(super) fn partition_joined(&mut self, link: u32) {
        let Some(number) = self.peers.as_ref().and_then(|it| it.of_link(link)) else {
            return;
        };
        if let Some(peer_link) = self.stream(number).and_then(|it| it.peer_link.as_mut()) {
            peer_link.joined += 1;
        }
        self.announce(number);
    }

    /// Leaves a peer's partitions: their connections are reset.
    pub(super) fn leave_partitions(&mut self, peer_link: &PeerLink) {
        self.registry.host_down(peer_link.host);
        // Its addresses are free for other peers.
        self.announce_all();
        let Some(forwarders) = &self.forwarders else {
            return;
        };
        for partition in 0..peer_link.partitions {
            let link = peer_link.first_link.wrapping_add(u32::from(partition));
            forwarders.send(partition, Command::Leave { link });
        }
    }
}

impl Peers {
    /// The path of the window to a peer.
    fn window(&self, number: u64) -> Result<PathBuf> {
        let stream = self.streams.get(&number);
        let name = stream.and_then(|stream| stream.socket.session.peer());
        let name = name.unwrap_or_default();
        let windows = &self.settings.windows;
        let own = windows.iter().find(|(of, _)| of.as_deref() == Some(name));
        let any = || windows.iter().find(|(of, _)| of.is_none());
        let Some((_, path)) = own.or_else(any) else {
            let context = format!(
                "no --window is configured for the host {}",
                name.escape_debug()
            );
            return Err(Error::new(ErrorKind::Refused, context));
        };
        let host = host_number(name);
        let is_taken = |peer_link: &PeerLink| peer_link.window == *path && peer_link.host != host;
        let mut peer_links = self.streams.values().filter_map(|it| it.peer_link.as_ref());
        if peer_links.any(is_taken) {
            let context = format!("the window {} is in use with another host", path.display());
            return Err(Error::new(ErrorKind::Refused, context));
        }
        Ok(path.clone())
    }
}

/// The geometry with the longest rings that fit into `size` bytes.
fn fit(size: u64, partitions: u16) -> Option<PartitionGeometry> {
    let mut ring_lines = RING_LINES_MAX;
    while ring_lines >= RING_LINES_MIN {
        let geometry = PartitionGeometry {
            partitions,
            ring_lines,
        };
        if geometry.check().is_ok() && geometry.size() as u64 <= size {
            return Some(geometry);
        }
        ring_lines /= 2;
    }
    None
}

fn error_chain(error: &Error) -> String {
    use std::error::Error as _;
    error
        .source()
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
