//! Shape of a checked request, and the commands of its parts.

use crate::Data;
use crate::spec::command::{Command, DSM_DEALLOCATE, FUA, io};
use crate::transfer::{Limits, Lists};

/// Data pointer format of a request's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// They have none: what they are about stands in the command.
    Nothing,
    /// They have none, and are about nothing but the namespace.
    Namespace,
    /// One range of blocks (Dataset Management).
    Range,
    /// Physical region pages (PRP).
    Pages,
    /// Scatter-gather list (SGL).
    Descriptors,
}

/// Resources that a request needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) opcode: u8,
    pub(crate) addressing: Addressing,
    /// Bits of dword 12.
    pub(crate) flags: u32,
    /// Limits by which the request is split into commands.
    pub(crate) limits: Limits,
    /// Its blocks; one for a flush, which has none but is one command.
    pub(crate) blocks: u64,
}

impl Shape {
    /// How many blocks its command has, if one is enough for it from `lba` on.
    #[inline]
    pub(crate) fn single(&self, lba: u64) -> Option<u32> {
        let blocks = self.limits.next(lba, self.blocks);
        (u64::from(blocks) == self.blocks).then_some(blocks)
    }

    /// Whether the request is a flush.
    #[inline]
    pub(crate) fn is_flush(&self) -> bool {
        self.addressing == Addressing::Namespace
    }

    /// Whether what it writes may lie in a volatile cache when it ends.
    pub(crate) const fn is_cached(&self) -> bool {
        matches!(self.opcode, io::WRITE | io::WRITE_ZEROES)
            && self.flags & FUA == 0
            && !matches!(self.addressing, Addressing::Namespace)
    }

    /// The shape of an empty request.
    pub(crate) const NOTHING: Self = Self {
        opcode: 0,
        addressing: Addressing::Nothing,
        flags: 0,
        limits: Limits {
            blocks_max: 1,
            boundary: 0,
        },
        blocks: 0,
    };
}

/// The part of a request that one command does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) namespace: u32,
    pub(crate) block_shift: u32,
    /// First block of the part.
    pub(crate) lba: u64,
    /// That block's number within the request.
    pub(crate) offset: u64,
    pub(crate) blocks: u32,
}

impl Part {
    /// The command for it, in slot `index`, on a controller with pages of `page` bytes.
    pub(crate) fn command(
        &self,
        shape: &Shape,
        lists: &Lists,
        index: u16,
        data: Option<&Data>,
        page: u64,
    ) -> Command {
        let offset = self.offset << self.block_shift;
        let length = u64::from(self.blocks) << self.block_shift;
        let command = Command::new(shape.opcode, self.namespace);
        let command = match (shape.addressing, data) {
            (Addressing::Pages, Some(data)) => {
                command.with_pointer(lists.pages(index, data.pieces(offset, length), page))
            }
            (Addressing::Descriptors, Some(data)) => {
                command.with_pointer(lists.descriptors(index, data.pieces(offset, length)))
            }
            (Addressing::Namespace, _) => return command,
            (Addressing::Range, _) => {
                return command
                    .with_pointer(lists.range(index, self.lba, self.blocks))
                    .with_10_11(0, DSM_DEALLOCATE);
            }
            (Addressing::Nothing, _) | (_, None) => command,
        };
        command.with_blocks(self.lba, shape.flags, self.blocks)
    }
}
