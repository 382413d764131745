//! The addresses at which other hosts can reach this host.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::peer::ADDRESSES_MAX;

/// The kernel's addresses in this network namespace except loopback and link-local ones: sorted, without duplicates, at
/// most [`ADDRESSES_MAX`].
pub(super) fn own() -> Vec<IpAddr> {
    let four = fs::read_to_string("/proc/thread-self/net/fib_trie").unwrap_or_default();
    let six = fs::read_to_string("/proc/thread-self/net/if_inet6").unwrap_or_default();
    let mut all: Vec<IpAddr> = of_trie(&four).map(IpAddr::from).collect();
    all.extend(of_interfaces(&six).map(IpAddr::from));
    all.sort_unstable();
    all.dedup();
    all.truncate(ADDRESSES_MAX);
    all
}

/// The local IPv4 addresses of the kernel's routing trie: a line holds the address, the next line its type.
fn of_trie(text: &str) -> impl Iterator<Item = Ipv4Addr> {
    let mut last = None;
    text.lines().filter_map(move |line| {
        let line = line.trim_start();
        if let Some(address) = line.strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
            return None;
        }
        let is_local = line.starts_with("/32 host LOCAL");
        last.filter(|ip| is_local && !ip.is_loopback() && !ip.is_link_local())
    })
}

/// The IPv6 addresses of `if_inet6`. Fields of a line: address, interface, prefix length, scope, flags, name; numbers
/// are hexadecimal.
fn of_interfaces(text: &str) -> impl Iterator<Item = Ipv6Addr> {
    text.lines().filter_map(|line| {
        let digits = line.split_ascii_whitespace().next()?;
        let ip = Ipv6Addr::from(u128::from_str_radix(digits, 16).ok()?);
        (!ip.is_loopback() && !ip.is_unicast_link_local()).then_some(ip)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_tables_are_read() {
        let trie = "Local:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 10.9.0.0\n        /24 link UNICAST\n     |-- 10.9.0.1\n        \
                    /32 host LOCAL\n     |-- 10.9.0.255\n        /32 link BROADCAST\n     |-- 127.0.0.1\n        \
                    /32 host LOCAL\n";
        let found: Vec<Ipv4Addr> = of_trie(trie).collect();
        assert_eq!(found, ["10.9.0.1".parse::<Ipv4Addr>().expect("an address")]);
        let interfaces = "00000000000000000000000000000001 01 80 10 80 lo\n\
                          fd000000000000000000000000000002 02 40 00 80 eth0\n\
                          fe800000000000000000000000000002 02 40 20 80 eth0\n";
        let found: Vec<Ipv6Addr> = of_interfaces(interfaces).collect();
        assert_eq!(found, ["fd00::2".parse::<Ipv6Addr>().expect("an address")]);
    }
}
