//! The check of a socket that a process has passed.

use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use millrace_stream::Address;
use rustix::fs::fstat;
use rustix::io::{Errno, Result};
use rustix::net::sockopt::{
    ipv6_v6only, socket_acceptconn, socket_domain, socket_protocol, socket_reuseport, socket_type,
};
use rustix::net::{AddressFamily, SocketType, getsockname, ipproto};

use super::sock_diag::SockDiag;
use crate::registry::Proof;

/// Checks that a descriptor is a listening TCP socket of this network namespace, and reads its address and options.
///
/// # Errors
/// `EINVAL` if it is not a listening TCP socket; `EXDEV` if it belongs to another network namespace; otherwise the
/// errno of the failed call.
pub(super) fn examine(socket: BorrowedFd<'_>, sock_diag: &mut SockDiag) -> Result<Proof> {
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
    let proof = Proof {
        address: Address::from(address),
        only_v6: is_v6 && ipv6_v6only(socket)?,
        reuse_port: socket_reuseport(socket)?,
        socket: fstat(socket)?.st_ino,
    };
    if sock_diag.has(&proof) {
        Ok(proof)
    } else {
        Err(Errno::XDEV)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_listening_socket_proves_its_address() {
        for at in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(at).expect("a port of loopback");
            let proof = examine(listener.as_fd(), &mut SockDiag::new()).expect("it listens");
            let address = listener.local_addr().expect("it has one");
            assert_eq!(SocketAddr::from(proof.address), address);
            // The wildcard address of IPv6 alone also accepts IPv4.
            assert_eq!(proof.only_v6, address.is_ipv6());
            assert!(!proof.reuse_port);
        }
    }

    #[test]
    fn others_prove_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port of loopback");
        let address = listener.local_addr().expect("it has one");
        let stream = TcpStream::connect(address).expect("it listens");
        assert_eq!(
            examine(stream.as_fd(), &mut SockDiag::new()),
            Err(Errno::INVAL)
        );
        let datagrams = UdpSocket::bind("127.0.0.1:0").expect("a port of loopback");
        assert_eq!(
            examine(datagrams.as_fd(), &mut SockDiag::new()),
            Err(Errno::INVAL)
        );
        let file = File::open("/dev/null").expect("it is there");
        assert_eq!(
            examine(file.as_fd(), &mut SockDiag::new()),
            Err(Errno::NOTSOCK)
        );
    }
}
