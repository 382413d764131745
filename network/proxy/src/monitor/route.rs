//! From which address the kernel would connect, if the peer is on this host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use millrace_stream::Address;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, connect, getsockname, socket_with,
};

/// The address that the kernel would connect from to a canonical one; none if that is not of this host.
pub(super) fn source(peer: Address) -> Option<IpAddr> {
    match peer.ip() {
        // What the kernel's table of local addresses says for all of 127.0.0.0/8.
        IpAddr::V4(ip) if ip.is_loopback() => Some(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_loopback() => Some(ip.into()),
        ip if ip.is_multicast() || ip.is_unspecified() => None,
        ip => is_local(peer).then_some(ip),
    }
}

/// A local name that a process says it has; with any address if that is none of this host.
pub(super) fn own(local: Address) -> Address {
    let canonical = local.canonical();
    if canonical.ip().is_unspecified() || source(canonical).is_some() {
        return local;
    }
    Address::new(Ipv4Addr::UNSPECIFIED.into(), local.port())
}

/// The address that the kernel would connect from to one of another host; none if it knows no way.
pub(super) fn toward(peer: Address) -> Option<IpAddr> {
    let family = match peer.ip() {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None).ok()?;
    // Nothing is sent.
    connect(
        &socket,
        &SocketAddr::from(peer.with_port(peer.port().max(1))),
    )
    .ok()?;
    let own = SocketAddr::try_from(getsockname(&socket).ok()?).ok()?;
    Some(own.ip())
}

/// A socket can be bound to the addresses of this host alone, and cannot be connected to those that mean all hosts
/// of a network. Nothing is sent. (`ip_nonlocal_bind` would make all addresses local; then none but those that are
/// listened at by name are found.)
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
    fn nobody_has_the_address_of_another_host() {
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
