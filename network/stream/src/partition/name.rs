//! The name of a connection between brokers.

use std::net::SocketAddr;

use crate::address::{self, Address};

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EndName {
    /// The number of the host, unique among all hosts, so that hosts with equal addresses (behind translation, in
    /// namespaces) do not collide.
    pub host: u128,
    /// The end's address and port on that host.
    pub address: Address,
}

/// The name of a connection: its two ends. Frames carry numbers alone; names go over the brokers' own connection.
///
/// ```text
///  0  host of the connecting end   16 bytes, little-endian
/// 16  its address                  24 bytes, as `Address` lays it out
/// 40  host of the accepting end
/// 56  its address
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionName {
    /// The connecting end.
    pub connecting: EndName,
    /// The accepting end.
    pub accepting: EndName,
}

const END: usize = 16 + address::SIZE;

impl ConnectionName {
    /// Bytes of an encoded name.
    pub const SIZE: usize = 2 * END;

    /// The encoded name.
    #[must_use]
    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        let (first, second) = bytes.split_at_mut(END);
        first.copy_from_slice(&self.connecting.encode());
        second.copy_from_slice(&self.accepting.encode());
        bytes
    }

    /// Decodes a name; `None` if an address is invalid.
    #[must_use]
    pub fn decode(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let (first, second) = bytes.split_first_chunk::<END>()?;
        Some(Self {
            connecting: EndName::decode(first)?,
            accepting: EndName::decode(second.first_chunk()?)?,
        })
    }

    /// The partition that the name alone selects (the multiplication of FNV-1a, folded); the same on both hosts.
    ///
    /// # Panics
    /// If `partitions` is 0.
    #[must_use]
    pub fn partition(&self, partitions: u16) -> u16 {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = self.encode().iter().fold(0xcbf2_9ce4_8422_2325, mix);
        let index = (hash ^ hash >> 32) % u64::from(partitions);
        u16::try_from(index).expect("less than a u16")
    }
}

impl EndName {
    /// An end on a host.
    #[must_use]
    pub fn new(host: u128, address: SocketAddr) -> Self {
        Self {
            host,
            address: address.into(),
        }
    }

    fn encode(&self) -> [u8; END] {
        let mut bytes = [0; END];
        bytes[..16].copy_from_slice(&self.host.to_le_bytes());
        bytes[16..].copy_from_slice(&self.address.encode());
        bytes
    }

    fn decode(bytes: &[u8; END]) -> Option<Self> {
        let (host, address) = bytes.split_first_chunk::<16>()?;
        Some(Self {
            host: u128::from_le_bytes(*host),
            address: Address::decode(address.first_chunk()?)?,
        })
    }
}
