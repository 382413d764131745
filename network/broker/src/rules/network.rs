//! IP networks: addresses with a common prefix.

use std::net::IpAddr;
use std::str::FromStr;

use crate::{Error, ErrorKind, Result};

/// The addresses of one family with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether a canonical address is in the network.
    #[must_use]
    pub fn contains(&self, ip: IpAddr) -> bool {
        self.first.is_ipv4() == ip.is_ipv4() && self.begins_as(ip)
    }

    fn begins_as(&self, ip: IpAddr) -> bool {
        let rest = width(ip) - self.bits;
        (number(ip) ^ number(self.first))
            .checked_shr(rest)
            .unwrap_or(0)
            == 0
    }
}

impl FromStr for Network {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let wrong = || {
            let message = "an address is one of IPv4 or IPv6, and may end in /BITS; no bit behind those is set";
            Error::new(ErrorKind::Rules, message)
        };
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = ip.parse().map_err(|_| wrong())?;
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| wrong())?
            }
            Some(_) => return Err(wrong()),
            None => width(first),
        };
        let rest = width(first).checked_sub(bits).ok_or_else(wrong)?;
        let behind = number(first) & !u128::MAX.checked_shl(rest).unwrap_or(0);
        if behind == 0 {
            Ok(Self { first, bits })
        } else {
            Err(wrong())
        }
    }
}

fn width(ip: IpAddr) -> u32 {
    match ip {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

fn number(ip: IpAddr) -> u128 {
    match ip {
        IpAddr::V4(ip) => ip.to_bits().into(),
        IpAddr::V6(ip) => ip.to_bits(),
    }
}
