//! The table of listeners.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_stream::Address;

use super::{ClientId, ConnectRequest, Credentials, ListenerId, Proof};

/// A registered listener with its channel.
#[derive(Debug)]
pub struct Listener {
    /// The kernel's description of its socket.
    pub proof: Proof,
    /// The credentials of the announcing process. Other processes may hold its channel by now.
    pub owner: Credentials,
    /// The most connections that may wait to be accepted.
    pub backlog: u32,
    /// Connections that were sent into its channel.
    pub accepted: u64,
    /// Whether its channel is full.
    pub(crate) full: bool,
    /// The requests that wait for room, the oldest first.
    pub(crate) waiting: VecDeque<(ClientId, ConnectRequest)>,
}

impl Listener {
    /// The count of requests that wait for room.
    #[must_use]
    pub fn waiting_count(&self) -> usize {
        self.waiting.len()
    }
}

/// The listeners of one address.
#[derive(Debug, Default)]
struct Group {
    members: Vec<ListenerId>,
    /// The index of the member whose turn is next.
    next: usize,
}

/// All listeners, by address.
///
/// Every listener is a member of one group, that of its address in canonical form; no group is empty.
#[derive(Debug, Default)]
pub(crate) struct Listeners {
    /// All listeners by id, in the order of their announcement.
    all: BTreeMap<ListenerId, Listener>,
    groups: HashMap<Address, Group>,
    /// The count of listeners at each port.
    ports: HashMap<u16, usize>,
}

impl Listeners {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ListenerId, &Listener)> {
        self.all.iter().map(|(id, listener)| (*id, listener))
    }

    pub(crate) fn get(&self, id: ListenerId) -> Option<&Listener> {
        self.all.get(&id)
    }

    pub(crate) fn get_mut(&mut self, id: ListenerId) -> Option<&mut Listener> {
        self.all.get_mut(&id)
    }

    pub(crate) fn has_port(&self, port: u16) -> bool {
        self.ports.contains_key(&port)
    }

    /// The listeners that a new one supersedes: the kernel would not let both listen at the address.
    pub(crate) fn superseded_by(&self, proof: &Proof) -> Vec<ListenerId> {
        let group = self.groups.get(&key(proof.address));
        let members = group.map_or(&[][..], |group| &group.members);
        let is_stale = |id: &&ListenerId| {
            self.all.get(id).is_some_and(|old| {
                let shared = old.proof.reuse_port && proof.reuse_port;
                // Linux lets no IPv6-only socket share the wildcard address with a dual-stack one; an IPv4 address and
                // its mapped form are one address.
                !shared && old.proof.socket != proof.socket
            })
        };
        members.iter().filter(is_stale).copied().collect()
    }

    pub(crate) fn insert(&mut self, id: ListenerId, listener: Listener) {
        let key = key(listener.proof.address);
        self.groups.entry(key).or_default().members.push(id);
        *self.ports.entry(key.port()).or_default() += 1;
        self.all.insert(id, listener);
    }

    pub(crate) fn remove(&mut self, id: ListenerId) -> Option<Listener> {
        let listener = self.all.remove(&id)?;
        let key = key(listener.proof.address);
        if let Some(group) = self.groups.get_mut(&key) {
            if let Some(index) = group.members.iter().position(|member| *member == id) {
                group.members.remove(index);
                group.next -= usize::from(index < group.next);
            }
            if group.members.is_empty() {
                self.groups.remove(&key);
            }
        }
        if let Some(count) = self.ports.get_mut(&key.port()) {
            *count -= 1;
            if *count == 0 {
                self.ports.remove(&key.port());
            }
        }
        Some(listener)
    }

    /// Removes a process's waiting requests.
    pub(crate) fn forget_waiting(&mut self, client: ClientId) {
        for listener in self.all.values_mut() {
            listener.waiting.retain(|(waiting, _)| *waiting != client);
        }
    }

    /// The listener for a connection to this canonical address of this host. A listener at the address precedes one at
    /// its family's wildcard, which precedes one at the IPv6 wildcard that accepts IPv4. Listeners of one address take
    /// turns; those without room are skipped if others have room.
    pub(crate) fn choose(&mut self, address: Address) -> Option<ListenerId> {
        let port = address.port();
        let any_v4 = Address::new(Ipv4Addr::UNSPECIFIED.into(), port);
        let any_v6 = Address::new(Ipv6Addr::UNSPECIFIED.into(), port);
        match address.ip() {
            IpAddr::V4(_) => self
                .turn(address, false)
                .or_else(|| self.turn(any_v4, false))
                .or_else(|| self.turn(any_v6, true)),
            IpAddr::V6(_) => self
                .turn(key(address), false)
                .or_else(|| self.turn(any_v6, false)),
        }
    }

    /// Whether a listener is the only one at its address.
    pub(crate) fn is_alone(&self, listener: &Listener) -> bool {
        let group = self.groups.get(&key(listener.proof.address));
        group.is_some_and(|group| group.members.len() == 1)
    }

    fn turn(&mut self, key: Address, for_v4: bool) -> Option<ListenerId> {
        let group = self.groups.get_mut(&key)?;
        let count = group.members.len();
        let turns = (0..count).map(|step| (group.next + step) % count);
        let serves = |index: &usize| {
            let listener = self.all.get(&group.members[*index]);
            listener.is_some_and(|listener| !(for_v4 && listener.proof.only_v6))
        };
        let has_room = |index: &usize| {
            let listener = self.all.get(&group.members[*index]);
            listener.is_some_and(|listener| !listener.full)
        };
        let mut able = turns.filter(serves);
        let first = able.clone().next()?;
        let index = able.find(has_room).unwrap_or(first);
        group.next = (index + 1) % count;
        Some(group.members[index])
    }
}

/// The lookup form of an address: the interface counts for link-local addresses alone.
fn key(address: Address) -> Address {
    let canonical = address.canonical();
    match canonical.ip() {
        IpAddr::V6(ip) if ip.is_unicast_link_local() => canonical,
        ip => Address::new(ip, canonical.port()),
    }
}
