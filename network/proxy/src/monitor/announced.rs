//! Which addresses a peer has, of those that it says it has.
//!
//! Programs go by addresses: who connects to one gets whoever has it, and servers admit by it. So a peer has no address
//! that means this host, many hosts or none, none that was not admitted to it ([`PeerSettings::addresses`]), and none
//! that another peer has, who was there before. The rest is told in the report, with the reason.
//!
//! [`PeerSettings::addresses`]: super::PeerSettings::addresses

use std::net::IpAddr;

use super::Monitor;
use super::peers::Peers;
use crate::rules::Network;

/// What a peer has said, and what was made of it.
#[derive(Debug, Default)]
pub(super) struct Announced {
    /// All of it.
    said: Vec<IpAddr>,
    /// What it has.
    pub(super) given: Vec<IpAddr>,
    /// What it has not, and why.
    pub(super) refused: Vec<(IpAddr, &'static str)>,
}

impl Announced {
    pub(super) fn new(said: Vec<IpAddr>) -> Self {
        Self {
            said,
            ..Self::default()
        }
    }
}

impl Monitor {
    /// Tells the registry where a peer that is alive can be reached.
    pub(super) fn announce(&mut self, number: u64) {
        let Some(peers) = &mut self.peers else {
            return;
        };
        let Some((host, said)) = peers.said(number) else {
            return;
        };
        let mut given = Vec::new();
        let mut refused = Vec::new();
        for address in said {
            match peers.objection(number, address) {
                None => given.push(address),
                Some(why) => refused.push((address, why)),
            }
        }
        let taken = self.registry.host_up(host, &given);
        given.retain(|address| !taken.contains(address));
        refused.extend(
            taken
                .into_iter()
                .map(|address| (address, "another peer has it")),
        );
        if let Some(joint) = peers
            .streams
            .get_mut(&number)
            .and_then(|it| it.joint.as_mut())
        {
            joint.announced.given = given;
            joint.announced.refused = refused;
        }
    }

    /// The same for all peers: one has gone, or this host has other addresses than before.
    pub(super) fn announce_all(&mut self) {
        let streams = self.peers.iter().flat_map(|peers| peers.streams.keys());
        let numbers: Vec<u64> = streams.copied().collect();
        for number in numbers {
            self.announce(number);
        }
    }
}

impl Peers {
    /// What a peer that is alive has said.
    fn said(&self, number: u64) -> Option<(u128, Vec<IpAddr>)> {
        let joint = self.joint(number).filter(|joint| joint.is_alive())?;
        let said = joint.announced.said.iter();
        Some((joint.host, said.map(IpAddr::to_canonical).collect()))
    }

    /// Why a peer cannot have an address.
    fn objection(&self, number: u64, address: IpAddr) -> Option<&'static str> {
        let name = self.streams.get(&number)?.wire.session.peer()?;
        objection(address, &self.addresses, name, &self.settings.addresses)
    }
}

/// Why the host of a name cannot have an address: by what the address is, by this host's own, by those that were
/// admitted.
fn objection(
    address: IpAddr,
    own: &[IpAddr],
    name: &str,
    admitted: &[(Option<String>, Network)],
) -> Option<&'static str> {
    let fits = |(of, network): &(Option<String>, Network)| {
        of.as_deref().is_none_or(|of| of == name) && network.contains(address)
    };
    if !is_of_one_host(address) {
        Some("it means no other host, or many")
    } else if own.contains(&address) {
        Some("this host has it")
    } else if !admitted.is_empty() && !admitted.iter().any(fits) {
        Some("no --peer-addresses admits it")
    } else {
        None
    }
}

/// Whether another host can have the address, and only one.
const fn is_of_one_host(address: IpAddr) -> bool {
    let is_strange = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    let is_local = match address {
        IpAddr::V4(ip) => ip.is_broadcast() || ip.is_link_local() || ip.octets()[0] == 0,
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_strange && !is_local
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_this_host_of_many_and_of_none_are_no_peers() {
        for none in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.1.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "fe80::1",
            "ff02::1",
        ] {
            assert!(!is_of_one_host(none.parse().expect("an address")), "{none}");
        }
        for one in ["10.0.0.1", "192.0.2.1", "8.8.8.8", "fd00::1", "2001:db8::1"] {
            assert!(is_of_one_host(one.parse().expect("an address")), "{one}");
        }
    }

    #[test]
    fn a_peer_has_what_is_admitted_and_nobody_elses() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let network = |text: &str| -> Network { text.parse().expect("a network") };
        let own = [ip("10.0.0.1")];
        let says = |address: &str, name: &str, admitted: &[_]| {
            objection(ip(address), &own, name, admitted)
        };
        assert_eq!(says("8.8.8.8", "left", &[]), None);
        assert_eq!(says("10.0.0.1", "left", &[]), Some("this host has it"));
        let admitted = [
            (None, network("10.0.0.0/8")),
            (Some("left".to_owned()), network("192.0.2.7")),
        ];
        assert_eq!(says("10.0.0.2", "right", &admitted), None);
        assert_eq!(says("192.0.2.7", "left", &admitted), None);
        assert!(says("192.0.2.7", "right", &admitted).is_some());
        assert!(says("8.8.8.8", "left", &admitted).is_some());
        assert!(says("10.0.0.1", "left", &admitted).is_some());
    }
}
