//! The control protocol between processes and their broker.
//!
//! A process has one connection to its broker (`AF_UNIX`, `SOCK_SEQPACKET`); one packet is one message. Every packet
//! has [`PACKET`] bytes, little-endian; bytes that are not listed are zero.
//!
//! ```text
//!   0  kind u16     1 HELLO    2 WELCOME   3 LISTEN    4 LISTENING   5 REFUSED   6 CONNECT
//!                   7 CONNECTED   8 KERNEL   9 INCOMING   10 STATUS   11 TOP   12 REPORT   13 OFFER_FORWARDERS   14 LEASE
//!   2  version u16  2
//!   4  serial u32   of a request: any number; of its reply: the same; of INCOMING: unused
//!
//!   HELLO      + the slab                           -> WELCOME, REFUSED
//!   WELCOME    8 ring_lines u32   12 spin_us_max u32
//!   LISTEN     + the listening socket               -> LISTENING, KERNEL, REFUSED
//!              8 backlog u32      12 flags u32 (none yet)
//!   LISTENING  + the channel on which INCOMING comes
//!   CONNECT                                         -> CONNECTED, LEASE, KERNEL, REFUSED
//!              8 flags u32 (1 = do not wait, 2 = a lease is welcome)        16 local address   40 peer's address
//!   CONNECTED  + the wake-up fd, the memory
//!              8 side u8 (0)    9 mode u8    12 ring_lines u32   16 local address   40 peer's address
//!   INCOMING   + the wake-up fd, the memory
//!              8 side u8 (1)    9 mode u8    12 ring_lines u32   16 local address   40 peer's address
//!              64 user u32      68 process u32
//!   LEASE      + the listener's channel, to send by
//!              8 mapped u8    10 ports u16    12 ring_lines u32   16 local address, with the first port
//!              40 peer's address   64 lasts u32, microseconds
//!   REFUSED    8 errno u32
//!   KERNEL     -: the kernel's TCP is to serve it
//!   STATUS     -                                    -> REPORT, REFUSED
//!   TOP        -                                    -> REPORT, REFUSED
//!   REPORT     + a file with JSON
//!              8 length u64
//!   OFFER_FORWARDERS                                -> WELCOME, REFUSED
//!              8 count u16
//! ```
//! [`Address`] defines the layout of addresses. `mode` is 1 for direct, 2 for forwarded. `+` lists the descriptors of a
//! message, in this order ([`Message::descriptors`]).
//!
//! A process that connects to one listener repeatedly gets a [`Lease`]: the listener's channel, to make its connections
//! itself. It sends INCOMING as the broker does. The kernel reports the sender of each packet to the accepting process
//! (`SCM_CREDENTIALS`).
//!
//! Replies come in any order: a CONNECT waits while its listener's backlog is full, and later ones overtake it.
//!
//! Any change of the protocol changes the version. A receiver of another version answers with REFUSED{EPROTONOSUPPORT}
//! in its own version.
//!
//! Received packets are untrusted: [`Packet::decode`] fails for every packet that [`Packet::encode`] cannot produce.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::address;
use crate::address::Address;

/// The size of every packet in bytes.
pub const PACKET: usize = 128;

/// The version of the control protocol.
pub const VERSION: u16 = 2;

/// The environment variable with the path of the broker's socket.
pub const SOCKET_VARIABLE: &str = "MILLRACE_SOCKETS";

/// The default path of a user's broker, unless [`SOCKET_VARIABLE`] names another: below `/run` for root, else below
/// `runtime` (`$XDG_RUNTIME_DIR`), else below `/tmp/millrace-USER`.
#[must_use]
pub fn socket_path(user: u32, runtime: Option<&Path>) -> PathBuf {
    let folder = match runtime.filter(|runtime| runtime.is_absolute()) {
        _ if user == 0 => PathBuf::from("/run/millrace"),
        Some(runtime) => runtime.join("millrace"),
        None => PathBuf::from(format!("/tmp/millrace-{user}")),
    };
    folder.join("sockets")
}

/// The most descriptors of one message.
pub const DESCRIPTORS_MAX: usize = 2;

/// A message with the serial number that links a reply to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The serial number of the request.
    pub serial: u32,
    /// The message with its fields, decoded.
    pub message: Message,
}

/// A message between a process and its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Registers a process, with its slab.
    Hello,
    /// The reply to HELLO: the process is registered.
    Welcome {
        /// The lines of each ring of a connection.
        ring_lines: u32,
        /// The longest spin of a process before it sleeps, in microseconds.
        spin_us_max: u32,
    },
    /// Announces the kernel's listening socket, which comes along and proves the address.
    Listen {
        /// The most connections that may wait to be accepted.
        backlog: u32,
    },
    /// The reply to LISTEN: the channel for [`Message::Incoming`] comes along.
    Listening,
    /// The request is refused with an errno.
    Refused {
        /// The errno, as in `errno(3)`; not 0.
        errno: u32,
    },
    /// A request for a connection to `peer`.
    Connect {
        /// Whether to refuse with `EAGAIN` instead of waiting for a full backlog.
        no_wait: bool,
        /// Whether [`Message::Lease`] is welcome as an answer.
        wants_lease: bool,
        /// The socket's own address; the unspecified address or port 0 means any.
        local: Address,
        /// The IP address and port to connect to.
        peer: Address,
    },
    /// The connecting side of a connection, with its wake-up fd and memory.
    Connected(Link),
    /// A lease: the process makes its connections to this listener itself for a while. The channel comes along.
    Lease(Lease),
    /// The request is left to the kernel's TCP.
    Kernel,
    /// The accepting side of a connection, on a listener's channel, with its wake-up fd and memory.
    Incoming {
        /// The connection from the accepting side's view.
        link: Link,
        /// The user id of the connecting process.
        user: u32,
        /// The process id of the connecting process.
        process: u32,
    },
    /// Offers forwarders of this process. WELCOME is the reply, and the last packet of this protocol: from then on the
    /// broker sends commands to the forwarders.
    OfferForwarders {
        /// The count of forwarders; not 0.
        count: u16,
    },
    /// A request for a report with totals.
    Status,
    /// A request for the counters of each process.
    Top,
    /// The reply to both: JSON in a file that comes along.
    Report {
        /// The length of the JSON in bytes.
        length: u64,
    },
}

/// A connection from one side's view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The path that the bytes take.
    pub mode: Mode,
    /// The count of 64-byte lines of each ring.
    pub ring_lines: u32,
    /// The IP address and port of this side.
    pub local: Address,
    /// The IP address and port of the other side.
    pub peer: Address,
}

/// The permission to make connections: with memory of the process's own, in direct mode, each from another port.
///
/// The connections are the same as those that the broker makes. At most the listener's backlog may wait: when the
/// channel is not writable, the process asks the broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The count of 64-byte lines of each ring.
    pub ring_lines: u32,
    /// Whether the accepting side's socket shows IPv4 addresses as mapped.
    pub mapped: bool,
    /// The connecting side's canonical address, with the first of the ports.
    pub local: Address,
    /// The accepting side's address in canonical form.
    pub peer: Address,
    /// The count of consecutive ports, and so of connections; not 0.
    pub ports: u16,
    /// The duration of the lease in microseconds.
    pub lasts_us: u32,
}

/// The path of a connection's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Memory that the two processes share.
    Direct,
    /// A forwarder, which shares memory with each of them.
    Forwarded,
}

/// The reason for which a packet is malformed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// It does not have [`PACKET`] bytes, but these.
    Length(usize),
    /// It has another protocol version than [`VERSION`].
    Version {
        /// The packet's protocol version.
        version: u16,
        /// The serial number of the request, for the reply.
        serial: u32,
    },
    /// The kind of the message is unknown.
    Kind(u16),
    /// A field has an invalid value.
    Field(&'static str),
}

const HELLO: u16 = 1;
const WELCOME: u16 = 2;
const LISTEN: u16 = 3;
const LISTENING: u16 = 4;
const REFUSED: u16 = 5;
const CONNECT: u16 = 6;
const CONNECTED: u16 = 7;
const KERNEL: u16 = 8;
const INCOMING: u16 = 9;
const STATUS: u16 = 10;
const TOP: u16 = 11;
const REPORT: u16 = 12;
const OFFER_FORWARDERS: u16 = 13;
const LEASE: u16 = 14;

const SIDE_CONNECTING: u8 = 0;
const SIDE_ACCEPTING: u8 = 1;

const NO_WAIT: u32 = 1;
const WANTS_LEASE: u32 = 2;

impl Packet {
    /// The encoded packet of [`PACKET`] bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PACKET] {
        let mut out = Writer([0; PACKET]);
        out.put(0, &self.message.kind().to_le_bytes());
        out.put(2, &VERSION.to_le_bytes());
        out.put(4, &self.serial.to_le_bytes());
        self.message.encode(&mut out);
        out.0
    }

    /// Decodes a packet.
    ///
    /// # Errors
    /// The [`ControlError`] that describes the first mistake.
    pub fn decode(bytes: &[u8]) -> Result<Self, ControlError> {
        let whole: &[u8; PACKET] = bytes
            .try_into()
            .map_err(|_| ControlError::Length(bytes.len()))?;
        let reader = Reader(whole);
        let (kind, version, serial) = (reader.u16(0), reader.u16(2), reader.u32(4));
        if version != VERSION {
            return Err(ControlError::Version { version, serial });
        }
        let message = Message::decode(kind, reader)?;
        let packet = Self { serial, message };
        // Unread bytes must be zero, so that a later version can define them.
        if packet.encode() != *whole {
            return Err(ControlError::Field("zeros"));
        }
        Ok(packet)
    }
}

impl Message {
    /// The count of descriptors that the message carries.
    #[must_use]
    pub const fn descriptors(&self) -> usize {
        match self {
            Self::Hello
            | Self::Listen { .. }
            | Self::Listening
            | Self::Lease(_)
            | Self::Report { .. } => 1,
            Self::Connected(_) | Self::Incoming { .. } => 2,
            Self::Welcome { .. }
            | Self::Refused { .. }
            | Self::Connect { .. }
            | Self::Kernel
            | Self::OfferForwarders { .. }
            | Self::Status
            | Self::Top => 0,
        }
    }

    const fn kind(&self) -> u16 {
        match self {
            Self::Hello => HELLO,
            Self::Welcome { .. } => WELCOME,
            Self::Listen { .. } => LISTEN,
            Self::Listening => LISTENING,
            Self::Refused { .. } => REFUSED,
            Self::Connect { .. } => CONNECT,
            Self::Connected(_) => CONNECTED,
            Self::Kernel => KERNEL,
            Self::Incoming { .. } => INCOMING,
            Self::OfferForwarders { .. } => OFFER_FORWARDERS,
            Self::Lease(_) => LEASE,
            Self::Status => STATUS,
            Self::Top => TOP,
            Self::Report { .. } => REPORT,
        }
    }

    fn encode(&self, out: &mut Writer) {
        match self {
            Self::Hello | Self::Listening | Self::Kernel | Self::Status | Self::Top => {}
            Self::Welcome {
                ring_lines,
                spin_us_max,
            } => {
                out.put(8, &ring_lines.to_le_bytes());
                out.put(12, &spin_us_max.to_le_bytes());
            }
            Self::Listen { backlog } => out.put(8, &backlog.to_le_bytes()),
            Self::OfferForwarders { count } => out.put(8, &count.to_le_bytes()),
            Self::Refused { errno } => out.put(8, &errno.to_le_bytes()),
            Self::Connect {
                no_wait,
                wants_lease,
                local,
                peer,
            } => {
                let flag = |on: bool, flag: u32| if on { flag } else { 0 };
                let flags = flag(*no_wait, NO_WAIT) | flag(*wants_lease, WANTS_LEASE);
                out.put(8, &flags.to_le_bytes());
                out.put(16, &local.encode());
                out.put(40, &peer.encode());
            }
            Self::Connected(link) => link.encode(SIDE_CONNECTING, out),
            Self::Lease(lease) => lease.encode(out),
            Self::Incoming {
                link,
                user,
                process,
            } => {
                link.encode(SIDE_ACCEPTING, out);
                out.put(64, &user.to_le_bytes());
                out.put(68, &process.to_le_bytes());
            }
            Self::Report { length } => out.put(8, &length.to_le_bytes()),
        }
    }

    fn decode(kind: u16, reader: Reader<'_>) -> Result<Self, ControlError> {
        Ok(match kind {
            HELLO => Self::Hello,
            WELCOME => Self::Welcome {
                ring_lines: reader.u32(8),
                spin_us_max: reader.u32(12),
            },
            LISTEN => Self::Listen {
                backlog: reader.u32(8),
            },
            LISTENING => Self::Listening,
            REFUSED => match reader.u32(8) {
                errno @ 1..=4095 => Self::Refused { errno },
                _ => return Err(ControlError::Field("errno")),
            },
            CONNECT if reader.u32(8) & !(NO_WAIT | WANTS_LEASE) != 0 => {
                return Err(ControlError::Field("flags"));
            }
            CONNECT => Self::Connect {
                no_wait: reader.u32(8) & NO_WAIT != 0,
                wants_lease: reader.u32(8) & WANTS_LEASE != 0,
                local: reader.address(16)?,
                peer: reader.address(40)?,
            },
            CONNECTED => Self::Connected(Link::decode(SIDE_CONNECTING, reader)?),
            LEASE => Self::Lease(Lease::decode(reader)?),
            KERNEL => Self::Kernel,
            INCOMING => Self::Incoming {
                link: Link::decode(SIDE_ACCEPTING, reader)?,
                user: reader.u32(64),
                process: reader.u32(68),
            },
            OFFER_FORWARDERS => match reader.u16(8) {
                0 => return Err(ControlError::Field("forwarders")),
                count => Self::OfferForwarders { count },
            },
            STATUS => Self::Status,
            TOP => Self::Top,
            REPORT => Self::Report {
                length: reader.u64(8),
            },
            kind => return Err(ControlError::Kind(kind)),
        })
    }
}

impl Link {
    fn encode(&self, side: u8, out: &mut Writer) {
        let mode = match self.mode {
            Mode::Direct => 1,
            Mode::Forwarded => 2,
        };
        out.put(8, &[side, mode]);
        out.put(12, &self.ring_lines.to_le_bytes());
        out.put(16, &self.local.encode());
        out.put(40, &self.peer.encode());
    }

    fn decode(side: u8, reader: Reader<'_>) -> Result<Self, ControlError> {
        if reader.0[8] != side {
            return Err(ControlError::Field("side"));
        }
        let mode = match reader.0[9] {
            1 => Mode::Direct,
            2 => Mode::Forwarded,
            _ => return Err(ControlError::Field("mode")),
        };
        Ok(Self {
            mode,
            ring_lines: reader.u32(12),
            local: reader.address(16)?,
            peer: reader.address(40)?,
        })
    }
}

impl Lease {
    fn encode(&self, out: &mut Writer) {
        out.put(8, &[u8::from(self.mapped)]);
        out.put(10, &self.ports.to_le_bytes());
        out.put(12, &self.ring_lines.to_le_bytes());
        out.put(16, &self.local.encode());
        out.put(40, &self.peer.encode());
        out.put(64, &self.lasts_us.to_le_bytes());
    }

    fn decode(reader: Reader<'_>) -> Result<Self, ControlError> {
        let (ports, local) = (reader.u16(10), reader.address(16)?);
        if ports == 0 || local.port() == 0 || local.port().checked_add(ports - 1).is_none() {
            return Err(ControlError::Field("ports"));
        }
        Ok(Self {
            ring_lines: reader.u32(12),
            mapped: match reader.0[8] {
                0 => false,
                1 => true,
                _ => return Err(ControlError::Field("mapped")),
            },
            local,
            peer: reader.address(40)?,
            ports,
            lasts_us: reader.u32(64),
        })
    }
}

/// A packet in construction. Offsets are constants of this module.
struct Writer([u8; PACKET]);

impl Writer {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// A received packet. Offsets are constants of this module.
#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8; PACKET]);

impl Reader<'_> {
    fn bytes<const N: usize>(self, offset: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[offset..offset + N]);
        bytes
    }

    fn u16(self, offset: usize) -> u16 {
        u16::from_le_bytes(self.bytes(offset))
    }

    fn u32(self, offset: usize) -> u32 {
        u32::from_le_bytes(self.bytes(offset))
    }

    fn u64(self, offset: usize) -> u64 {
        u64::from_le_bytes(self.bytes(offset))
    }

    fn address(self, offset: usize) -> Result<Address, ControlError> {
        let bytes: [u8; address::SIZE] = self.bytes(offset);
        Address::decode(&bytes).ok_or(ControlError::Field("address"))
    }
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length(length) => write!(f, "the packet has {length} bytes instead of {PACKET}"),
            Self::Version { version, .. } => {
                write!(f, "protocol version {version} instead of {VERSION}")
            }
            Self::Kind(kind) => write!(f, "unknown message kind {kind}"),
            Self::Field(field) => write!(f, "the field {field} has an invalid value"),
        }
    }
}

impl Error for ControlError {}
