//! Limits of a controller and its options that bound the commands of requests.

use millrace_memory::DomainId;

use crate::spec::identify::{CommandLimits, ControllerData};
use crate::transfer::Lists;
use crate::{Namespace, ScatterGather};

/// Most bytes of a command that transfers no data, and most blocks of a range to deallocate. Controllers have
/// unreported limits: QEMU's accepts ranges beyond 2 GiB, or beyond as many blocks as the largest namespace has in 2
/// GiB, does nothing, and reports success.
const UNMOVED_MAX: u64 = 1 << 30;

const RANGE_BLOCKS_MAX: u64 = 1 << 18;

/// The most blocks of a command but for Dataset Management (a field of 16 bits that counts from zero).
const BLOCKS_MAX: u64 = 1 << 16;

/// What of a controller every request is checked against, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    pub(crate) has_compare: bool,
    pub(crate) has_write_zeroes: bool,
    pub(crate) has_deallocate: bool,
    /// Whether scatter-gather lists may be used, and whether always.
    pub(crate) may_scatter: bool,
    pub(crate) must_scatter: bool,
    /// The most pieces of a scatter-gather list.
    pub(crate) pieces_max: usize,
    pub(crate) transfer_max: u64,
    /// The longest Write Zeroes in bytes; none if that is not known.
    pub(crate) zeroes_max: Option<u64>,
    /// Most blocks that one command deallocates, if the controller reports it.
    pub(crate) deallocate_max: Option<u64>,
    pub(crate) page: u64,
    pub(crate) domain: DomainId,
}

impl Profile {
    pub(crate) fn new(
        data: &ControllerData,
        limits: &CommandLimits,
        wish: ScatterGather,
        transfer_max: u64,
        page: u64,
        domain: DomainId,
    ) -> Self {
        let may_scatter = data.has_sgl() && wish != ScatterGather::Never;
        Self {
            has_compare: data.has_compare(),
            has_write_zeroes: data.has_write_zeroes(),
            has_deallocate: data.has_dataset_management(),
            may_scatter,
            must_scatter: may_scatter && wish == ScatterGather::Always,
            pieces_max: Lists::pieces_max_for(transfer_max, page),
            transfer_max,
            zeroes_max: limits.write_zeroes_max(page),
            deallocate_max: limits.deallocate_max(),
            page,
            domain,
        }
    }

    /// The most blocks of one Write Zeroes. Where no limit is known no more than a transfer's blocks are safe.
    pub(crate) fn zeroes_blocks_max(&self, namespace: &Namespace) -> u32 {
        let limit = self
            .zeroes_max
            .map_or(namespace.blocks_max().into(), |max| {
                (max >> namespace.block_shift()).min(BLOCKS_MAX)
            });
        unmoved_blocks_max(namespace, limit)
    }

    /// The most blocks of one range to deallocate.
    pub(crate) fn deallocate_blocks_max(&self, namespace: &Namespace) -> u32 {
        let limit = self.deallocate_max.unwrap_or(u64::MAX);
        unmoved_blocks_max(namespace, limit.min(RANGE_BLOCKS_MAX))
    }

    /// The longest single command in bytes.
    pub(crate) const fn transfer_max(&self) -> u64 {
        self.transfer_max
    }
}

/// The most blocks of a command that moves no data, where `limit` is the controller's.
fn unmoved_blocks_max(namespace: &Namespace, limit: u64) -> u32 {
    let most = limit.min(UNMOVED_MAX >> namespace.block_shift()).max(1);
    u32::try_from(most).expect("no more than 2^21 blocks of 512 bytes")
}
