//! The messages between authenticated brokers.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_stream::partition::{ConnectionId, ConnectionName, OpenReply};

use super::session::ProtocolViolation;

/// The most addresses of a host.
pub const ADDRESSES_MAX: usize = 256;

/// A message between two brokers, without its MAC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// The sender's partitions, window size and addresses.
    Names {
        /// The partitions that it would serve.
        partitions: u16,
        /// The size of the window that it sees, in bytes.
        window: u64,
        /// The addresses at which it can be reached.
        addresses: Vec<IpAddr>,
    },
    /// A heartbeat, which has no fields.
    Beat,
    /// A request for a connection to `peer`.
    Connect {
        /// The request's token, which the answer repeats.
        token: u64,
        /// The index of the partition.
        partition: u16,
        /// The user id of the connecting process on the sender's host.
        user: u32,
        /// The process id of the connecting process on the sender's host.
        process: u32,
        /// The connection's number and first credit at the sender.
        opened: OpenReply,
        /// The two ends of the connection.
        name: ConnectionName,
    },
    /// The positive answer to a request.
    Accept {
        /// The token of the request.
        token: u64,
        /// The connection's number and first credit at the sender.
        opened: OpenReply,
    },
    /// The negative answer to a request.
    Refuse {
        /// The token of the request.
        token: u64,
        /// The errno, up to 4,095; 0 leaves the connection to the kernel's TCP.
        errno: u32,
    },
}

const NAMES: u8 = 1;
const BEAT: u8 = 2;
const CONNECT: u8 = 3;
const ACCEPT: u8 = 4;
const REFUSE: u8 = 5;

impl PeerMessage {
    /// Appends the message's bytes. Of more than [`ADDRESSES_MAX`] addresses the first ones are encoded.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Names {
                partitions,
                window,
                addresses,
            } => {
                out.push(NAMES);
                out.extend(partitions.to_le_bytes());
                out.extend(window.to_le_bytes());
                let count = addresses.len().min(ADDRESSES_MAX);
                out.extend(u16::try_from(count).unwrap_or(0).to_le_bytes());
                for address in &addresses[..count] {
                    encode_ip(*address, out);
                }
            }
            Self::Beat => out.push(BEAT),
            Self::Connect {
                token,
                partition,
                user,
                process,
                opened,
                name,
            } => {
                out.push(CONNECT);
                out.extend(token.to_le_bytes());
                out.extend(partition.to_le_bytes());
                out.extend(user.to_le_bytes());
                out.extend(process.to_le_bytes());
                encode_opened(*opened, out);
                out.extend(name.encode());
            }
            Self::Accept { token, opened } => {
                out.push(ACCEPT);
                out.extend(token.to_le_bytes());
                encode_opened(*opened, out);
            }
            Self::Refuse { token, errno } => {
                out.push(REFUSE);
                out.extend(token.to_le_bytes());
                out.extend(errno.to_le_bytes());
            }
        }
    }

    /// Decodes one message.
    ///
    /// # Errors
    /// [`ProtocolViolation::Message`] if the bytes are not exactly one message.
    pub fn decode(bytes: &[u8]) -> Result<Self, ProtocolViolation> {
        let mut reader = Reader(bytes);
        let message = reader.message().ok_or(ProtocolViolation::Message)?;
        if reader.0.is_empty() {
            Ok(message)
        } else {
            Err(ProtocolViolation::Message)
        }
    }
}

fn encode_ip(address: IpAddr, out: &mut Vec<u8>) {
    let mut bytes = [0; 16];
    let family = match address {
        IpAddr::V4(ip) => {
            bytes[..4].copy_from_slice(&ip.octets());
            4
        }
        IpAddr::V6(ip) => {
            bytes = ip.octets();
            6
        }
    };
    out.push(family);
    out.extend(bytes);
}

fn encode_opened(opened: OpenReply, out: &mut Vec<u8>) {
    out.extend(opened.id.number().to_le_bytes());
    out.extend(opened.credit.to_le_bytes());
}

/// The bytes that are not read yet.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn opened(&mut self) -> Option<OpenReply> {
        Some(OpenReply {
            id: ConnectionId::from_number(self.u32()?),
            credit: self.u32()?,
        })
    }

    fn ip(&mut self) -> Option<IpAddr> {
        let [family] = self.take()?;
        let bytes: [u8; 16] = self.take()?;
        let (first, rest) = bytes.split_first_chunk::<4>()?;
        match family {
            4 if rest.iter().all(|byte| *byte == 0) => Some(Ipv4Addr::from(*first).into()),
            6 => Some(Ipv6Addr::from(bytes).into()),
            _ => None,
        }
    }

    fn message(&mut self) -> Option<PeerMessage> {
        let [kind] = self.take()?;
        Some(match kind {
            NAMES => {
                let (partitions, window, count) = (self.u16()?, self.u64()?, self.u16()?);
                if usize::from(count) > ADDRESSES_MAX {
                    return None;
                }
                let addresses: Option<Vec<IpAddr>> = (0..count).map(|_| self.ip()).collect();
                PeerMessage::Names {
                    partitions,
                    window,
                    addresses: addresses?,
                }
            }
            BEAT => PeerMessage::Beat,
            CONNECT => PeerMessage::Connect {
                token: self.u64()?,
                partition: self.u16()?,
                user: self.u32()?,
                process: self.u32()?,
                opened: self.opened()?,
                name: ConnectionName::decode(&self.take()?)?,
            },
            ACCEPT => PeerMessage::Accept {
                token: self.u64()?,
                opened: self.opened()?,
            },
            REFUSE => PeerMessage::Refuse {
                token: self.u64()?,
                errno: self.u32().filter(|errno| *errno < 4096)?,
            },
            _ => return None,
        })
    }
}
