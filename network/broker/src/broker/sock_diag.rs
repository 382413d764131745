//! The check that a TCP socket still listens, by `sock_diag(7)`.
//!
//! A program keeps its channel after it has closed its listening socket, and the kernel may give the port to another
//! process. The broker therefore asks the kernel before each connection for the listener at the address, and if that is
//! another socket, for the listeners at the port. For kernels without `sock_diag` it reads `/proc/net/tcp` and `tcp6`.

use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::IpAddr;
use std::os::fd::OwnedFd;

use rustix::io::{Errno, Result};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

use crate::registry::Proof;
use millrace_stream::sockets::packets::retry;

/// A client of the kernel's `sock_diag` interface.
#[derive(Debug)]
pub(super) struct SockDiag {
    /// The netlink socket; `None` if the kernel offers none.
    socket: Option<OwnedFd>,
    serial: u32,
    /// The listeners at a port in the kernel's last answer of this turn: sockets that share a port are found in it.
    ports: HashMap<(Family, u16), Vec<u64>>,
}

/// The address family of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Family {
    V4,
    V6,
}

/// The message types `NLMSG_ERROR` and `NLMSG_DONE`.
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// The message type `SOCK_DIAG_BY_FAMILY`.
const BY_FAMILY: u16 = 20;
/// The flags `NLM_F_REQUEST` and `NLM_F_DUMP`.
const REQUEST: u16 = 1;
const DUMP: u16 = 0x300;
const TCP: u8 = 6;
/// The TCP state LISTEN, and the state mask of it.
const LISTEN: u8 = 10;
const ONLY_LISTEN: u32 = 1 << LISTEN;
/// Bytes of `nlmsghdr`, of `inet_diag_req_v2`, and of `inet_diag_msg`.
const HEADER: usize = 16;
const QUESTION: usize = 56;
const ANSWER: usize = 72;
/// Offsets in `inet_diag_msg`: the state, the port in network order, and the inode.
const STATE: usize = 1;
const PORT: usize = 4;
const INODE: usize = 68;
/// Bytes of the receive buffer: more than one part of a dump.
const PART: usize = 32 << 10;

impl SockDiag {
    pub(super) fn new() -> Self {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let protocol = Some(netlink::SOCK_DIAG);
        Self {
            socket: socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, protocol).ok(),
            serial: 0,
            ports: HashMap::new(),
        }
    }

    /// Forgets the kernel's answers at the start of a turn.
    pub(super) fn begin(&mut self) {
        self.ports.clear();
    }

    /// Whether the socket of `proof` listens at its address in this network namespace.
    pub(super) fn has(&mut self, proof: &Proof) -> bool {
        let family = match proof.address.ip() {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        };
        let answer = self
            .is_first(family, proof)
            .and_then(|is_first| Ok(is_first || self.is_at_port(family, proof)?));
        answer.unwrap_or_else(|_| {
            // Answers still in the old socket are dropped with it.
            *self = Self::new();
            is_listed(family, proof.socket)
        })
    }

    /// Whether the kernel's lookup by address finds this socket.
    fn is_first(&mut self, family: Family, proof: &Proof) -> Result<bool> {
        let mut part = vec![0; PART];
        let length = self.ask(family, proof, REQUEST, &mut part)?;
        let mut is_first = false;
        for answer in Answers(&part[..length]) {
            match answer {
                Answer::Socket(socket) => is_first |= socket.is(proof),
                // No socket listens there, or only one bound to an interface.
                Answer::End | Answer::Error(Errno::NOENT) => {}
                Answer::Error(errno) => return Err(errno),
            }
        }
        Ok(is_first)
    }

    /// Whether the socket is among those that listen at the port. A negative result never comes from an older answer.
    fn is_at_port(&mut self, family: Family, proof: &Proof) -> Result<bool> {
        let key = (family, proof.address.port());
        let known = self.ports.get(&key);
        if known.is_some_and(|known| known.contains(&proof.socket)) {
            return Ok(true);
        }
        let found = self.list(family, proof)?;
        let is_there = found.contains(&proof.socket);
        self.ports.insert(key, found);
        Ok(is_there)
    }

    fn list(&mut self, family: Family, proof: &Proof) -> Result<Vec<u64>> {
        let mut found = Vec::new();
        let mut part = vec![0; PART];
        let mut length = self.ask(family, proof, REQUEST | DUMP, &mut part)?;
        loop {
            for answer in Answers(&part[..length]) {
                match answer {
                    Answer::Socket(socket) if socket.port == proof.address.port() => {
                        found.push(socket.inode);
                    }
                    Answer::Socket(_) => {}
                    Answer::End => return Ok(found),
                    Answer::Error(errno) => return Err(errno),
                }
            }
            length = self.receive(&mut part)?;
        }
    }

    fn ask(&mut self, family: Family, proof: &Proof, flags: u16, part: &mut [u8]) -> Result<usize> {
        self.serial = self.serial.wrapping_add(1);
        let question = question(family, proof, flags, self.serial);
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        retry(|| send(socket, &question, SendFlags::empty()))?;
        self.receive(part)
    }

    /// The kernel answers before `send` returns: an empty socket is an error.
    fn receive(&self, part: &mut [u8]) -> Result<usize> {
        let socket = self.socket.as_ref().ok_or(Errno::NOTCONN)?;
        let (length, _) = retry(|| recv(socket, &mut *part, RecvFlags::empty()))?;
        if length == 0 {
            return Err(Errno::IO);
        }
        Ok(length)
    }
}

/// A request: `nlmsghdr`, then `inet_diag_req_v2` with family, protocol, extensions, padding, states and the socket's
/// name.
fn question(family: Family, proof: &Proof, flags: u16, serial: u32) -> [u8; HEADER + QUESTION] {
    let mut bytes = [0; HEADER + QUESTION];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let length = u32::try_from(HEADER + QUESTION).expect("it is short");
    put(0, &length.to_ne_bytes());
    put(4, &BY_FAMILY.to_ne_bytes());
    put(6, &flags.to_ne_bytes());
    put(8, &serial.to_ne_bytes());
    let number = match family {
        Family::V4 => AddressFamily::INET,
        Family::V6 => AddressFamily::INET6,
    };
    put(HEADER, &number.as_raw().to_ne_bytes()[..1]);
    put(HEADER + 1, &[TCP]);
    put(HEADER + 4, &ONLY_LISTEN.to_ne_bytes());
    put(HEADER + 8, &proof.address.port().to_be_bytes());
    match proof.address.ip() {
        IpAddr::V4(ip) => put(HEADER + 12, &ip.octets()),
        IpAddr::V6(ip) => put(HEADER + 12, &ip.octets()),
    }
    put(HEADER + 44, &proof.address.scope().to_ne_bytes());
    // The cookie that matches any socket.
    put(HEADER + 48, &[0xff; 8]);
    bytes
}

/// A socket in an answer of the kernel.
#[derive(Clone, Copy, Debug)]
struct Socket {
    state: u8,
    port: u16,
    inode: u64,
}

impl Socket {
    fn is(self, proof: &Proof) -> bool {
        self.state == LISTEN && self.inode == proof.socket
    }
}

/// One message of the kernel.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Socket(Socket),
    End,
    Error(Errno),
}

/// The messages of one part; a truncated part ends in an error.
struct Answers<'a>(&'a [u8]);

impl Iterator for Answers<'_> {
    type Item = Answer;

    fn next(&mut self) -> Option<Answer> {
        if self.0.is_empty() {
            return None;
        }
        let whole = std::mem::take(&mut self.0);
        let torn = Some(Answer::Error(Errno::IO));
        let Some(length) = u32_at(whole, 0).and_then(|length| usize::try_from(length).ok()) else {
            return torn;
        };
        let Some(message) = whole.get(HEADER..length) else {
            return torn;
        };
        self.0 = whole.get(length.next_multiple_of(4)..).unwrap_or_default();
        let answer = match u16::from_ne_bytes([whole[4], whole[5]]) {
            ERROR => error(message),
            DONE => Some(Answer::End),
            _ => socket(message).map(Answer::Socket),
        };
        answer.map_or(torn, Some)
    }
}

fn error(message: &[u8]) -> Option<Answer> {
    let number = i32::from_ne_bytes(*message.first_chunk()?);
    Some(match number.checked_neg()? {
        0 => Answer::End,
        errno => Answer::Error(Errno::from_raw_os_error(errno)),
    })
}

fn socket(message: &[u8]) -> Option<Socket> {
    let message = message.get(..ANSWER)?;
    let port = message.get(PORT..)?.first_chunk()?;
    Some(Socket {
        state: message[STATE],
        port: u16::from_be_bytes(*port),
        inode: u32_at(message, INODE)?.into(),
    })
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The state LISTEN in `/proc/net/tcp`.
const LISTED: &str = "0A";

/// Whether `/proc/net/tcp` lists the inode among its listening sockets, which come first.
fn is_listed(family: Family, inode: u64) -> bool {
    let path = match family {
        Family::V4 => "/proc/thread-self/net/tcp",
        Family::V6 => "/proc/thread-self/net/tcp6",
    };
    let Ok(file) = File::open(path) else {
        return false;
    };
    let lines = BufReader::new(file).lines().skip(1);
    let mut listening = lines.map_while(|line| listed(&line.ok()?));
    listening.any(|listed| listed == inode)
}

/// The inode of a line with a listening socket. Format:
/// `  sl  local_address rem_address st tx_queue:rx_queue tr:when retrnsmt uid timeout inode ..`
fn listed(line: &str) -> Option<u64> {
    let mut fields = line.split_ascii_whitespace();
    let state = fields.nth(3)?;
    let inode = fields.nth(5)?.parse().ok()?;
    (state == LISTED).then_some(inode)
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, TcpListener};
    use std::os::fd::AsFd;

    use millrace_stream::Address;
    use rustix::fs::fstat;
    use rustix::net::sockopt::set_socket_reuseport;

    use super::*;

    fn proof(listener: &TcpListener) -> Proof {
        let address = listener.local_addr().expect("it has a name");
        Proof {
            address: Address::from(address),
            only_v6: false,
            reuse_port: false,
            socket: fstat(listener.as_fd()).expect("a socket").st_ino,
        }
    }

    #[test]
    fn a_listening_socket_is_found_until_it_is_closed() {
        for at in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            let mut sock_diag = SockDiag::new();
            let listener = TcpListener::bind(at).expect("a port");
            let proof = proof(&listener);
            assert!(sock_diag.has(&proof), "{at}");
            assert!(sock_diag.has(&proof), "{at}");
            drop(listener);
            sock_diag.begin();
            assert!(!sock_diag.has(&proof), "{at}");
        }
    }

    #[test]
    fn another_at_the_address_is_not_the_one() {
        let mut sock_diag = SockDiag::new();
        let first = TcpListener::bind("127.0.0.1:0").expect("a port");
        let stale = proof(&first);
        let address = first.local_addr().expect("it has a name");
        drop(first);
        let second = TcpListener::bind(("0.0.0.0", address.port())).expect("it is free");
        assert!(!sock_diag.has(&stale));
        assert!(sock_diag.has(&proof(&second)));
    }

    #[test]
    fn sockets_that_share_a_port_are_found_in_the_same_turn() {
        let share = |port: u16| -> TcpListener {
            let kind = SocketType::STREAM;
            let socket = rustix::net::socket(AddressFamily::INET, kind, None).expect("a socket");
            set_socket_reuseport(&socket, true).expect("an option");
            let at = SocketAddr::from(([127, 0, 0, 1], port));
            rustix::net::bind(&socket, &at).expect("the port is shared");
            rustix::net::listen(&socket, 8).expect("it is bound");
            socket.into()
        };
        let mut sock_diag = SockDiag::new();
        let mut all = vec![share(0)];
        let port = proof(&all[0]).address.port();
        for _ in 0..4 {
            all.push(share(port));
            for listener in &all {
                assert!(sock_diag.has(&proof(listener)));
            }
        }
    }

    #[test]
    fn without_answers_the_list_is_read() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let inode = proof(&listener).socket;
        assert!(is_listed(Family::V4, inode) && !is_listed(Family::V6, inode));
        drop(listener);
        assert!(!is_listed(Family::V4, inode));
    }

    #[test]
    fn only_a_line_of_a_listening_socket_counts() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000  0 4711 1 0";
        assert_eq!(listed(line), Some(4711));
        assert_eq!(listed(&line.replace(" 0A ", " 01 ")), None);
        assert_eq!((listed(""), listed("a b c 0A")), (None, None));
    }

    #[test]
    fn what_the_kernel_could_not_say_is_an_error() {
        let mut bytes = [0; HEADER + ANSWER];
        for length in 0..=bytes.len() {
            for said in [0, 1, 15, 16, 20, 88, u32::MAX] {
                bytes[..4].copy_from_slice(&said.to_ne_bytes());
                let answers = Answers(&bytes[..length]);
                assert!(answers.count() <= bytes.len());
            }
        }
    }
}
