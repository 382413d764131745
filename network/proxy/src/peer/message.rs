//! What is said once both are known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use millrace_stream::partition::{ConnectionId, ConnectionName, Opened};

use super::session::Breach;

/// How many addresses a host may have.
pub const ADDRESSES_MAX: usize = 256;

/// A message of a peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeerMessage {
    /// What the host has.
    Names {
        /// How many partitions it would serve.
        partitions: u16,
        /// How large it sees the window.
        window: u64,
        /// At which addresses it can be reached.
        addresses: Vec<IpAddr>,
    },
    /// It lives.
    Beat,
    /// A connection is wanted.
    Connect {
        /// How the answer shall call it.
        token: u64,
        /// By which partition.
        partition: u16,
        /// The user who connects, as that host numbers users.
        user: u32,
        /// The process, as that host numbers it.
        process: u32,
        /// The number of the connection there.
        opened: Opened,
        /// Who connects to whom.
        name: ConnectionName,
    },
    /// There is one.
    Accept {
        /// Which.
        token: u64,
        /// Its number here.
        opened: Opened,
    },
    /// There is none.
    Refuse {
        /// Which.
        token: u64,
        /// Why, up to 4,095; 0: the kernel's TCP may try.
        errno: u32,
    },
}

const NAMES: u8 = 1;
const BEAT: u8 = 2;
const CONNECT: u8 = 3;
const ACCEPT: u8 = 4;
const REFUSE: u8 = 5;

impl PeerMessage {
    /// Appends its bytes. Of more than [`ADDRESSES_MAX`] addresses the first ones count.
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

    /// What the bytes say.
    ///
    /// # Errors
    /// [`Breach::Message`] if they say nothing, or more than one thing.
    pub fn decode(bytes: &[u8]) -> Result<Self, Breach> {
        let mut reader = Reader(bytes);
        let message = reader.message().ok_or(Breach::Message)?;
        if reader.0.is_empty() {
            Ok(message)
        } else {
            Err(Breach::Message)
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

fn encode_opened(opened: Opened, out: &mut Vec<u8>) {
    out.extend(opened.id.number().to_le_bytes());
    out.extend(opened.credit.to_le_bytes());
}

/// Bytes that are not read yet.
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

    fn opened(&mut self) -> Option<Opened> {
        Some(Opened {
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
