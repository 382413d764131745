//! What the kernel says of a socket that a process has passed.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use millrace_stream::Address;
use rustix::fs::fstat;
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{
    ipv6_v6only, socket_acceptconn, socket_domain, socket_protocol, socket_reuseport, socket_type,
};
use rustix::net::{AddressFamily, SocketType, getsockname, ipproto};

use crate::registry::Proof;

/// The state of a listening socket in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// What makes a process the listener of an address: that the kernel has let it listen there.
///
/// # Errors
/// `EINVAL` if it is no listening socket of TCP; `EXDEV` if it is one of another network namespace, where addresses
/// mean other hosts; otherwise as the kernel says.
pub(super) fn examine(socket: BorrowedFd<'_>) -> Result<Proof> {
    let domain = socket_domain(socket)?;
    let is_inet = domain == AddressFamily::INET || domain == AddressFamily::INET6;
    let is_tcp = socket_type(socket)? == SocketType::STREAM
        && socket_protocol(socket)?.is_none_or(|protocol| protocol == ipproto::TCP);
    if !is_inet || !is_tcp || !socket_acceptconn(socket)? {
        return Err(Errno::INVAL);
    }
    let address: SocketAddr = getsockname(socket)?
        .try_into()
        .map_err(|_| Errno::AFNOSUPPORT)?;
    let is_v6 = domain == AddressFamily::INET6;
    let inode = fstat(socket)?.st_ino;
    if !is_here(inode, is_v6) {
        return Err(Errno::XDEV);
    }
    Ok(Proof {
        address: Address::from(address),
        only_v6: is_v6 && ipv6_v6only(socket)?,
        reuse_port: socket_reuseport(socket)?,
        socket: inode,
    })
}

/// Whether the socket listens in this process's network namespace: whether that lists it. The list begins with those
/// that listen. A system without the list is taken to have one namespace.
fn is_here(inode: u64, is_v6: bool) -> bool {
    let path = if is_v6 {
        "/proc/thread-self/net/tcp6"
    } else {
        "/proc/thread-self/net/tcp"
    };
    let Ok(file) = File::open(path) else {
        return true;
    };
    let mut lines = BufReader::new(file).lines().skip(1);
    lines.any(|line| line.is_ok_and(|line| line_is(&line, inode)))
}

/// `  sl  local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode ..`
fn line_is(line: &str, inode: u64) -> bool {
    let mut fields = line.split_ascii_whitespace();
    let state = fields.nth(3);
    let listed = fields.nth(5).and_then(|field| field.parse().ok());
    state == Some(LISTENING) && listed == Some(inode)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_listening_socket_proves_its_address() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).expect("a port of loopback");
            let proof = examine(listener.as_fd()).expect("it listens");
            let address = listener.local_addr().expect("it has one");
            assert_eq!(SocketAddr::from(proof.address), address);
            // The kernel takes IPv4 at the wildcard address of IPv6 alone.
            assert_eq!(proof.only_v6, address.is_ipv6());
            assert!(!proof.reuse_port);
        }
    }

    #[test]
    fn others_prove_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let address = listener.local_addr().expect("it has one");
        let stream = TcpStream::connect(address).expect("it listens");
        assert_eq!(examine(stream.as_fd()), Err(Errno::INVAL));
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port of loopback");
        assert_eq!(examine(datagrams.as_fd()), Err(Errno::INVAL));
        let file = File::open("/dev/null").expect("it is there");
        assert_eq!(examine(file.as_fd()), Err(Errno::NOTSOCK));
    }

    #[test]
    fn only_a_line_of_a_listening_socket_counts() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4711 1 0";
        assert!(line_is(line, 4711));
        assert!(!line_is(line, 1));
        assert!(!line_is(&line.replace(" 0A ", " 01 "), 4711));
        assert!(!line_is("", 4711) && !line_is("a b c 0A", 4711));
    }
}
