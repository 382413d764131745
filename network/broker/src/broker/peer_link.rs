//! The window between this host and a peer.

use std::path::PathBuf;

use millrace_stream::partition::PartitionGeometry;

use super::peer_addresses::PeerAddresses;

/// A window that is shared with a peer.
#[derive(Debug)]
pub(super) struct PeerLink {
    pub(super) host: u128,
    pub(super) window: PathBuf,
    pub(super) partitions: u16,
    pub(super) ring_lines: u32,
    pub(super) first_link: u32,
    /// The count of partitions in which the peer has answered.
    pub(super) joined: u16,
    pub(super) addresses: PeerAddresses,
}

/// The most lines of a ring; a longer ring only uses more cache.
const RING_LINES_MAX: u32 = 16_384;
const RING_LINES_MIN: u32 = 64;
impl PeerLink {
    pub(super) const fn is_alive(&self) -> bool {
        self.joined == self.partitions
    }

    pub(super) const fn has(&self, link: u32) -> bool {
        self.first_link <= link && link < self.first_link + self.partitions as u32
    }
}

/// The geometry with the longest rings that fit into `size` bytes.
pub(super) fn fit(size: u64, partitions: u16) -> Option<PartitionGeometry> {
    let mut ring_lines = RING_LINES_MAX;
    while ring_lines >= RING_LINES_MIN {
        let geometry = PartitionGeometry {
            partitions,
            ring_lines,
        };
        if geometry.check().is_ok() && geometry.size() as u64 <= size {
            return Some(geometry);
        }
        ring_lines /= 2;
    }
    None
}
