//! The limit of connections that have not authenticated.
//!
//! Any host can connect, stay silent, and repeat that. A connection that has not authenticated lives for two seconds.
//! At most [`UNAUTHENTICATED_MAX`] of them exist; beyond that the oldest connection of the address with the most is
//! closed.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most connections that have not authenticated.
pub(super) const UNAUTHENTICATED_MAX: usize = 64;
/// The mask of the IPv6 prefix that counts as one source.
const PREFIX: u128 = u128::MAX << 64;

/// The oldest connection of the address with the most connections; numbers grow with time.
pub(super) fn eviction_candidate(unauthenticated: &[(u64, Option<IpAddr>)]) -> Option<u64> {
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
pub(super) fn rate_limit_key(address: IpAddr) -> IpAddr {
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
