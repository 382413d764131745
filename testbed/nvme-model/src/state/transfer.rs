//! Where a command's data lies: PRP entries and lists (base specification 1.4, section 4.3) and
//! scatter-gather lists (section 4.4).

use crate::command::{Command, Pointer};
use crate::host::Table;
use crate::options::SglSupport;
use crate::status::Status;
use crate::violation::Rule;

use super::State;
use super::failure::{Failure, Outcome};

/// A part of a transfer in the host's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) length: usize,
}

/// Bytes of a PRP entry and of an SGL descriptor.
const ENTRY: u64 = 8;
const DESCRIPTOR: usize = 16;

/// More descriptors than this are a list that never ends.
const DESCRIPTORS_MAX: usize = 1 << 16;

impl State {
    /// Finds the `length` bytes of a command's data; they are in `segments` afterwards.
    #[inline]
    pub(super) fn locate(
        &mut self,
        command: &Command,
        length: usize,
        is_admin: bool,
        host: &Table,
    ) -> Outcome<()> {
        self.segments.clear();
        self.lists.clear();
        match command.pointer() {
            Pointer::Prp => {
                self.locate_prp(command.data_first(), command.data_second(), length, host)
            }
            Pointer::Sgl if !is_admin && self.options.sgl != SglSupport::None => {
                self.locate_sgl(command, length, host)
            }
            _ => Err(Failure::breach(
                Status::INVALID_FIELD,
                Rule::NotOffered,
                "a scatter-gather list",
            )),
        }
    }

    #[inline]
    fn locate_prp(&mut self, first: u64, second: u64, length: usize, host: &Table) -> Outcome<()> {
        let page = 1_usize << self.page_shift;
        let offset = within(first, page);
        if first % 4 != 0 {
            let detail = format!("PRP1 {first:#x} is not a multiple of 4");
            return Err(Failure::breach(Status::PRP_OFFSET, Rule::PrpOffset, detail));
        }
        let here = length.min(page - offset);
        self.segments.push(Segment {
            address: first,
            length: here,
        });
        let rest = length - here;
        if rest == 0 {
            if second != 0 {
                let detail = format!("PRP2 {second:#x} of a transfer in one page");
                self.violate(Rule::ReservedField, detail);
            }
            return Ok(());
        }
        if rest <= page {
            return self.push_page(second, rest);
        }
        self.locate_list(second, rest, host)
    }

    /// Takes a PRP entry other than the first, which must be the start of a page.
    fn push_page(&mut self, address: u64, length: usize) -> Outcome<()> {
        let page = 1_usize << self.page_shift;
        if within(address, page) != 0 {
            let detail = format!("entry {address:#x} is not the start of a page");
            return Err(Failure::breach(Status::PRP_OFFSET, Rule::PrpOffset, detail));
        }
        self.segments.push(Segment { address, length });
        Ok(())
    }

    /// Follows a list, which may go on in other pages.
    fn locate_list(&mut self, list: u64, length: usize, host: &Table) -> Outcome<()> {
        let page = 1_usize << self.page_shift;
        if list % ENTRY != 0 {
            let detail = format!("list at {list:#x}");
            return Err(Failure::breach(Status::PRP_OFFSET, Rule::PrpList, detail));
        }
        let mut list = list;
        let mut rest = length;
        // A page of a list that starts in its last slot has nothing but the pointer to the next.
        while rest > 0 {
            // Up to the end of the list's page: the last entry points to more if that is not the end.
            let slots = (page - within(list, page)) / 8;
            let needed = rest.div_ceil(page);
            let count = needed.min(slots);
            self.lists.push(Segment {
                address: list,
                length: count * 8,
            });
            let mut entries = vec![0; count * 8];
            host.read(list, &mut entries)?;
            let is_last = needed <= slots;
            for (index, entry) in entries.chunks_exact(8).enumerate() {
                let entry = u64::from_le_bytes(entry.try_into().expect("eight bytes"));
                if !is_last && index + 1 == count {
                    if within(entry, page) != 0 {
                        let detail = format!("next list at {entry:#x}");
                        return Err(Failure::breach(Status::PRP_OFFSET, Rule::PrpList, detail));
                    }
                    list = entry;
                    break;
                }
                let here = rest.min(page);
                self.push_page(entry, here)?;
                rest -= here;
            }
        }
        Ok(())
    }

    fn locate_sgl(&mut self, command: &Command, length: usize, host: &Table) -> Outcome<()> {
        let mut descriptors = vec![Descriptor {
            address: command.data_first(),
            rest: command.data_second(),
        }];
        let mut seen = 0;
        let mut total = 0;
        let mut is_last_segment = false;
        let mut promises_more = false;
        loop {
            let mut next = None;
            let count = descriptors.len();
            seen += count;
            if seen > DESCRIPTORS_MAX {
                return Err(sgl(Status::SGL_NUMBER, "a list without end"));
            }
            for (index, descriptor) in descriptors.iter().enumerate() {
                let is_at_end = index + 1 == count;
                match descriptor.kind() {
                    DATA_BLOCK => {
                        self.push_block(*descriptor)?;
                        total += descriptor.length();
                    }
                    SEGMENT | LAST_SEGMENT if is_at_end && !is_last_segment => {
                        next = Some(*descriptor);
                    }
                    SEGMENT | LAST_SEGMENT => {
                        return Err(sgl(Status::SGL_SEGMENT, "a segment descriptor too many"));
                    }
                    kind => {
                        return Err(sgl(
                            Status::SGL_TYPE,
                            &format!("descriptor type {kind:#04x}"),
                        ));
                    }
                }
            }
            let Some(segment) = next else {
                if promises_more {
                    return Err(sgl(Status::SGL_SEGMENT, "the last segment is not named so"));
                }
                break;
            };
            is_last_segment = segment.kind() == LAST_SEGMENT;
            promises_more = !is_last_segment;
            let size = segment.length();
            if size == 0 || size % DESCRIPTOR != 0 || segment.address % 8 != 0 {
                let detail = format!("segment of {size} bytes at {:#x}", segment.address);
                return Err(sgl(Status::SGL_SEGMENT, &detail));
            }
            if size > DESCRIPTORS_MAX * DESCRIPTOR {
                return Err(sgl(Status::SGL_NUMBER, &format!("segment of {size} bytes")));
            }
            self.lists.push(Segment {
                address: segment.address,
                length: size,
            });
            let mut bytes = vec![0; size];
            host.read(segment.address, &mut bytes)?;
            descriptors = bytes
                .chunks_exact(DESCRIPTOR)
                .map(Descriptor::read)
                .collect();
        }
        if total != length {
            let detail = format!("{total} bytes for a transfer of {length}");
            return Err(sgl(Status::SGL_LENGTH, &detail));
        }
        Ok(())
    }

    fn push_block(&mut self, descriptor: Descriptor) -> Outcome<()> {
        let (address, length) = (descriptor.address, descriptor.length());
        let is_odd = address % 4 != 0 || length % 4 != 0;
        if self.options.sgl == SglSupport::Dwords && is_odd {
            let detail = format!("{length} bytes at {address:#x}");
            return Err(sgl(Status::SGL_LENGTH, &detail));
        }
        if descriptor.rest >> 32 & 0xff_ffff != 0 {
            return Err(sgl(Status::SGL_TYPE, "reserved bytes in a data block"));
        }
        self.segments.push(Segment { address, length });
        Ok(())
    }

    /// Copies `bytes` to where the command wants them: as many as were located.
    pub(super) fn send(&self, bytes: &[u8], host: &Table) -> Outcome<()> {
        let mut rest = bytes;
        for segment in &self.segments {
            let (here, after) = rest.split_at(segment.length);
            host.write(segment.address, here)?;
            rest = after;
        }
        Ok(())
    }

    /// Copies from where the command's data lies: as many as were located.
    pub(super) fn receive(&self, bytes: &mut [u8], host: &Table) -> Outcome<()> {
        let mut rest = bytes;
        for segment in &self.segments {
            let (here, after) = rest.split_at_mut(segment.length);
            host.read(segment.address, here)?;
            rest = after;
        }
        Ok(())
    }
}

const DATA_BLOCK: u8 = 0x00;
const SEGMENT: u8 = 0x20;
const LAST_SEGMENT: u8 = 0x30;

/// An SGL descriptor: an address, a length of 4 bytes, 3 reserved ones, and type and subtype.
#[derive(Clone, Copy, Debug)]
struct Descriptor {
    address: u64,
    rest: u64,
}

impl Descriptor {
    fn read(bytes: &[u8]) -> Self {
        let word = |from: usize| {
            let word = bytes[from..from + 8].try_into().expect("eight bytes");
            u64::from_le_bytes(word)
        };
        Self {
            address: word(0),
            rest: word(8),
        }
    }

    fn length(self) -> usize {
        usize::try_from(self.rest & 0xffff_ffff).expect("hosts have 64 bits")
    }

    /// Type in the upper four bits, subtype in the lower.
    const fn kind(self) -> u8 {
        (self.rest >> 56) as u8
    }
}

fn sgl(status: Status, detail: &str) -> Box<Failure> {
    Failure::breach(status, Rule::SglDescriptor, detail)
}

/// The offset of an address in its page.
#[inline]
fn within(address: u64, page: usize) -> usize {
    let offset = address & (page as u64 - 1);
    usize::try_from(offset).expect("hosts have 64 bits")
}
