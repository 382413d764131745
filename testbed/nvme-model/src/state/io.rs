//! NVM commands (NVM command set specification 1.0, section 3.2).

use crate::command::{Command, Pointer, dwords, nvm};
use crate::host::Table;
use crate::medium::Piece;
use crate::options::Deallocated;
use crate::status::Status;
use crate::violation::Rule;

use super::failure::{Failure, Outcome};
use super::{Namespace, State};

/// All namespaces at once.
pub(super) const BROADCAST: u32 = u32::MAX;

const FORCE_UNIT_ACCESS: u32 = 1 << 30;
const DEALLOCATE: u32 = 1 << 25;

/// Blocks that a command names.
#[derive(Clone, Copy, Debug)]
struct Range {
    namespace: usize,
    first: u64,
    blocks: u64,
    /// In bytes.
    position: u64,
    length: usize,
}

impl State {
    #[inline]
    pub(super) fn execute_io(&mut self, command: &Command, host: &Table) -> Outcome<()> {
        if command.is_fused() || command.reserved() != 0 {
            let detail = format!("first word {:#x}", command.dword(0));
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::ReservedField,
                detail,
            ));
        }
        if command.long(2) | command.metadata() != 0 {
            let detail = format!(
                "dwords 2 and 3: {:#x}, metadata pointer {:#x}",
                command.long(2),
                command.metadata()
            );
            self.violate(Rule::ReservedField, detail);
        }
        let commands = self.options.commands;
        match command.opcode() {
            nvm::READ => self.read(command, host),
            nvm::WRITE => self.write(command, host),
            nvm::FLUSH => self.flush(command),
            nvm::COMPARE if commands.compare => self.compare(command, host),
            nvm::WRITE_ZEROES if commands.write_zeroes => self.write_zeroes(command),
            nvm::WRITE_UNCORRECTABLE if commands.write_uncorrectable => self.spoil(command),
            nvm::DATASET_MANAGEMENT if commands.dataset_management => {
                self.dataset_management(command, host)
            }
            opcode => Err(Failure::breach(
                Status::INVALID_OPCODE,
                Rule::NotOffered,
                format!("opcode {opcode:#04x}"),
            )),
        }
    }

    #[inline]
    fn read(&mut self, command: &Command, host: &Table) -> Outcome<()> {
        self.counters.reads += 1;
        let range = self.range(command, true)?;
        self.locate(command, range.length, false, host)?;
        if self.options.no_data {
            return Ok(());
        }
        let medium = &self.namespaces[range.namespace].medium;
        if medium.is_bad(range.first, range.blocks) {
            return Err(Failure::of(Status::READ_ERROR.do_not_retry()));
        }
        let mut position = range.position;
        for segment in &self.segments {
            let mut done = 0;
            while done < segment.length {
                let target = segment.address.wrapping_add(done as u64);
                let size = match medium.piece(position, segment.length - done) {
                    Piece::Data(data) => {
                        host.write(target, data)?;
                        data.len()
                    }
                    Piece::Blank(size) => {
                        host.fill(target, size, medium.blank())?;
                        size
                    }
                };
                done += size;
                position += size as u64;
            }
        }
        self.logs.count_read(range.length as u64);
        Ok(())
    }

    #[inline]
    fn write(&mut self, command: &Command, host: &Table) -> Outcome<()> {
        self.counters.writes += 1;
        let range = self.range(command, true)?;
        self.locate(command, range.length, false, host)?;
        if self.options.no_data {
            return Ok(());
        }
        let durable = self.is_durable(command);
        let medium = &mut self.namespaces[range.namespace].medium;
        medium.begin(range.first, range.blocks, durable);
        let mut position = range.position;
        for segment in &self.segments {
            let mut done = 0;
            while done < segment.length {
                let source = segment.address.wrapping_add(done as u64);
                let target = medium.piece_mut(position, segment.length - done);
                host.read(source, target)?;
                done += target.len();
                position += target.len() as u64;
            }
        }
        self.logs.count_write(range.length as u64);
        Ok(())
    }

    /// Whether what a command writes survives a power cut from its completion on.
    #[inline]
    fn is_durable(&self, command: &Command) -> bool {
        command.dword(12) & FORCE_UNIT_ACCESS != 0 || !self.features.is_cache_on()
    }

    fn flush(&mut self, command: &Command) -> Outcome<()> {
        self.counters.flushes += 1;
        self.check_unused(command, dwords::POINTER | dwords::FROM_10);
        if command.namespace() == BROADCAST {
            for namespace in &mut self.namespaces {
                namespace.medium.flush();
            }
            return Ok(());
        }
        let namespace = self.io_namespace(command)?;
        self.namespaces[namespace].medium.flush();
        Ok(())
    }

    fn compare(&mut self, command: &Command, host: &Table) -> Outcome<()> {
        let range = self.range(command, true)?;
        self.locate(command, range.length, false, host)?;
        let medium = &self.namespaces[range.namespace].medium;
        if medium.is_bad(range.first, range.blocks) {
            return Err(Failure::of(Status::READ_ERROR.do_not_retry()));
        }
        let mut expected = vec![0; range.length];
        self.receive(&mut expected, host)?;
        let mut found = vec![0; range.length];
        medium.read(range.first, &mut found);
        if expected == found {
            Ok(())
        } else {
            Err(Failure::of(Status::COMPARE.do_not_retry()))
        }
    }

    fn write_zeroes(&mut self, command: &Command) -> Outcome<()> {
        let range = self.range(command, false)?;
        self.check_unused(command, dwords::POINTER | dwords::FROM_13);
        let unknown = !(0xffff | FORCE_UNIT_ACCESS | DEALLOCATE);
        self.check_reserved(command, 12, unknown);
        let durable = self.is_durable(command);
        let medium = &mut self.namespaces[range.namespace].medium;
        medium.fill(range.first, range.blocks, 0, durable);
        Ok(())
    }

    fn spoil(&mut self, command: &Command) -> Outcome<()> {
        let range = self.range(command, false)?;
        self.check_unused(command, dwords::POINTER | dwords::FROM_13);
        self.check_reserved(command, 12, !0xffff);
        let medium = &mut self.namespaces[range.namespace].medium;
        medium.spoil(range.first, range.blocks);
        Ok(())
    }

    /// Deallocates the ranges of a list; other attributes are hints.
    fn dataset_management(&mut self, command: &Command, host: &Table) -> Outcome<()> {
        let namespace = self.io_namespace(command)?;
        self.check_reserved(command, 10, !0xff);
        self.check_reserved(command, 11, !7);
        self.check_unused(command, dwords::FROM_12);
        let count = usize::from((command.dword(10) & 0xff) as u8) + 1;
        self.locate(command, count * 16, false, host)?;
        let mut list = vec![0; count * 16];
        self.receive(&mut list, host)?;
        if command.dword(11) & 4 == 0 {
            return Ok(());
        }
        let ranges: Vec<(u64, u64)> = list
            .chunks_exact(16)
            .map(|range| {
                let blocks = range[4..8].try_into().expect("four bytes");
                let first = range[8..16].try_into().expect("eight bytes");
                (
                    u64::from_le_bytes(first),
                    u64::from(u32::from_le_bytes(blocks)),
                )
            })
            .collect();
        let size = self.namespaces[namespace].medium.blocks();
        for &(first, blocks) in &ranges {
            check_end(first, blocks, size)?;
        }
        let durable = !self.features.is_cache_on();
        let Namespace {
            medium, options, ..
        } = &mut self.namespaces[namespace];
        for (first, blocks) in ranges.into_iter().filter(|(_, blocks)| *blocks > 0) {
            if options.deallocated != Deallocated::Unreported {
                medium.fill(first, blocks, medium.blank(), durable);
            }
        }
        Ok(())
    }

    #[inline]
    fn io_namespace(&self, command: &Command) -> Outcome<usize> {
        let id = command.namespace();
        match id
            .checked_sub(1)
            .and_then(|index| usize::try_from(index).ok())
        {
            Some(index) if index < self.namespaces.len() => Ok(index),
            _ => Err(Failure::breach(
                Status::INVALID_NAMESPACE,
                Rule::NoNamespace,
                format!("namespace {id:#x}"),
            )),
        }
    }

    /// The blocks that dwords 10 to 12 name. MDTS counts only where data is transferred.
    #[inline]
    fn range(&mut self, command: &Command, has_data: bool) -> Outcome<Range> {
        let namespace = self.io_namespace(command)?;
        let Namespace {
            medium, options, ..
        } = &self.namespaces[namespace];
        let first = command.long(10);
        let blocks = u64::from(command.dword(12) & 0xffff) + 1;
        let bytes = blocks * medium.block_size() as u64;
        let limit = self.options.transfer_bytes_max();
        if has_data && limit.is_some_and(|limit| bytes > limit) {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::TransferTooLong,
                format!("{bytes} bytes"),
            ));
        }
        check_end(first, blocks, medium.blocks())?;
        let boundary = u64::from(options.optimal_boundary);
        let position = first * medium.block_size() as u64;
        if boundary != 0 && has_data && first / boundary != (first + blocks - 1) / boundary {
            self.counters.boundary_crossings += 1;
        }
        if has_data {
            // Protection information, streams and STC are not offered; hints in dword 13 are.
            let reserved = command.dword(12) & !(0xffff | FORCE_UNIT_ACCESS | 1 << 31);
            let rest = command.dword(13) & !0xff | command.dword(14) | command.dword(15);
            if reserved | rest != 0 {
                let detail = format!("dwords 12 to 15: {:x?}", &command.words[12..]);
                self.violate(Rule::ReservedField, detail);
            }
        }
        Ok(Range {
            namespace,
            first,
            blocks,
            position,
            length: usize::try_from(bytes).expect("hosts have 64 bits"),
        })
    }

    /// Records dwords that the command does not use and that are not zero.
    pub(super) fn check_unused(&mut self, command: &Command, unused: u16) {
        for number in (0..16).filter(|number| unused & 1 << number != 0) {
            self.check_reserved(command, number, u32::MAX);
        }
        if unused & dwords::POINTER == dwords::POINTER && command.pointer() != Pointer::Prp {
            self.check_reserved(command, 0, 3 << 14);
        }
    }

    /// Records bits that must be zero. They are ignored otherwise, as the specification lets a controller.
    pub(super) fn check_reserved(&mut self, command: &Command, number: usize, mask: u32) {
        let found = command.dword(number) & mask;
        if found != 0 {
            let detail = format!(
                "opcode {:#04x}: reserved bits {found:#x} of dword {number}",
                command.opcode()
            );
            self.violate(Rule::ReservedField, detail);
        }
    }
}

#[inline]
fn check_end(first: u64, blocks: u64, size: u64) -> Outcome<()> {
    if first.checked_add(blocks).is_some_and(|end| end <= size) {
        return Ok(());
    }
    Err(Failure::breach(
        Status::LBA_OUT_OF_RANGE,
        Rule::LbaOutOfRange,
        format!("blocks {first:#x} + {blocks:#x} of {size:#x}"),
    ))
}
