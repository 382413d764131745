//! The host's memory, as the controller reaches it.
//!
//! This module alone has unsafe code. What it relies on:
//!
//! 1. The caller of [`Mapping::new`] hands over a share of what keeps its bytes mapped; the
//!    share is dropped when the mapping is taken out, which waits for a step that is under way.
//! 2. Nothing here makes a reference to the host's bytes. Queue entries and doorbells are atomic words.
//!    Data is copied as a device copies it: a host that touches a buffer whose command runs reads or leaves
//!    garbage, and breaks its own rules.

mod doorbells;
mod mapped;

pub(crate) use doorbells::Doorbells;
pub(crate) use mapped::MappedFile;

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard};

use millrace_memory::{self as memory, Region};

use crate::random::Random;

/// An access by the controller that the IOMMU would have stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DmaFault {
    /// The first device address of the access.
    pub address: u64,
    /// Length of the whole access in bytes.
    pub length: u64,
    /// Whether the controller wanted to write.
    pub write: bool,
}

/// A range of device addresses and the memory behind it.
pub(crate) struct Mapping {
    address: u64,
    size: u64,
    first: NonNull<u8>,
    access: Access,
    _keep: Arc<dyn Any + Send + Sync>,
}

/// What the controller may do with a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Access {
    const ALL: Self = Self {
        read: true,
        write: true,
    };

    const fn allows(self, write: bool) -> bool {
        if write { self.write } else { self.read }
    }
}

// SAFETY: the memory is shared with a device by its nature; see the module's invariant 2.
unsafe impl Send for Mapping {}

// SAFETY: a mapping is an address range whose bytes are accessed by atomics and copies only (invariant 2).
unsafe impl Sync for Mapping {}

impl fmt::Debug for Mapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.address, self.size)
    }
}

impl Mapping {
    /// # Safety
    /// `size` bytes from `first` on are mapped for what `access` allows as long as a share of `keep` lives,
    /// and nobody holds references to them while the controller runs commands on them.
    pub(crate) unsafe fn new(
        address: u64,
        size: u64,
        first: NonNull<u8>,
        access: Access,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Self {
        Self {
            address,
            size,
            first,
            access,
            _keep: keep,
        }
    }

    /// A mapping of `file`.
    pub(crate) fn of_file(address: u64, access: Access, file: &Arc<MappedFile>) -> Self {
        let keep: Arc<dyn Any + Send + Sync> = Arc::<MappedFile>::clone(file);
        // SAFETY: a `MappedFile` keeps its bytes mapped until it is dropped and lends none of them.
        unsafe { Self::new(address, file.size() as u64, file.first(), access, keep) }
    }

    fn last(&self) -> u64 {
        self.address + (self.size - 1)
    }
}

/// All mappings, ordered by address.
#[derive(Debug, Default)]
pub(crate) struct Table {
    mappings: Vec<Mapping>,
}

impl Table {
    /// The longest piece of `length` bytes at `address` that lies in one mapping, which may be accessed so.
    #[inline]
    fn piece(&self, address: u64, length: u64, write: bool) -> Option<(NonNull<u8>, u64)> {
        let after = self
            .mappings
            .partition_point(|mapping| mapping.address <= address);
        let mapping = &self.mappings[after.checked_sub(1)?];
        let distance = address - mapping.address;
        if distance >= mapping.size || !mapping.access.allows(write) {
            return None;
        }
        let offset = usize::try_from(distance).ok()?;
        // SAFETY: the offset lies in the mapping, whose bytes are one allocation (invariant 1).
        let first = unsafe { mapping.first.add(offset) };
        Some((first, length.min(mapping.size - distance)))
    }

    /// Calls `copy` with each piece of the range and its distance from the range's start.
    #[inline]
    fn pieces(
        &self,
        address: u64,
        length: usize,
        write: bool,
        mut copy: impl FnMut(NonNull<u8>, usize, usize),
    ) -> Result<(), DmaFault> {
        let mut done = 0;
        while done < length {
            let rest = (length - done) as u64;
            let piece = address
                .checked_add(done as u64)
                .and_then(|at| self.piece(at, rest, write));
            let Some((first, size)) = piece else {
                return Err(DmaFault {
                    address,
                    length: length as u64,
                    write,
                });
            };
            let size = usize::try_from(size).expect("not longer than what was asked for");
            copy(first, done, size);
            done += size;
        }
        Ok(())
    }

    /// Copies from the host.
    #[inline]
    pub(crate) fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), DmaFault> {
        self.pieces(address, bytes.len(), false, |first, done, size| {
            let target = bytes[done..done + size].as_mut_ptr();
            // SAFETY: `first` has `size` mapped bytes (`piece`), the target is a slice of as many, and the
            // host's memory is never ours (invariant 2).
            unsafe { ptr::copy_nonoverlapping(first.as_ptr(), target, size) };
        })
    }

    /// Copies to the host.
    #[inline]
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), DmaFault> {
        self.pieces(address, bytes.len(), true, |first, done, size| {
            let source = bytes[done..done + size].as_ptr();
            // SAFETY: as in `read`.
            unsafe { ptr::copy_nonoverlapping(source, first.as_ptr(), size) };
        })
    }

    /// Fills with a byte at the host.
    pub(crate) fn fill(&self, address: u64, length: usize, byte: u8) -> Result<(), DmaFault> {
        self.pieces(address, length, true, |first, _, size| {
            // SAFETY: as in `read`.
            unsafe { ptr::write_bytes(first.as_ptr(), byte, size) };
        })
    }

    /// `size` bytes that lie in one mapping, at a multiple of 8.
    #[inline]
    fn words(&self, address: u64, size: u64, write: bool) -> Result<NonNull<u8>, DmaFault> {
        let fault = DmaFault {
            address,
            length: size,
            write,
        };
        let (first, length) = self.piece(address, size, write).ok_or(fault)?;
        if length < size || first.as_ptr() as usize % 8 != 0 {
            return Err(fault);
        }
        Ok(first)
    }

    /// Reads a submission queue entry. The doorbell that announced it was acquired before.
    #[inline(always)]
    pub(crate) fn read_entry(&self, address: u64) -> Result<[u32; 16], DmaFault> {
        let first = self.words(address, 64, false)?.cast::<AtomicU64>();
        let mut words = [0; 16];
        for (index, pair) in words.chunks_exact_mut(2).enumerate() {
            // SAFETY: the entry's 64 bytes are mapped (`words`), so its eighth word is.
            let place = unsafe { first.add(index) };
            // SAFETY: `words` checked the alignment; invariant 2 forbids references other than to atomics.
            let word = unsafe { place.as_ref() }.load(Ordering::Relaxed);
            pair[0] = (word & 0xffff_ffff) as u32;
            pair[1] = (word >> 32) as u32;
        }
        Ok(words)
    }

    /// Writes a completion queue entry; its second half, which has the phase, last.
    #[inline]
    pub(crate) fn write_entry(&self, address: u64, entry: [u64; 2]) -> Result<(), DmaFault> {
        let first = self.words(address, 16, true)?.cast::<AtomicU64>();
        // SAFETY: the 16 bytes are mapped and aligned (`words`); only atomics refer to them (invariant 2).
        unsafe { first.as_ref() }.store(entry[0], Ordering::Relaxed);
        // SAFETY: the second word lies within the 16 bytes that `words` returned.
        let second = unsafe { first.add(1) };
        // SAFETY: the word is mapped and aligned, and only atomics refer to it (invariant 2). The release pairs with the host's acquire of the phase: it publishes the first
        // half and the data.
        unsafe { second.as_ref() }.store(entry[1], Ordering::Release);
        Ok(())
    }

    /// Reads a shadow doorbell.
    pub(crate) fn read_shadow(&self, address: u64) -> Result<u32, DmaFault> {
        let place = self.shadow(address, false)?;
        // SAFETY: the 4 bytes are mapped and aligned (`shadow`); only atomics refer to them. The acquire
        // pairs with the host's release of the entries it announces.
        Ok(unsafe { place.as_ref() }.load(Ordering::Acquire))
    }

    /// Writes an event index, and orders it before the reads that follow.
    pub(crate) fn write_event_index(&self, address: u64, value: u32) -> Result<(), DmaFault> {
        let place = self.shadow(address, true)?;
        // SAFETY: as in `read_shadow`.
        unsafe { place.as_ref() }.store(value, Ordering::Relaxed);
        // Pairs with the host's fence between its store of a shadow doorbell and its load of the index.
        fence(Ordering::SeqCst);
        Ok(())
    }

    fn shadow(&self, address: u64, write: bool) -> Result<NonNull<AtomicU32>, DmaFault> {
        let fault = DmaFault {
            address,
            length: 4,
            write,
        };
        let (first, length) = self.piece(address, 4, write).ok_or(fault)?;
        if length < 4 || first.as_ptr() as usize % 4 != 0 {
            return Err(fault);
        }
        Ok(first.cast())
    }

    /// The range of the mapping that begins at `address`, and has this size if one is named.
    pub(crate) fn range(&self, address: u64, size: Option<u64>) -> Option<Range<u64>> {
        let found = self.mappings.iter().find(|mapping| {
            mapping.address == address && size.is_none_or(|size| size == mapping.size)
        })?;
        // The very last byte of the address space is no loss here.
        Some(address..address.saturating_add(found.size))
    }

    /// Adds a mapping unless it overlaps another.
    fn insert(&mut self, mapping: Mapping) -> bool {
        let at = self
            .mappings
            .partition_point(|other| other.address < mapping.address);
        let before = at.checked_sub(1).map(|index| self.mappings[index].last());
        let after = self.mappings.get(at).map(|next| next.address);
        if before.is_some_and(|last| last >= mapping.address)
            || after.is_some_and(|next| next <= mapping.last())
        {
            return false;
        }
        self.mappings.insert(at, mapping);
        true
    }
}

/// What the controller may reach, and whether it may at all.
#[derive(Debug)]
pub(crate) struct Memory {
    table: RwLock<Table>,
    placement: Mutex<Placement>,
    bus_master: AtomicBool,
}

/// Where the next region goes.
#[derive(Debug)]
struct Placement {
    random: Random,
    next: u64,
}

/// Regions are placed at multiples of their page size or of this, the largest memory page that a host may
/// choose for CC.MPS by default; at odd ones, so that nothing rests on a better alignment.
const ALIGNMENT: u64 = 64 << 10;

impl Memory {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed, 1);
        // Above 4 GiB; far up; where windows of IBM's PAPR begin.
        let bases = [1 << 33, 1 << 46, 0x0800_0000_0000_0000];
        let base: u64 = bases[random.index(bases.len())];
        Self {
            table: RwLock::default(),
            placement: Mutex::new(Placement { random, next: base }),
            bus_master: AtomicBool::new(false),
        }
    }

    /// What is mapped now; mappings neither come nor go while the guard lives.
    #[inline]
    pub(crate) fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_bus_master(&self) -> bool {
        self.bus_master.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bus_master(&self, on: bool) {
        self.bus_master.store(on, Ordering::Relaxed);
    }

    /// An address for `size` bytes, apart from all others so that an overrun meets nothing.
    fn place(&self, size: u64, alignment: u64) -> Option<u64> {
        let mut placement = self
            .placement
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let gap = 1 + placement.random.below(1 << 8);
        let number = placement.next.div_ceil(alignment).checked_add(gap)? | 1;
        let address = number.checked_mul(alignment)?;
        placement.next = address.checked_add(size)?;
        Some(address)
    }

    /// Maps a region where there is room; returns the address.
    pub(crate) fn map_region(&self, region: &Arc<Region>) -> memory::Result<u64> {
        let size = region.size() as u64;
        let alignment = ALIGNMENT.max(region.page_size() as u64);
        let address = self.place(size, alignment).ok_or_else(|| {
            memory::Error::new(memory::ErrorKind::NoAddresses, format!("{size} bytes"))
        })?;
        let keep: Arc<dyn Any + Send + Sync> = Arc::<Region>::clone(region);
        // SAFETY: a region's bytes stay mapped as long as a clone exists; the owners of its buffers
        // leave them alone while a device has them.
        let mapping = unsafe { Mapping::new(address, size, region.address(), Access::ALL, keep) };
        let inserted = self.insert(mapping);
        debug_assert!(inserted, "places do not overlap");
        Ok(address)
    }

    /// Adds a mapping; refused if it is empty, wraps or overlaps another.
    pub(crate) fn insert(&self, mapping: Mapping) -> bool {
        if mapping.size == 0 || mapping.address.checked_add(mapping.size - 1).is_none() {
            return false;
        }
        self.table
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(mapping)
    }

    /// Takes out the mapping that begins at `address`; returns whether there was one. The controller does
    /// not reach it any more when this returns.
    pub(crate) fn remove(&self, address: u64, size: Option<u64>) -> bool {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let found = table.mappings.iter().position(|mapping| {
            mapping.address == address && size.is_none_or(|size| size == mapping.size)
        });
        let removed = found.map(|index| table.mappings.remove(index));
        drop(table);
        removed.is_some()
    }

    /// Takes out everything.
    pub(crate) fn clear(&self) {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let mappings = std::mem::take(&mut table.mappings);
        drop(table);
        drop(mappings);
    }
}
