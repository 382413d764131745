//! The source address that the kernel would choose for a peer.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use millrace_stream::Address;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with,
};

/// The source address for a canonical peer address of this host; `None` if the peer is on another host.
pub(super) fn source(peer: Address) -> Option<IpAddr> {
    match peer.ip() {
        // The kernel's local table has all of 127.0.0.0/8.
        IpAddr::V4(ip) if ip.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_loopback() => Some(ip.into()),
        ip if ip.is_multicast() || ip.is_unspecified() => None,
        ip => is_local(peer).then_some(ip),
    }
}

/// The local name of a request; the unspecified address replaces one that is not this host's.
pub(super) fn own(local: Address) -> Address {
    let canonical = local.canonical();
    if canonical.ip().is_unspecified() || source(canonical).is_some() {
        return local;
    }
    Address::new(Ipv4Addr::UNSPECIFIED.into(), local.port())
}

/// The source address for a peer on another host; `None` without a route.
pub(super) fn toward(peer: Address) -> Option<IpAddr> {
    let family = match peer.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    // `connect` of a datagram socket sends nothing.
    connect(
        &socket,
        &SocketAddr::from(peer.with_port(peer.port().max(1))),
    )
    .ok()?;
    let own = SocketAddr::try_from(getsockname(&socket).ok()?).ok()?;
    Some(own.ip())
}

/// Whether the address is this host's: a socket can be bound to local addresses only, and cannot be connected to
/// broadcast addresses. Nothing is sent. (With `ip_nonlocal_bind` every address appears local; then only listeners at a
/// specific address are found.)
fn is_local(peer: Address) -> bool {
    let family = match peer.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let Ok(socket) = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None) else {
        return false;
    };
    let own = SocketAddr::from(peer.with_port(0));
    let other = SocketAddr::from(peer.with_port(peer.port().max(1)));
    bind(&socket, &own).is_ok() && connect(&socket, &other).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(text: &str) -> Option<IpAddr> {
        let peer: IpAddr = text.parse().expect("an address");
        source(Address::new(peer, 80))
    }

    #[test]
    fn loopback_is_here() {
        assert_eq!(from("127.0.0.1"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(from("127.5.0.1"), Some(Ipv4Addr::LOCALHOST.into()));
        assert_eq!(from("::1"), Some("::1".parse().expect("an address")));
    }

    #[test]
    fn a_foreign_local_address_is_replaced() {
        let name = |text: &str| Address::new(text.parse().expect("an address"), 80);
        assert_eq!(own(name("192.0.2.1")), name("0.0.0.0"));
        for here in ["127.0.0.9", "::ffff:127.0.0.1", "::1", "::", "0.0.0.0"] {
            assert_eq!(own(name(here)), name(here));
        }
    }

    #[test]
    fn addresses_of_documents_and_of_many_hosts_are_not_here() {
        for elsewhere in [
            "192.0.2.1",
            "224.0.0.1",
            "255.255.255.255",
            "2001:db8::1",
            "ff02::1",
        ] {
            assert_eq!(from(elsewhere), None, "{elsewhere}");
        }
    }
}
