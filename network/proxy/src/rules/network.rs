//! Addresses with a common beginning.

use std::net::IpAddr;
use std::str::FromStr;

/// The addresses of one family whose first bits are equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    first: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether a canonical address is one of them.
    pub(super) fn contains(&self, ip: IpAddr) -> bool {
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
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (ip, bits) = match text.split_once('/') {
            Some((ip, bits)) => (ip, Some(bits)),
            None => (text, None),
        };
        let first: IpAddr = ip.parse().map_err(|_| ())?;
        let bits = match bits {
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => {
                bits.parse().map_err(|_| ())?
            }
            Some(_) => return Err(()),
            None => width(first),
        };
        let rest = width(first).checked_sub(bits).ok_or(())?;
        let behind = number(first) & !u128::MAX.checked_shl(rest).unwrap_or(0);
        if behind == 0 {
            Ok(Self { first, bits })
        } else {
            Err(())
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
