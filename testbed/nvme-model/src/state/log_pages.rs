//! Log pages (base specification 1.4, section 5.14).

use std::collections::{BTreeSet, VecDeque};

use crate::bytes::Bytes;
use crate::command::{Command, admin, nvm};
use crate::host::Table;
use crate::status::Status;
use crate::violation::Rule;

use super::State;
use super::failure::{Failure, Outcome};
use super::io::BROADCAST;

/// Bytes that can be had of a log page at once where MDTS sets no limit: far more than any has.
const LENGTH_MAX: u64 = 1 << 20;

/// What the controller remembers of its life.
#[derive(Debug, Default)]
pub(super) struct Logs {
    errors: VecDeque<ErrorEntry>,
    error_count: u64,
    warning: u8,
    bytes_read: u64,
    bytes_written: u64,
    reads: u64,
    writes: u64,
    power_cycles: u64,
    unsafe_shutdowns: u64,
    media_errors: u64,
    is_shut_down: bool,
    changed: BTreeSet<u32>,
}

/// A command that failed.
#[derive(Clone, Copy, Debug)]
struct ErrorEntry {
    count: u64,
    queue: u16,
    id: u16,
    status: Status,
    block: u64,
    namespace: u32,
}

impl Logs {
    pub(super) fn count_read(&mut self, bytes: u64) {
        self.is_shut_down = false;
        self.reads += 1;
        self.bytes_read += bytes;
    }

    pub(super) fn count_write(&mut self, bytes: u64) {
        self.is_shut_down = false;
        self.writes += 1;
        self.bytes_written += bytes;
    }

    pub(super) fn shut_down(&mut self) {
        self.is_shut_down = true;
    }

    pub(super) fn power_cycled(&mut self) {
        self.power_cycles += 1;
        self.unsafe_shutdowns += u64::from(!self.is_shut_down);
        self.is_shut_down = false;
        self.warning = 0;
    }

    pub(super) fn warn(&mut self, warning: u8) {
        self.warning |= warning;
    }

    pub(super) fn changed(&mut self, namespace: u32) {
        self.changed.insert(namespace);
    }

    /// Page 01h: the newest first.
    fn error_page(&self, entries: u16) -> Bytes {
        let mut page = Bytes::new(usize::from(entries) * 64);
        for (number, entry) in self.errors.iter().enumerate() {
            let at = number * 64;
            page.put_u64(at, entry.count);
            page.put_u16(at + 8, entry.queue);
            page.put_u16(at + 10, entry.id);
            page.put_u16(at + 12, entry.status.0 << 1);
            page.put_u16(at + 14, u16::MAX);
            page.put_u64(at + 16, entry.block);
            page.put_u32(at + 24, entry.namespace);
        }
        page
    }

    /// Page 02h: SMART and health.
    fn health_page(&self) -> Bytes {
        let mut page = Bytes::new(512);
        page.put_u8(0, self.warning);
        page.put_u16(1, if self.warning & 2 == 0 { 308 } else { 350 });
        page.put_u8(3, if self.warning & 1 == 0 { 100 } else { 5 });
        page.put_u8(4, 10);
        page.put_u8(5, 1);
        // In thousands of 512 bytes, rounded up.
        page.put_u64(32, self.bytes_read.div_ceil(512_000));
        page.put_u64(48, self.bytes_written.div_ceil(512_000));
        page.put_u64(64, self.reads);
        page.put_u64(80, self.writes);
        page.put_u64(112, self.power_cycles);
        page.put_u64(144, self.unsafe_shutdowns);
        page.put_u64(160, self.media_errors);
        page.put_u64(176, self.error_count);
        page
    }

    /// Page 04h: namespaces that changed; forgotten when it is read. More than there is room for are said by
    /// an identifier of all ones.
    fn changed_page(&mut self) -> Bytes {
        let mut page = Bytes::new(4096);
        if self.changed.len() > 1024 {
            page.put_u32(0, u32::MAX);
        } else {
            for (number, namespace) in self.changed.iter().enumerate() {
                page.put_u32(number * 4, *namespace);
            }
        }
        self.changed.clear();
        page
    }
}

/// Bytes that a Get Log Page command asks for.
pub(super) fn length(command: &Command) -> usize {
    let dwords = u64::from(command.dword(11) & 0xffff) << 16 | u64::from(command.dword(10) >> 16);
    usize::try_from((dwords + 1) * 4).expect("hosts have 64 bits")
}

impl State {
    /// Remembers a command that failed.
    pub(super) fn log_error(&mut self, queue: u16, command: &Command, status: Status) {
        let logs = &mut self.logs;
        logs.error_count += 1;
        logs.media_errors += u64::from(status.0 >> 8 & 7 == 2);
        logs.errors.push_front(ErrorEntry {
            count: logs.error_count,
            queue,
            id: command.id(),
            status,
            block: if queue == 0 { 0 } else { command.long(10) },
            namespace: command.namespace(),
        });
        logs.errors
            .truncate(usize::from(self.options.error_entries));
    }

    pub(super) fn get_log_page(&mut self, command: &Command, host: &Table) -> Outcome<u32> {
        let page_id = (command.dword(10) & 0xff) as u8;
        // Bits for the page's own use are used by none of these; bit 15 keeps events masked.
        self.check_reserved(command, 10, 0x7f00);
        self.check_reserved(command, 11, 0xffff_0000);
        self.check_no_namespace(command);
        let length = length(command);
        let limit = self.options.transfer_bytes_max().unwrap_or(LENGTH_MAX);
        if length as u64 > limit {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::TransferTooLong,
                format!("{length} bytes of log page {page_id:#04x}"),
            ));
        }
        let mut page = match page_id {
            0x01 => self.logs.error_page(self.options.error_entries),
            0x02 => self.logs.health_page(),
            0x03 => self.firmware_page(),
            0x04 => self.logs.changed_page(),
            0x05 => self.commands_page(),
            // Vendors' own.
            0xc0.. => Bytes::new(512),
            _ => {
                return Err(Failure::breach(
                    Status::LOG_PAGE,
                    Rule::NotOffered,
                    format!("log page {page_id:#04x}"),
                ));
            }
        };
        if self.plan.faults.logs_random {
            self.plan.random().fill(page.as_mut());
        }
        let offset = command.long(12);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        if offset % 4 != 0 || from > page.as_ref().len() {
            return Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::FieldValue,
                format!("offset {offset:#x} of log page {page_id:#04x}"),
            ));
        }
        let mut wanted = vec![0; length];
        let rest = &page.as_ref()[from..];
        let count = rest.len().min(length);
        // What lies beyond the page's end is undefined.
        self.plan.random().fill(&mut wanted[count..]);
        wanted[..count].copy_from_slice(&rest[..count]);
        self.locate(command, length, true, host)?;
        self.send(&wanted, host)?;
        if command.dword(10) & 1 << 15 == 0 {
            self.events.unmask(page_id);
        }
        Ok(0)
    }

    /// Records a namespace that is named where only all of them, or none, can be.
    pub(super) fn check_no_namespace(&mut self, command: &Command) {
        let id = command.namespace();
        if id != 0 && id != BROADCAST {
            let detail = format!("opcode {:#04x} of namespace {id:#x}", command.opcode());
            self.violate(Rule::FieldValue, detail);
        }
    }

    /// Page 03h: one slot, which is active.
    fn firmware_page(&self) -> Bytes {
        let mut page = Bytes::new(512);
        page.put_u8(0, 1);
        page.put_text(8, 8, &self.options.firmware);
        page
    }

    /// Page 05h: which commands there are and what they touch.
    fn commands_page(&self) -> Bytes {
        const SUPPORTED: u32 = 1;
        const CHANGES_BLOCKS: u32 = 1 << 1;
        const CHANGES_NAMESPACE: u32 = 1 << 2;
        let mut page = Bytes::new(4096);
        let offered = self.options.commands;
        let mut put = |table: usize, opcode: u8, is_offered: bool, effects: u32| {
            if is_offered {
                page.put_u32(table + usize::from(opcode) * 4, SUPPORTED | effects);
            }
        };
        for opcode in [
            admin::DELETE_SUBMISSION_QUEUE,
            admin::CREATE_SUBMISSION_QUEUE,
            admin::GET_LOG_PAGE,
            admin::DELETE_COMPLETION_QUEUE,
            admin::CREATE_COMPLETION_QUEUE,
            admin::IDENTIFY,
            admin::ABORT,
            admin::SET_FEATURES,
            admin::GET_FEATURES,
            admin::ASYNCHRONOUS_EVENT_REQUEST,
        ] {
            put(0, opcode, true, 0);
        }
        put(0, admin::DOORBELL_BUFFER_CONFIG, offered.doorbell_buffer, 0);
        let formatting = CHANGES_BLOCKS | CHANGES_NAMESPACE;
        put(0, admin::FORMAT_NVM, offered.format, formatting);
        put(1024, nvm::FLUSH, true, 0);
        put(1024, nvm::READ, true, 0);
        put(1024, nvm::WRITE, true, CHANGES_BLOCKS);
        put(1024, nvm::COMPARE, offered.compare, 0);
        put(
            1024,
            nvm::WRITE_ZEROES,
            offered.write_zeroes,
            CHANGES_BLOCKS,
        );
        put(
            1024,
            nvm::WRITE_UNCORRECTABLE,
            offered.write_uncorrectable,
            CHANGES_BLOCKS,
        );
        put(
            1024,
            nvm::DATASET_MANAGEMENT,
            offered.dataset_management,
            CHANGES_BLOCKS,
        );
        page
    }
}
