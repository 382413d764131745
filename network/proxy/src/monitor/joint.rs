//! The window between this host and a peer.

use std::net::IpAddr;
use std::path::PathBuf;

use millrace_stream::Side;
use millrace_stream::partition::PartitionGeometry;

use super::Monitor;
use super::announced::Announced;
use super::peers::Peers;
use crate::peer::{PeerMessage, Role, host_number};
use crate::plane::{Command, JoinAt, open_window};
use crate::{Error, ErrorKind, Result};

/// A window that is shared with a peer.
#[derive(Debug)]
pub(super) struct Joint {
    pub(super) host: u128,
    pub(super) window: PathBuf,
    pub(super) partitions: u16,
    pub(super) ring_lines: u32,
    pub(super) first_link: u32,
    /// How many partitions the peer has answered in.
    joined: u16,
    pub(super) announced: Announced,
}

/// The longest ring: more only takes longer to go through.
const RING_LINES_MAX: u32 = 16_384;
const RING_LINES_MIN: u32 = 64;
/// A peer that shows no beat for so long is lost.
const LOST_AFTER_NS: u64 = 5_000_000_000;

impl Joint {
    pub(super) const fn is_alive(&self) -> bool {
        self.joined == self.partitions
    }

    pub(super) const fn has(&self, link: u32) -> bool {
        self.first_link <= link && link < self.first_link + self.partitions as u32
    }
}

impl Monitor {
    /// Says what this host has, once it is known to whom: who has dialled says it first.
    pub(super) fn greet(&mut self, number: u64) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        let session = &stream.wire.session;
        let is_turn = session.role() == Role::Dialled || session.is_proven();
        if session.peer().is_some() && is_turn && !stream.is_named {
            stream.is_named = true;
            self.say_names(number);
        }
    }

    pub(super) fn say_names(&mut self, number: u64) {
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
                self.say(number, &message);
            }
            Err(error) => self.part(number, &said(&error)),
        }
    }

    /// A peer says what it has: the first time that joins the window, later its addresses have changed.
    pub(super) fn named(&mut self, number: u64, partitions: u16, size: u64, names: Vec<IpAddr>) {
        let Some(stream) = self.stream(number) else {
            return;
        };
        if let Some(joint) = &mut stream.joint {
            joint.announced = Announced::new(names);
            return self.announce(number);
        }
        if let Err(error) = self.join(number, partitions, size, names) {
            self.part(number, &said(&error));
        }
    }

    fn join(&mut self, number: u64, theirs: u16, size: u64, names: Vec<IpAddr>) -> Result<()> {
        let refused = |why: &str| Error::new(ErrorKind::Refused, why);
        let (Some(peers), Some(carriers)) = (&self.peers, &self.carriers) else {
            return Err(refused("there are no planes"));
        };
        let stream = peers.streams.get(&number);
        let session = stream.map(|stream| &stream.wire.session);
        let (Some(name), Some(role)) = (
            session.and_then(|it| it.peer()),
            session.map(crate::peer::Session::role),
        ) else {
            return Err(refused("it has gone"));
        };
        let (own, host) = (peers.own, host_number(name));
        if own == host {
            return Err(refused("it is called as this host is"));
        }
        let path = peers.window(number)?;
        let is_first = (own < host) == (role == Role::Dialled);
        let old = peers.of_host(host).map(|(old, _)| old);
        if old.is_some() && !is_first {
            return Err(refused("there is a stream to this host already"));
        }
        let own_size = open_window(&path)?.size() as u64;
        let partitions = theirs.min(peers.settings.partitions).max(1);
        let geometry = fit(own_size.min(size), partitions)
            .ok_or_else(|| refused("the window is too small"))?;
        let mut drawn = [0; 8];
        (peers.settings.draw)(&mut drawn);
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
        // Its partitions are left before these are joined.
        if let Some(old) = old {
            self.part(old, "it has a new stream");
            return self.join(number, theirs, size, names);
        }
        for join in joins {
            carriers.tell(join.index, Command::JoinAt(Box::new(join)));
        }
        let joint = Joint {
            host,
            window: path,
            partitions,
            ring_lines: geometry.ring_lines,
            first_link,
            joined: 0,
            announced: Announced::new(names),
        };
        if let Some(peers) = &mut self.peers {
            peers.last_link = first_link.wrapping_add(u32::from(partitions));
        }
        if let Some(stream) = self.stream(number) {
            stream.joint = Some(joint);
            stream.age = 0;
        }
        Ok(())
    }

    /// A partition's peer has answered.
    pub(super) fn joined(&mut self, link: u32) {
        let Some(number) = self.peers.as_ref().and_then(|it| it.of_link(link)) else {
            return;
        };
        if let Some(joint) = self.stream(number).and_then(|it| it.joint.as_mut()) {
            joint.joined += 1;
        }
        self.announce(number);
    }

    /// Leaves a peer's partitions: their connections are reset.
    pub(super) fn leave(&mut self, joint: &Joint) {
        self.registry.host_down(joint.host);
        // Others may have been waiting for its addresses.
        self.announce_all();
        let Some(carriers) = &self.carriers else {
            return;
        };
        for partition in 0..joint.partitions {
            let link = joint.first_link.wrapping_add(u32::from(partition));
            carriers.tell(partition, Command::Leave { link });
        }
    }
}

impl Peers {
    /// The window to the peer at the other end of a stream.
    fn window(&self, number: u64) -> Result<PathBuf> {
        let stream = self.streams.get(&number);
        let name = stream.and_then(|stream| stream.wire.session.peer());
        let name = name.unwrap_or_default();
        let windows = &self.settings.windows;
        let own = windows.iter().find(|(of, _)| of.as_deref() == Some(name));
        let any = || windows.iter().find(|(of, _)| of.is_none());
        let Some((_, path)) = own.or_else(any) else {
            let context = format!("there is no window to {}", name.escape_debug());
            return Err(Error::new(ErrorKind::Refused, context));
        };
        let host = host_number(name);
        let is_taken = |joint: &Joint| joint.window == *path && joint.host != host;
        let mut joints = self.streams.values().filter_map(|it| it.joint.as_ref());
        if joints.any(is_taken) {
            let context = format!("{} joins another host already", path.display());
            return Err(Error::new(ErrorKind::Refused, context));
        }
        Ok(path.clone())
    }
}

/// The longest rings that fit.
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

fn said(error: &Error) -> String {
    use std::error::Error as _;
    error
        .source()
        .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
}
