//! Registers behind a base address.
//!
//! # Ordering
//! Registers are little-endian, as PCI has them; hosts of the other kind are not supported. Loads and
//! stores of registers are volatile and keep their order among each other. Against memory they have none
//! by themselves: [`Register::store_released`] makes what was written to memory before visible to the
//! device first, and [`crate::barrier`] has the rest.

use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use crate::{Error, ErrorKind, Result, barrier};

/// Registers that are reached by calls: a file descriptor's `pread` and `pwrite`, messages to a server, a
/// model in this process.
pub trait RegisterFile: fmt::Debug + Send + Sync {
    /// Reads 4 bytes at a multiple of 4.
    ///
    /// # Errors
    /// If the provider fails.
    fn load(&self, offset: u64) -> Result<u32>;

    /// Writes 4 bytes at a multiple of 4.
    ///
    /// # Errors
    /// If the provider fails.
    fn store(&self, offset: u64, value: u32) -> Result<()>;

    /// Reads 8 bytes at a multiple of 8; as two words, the lower first, unless the provider can do better.
    ///
    /// # Errors
    /// If the provider fails.
    fn load_long(&self, offset: u64) -> Result<u64> {
        let low = self.load(offset)?;
        let high = self.load(offset + 4)?;
        Ok(u64::from(high) << 32 | u64::from(low))
    }

    /// Writes 8 bytes at a multiple of 8; as [`RegisterFile::load_long`].
    ///
    /// # Errors
    /// If the provider fails.
    fn store_long(&self, offset: u64, value: u64) -> Result<()> {
        let bytes = value.to_le_bytes();
        let [a, b, c, d, e, f, g, h] = bytes;
        self.store(offset, u32::from_le_bytes([a, b, c, d]))?;
        self.store(offset + 4, u32::from_le_bytes([e, f, g, h]))
    }
}

/// A part of a [`Bar`] that lies in this process's address space.
#[derive(Debug)]
pub struct MappedArea {
    /// Which offsets of the bar it is.
    range: Range<u64>,
    first: NonNull<u8>,
    /// Keeps the mapping; dropped after the area.
    _mapping: Arc<dyn fmt::Debug + Send + Sync>,
}

// SAFETY: the memory is device memory (or shared with another process): it is never referenced, only loaded
// and stored by volatile accesses of aligned words, which the hardware makes whole.
unsafe impl Send for MappedArea {}

// SAFETY: all accesses are volatile accesses of whole words of device memory; two threads may interleave them.
unsafe impl Sync for MappedArea {}

impl MappedArea {
    /// The area that `mapping` keeps mapped at `first`.
    ///
    /// # Safety
    /// `range.end - range.start` bytes from `first` on are mapped for reading and writing as long as a clone of
    /// `mapping` exists, and no reference to them is ever made. Both `first` and `range.start` are multiples of 8.
    #[must_use]
    pub unsafe fn new(
        range: Range<u64>,
        first: NonNull<u8>,
        mapping: Arc<dyn fmt::Debug + Send + Sync>,
    ) -> Self {
        Self {
            range,
            first,
            _mapping: mapping,
        }
    }

    /// Where the `size` bytes at `offset` of the bar are, if this area has them.
    fn find(&self, offset: u64, size: u64) -> Option<NonNull<u8>> {
        let within = offset >= self.range.start && offset.checked_add(size)? <= self.range.end;
        if !within {
            return None;
        }
        let distance = usize::try_from(offset - self.range.start).ok()?;
        // SAFETY: the offset lies in the area, which is mapped as a whole (`MappedArea::new`).
        Some(unsafe { self.first.add(distance) })
    }
}

/// The registers behind one base address. Parts of it may be mapped; all of it can be reached by calls.
#[derive(Debug)]
pub struct Bar {
    size: u64,
    areas: Vec<Arc<MappedArea>>,
    file: Arc<dyn RegisterFile>,
}

impl Bar {
    /// `size` bytes of registers, reached through the areas where there are any and through `file`
    /// elsewhere.
    #[must_use]
    pub fn new(size: u64, areas: Vec<MappedArea>, file: Arc<dyn RegisterFile>) -> Self {
        Self {
            size,
            areas: areas.into_iter().map(Arc::new).collect(),
            file,
        }
    }

    /// How many bytes of registers there are.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// How many of the bytes are mapped.
    #[must_use]
    pub fn mapped(&self) -> u64 {
        self.areas
            .iter()
            .map(|area| area.range.end - area.range.start)
            .sum()
    }

    /// The register of 4 bytes at `offset`.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`] if `offset` is beyond the end or not a multiple of 4.
    pub fn register(&self, offset: u64) -> Result<Register> {
        self.check(offset, 4)?;
        let found = self
            .areas
            .iter()
            .find_map(|area| area.find(offset, 4).map(|word| (word, area)));
        let place = match found {
            Some((word, area)) => Place::Mapped {
                word: word.cast(),
                _area: Arc::clone(area),
            },
            None => Place::Called {
                file: Arc::clone(&self.file),
                offset,
            },
        };
        Ok(Register { place })
    }

    /// Reads the 8 bytes at `offset`, a multiple of 8: with a single access where the bar is mapped.
    ///
    /// # Errors
    /// [`ErrorKind::OutOfRange`], or the provider's error.
    pub fn load_long(&self, offset: u64) -> Result<u64> {
        self.check(offset, 8)?;
        let mapped = self.areas.iter().find_map(|area| area.find(offset, 8));
        let Some(word) = mapped else {
            return self.file.load_long(offset);
        };
        // SAFETY: `find` gives memory that is mapped while the area lives, which `self` keeps; the offset
        // is a multiple of 8 and so is the area's start.
        let value = unsafe { word.cast::<u64>().read_volatile() };
        barrier::after_register_load();
        Ok(value)
    }

    /// Writes the 8 bytes at `offset`, a multiple of 8; what was written to memory before is visible first.
    ///
    /// # Errors
    /// As [`Bar::load_long`].
    pub fn store_long(&self, offset: u64, value: u64) -> Result<()> {
        self.check(offset, 8)?;
        barrier::before_register_store();
        let mapped = self.areas.iter().find_map(|area| area.find(offset, 8));
        let Some(word) = mapped else {
            return self.file.store_long(offset, value);
        };
        // SAFETY: as in `load_long`.
        unsafe { word.cast::<u64>().write_volatile(value) };
        Ok(())
    }

    /// Address of the bytes of `range` in this process, if one mapped area contains them all, and the area that keeps
    /// them mapped. Registers and these bytes are the same memory: the caller orders accesses made in both ways.
    #[must_use]
    pub fn mapped_bytes(&self, range: &Range<u64>) -> Option<(NonNull<u8>, Arc<MappedArea>)> {
        let size = range.end.checked_sub(range.start)?;
        self.areas.iter().find_map(|area| {
            let first = area.find(range.start, size)?;
            Some((first, Arc::clone(area)))
        })
    }

    fn check(&self, offset: u64, size: u64) -> Result<()> {
        let end = offset.checked_add(size);
        if offset % size == 0 && end.is_some_and(|end| end <= self.size) {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::OutOfRange,
            format!(
                "register of {size} bytes at {offset:#x} of {:#x}",
                self.size
            ),
        ))
    }
}

/// Where a register is.
#[derive(Debug)]
enum Place {
    /// A word mapped into this process.
    Mapped {
        word: NonNull<u32>,
        _area: Arc<MappedArea>,
    },
    /// A word accessed by calls of the provider.
    Called {
        file: Arc<dyn RegisterFile>,
        offset: u64,
    },
}

/// A register of 4 bytes, found once and then used without a look-up.
#[derive(Debug)]
pub struct Register {
    place: Place,
}

// SAFETY: the register holds its `MappedArea`, so the word stays mapped in whichever thread uses it.
unsafe impl Send for Register {}

// SAFETY: accesses are volatile and of one word; concurrent stores of two threads leave one of the two values.
unsafe impl Sync for Register {}

impl Register {
    /// Reads the register. All ones may mean that the device was removed.
    ///
    /// # Errors
    /// The provider's error; never for a mapped register.
    #[inline]
    pub fn load(&self) -> Result<u32> {
        match &self.place {
            Place::Mapped { word, .. } => {
                // SAFETY: the word is aligned, and mapped while the area exists, which `self` holds.
                let value = unsafe { word.read_volatile() };
                barrier::after_register_load();
                Ok(value)
            }
            Place::Called { file, offset } => load_by_call(&**file, *offset),
        }
    }

    /// Writes the register, ordered after all earlier writes to memory: a doorbell.
    ///
    /// # Errors
    /// The provider's error; never for a mapped register.
    #[inline]
    pub fn store_released(&self, value: u32) -> Result<()> {
        barrier::before_register_store();
        match &self.place {
            Place::Mapped { word, .. } => {
                // SAFETY: as in `load`.
                unsafe { word.write_volatile(value) };
                Ok(())
            }
            Place::Called { file, offset } => store_by_call(&**file, *offset, value),
        }
    }
}

/// A function of its own, so that code with mapped registers needs no stack frame for the call.
#[cold]
#[inline(never)]
fn load_by_call(file: &dyn RegisterFile, offset: u64) -> Result<u32> {
    file.load(offset)
}

/// As [`load_by_call`].
#[cold]
#[inline(never)]
fn store_by_call(file: &dyn RegisterFile, offset: u64, value: u32) -> Result<()> {
    file.store(offset, value)
}
