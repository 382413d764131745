//! Whether a request can be served, before anything is done for it.

use millrace_memory::{Buffer, DomainId};

use crate::request::{Operation, Refusal};
use crate::spec::command::{Command, DEALLOCATE_ZEROES, DSM_DEALLOCATE, FUA, io};
use crate::spec::identify::ControllerData;
use crate::transfer::{Limits, Lists, has_page_borders};
use crate::{Controller, Data, Namespace, Request, ScatterGather};

/// How the commands of a request say where their data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Addressing {
    /// They have none: what they are about stands in the command.
    Nothing,
    /// They have none, and are about nothing but the namespace.
    Namespace,
    /// By one range of blocks.
    Range,
    /// By pages.
    Pages,
    /// By scatter-gather descriptors.
    Descriptors,
}

/// What a request comes to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) opcode: u8,
    pub(crate) addressing: Addressing,
    /// Bits of dword 12.
    pub(crate) flags: u32,
    /// How its commands are cut.
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

    /// The shape of no request.
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
    /// Its first block.
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

/// What of a controller every request is checked against, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Profile {
    has_compare: bool,
    has_write_zeroes: bool,
    has_deallocate: bool,
    /// Whether scatter-gather lists may be used, and whether always.
    may_scatter: bool,
    must_scatter: bool,
    /// The most pieces of a scatter-gather list.
    pieces_max: usize,
    transfer_max: u64,
    page: u64,
    domain: DomainId,
}

impl Profile {
    pub(crate) fn new(
        data: &ControllerData,
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
            page,
            domain,
        }
    }

    /// The longest single command in bytes.
    pub(crate) const fn transfer_max(&self) -> u64 {
        self.transfer_max
    }
}

impl Controller {
    /// What the request comes to, or why it cannot be served.
    #[inline]
    pub(crate) fn check(&self, namespace: &Namespace, request: &Request) -> Result<Shape, Refusal> {
        if namespace.controller() != self.number() {
            return Err(Refusal::ForeignNamespace);
        }
        let profile = self.profile();
        let fua = |fua: bool| if fua { FUA } else { 0 };
        let (opcode, flags, supported) = match request.operation {
            Operation::Read => (io::READ, 0, true),
            Operation::Write { fua: forced } => (io::WRITE, fua(forced), true),
            Operation::Compare => (io::COMPARE, 0, profile.has_compare),
            _ => return self.check_without_data(namespace, request),
        };
        if !supported {
            return Err(Refusal::Unsupported);
        }
        let (bytes, addressing) = match &request.data {
            Some(Data::One(buffer)) => {
                check_address(profile, buffer)?;
                let scatter = profile.must_scatter;
                let pages = Addressing::Pages;
                (
                    buffer.len() as u64,
                    if scatter {
                        Addressing::Descriptors
                    } else {
                        pages
                    },
                )
            }
            Some(data @ Data::Many(_)) => (data.len() as u64, self.check_pieces(data)?),
            None => return Err(Refusal::Data),
        };
        if bytes & (u64::from(namespace.block_size()) - 1) != 0 || bytes == 0 {
            return Err(Refusal::Length);
        }
        let blocks = bytes >> namespace.block_shift();
        check_range(namespace, request.lba.0, blocks)?;
        // A write that is atomic as one command stays one.
        let is_write = opcode == io::WRITE;
        let atomic = is_write && blocks <= u64::from(namespace.atomic_write());
        let boundary = if atomic {
            None
        } else {
            namespace.optimal_boundary()
        };
        Ok(Shape {
            opcode,
            addressing,
            flags,
            limits: Limits {
                blocks_max: namespace.blocks_max(),
                boundary: boundary.unwrap_or(0),
            },
            blocks,
        })
    }

    fn check_without_data(
        &self,
        namespace: &Namespace,
        request: &Request,
    ) -> Result<Shape, Refusal> {
        let profile = self.profile();
        let (opcode, flags, addressing, blocks_max, supported) = match request.operation {
            Operation::WriteZeroes { fua, deallocate } => {
                let fua = if fua { FUA } else { 0 };
                let flags = fua | if deallocate { DEALLOCATE_ZEROES } else { 0 };
                let supported = profile.has_write_zeroes;
                // The controller may say less in another command set's Identify; no more than a transfer's
                // blocks are safe on all.
                let most = namespace.blocks_max();
                (
                    io::WRITE_ZEROES,
                    flags,
                    Addressing::Nothing,
                    most,
                    supported,
                )
            }
            Operation::Deallocate => {
                let supported = profile.has_deallocate;
                (
                    io::DATASET_MANAGEMENT,
                    0,
                    Addressing::Range,
                    u32::MAX,
                    supported,
                )
            }
            _ => (io::FLUSH, 0, Addressing::Namespace, 1, true),
        };
        if !supported {
            return Err(Refusal::Unsupported);
        }
        if request.data.is_some() {
            return Err(Refusal::Data);
        }
        let blocks = if request.operation == Operation::Flush {
            1
        } else {
            check_range(namespace, request.lba.0, request.blocks)?;
            request.blocks
        };
        Ok(Shape {
            opcode,
            addressing,
            flags,
            limits: Limits {
                blocks_max,
                boundary: 0,
            },
            blocks,
        })
    }

    /// How several buffers can be described.
    fn check_pieces(&self, data: &Data) -> Result<Addressing, Refusal> {
        let profile = self.profile();
        for buffer in data.buffers() {
            check_buffer(self, buffer)?;
        }
        let possible = profile.may_scatter && data.buffers().len() <= profile.pieces_max;
        if possible && profile.must_scatter {
            Ok(Addressing::Descriptors)
        } else if has_page_borders(data, profile.page) {
            Ok(Addressing::Pages)
        } else if possible {
            Ok(Addressing::Descriptors)
        } else {
            Err(Refusal::Alignment)
        }
    }
}

#[inline]
fn check_buffer(controller: &Controller, buffer: &Buffer) -> Result<(), Refusal> {
    check_address(controller.profile(), buffer)?;
    // Only whole dwords can be described.
    if buffer.is_empty() || buffer.len() % 4 != 0 {
        return Err(Refusal::Length);
    }
    Ok(())
}

#[inline]
fn check_address(profile: &Profile, buffer: &Buffer) -> Result<(), Refusal> {
    if buffer.domain() != profile.domain {
        return Err(Refusal::ForeignMemory);
    }
    // Blocks begin at a dword; what is of use of one may not.
    if buffer.iova().0 % 4 != 0 {
        return Err(Refusal::Alignment);
    }
    Ok(())
}

#[inline]
fn check_range(namespace: &Namespace, lba: u64, blocks: u64) -> Result<(), Refusal> {
    if blocks == 0 {
        return Err(Refusal::Length);
    }
    if blocks > namespace.blocks() || lba > namespace.blocks() - blocks {
        return Err(Refusal::OutOfRange);
    }
    Ok(())
}
