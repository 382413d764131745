//! What processes and their monitor say to each other.
//!
//! A process has one connection to its monitor (`AF_UNIX`, `SOCK_SEQPACKET`); one packet is one message. All of them
//! have [`PACKET`] bytes, little-endian; bytes that are not named are zero.
//!
//! ```text
//!   0  kind u16     1 HELLO    2 WELCOME   3 LISTEN    4 LISTENING   5 REFUSED   6 CONNECT
//!                   7 CONNECTED   8 KERNEL   9 INCOMING   10 STATUS   11 TOP   12 REPORT   13 PLANES   14 LEASE
//!   2  version u16  2
//!   4  serial u32   of a request: any number; of its reply: the same; of INCOMING: of no meaning
//!
//!   HELLO      + the slab                           -> WELCOME, REFUSED
//!   WELCOME    8 ring_lines u32   12 spin_us_max u32
//!   LISTEN     + the listening socket               -> LISTENING, KERNEL, REFUSED
//!              8 backlog u32      12 flags u32 (none yet)
//!   LISTENING  + the channel on which INCOMING comes
//!   CONNECT                                         -> CONNECTED, LEASE, KERNEL, REFUSED
//!              8 flags u32 (1 = do not wait, 2 = a lease is welcome)        16 local address   40 peer's address
//!   CONNECTED  + the bell, the memory
//!              8 side u8 (0)    9 mode u8    12 ring_lines u32   16 local address   40 peer's address
//!   INCOMING   + the bell, the memory
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
//!   PLANES     8 count u16                          -> WELCOME, REFUSED
//! ```
//! Addresses are laid out as [`Address`] says. `mode` is 1 for direct, 2 for through a proxy. `+` names the
//! descriptors that come along, in this order ([`Message::descriptors`]).
//!
//! A process that connects to one listener again and again is lent the listener's channel, and makes its connections
//! itself ([`Lease`]): it sends INCOMING as the monitor does. Who accepts knows by the kernel's word
//! (`SCM_CREDENTIALS`) which of them has sent it.
//!
//! Replies come in any order: a CONNECT whose listener has its backlog full waits, and others pass it.
//!
//! A version changes with any change here. Whoever gets another one answers with REFUSED{EPROTONOSUPPORT} in its own.
//!
//! What is read is untrusted: [`Packet::decode`] gives an error for all that [`Packet::encode`] could not have made.

use std::error::Error;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::address;
use crate::address::Address;

/// The bytes of every packet.
pub const PACKET: usize = 128;

/// The version of these messages.
pub const VERSION: u16 = 2;

/// The environment variable with the path of the monitor's socket.
pub const SOCKET_VARIABLE: &str = "MILLRACE_SOCKETS";

/// The path of a user's monitor if [`SOCKET_VARIABLE`] does not say another: below `/run` for root, else below the
/// folder of what the user runs (`$XDG_RUNTIME_DIR`), else below `/tmp/millrace-USER`.
#[must_use]
pub fn socket_path(user: u32, runtime: Option<&Path>) -> PathBuf {
    let folder = match runtime.filter(|runtime| runtime.is_absolute()) {
        _ if user == 0 => PathBuf::from("/run/millrace"),
        Some(runtime) => runtime.join("millrace"),
        None => PathBuf::from(format!("/tmp/millrace-{user}")),
    };
    folder.join("sockets")
}

/// How many descriptors come along with one message at most.
pub const DESCRIPTORS_MAX: usize = 2;

/// A message with the number that ties a reply to its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The request's number.
    pub serial: u32,
    /// What is said.
    pub message: Message,
}

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A process is there. Its slab comes along.
    Hello,
    /// It is served.
    Welcome {
        /// The lines of each ring of a connection.
        ring_lines: u32,
        /// For how long a process may spin before it sleeps, in microseconds.
        spin_us_max: u32,
    },
    /// The process listens. The kernel's listening socket comes along: it says where, and proves it.
    Listen {
        /// How many connections may wait to be accepted.
        backlog: u32,
    },
    /// It is listened to. The channel on which [`Message::Incoming`] comes is along.
    Listening,
    /// The request is refused.
    Refused {
        /// Why, as `errno(3)` numbers it; not 0.
        errno: u32,
    },
    /// A connection is wanted.
    Connect {
        /// Refuse with `EAGAIN` instead of waiting for a listener that has its backlog full.
        no_wait: bool,
        /// [`Message::Lease`] is welcome as an answer.
        wants_lease: bool,
        /// The socket's own name. The unspecified address, or port 0: any.
        local: Address,
        /// To whom.
        peer: Address,
    },
    /// The connecting side of the connection. Its bell and memory come along.
    Connected(Link),
    /// The process is to make its connections to this listener itself for a while. The channel is along.
    Lease(Lease),
    /// The kernel's TCP is to serve it.
    Kernel,
    /// On a listener's channel: the accepting side of a connection. Its bell and memory come along.
    Incoming {
        /// The connection as the accepting side sees it.
        link: Link,
        /// The user who connects.
        user: u32,
        /// The process that connects.
        process: u32,
    },
    /// This process has planes to carry connections. WELCOME is the reply, and the last packet of this kind: from
    /// then on the monitor gives orders to the planes.
    Planes {
        /// How many; not 0.
        count: u16,
    },
    /// Asks for totals.
    Status,
    /// Asks for the counters of each process.
    Top,
    /// The reply to both, as JSON in a file that comes along.
    Report {
        /// The bytes of it.
        length: u64,
    },
}

/// A connection, as one of its sides sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Who moves the bytes.
    pub mode: Mode,
    /// The lines of each ring.
    pub ring_lines: u32,
    /// This side's name.
    pub local: Address,
    /// The other side's.
    pub peer: Address,
}

/// What a process may do that makes connections itself: of its own memory, in direct mode, each from another port.
///
/// A connection's ends are as if the monitor had made it. No more may wait than the listener's backlog: who finds
/// the channel not writable asks the monitor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The lines of each ring.
    pub ring_lines: u32,
    /// Whether the accepting side's socket shows addresses of IPv4 mapped.
    pub mapped: bool,
    /// The connecting side's name, canonical, with the first of the ports.
    pub local: Address,
    /// The accepting side's, canonical.
    pub peer: Address,
    /// How many ports, and so connections, there are; not 0. They lie behind one another.
    pub ports: u16,
    /// For how long the lease lasts, in microseconds.
    pub lasts_us: u32,
}

/// Who moves the bytes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The two processes, by memory that both have.
    Direct,
    /// A proxy, which has memory with each of them.
    Proxy,
}

/// Why a packet is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlError {
    /// It does not have [`PACKET`] bytes.
    Length(usize),
    /// It is of another version.
    Version {
        /// Which one.
        version: u16,
        /// The request's number, for the reply.
        serial: u32,
    },
    /// There is no such message.
    Kind(u16),
    /// A field has a value that it cannot have.
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
const PLANES: u16 = 13;
const LEASE: u16 = 14;

const SIDE_CONNECTING: u8 = 0;
const SIDE_ACCEPTING: u8 = 1;

const NO_WAIT: u32 = 1;
const WANTS_LEASE: u32 = 2;

impl Packet {
    /// The bytes of it.
    #[must_use]
    pub fn encode(&self) -> [u8; PACKET] {
        let mut out = Writer([0; PACKET]);
        out.put(0, &self.message.kind().to_le_bytes());
        out.put(2, &VERSION.to_le_bytes());
        out.put(4, &self.serial.to_le_bytes());
        self.message.encode(&mut out);
        out.0
    }

    /// What the bytes say.
    ///
    /// # Errors
    /// Why they say nothing.
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
        // What was not read must be zero: then a later version can give it a meaning.
        if packet.encode() != *whole {
            return Err(ControlError::Field("zeros"));
        }
        Ok(packet)
    }
}

impl Message {
    /// The path of a user's monitor if [`SOCKET_VARIABLE`] does not say another: below `/run` for root, else below the
    /// folder of what the user runs (`$XDG_RUNTIME_DIR`), else below `/tmp/millrace-USER`.
    #[must_use]
    pub fn socket_path(user: u32, runtime: Option<&Path>) -> PathBuf {
        let folder = match runtime.filter(|runtime| runtime.is_absolute()) {
            _ if user == 0 => PathBuf::from("/run/millrace"),
            Some(runtime) => runtime.join("millrace"),
            None => PathBuf::from(format!("/tmp/millrace-{user}")),
        };
        folder.join("sockets")
    }

    /// How many descriptors come along.
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
            | Self::Planes { .. }
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
            Self::Planes { .. } => PLANES,
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
            Self::Planes { count } => out.put(8, &count.to_le_bytes()),
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
            PLANES => match reader.u16(8) {
                0 => return Err(ControlError::Field("planes")),
                count => Self::Planes { count },
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
            Mode::Proxy => 2,
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
            2 => Mode::Proxy,
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

/// A packet that is being made. Offsets are constants of this module.
struct Writer([u8; PACKET]);

impl Writer {
    fn put(&mut self, offset: usize, bytes: &[u8]) {
        self.0[offset..offset + bytes.len()].copy_from_slice(bytes);
    }
}

/// A packet that is read. Offsets are constants of this module.
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
            Self::Length(length) => write!(f, "a packet of {length} bytes, not {PACKET}"),
            Self::Version { version, .. } => write!(f, "version {version}, not {VERSION}"),
            Self::Kind(kind) => write!(f, "no message has the kind {kind}"),
            Self::Field(field) => write!(f, "the field {field} cannot be so"),
        }
    }
}

impl Error for ControlError {}
