//! Splitting of requests into commands, and their data pointers.

use millrace_memory::{DeviceMemory, Iova};

use crate::request::{Data, Pieces};
use crate::spec::command::{Pointer, sgl_data, sgl_last_segment};

/// The most entries of a list of pages: those of one page of 4 KiB.
pub(crate) const LIST_ENTRIES_MAX: u64 = 512;
/// Bytes of an entry of a list of pages.
const PAGE_ENTRY_SIZE: usize = 8;
/// Bytes of a scatter-gather descriptor.
const SGL_ENTRY_SIZE: usize = 16;

/// How long commands may be, in blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// The most blocks of one command, at least one.
    pub(crate) blocks_max: u32,
    /// Blocks between boundaries that commands must not cross; zero if there are none.
    pub(crate) boundary: u32,
}

impl Limits {
    /// How many of `left` blocks from `lba` on, of which there is at least one, the next command has.
    #[inline]
    pub(crate) fn next(self, lba: u64, left: u64) -> u32 {
        let mut most = u64::from(self.blocks_max).min(left);
        if self.boundary > 0 {
            let boundary = u64::from(self.boundary);
            most = most.min(boundary - lba % boundary);
        }
        u32::try_from(most).expect("no more than blocks_max, which has 32 bits")
    }
}

/// Whether PRP lists can describe `data`: its inner borders are page borders.
pub(crate) fn has_page_borders(data: &Data, page: u64) -> bool {
    let buffers = data.buffers();
    let last = buffers.len().saturating_sub(1);
    buffers.iter().enumerate().all(|(index, buffer)| {
        let begin = buffer.iova().0;
        let end = begin + buffer.len() as u64;
        (index == 0 || begin % page == 0) && (index == last || end % page == 0)
    })
}

/// The lists of a queue pair: one place for each command in flight.
#[derive(Debug)]
pub(crate) struct Lists {
    memory: DeviceMemory,
    /// Bytes of one place: a power of two, no more than a device page.
    size: usize,
}

impl Lists {
    /// Bytes of a place that describes transfers of up to `transfer_max` bytes.
    pub(crate) fn place_size(transfer_max: u64, page: u64) -> usize {
        let entries = (transfer_max / page).clamp(8, LIST_ENTRIES_MAX);
        let entries = usize::try_from(entries).expect("no more than 512");
        (entries * PAGE_ENTRY_SIZE).next_power_of_two()
    }

    pub(crate) const fn new(memory: DeviceMemory, size: usize) -> Self {
        Self { memory, size }
    }

    /// How many pieces of memory a command may have as a scatter-gather list, in places of
    /// [`Lists::place_size`].
    pub(crate) fn pieces_max_for(transfer_max: u64, page: u64) -> usize {
        Self::place_size(transfer_max, page) / SGL_ENTRY_SIZE
    }

    /// Data pointer of `length` bytes from `first` on, if they lie in at most two pages of `page` bytes.
    #[inline]
    pub(crate) const fn two_pages(first: u64, length: u64, page: u64) -> Option<Pointer> {
        let second = (first | (page - 1)) + 1;
        let end = first + length;
        if end <= second {
            Some(Pointer::Prp(Iova(first), 0))
        } else if end <= second + page {
            Some(Pointer::Prp(Iova(first), second))
        } else {
            None
        }
    }

    /// PRP data pointer of `pieces` for pages of `page` bytes; a list, if needed, goes to slot `index`.
    pub(crate) fn pages(&self, index: u16, pieces: Pieces<'_>, page: u64) -> Pointer {
        let mut pages = pieces.flat_map(|(begin, length)| Pages {
            next: begin.0,
            end: begin.0 + length,
            page,
        });
        let first = pages.next().expect("a command with data has a byte of it");
        let Some(second) = pages.next() else {
            return Pointer::Prp(Iova(first), 0);
        };
        let Some(third) = pages.next() else {
            return Pointer::Prp(Iova(first), second);
        };
        let place = usize::from(index) * self.size;
        let entries = [second, third].into_iter().chain(pages);
        for (entry, address) in entries.enumerate() {
            assert!(
                entry * PAGE_ENTRY_SIZE < self.size,
                "a command is no longer than its list has room for"
            );
            self.memory
                .store_u64(place + entry * PAGE_ENTRY_SIZE, address);
        }
        Pointer::Prp(Iova(first), self.memory.iova().0 + place as u64)
    }

    /// SGL data pointer of `pieces`.
    pub(crate) fn descriptors(&self, index: u16, mut pieces: Pieces<'_>) -> Pointer {
        let (begin, length) = pieces.next().expect("a command with data has a piece");
        let first = sgl_data(begin, to_u32(length));
        let mut pieces = pieces.peekable();
        if pieces.peek().is_none() {
            return Pointer::Sgl(first.0, first.1);
        }
        let place = usize::from(index) * self.size;
        let mut count = 0;
        let rest = pieces.map(|(begin, length)| sgl_data(begin, to_u32(length)));
        for (address, rest) in std::iter::once(first).chain(rest) {
            assert!(
                (count + 1) * SGL_ENTRY_SIZE <= self.size,
                "checked at submission"
            );
            let offset = place + count * SGL_ENTRY_SIZE;
            self.memory.store_u64(offset, address);
            self.memory.store_u64(offset + 8, rest);
            count += 1;
        }
        let list = Iova(self.memory.iova().0 + place as u64);
        let bytes = u32::try_from(count * SGL_ENTRY_SIZE).expect("no more than a page");
        let (address, rest) = sgl_last_segment(list, bytes);
        Pointer::Sgl(address, rest)
    }

    /// Data pointer of the range of a Dataset Management command, written to slot `index` (NVM figure 43).
    pub(crate) fn range(&self, index: u16, lba: u64, blocks: u32) -> Pointer {
        let place = usize::from(index) * self.size;
        self.memory.store_u64(place, u64::from(blocks) << 32);
        self.memory.store_u64(place + 8, lba);
        Pointer::Prp(Iova(self.memory.iova().0 + place as u64), 0)
    }
}

fn to_u32(length: u64) -> u32 {
    u32::try_from(length).expect("a command has no more than 2^32 bytes")
}

/// The addresses of pages from `next` to `end`; all but the first are multiples of the page.
#[derive(Clone, Debug)]
struct Pages {
    next: u64,
    end: u64,
    page: u64,
}

impl Iterator for Pages {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        if self.next >= self.end {
            return None;
        }
        let this = self.next;
        self.next = (this | (self.page - 1)) + 1;
        Some(this)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn commands_cover_a_request_and_cross_no_boundary(
            lba in 0_u64..1 << 40, blocks in 1_u64..10_000, blocks_max in 1_u32..3000, boundary in 0_u32..500,
        ) {
            let limits = Limits { blocks_max, boundary };
            let mut at = 0;
            while at < blocks {
                let count = limits.next(lba + at, blocks - at);
                prop_assert!(count >= 1 && count <= blocks_max);
                if boundary > 0 {
                    let first = (lba + at) / u64::from(boundary);
                    let last = (lba + at + u64::from(count) - 1) / u64::from(boundary);
                    prop_assert_eq!(first, last);
                }
                at += u64::from(count);
            }
            prop_assert_eq!(at, blocks);
        }

        #[test]
        fn pages_cover_a_piece(begin in 1_u64..1 << 40, length in 1_u64..1 << 20, shift in 12_u32..17) {
            let page = 1 << shift;
            let pages: Vec<u64> = Pages { next: begin, end: begin + length, page }.collect();
            prop_assert_eq!(pages[0], begin);
            for (index, address) in pages.iter().enumerate().skip(1) {
                prop_assert_eq!(*address, (begin / page + index as u64) * page);
            }
            prop_assert_eq!(pages.len() as u64, (begin + length - 1) / page - begin / page + 1);
        }
    }
}
