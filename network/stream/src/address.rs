//! The address of one end of a connection.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Bytes of an address in a packet.
pub(crate) const SIZE: usize = 24;

/// The address families by the kernel's numbers.
const INET: u16 = 2;
const INET6: u16 = 10;

/// An IP address, a port and, for link-local addresses of version 6, the interface's index.
///
/// ```text
///  0  family u16: 2 = IPv4, 10 = IPv6
///  2  port u16
///  4  scope u32; 0 for IPv4
///  8  the address: 16 bytes in network order, or 4 and 12 zeros
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Address {
    ip: IpAddr,
    port: u16,
    scope: u32,
}

impl Address {
    /// An address of `ip` and `port` with scope 0.
    #[must_use]
    pub const fn new(ip: IpAddr, port: u16) -> Self {
        Self { ip, port, scope: 0 }
    }

    /// The IP address, in the form in which it was given.
    #[must_use]
    pub const fn ip(&self) -> IpAddr {
        self.ip
    }

    /// The port number. As the local port of CONNECT, 0 asks for any.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// The interface index of a link-local address; else 0.
    #[must_use]
    pub const fn scope(&self) -> u32 {
        self.scope
    }

    /// The same address with another port.
    #[must_use]
    pub const fn with_port(self, port: u16) -> Self {
        Self { port, ..self }
    }

    /// The canonical form: an IPv4-mapped IPv6 address (`::ffff:127.0.0.1`) becomes IPv4.
    #[must_use]
    pub fn canonical(self) -> Self {
        let ip = self.ip.to_canonical();
        let scope = if ip.is_ipv6() { self.scope } else { 0 };
        Self { ip, scope, ..self }
    }

    /// The form that an IPv6 socket shows: an IPv4 address becomes IPv4-mapped.
    #[must_use]
    pub fn mapped(self) -> Self {
        match self.ip {
            IpAddr::V4(ip) => Self {
                ip: ip.to_ipv6_mapped().into(),
                ..self
            },
            IpAddr::V6(_) => self,
        }
    }

    /// Whether it is an IPv4-mapped IPv6 address.
    #[must_use]
    pub fn is_mapped(&self) -> bool {
        self.ip != self.ip.to_canonical()
    }

    pub(crate) fn encode(&self) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let family = match self.ip {
            IpAddr::V4(ip) => {
                bytes[8..12].copy_from_slice(&ip.octets());
                INET
            }
            IpAddr::V6(ip) => {
                bytes[8..24].copy_from_slice(&ip.octets());
                INET6
            }
        };
        bytes[..2].copy_from_slice(&family.to_le_bytes());
        bytes[2..4].copy_from_slice(&self.port.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.scope.to_le_bytes());
        bytes
    }

    /// Decodes an address; `None` for an unknown family or nonzero padding.
    pub(crate) fn decode(bytes: &[u8; SIZE]) -> Option<Self> {
        let [f0, f1, p0, p1, s0, s1, s2, s3, octets @ ..] = *bytes;
        let (first, rest) = octets.split_first_chunk::<4>()?;
        let scope = u32::from_le_bytes([s0, s1, s2, s3]);
        let ip: IpAddr = match u16::from_le_bytes([f0, f1]) {
            INET if scope == 0 && rest.iter().all(|&byte| byte == 0) => {
                Ipv4Addr::from(*first).into()
            }
            INET6 => Ipv6Addr::from(octets).into(),
            _ => return None,
        };
        let port = u16::from_le_bytes([p0, p1]);
        Some(Self { ip, port, scope })
    }
}

impl From<SocketAddr> for Address {
    /// Drops the flow information of IPv6.
    fn from(address: SocketAddr) -> Self {
        let scope = match address {
            SocketAddr::V4(_) => 0,
            SocketAddr::V6(address) => address.scope_id(),
        };
        Self {
            ip: address.ip(),
            port: address.port(),
            scope,
        }
    }
}

impl From<Address> for SocketAddr {
    fn from(address: Address) -> Self {
        match address.ip {
            IpAddr::V4(ip) => (ip, address.port).into(),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, address.port, 0, address.scope).into(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::from(*self).fmt(f)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
