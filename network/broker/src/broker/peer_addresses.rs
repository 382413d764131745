//! The addresses of a peer: the part of its announcement that this host accepts.
//!
//! Programs identify hosts by address: a connect goes to the host with that address, and servers authorize by it. A
//! peer therefore gets no address that means this host, several hosts or none; no address outside
//! [`PeerSettings::addresses`]; and no address of an earlier peer. The report lists the refused addresses with the
//! reason.
//!
//! [`PeerSettings::addresses`]: super::PeerSettings::addresses

use std::net::IpAddr;

use crate::rules::Network;

/// The addresses that a peer announced, and the result of the check.
#[derive(Debug, Default)]
pub(super) struct PeerAddresses {
    /// All announced addresses.
    announced: Vec<IpAddr>,
    /// The accepted addresses.
    pub(super) accepted: Vec<IpAddr>,
    /// The refused addresses, with the reason.
    pub(super) refused: Vec<(IpAddr, &'static str)>,
}

impl PeerAddresses {
    pub(super) fn new(announced: Vec<IpAddr>) -> Self {
        Self {
            announced,
            ..Self::default()
        }
    }

    /// Divides the announced addresses into accepted and refused ones, of a host with a name. `own` are this host's
    /// addresses; `admitted` are the networks of [`PeerSettings::addresses`](super::PeerSettings::addresses).
    pub(super) fn check(
        &mut self,
        own: &[IpAddr],
        name: &str,
        admitted: &[(Option<String>, Network)],
    ) {
        self.accepted.clear();
        self.refused.clear();
        for address in self.announced.iter().map(IpAddr::to_canonical) {
            match refusal_reason(address, own, name, admitted) {
                None => self.accepted.push(address),
                Some(why) => self.refused.push((address, why)),
            }
        }
    }

    /// Refuses accepted addresses that another peer has.
    pub(super) fn refuse_taken(&mut self, taken: &[IpAddr]) {
        self.accepted.retain(|address| !taken.contains(address));
        let why = "another peer has this address";
        self.refused
            .extend(taken.iter().map(|address| (*address, why)));
    }
}

/// The reason to refuse an address of a host: the address's type, this host's own addresses, or the admitted networks.
fn refusal_reason(
    address: IpAddr,
    own: &[IpAddr],
    name: &str,
    admitted: &[(Option<String>, Network)],
) -> Option<&'static str> {
    let fits = |(of, network): &(Option<String>, Network)| {
        of.as_deref().is_none_or(|of| of == name) && network.contains(address)
    };
    if !is_of_one_host(address) {
        Some("the address is not of one other host (wildcard, loopback, link-local or multicast)")
    } else if own.contains(&address) {
        Some("the address belongs to this host")
    } else if !admitted.is_empty() && !admitted.iter().any(fits) {
        Some("no --peer-addresses network contains the address")
    } else {
        None
    }
}

/// Whether the address can belong to exactly one other host.
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
    fn a_peer_gets_admitted_addresses_only() {
        let ip = |text: &str| -> IpAddr { text.parse().expect("an address") };
        let network = |text: &str| -> Network { text.parse().expect("a network") };
        let own = [ip("10.0.0.1")];
        let says = |address: &str, name: &str, admitted: &[_]| {
            refusal_reason(ip(address), &own, name, admitted)
        };
        assert_eq!(says("8.8.8.8", "left", &[]), None);
        assert_eq!(
            says("10.0.0.1", "left", &[]),
            Some("the address belongs to this host")
        );
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
