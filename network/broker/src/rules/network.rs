//! IP networks: addresses with a common prefix.

use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::{Error, ErrorKind, Result};

/// The addresses of one family with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

impl Network {
    /// Whether a canonical address is in the network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.0.contains(&ip)
    }
}

impl FromStr for Network {
    type Err = Error;

    // `IpNet` would accept bits behind the prefix, and refuses an address alone and a prefix length with zeros in front.
    fn from_str(text: &str) -> Result<Self> {
        parse(text).map(Self).ok_or_else(|| {
            let message = "an address is one of IPv4 or IPv6, and may end in /BITS; no bit behind those is set";
            Error::new(ErrorKind::Rules, message)
        })
    }
}

/// The network of a text; `None` if it is none, or a bit behind the prefix is set.
fn parse(text: &str) -> Option<IpNet> {
    let network = match text.split_once('/') {
        Some((ip, bits)) => {
            // `u8` would accept a sign.
            let is_number = bits.bytes().all(|byte| byte.is_ascii_digit());
            let bits = bits.parse().ok().filter(|_| is_number)?;
            IpNet::new(ip.parse().ok()?, bits).ok()?
        }
        None => IpNet::from(text.parse::<IpAddr>().ok()?),
    };
    (network.addr() == network.network()).then_some(network)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contains(network: &str, ip: &str) -> bool {
        let network: Network = network.parse().expect("a network");
        network.contains(ip.parse().expect("an address"))
    }

    #[test]
    fn prefixes_of_all_lengths() {
        assert!(contains("0.0.0.0/0", "255.255.255.255"));
        assert!(contains("::/0", "ffff::1"));
        assert!(contains("10.0.0.1/32", "10.0.0.1") && !contains("10.0.0.1/32", "10.0.0.0"));
        assert!(contains("10.0.0.1", "10.0.0.1") && !contains("10.0.0.1", "10.0.0.2"));
        assert!(contains("fd00::1/128", "fd00::1") && !contains("fd00::1/128", "fd00::2"));
        assert!(contains("fd00::1", "fd00::1") && !contains("fd00::1", "fd00::"));
        assert!(contains("10.128.0.0/9", "10.200.1.1") && !contains("10.128.0.0/9", "10.1.1.1"));
        assert!(contains("10.0.0.0/008", "10.1.1.1"));
    }

    /// A network of mapped addresses is one of IPv6: it has no address of IPv4.
    #[test]
    fn families_are_apart() {
        assert!(contains("::ffff:10.0.0.0/104", "::ffff:10.1.2.3"));
        assert!(!contains("::ffff:10.0.0.0/104", "10.1.2.3"));
        assert!(!contains("::/0", "10.1.2.3") && !contains("0.0.0.0/0", "::ffff:10.1.2.3"));
    }

    #[test]
    fn texts_that_are_no_network() {
        for text in [
            "",
            "/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "10.0.0.0/-8",
            "10.0.0.0/8 ",
            " 10.0.0.0/8",
            "10.0.0.0/8/8",
            "10.0.0.0/33",
            "10.0.0.0/256",
            "10.0.0.0/264",
            "10.0.0.0/4294967304",
            "10.0.0.0/255.0.0.0",
            "10.0.0/8",
            "010.0.0.0/8",
            "10.0.0.1/8",
            "10.0.0.1/0",
            "10.0.0.1/31",
            "::/129",
            "::1/127",
            "::1/0",
            "::ffff:10.0.0.1/104",
            "fe80::1%eth0",
            "[::1]/128",
        ] {
            assert!(text.parse::<Network>().is_err(), "{text:?}");
        }
    }
}
