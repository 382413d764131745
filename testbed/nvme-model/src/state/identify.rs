//! Identify (base specification 1.4, section 5.15).

use crate::bytes::Bytes;
use crate::command::{Command, dwords};
use crate::config_space::VENDOR;
use crate::host::Table;
use crate::options::{Deallocated, Options, SglSupport};
use crate::status::Status;
use crate::violation::Rule;

use super::Namespace;
use super::State;
use super::enable::{COMPLETION_SHIFT, SUBMISSION_SHIFT};
use super::failure::{Failure, Outcome};
use super::io::BROADCAST;

/// The formats that a namespace may have: log2 of the block size.
pub(super) const BLOCK_SHIFTS: [u32; 2] = [9, 12];

/// Bytes of every data structure of Identify.
pub(super) const SIZE: usize = 4096;

impl State {
    pub(super) fn identify(&mut self, command: &Command, host: &Table) -> Outcome<u32> {
        let cns = (command.dword(10) & 0xff) as u8;
        // No structure here wants a controller's identifier, and few a command set.
        self.check_reserved(command, 10, 0xffff_ff00);
        let names_set = matches!(cns, 0x05 | 0x06);
        self.check_reserved(command, 11, u32::MAX >> if names_set { 8 } else { 0 });
        if matches!(cns, 0x01 | 0x06) {
            self.check_unused(command, dwords::NAMESPACE);
        }
        let id = command.namespace();
        let mut data = match cns {
            0x00 => self.identify_namespace(id)?,
            0x01 => self.identify_controller(),
            0x02 => self.active_namespaces(id)?,
            0x03 => self.descriptors(id)?,
            // Of 2.0: what belongs to the NVM command set, which is number 0.
            0x05 | 0x06 if self.options.version >= 0x0002_0000 && command.dword(11) >> 24 == 0 => {
                Bytes::new(SIZE)
            }
            0x08 if self.options.version >= 0x0002_0000 => self.independent_namespace(id)?,
            _ => {
                return Err(Failure::breach(
                    Status::INVALID_FIELD,
                    Rule::NotOffered,
                    format!("identify {cns:#04x}"),
                ));
            }
        };
        self.lie_about(cns, &mut data);
        self.locate(command, SIZE, true, host)?;
        self.send(data.as_ref(), host)?;
        Ok(0)
    }

    fn lie_about(&mut self, cns: u8, data: &mut Bytes) {
        if self.plan.faults.identify_random == Some(cns) {
            self.plan.random().fill(data.as_mut());
        }
        for lie in &self.plan.faults.identify {
            let end = lie.offset.saturating_add(lie.bytes.len());
            if lie.cns == cns && end <= SIZE {
                data.put(lie.offset, &lie.bytes);
            }
        }
    }

    fn found(&self, id: u32) -> Outcome<&Namespace> {
        self.namespace(id).ok_or_else(|| {
            Failure::breach(
                Status::INVALID_NAMESPACE,
                Rule::NoNamespace,
                format!("identify namespace {id:#x}"),
            )
        })
    }

    /// CNS 00h (NVM command set specification 1.0, figure 97).
    fn identify_namespace(&self, id: u32) -> Outcome<Bytes> {
        let mut data = Bytes::new(SIZE);
        if id == BROADCAST {
            // What all namespaces have in common: their formats.
            put_formats(&mut data);
            return Ok(data);
        }
        let Namespace { options, bytes, .. } = self.found(id)?;
        let shift = options.block_size.trailing_zeros();
        data.put_u64(0, options.blocks);
        data.put_u64(8, options.blocks);
        data.put_u64(16, options.blocks);
        let own_units = options.atomic_write | options.atomic_write_power_fail;
        data.put_u8(
            24,
            u8::from(options.has_atomic_units || own_units != 0) << 1,
        );
        let listed = BLOCK_SHIFTS.iter().position(|listed| *listed == shift);
        put_formats(&mut data);
        match listed {
            Some(format) => data.put_u8(26, small(format)),
            None => {
                // A size that formatting does not offer takes a third place.
                data.put_u8(25, 2);
                data.put_u8(26, 2);
                data.put_u32(128 + 8, shift << 16);
            }
        }
        // What deallocated blocks read as; whether Write Zeroes may deallocate.
        let deallocated = match options.deallocated {
            Deallocated::Unreported => 0,
            Deallocated::Zeros => 1 | 1 << 3,
            Deallocated::Ones => 2,
        };
        data.put_u8(33, deallocated);
        let zero_based = |blocks: u32| (blocks.saturating_sub(1) & 0xffff) as u16;
        data.put_u16(34, zero_based(options.atomic_write));
        data.put_u16(36, zero_based(options.atomic_write_power_fail));
        data.put_u16(46, options.optimal_boundary);
        data.put_u64(48, *bytes);
        data.put(104, &self.unique(id));
        data.put(120, &self.unique(id)[..8]);
        Ok(data)
    }

    /// 16 bytes that name a namespace.
    fn unique(&self, id: u32) -> [u8; 16] {
        let mut unique = [0; 16];
        unique[..4].copy_from_slice(&id.to_be_bytes());
        unique[4..8].copy_from_slice(&[0x4d, 0x69, 0x6c, 0x6c]);
        unique[8..].copy_from_slice(&self.options.seed.to_be_bytes());
        unique
    }

    /// CNS 02h: identifiers above `id`.
    fn active_namespaces(&self, id: u32) -> Outcome<Bytes> {
        if id >= BROADCAST - 1 {
            return Err(Failure::breach(
                Status::INVALID_NAMESPACE,
                Rule::NoNamespace,
                format!("namespaces above {id:#x}"),
            ));
        }
        let mut data = Bytes::new(SIZE);
        let last = u32::try_from(self.namespaces.len()).expect("the options were checked");
        for (place, found) in (id.saturating_add(1)..=last).take(1024).enumerate() {
            data.put_u32(place * 4, found);
        }
        Ok(data)
    }

    /// CNS 03h: EUI64, NGUID and UUID.
    fn descriptors(&self, id: u32) -> Outcome<Bytes> {
        self.found(id)?;
        let unique = self.unique(id);
        let mut data = Bytes::new(SIZE);
        let mut at = 0;
        for (kind, bytes) in [(1, &unique[..8]), (2, &unique[..]), (3, &unique[..])] {
            data.put_u8(at, kind);
            data.put_u8(at + 1, small(bytes.len()));
            data.put(at + 4, bytes);
            at += 4 + bytes.len();
        }
        Ok(data)
    }

    /// CNS 08h (base specification 2.0, figure 280).
    fn independent_namespace(&self, id: u32) -> Outcome<Bytes> {
        self.found(id)?;
        let mut data = Bytes::new(SIZE);
        // Ready.
        data.put_u8(14, 1);
        Ok(data)
    }

    /// CNS 01h.
    fn identify_controller(&self) -> Bytes {
        let options = &self.options;
        let mut data = Bytes::new(SIZE);
        data.put_u16(0, VENDOR);
        data.put_u16(2, VENDOR);
        data.put_text(4, 20, &options.serial);
        data.put_text(24, 40, &options.model);
        data.put_text(64, 8, &options.firmware);
        data.put_u8(77, options.transfer_max);
        data.put_u16(78, 1);
        data.put_u32(80, options.version);
        // Namespace attribute notices, firmware activation notices.
        data.put_u32(92, 1 << 8 | 1 << 9);
        data.put_u8(111, 1);
        put_admin_abilities(&mut data, options);
        // Kelvin: warning and critical temperature.
        data.put_u16(266, 343);
        data.put_u16(268, 353);
        let bytes: u64 = self
            .namespaces
            .iter()
            .map(|namespace| namespace.bytes)
            .sum();
        data.put_u64(280, bytes);
        put_io_abilities(&mut data, options);
        let count = u32::try_from(self.namespaces.len()).expect("the options were checked");
        data.put_u32(516, count);
        let name = format!("nqn.2014-08.org.nvmexpress:millrace:{}", options.serial);
        let count = name.len().min(255);
        data.put(768, &name.as_bytes()[..count]);
        data
    }
}

fn put_admin_abilities(data: &mut Bytes, options: &Options) {
    let commands = options.commands;
    let oacs = u16::from(commands.format) << 1 | u16::from(commands.doorbell_buffer) << 8;
    data.put_u16(256, oacs);
    data.put_u8(258, ((options.aborts_max - 1) & 0xff) as u8);
    data.put_u8(259, ((options.events_max - 1) & 0xff) as u8);
    // One firmware slot, which is read-only.
    data.put_u8(260, 1 << 1 | 1);
    // The page of commands, and offsets and long lengths.
    data.put_u8(261, 1 << 1 | 1 << 2);
    data.put_u8(262, ((options.error_entries - 1) & 0xff) as u8);
}

fn put_io_abilities(data: &mut Bytes, options: &Options) {
    let commands = options.commands;
    let both = |shift: u32| ((shift << 4 | shift) & 0xff) as u8;
    data.put_u8(512, both(SUBMISSION_SHIFT));
    data.put_u8(513, both(COMPLETION_SHIFT));
    let oncs = u16::from(commands.compare)
        | u16::from(commands.write_uncorrectable) << 1
        | u16::from(commands.dataset_management) << 2
        | u16::from(commands.write_zeroes) << 3
        | 1 << 6;
    data.put_u16(520, oncs);
    // A flush of all namespaces is possible.
    data.put_u8(525, u8::from(options.volatile_cache) | 3 << 1);
    data.put_u16(526, ((options.atomic_write - 1) & 0xffff) as u16);
    let kept = options.atomic_write_power_fail - 1;
    data.put_u16(528, (kept & 0xffff) as u16);
    let sgl = match options.sgl {
        SglSupport::None => 0,
        SglSupport::Any => 1,
        SglSupport::Dwords => 2,
    };
    data.put_u32(536, sgl);
}

/// NLBAF and the formats themselves; 4 KiB performs best.
fn put_formats(data: &mut Bytes) {
    data.put_u8(25, small(BLOCK_SHIFTS.len() - 1));
    data.put_u32(128, 9 << 16 | 2 << 24);
    data.put_u32(132, 12 << 16);
}

/// A count that is known to be small.
fn small(count: usize) -> u8 {
    u8::try_from(count).expect("counts here are below 256")
}
