//! Validation of requests, before anything is done for them.

use millrace_memory::Buffer;

use crate::profile::Profile;
use crate::request::{Operation, Refusal};
use crate::shape::{Addressing, Shape};
use crate::spec::command::{Command, DEALLOCATE_ZEROES, FUA, io};
use crate::transfer::{Limits, Lists, has_page_borders};
use crate::{Controller, Data, Namespace, Request};

impl Controller {
    /// The command of a valid request that is one command without a list: the common case, in few instructions. None
    /// means that [`Controller::check`] must decide.
    #[inline(always)]
    pub(crate) fn short_command(
        &self,
        namespace: &Namespace,
        request: &Request,
    ) -> Option<Command> {
        let Some(Data::One(buffer)) = &request.data else {
            return None;
        };
        let (opcode, flags) = match request.operation {
            Operation::Read => (io::READ, 0),
            Operation::Write { fua: false } => (io::WRITE, 0),
            Operation::Write { fua: true } => (io::WRITE, FUA),
            _ => return None,
        };
        let profile = self.profile();
        let (lba, iova) = (request.lba.0, buffer.iova().0);
        let blocks = namespace.whole_blocks(buffer.len())?;
        // One condition after the other: each is a comparison and a jump then.
        if lba > namespace.blocks().checked_sub(u64::from(blocks))? {
            return None;
        }
        // Zero wraps to the largest number, and is refused here too.
        if blocks.wrapping_sub(1) >= namespace.blocks_max() {
            return None;
        }
        if namespace.has_border_within(lba, blocks, opcode == io::WRITE) {
            return None;
        }
        if namespace.controller() != self.number() {
            return None;
        }
        if buffer.domain() != profile.domain {
            return None;
        }
        if iova % 4 != 0 {
            return None;
        }
        if profile.must_scatter {
            return None;
        }
        let pointer = Lists::two_pages(iova, buffer.len() as u64, profile.page)?;
        Some(
            Command::new(opcode, namespace.id())
                .with_pointer(pointer)
                .with_blocks(lba, flags, blocks),
        )
    }

    /// What the request comes to, or why it cannot be served.
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

    /// Cold as reads and writes are to have the registers.
    #[cold]
    #[inline(never)]
    fn check_without_data(
        &self,
        namespace: &Namespace,
        request: &Request,
    ) -> Result<Shape, Refusal> {
        let profile = self.profile();
        let (opcode, flags, addressing, blocks_max, supported) = match request.operation {
            Operation::WriteZeroes { fua, deallocate } => {
                let flags = zeroes_flags(namespace, fua, deallocate);
                let supported = profile.has_write_zeroes;
                let most = profile.zeroes_blocks_max(namespace);
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
                    profile.deallocate_blocks_max(namespace),
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
    #[cold]
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

/// What is asked of Write Zeroes: no more than the namespace can.
fn zeroes_flags(namespace: &Namespace, fua: bool, deallocate: bool) -> u32 {
    let deallocate = deallocate && namespace.zeroes_deallocate();
    let fua = if fua { FUA } else { 0 };
    fua | if deallocate { DEALLOCATE_ZEROES } else { 0 }
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

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::sync::Arc;
    use std::time::Instant;

    use millrace_memory::{Arena, ArenaOptions, SizeClass};
    use millrace_nvme_model as model;
    use proptest::prelude::*;
    use proptest::test_runner::{Config, TestRunner};

    use super::*;
    use crate::shape::Part;
    use crate::spec::identify::{ControllerData, IDENTIFY_SIZE, NamespaceData};
    use crate::{Lba, Options, SystemHost};

    /// Blocks of the namespaces, and of the second one between borders.
    const BLOCKS: u64 = 1000;
    const BORDER: u64 = 24;

    /// Operations, first blocks, where the data begins in its buffer, its bytes, and which namespace.
    fn cases() -> impl Strategy<Value = (Operation, u64, usize, usize, usize)> {
        let operation = prop_oneof![
            Just(Operation::Read),
            any::<bool>().prop_map(|fua| Operation::Write { fua }),
            Just(Operation::Compare),
            Just(Operation::Flush),
        ];
        let lba = prop_oneof![0..2 * BORDER, BLOCKS - 40..BLOCKS + 8, Just(u64::MAX)];
        let start = prop_oneof![
            0..16_usize,
            (0..16_usize).prop_map(|words| words * 4),
            (1000..1050_usize).prop_map(|words| words * 4),
        ];
        let bytes = prop_oneof![
            1 => 0..40_usize,
            4 => (0..30_usize).prop_map(|blocks| blocks * 512),
        ];
        (operation, lba, start, bytes, 0..2_usize)
    }

    fn controller(model: &model::Controller) -> crate::Result<Arc<Controller>> {
        let options = Options {
            interrupts: false,
            ..Options::default()
        };
        let host = Arc::new(SystemHost::new(Instant::now()));
        Controller::open(model.function(), host, options)
    }

    #[test]
    fn the_short_way_makes_the_same_commands() -> Result<(), Box<dyn std::error::Error>> {
        let namespace = |optimal_boundary| model::NamespaceOptions {
            block_size: 512,
            blocks: BLOCKS,
            optimal_boundary,
            atomic_write: 4,
            atomic_write_power_fail: 4,
            ..model::NamespaceOptions::default()
        };
        let border = u16::try_from(BORDER)?;
        let model = model::Controller::new(model::Options {
            namespaces: vec![namespace(0), namespace(border)],
            atomic_write: 4,
            ..model::Options::default()
        })?;
        let _stepper = model::Stepper::new(model.clone());
        let controller = controller(&model)?;
        let namespaces = [controller.namespace(1)?, controller.namespace(2)?];
        let page = controller.page_size();
        let arena = Arena::new(
            Arc::clone(controller.domain()),
            &ArenaOptions {
                classes: vec![SizeClass {
                    size: 32 << 10,
                    count: 2,
                }],
                ..ArenaOptions::default()
            },
        )?;
        let lists = Lists::new(arena.try_buffer(4096)?.into_device_memory(), 4096);
        let short = Cell::new(0);
        let mut runner = TestRunner::new(Config {
            cases: 2000,
            failure_persistence: None,
            ..Config::default()
        });
        runner.run(&cases(), |(operation, lba, start, bytes, which)| {
            let mut buffer = arena.try_buffer(32 << 10).expect("the last one is back");
            buffer.set_range(start..start + bytes).expect("within");
            let iova = buffer.iova().0;
            let request = Request {
                operation,
                lba: Lba(lba),
                blocks: 0,
                data: Some(Data::One(buffer)),
                token: 0,
            };
            let namespace = &namespaces[which];
            let command = controller.short_command(namespace, &request);
            let checked = controller.check(namespace, &request);
            let long = checked.ok().and_then(|shape| {
                let is_short = Lists::two_pages(iova, bytes as u64, page).is_some()
                    && operation != Operation::Compare;
                let part = Part {
                    namespace: namespace.id(),
                    block_shift: namespace.block_shift(),
                    lba,
                    offset: 0,
                    blocks: shape.single(lba).filter(|_| is_short)?,
                };
                Some(part.command(&shape, &lists, 0, request.data.as_ref(), page))
            });
            prop_assert_eq!(command, long);
            short.set(short.get() + usize::from(command.is_some()));
            Ok(())
        })?;
        let short = short.get();
        assert!(short > 100, "{short} of 2,000 requests were short");
        Ok(())
    }

    fn namespace(deallocation: u8) -> crate::Result<Namespace> {
        let controller = ControllerData::parse(&[0; IDENTIFY_SIZE])?;
        let mut bytes = [0; IDENTIFY_SIZE];
        bytes[0] = 8;
        bytes[33] = deallocation;
        // The first format: blocks of 512 bytes.
        bytes[130] = 9;
        Namespace::new(1, 0, &controller, NamespaceData::parse(&bytes)?, 4096)
    }

    #[test]
    fn zeroes_are_deallocated_only_where_that_is_offered() -> crate::Result<()> {
        let (with, without) = (namespace(1 | 1 << 3)?, namespace(1)?);
        for fua in [false, true] {
            let plain = if fua { FUA } else { 0 };
            assert_eq!(zeroes_flags(&with, fua, true), plain | DEALLOCATE_ZEROES);
            assert_eq!(zeroes_flags(&with, fua, false), plain);
            assert_eq!(zeroes_flags(&without, fua, true), plain);
        }
        Ok(())
    }
}
