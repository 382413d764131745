//! Blocks of a few sizes from one region.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use millrace_sync::{Shared, ring};
use thiserror::Error;

use crate::cells::{ClassCells, Returner, Taker};
use crate::layout::{Layout, Placed};
use crate::mapping::Mapping;
use crate::{Buffer, Domain, DomainId, Iova, Pages, Region, RegionOptions, Result, SizeClass};

/// Which blocks an arena has, and of what memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArenaOptions {
    /// The sizes of blocks, each once, in any order.
    pub classes: Vec<SizeClass>,
    /// Of which pages the region is made.
    pub pages: Pages,
    /// The NUMA node that they must come from; anywhere if none.
    pub node: Option<u32>,
    /// Whether base pages are locked ([`RegionOptions::locked`]).
    pub locked: bool,
}

impl Default for ArenaOptions {
    /// 256 blocks of 4 KiB, 16 of 64 KiB, and 2 of 1 MiB: 4 MiB together. Twice that, which is what locking
    /// it and pinning it for a device count, fits into the 8 MiB that most systems let any user lock.
    fn default() -> Self {
        let class = |size, count| SizeClass { size, count };
        Self {
            classes: vec![class(4 << 10, 256), class(64 << 10, 16), class(1 << 20, 2)],
            pages: Pages::Auto,
            node: None,
            locked: true,
        }
    }
}

/// Reason for which no buffer is available.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum Exhausted {
    /// All blocks that are large enough are in use; one may be free later.
    #[error("all buffers that are large enough are in use")]
    InUse,
    /// No block is large enough, ever.
    #[error("buffers have {len_max} bytes at most")]
    TooLarge {
        /// The longest buffer that there may be.
        len_max: usize,
    },
}

/// Hands out [`Buffer`]s from memory that devices see.
///
/// A block begins at a multiple of its size or of the region's page size, whichever is less, in this process
/// as well as for the devices. As no system has pages below 4 KiB, a block of up to 4 KiB never straddles a
/// boundary of 4 KiB, and a larger one begins at one.
///
/// A clone is another handle to the same blocks. A handle belongs to one thread at a time: it is [`Send`] but
/// not [`Sync`]. The memory is unmapped and freed after the last handle and the last buffer are dropped.
///
/// ```compile_fail,E0277
/// fn shared<T: Sync>() {}
/// shared::<millrace_memory::Arena>();
/// ```
///
/// # Cost
/// Taking a buffer and dropping it cost two compare-and-exchanges, an increment and a decrement: about as much
/// as a small allocation. Threads that take blocks of one size contend for its ring, which costs several times as
/// much; where that matters each thread has an arena of its own. Only making or cloning an arena allocates.
pub struct Arena {
    /// Size classes, smallest blocks first.
    classes: Box<[Class]>,
    mapping: Shared<Mapping>,
}

/// This handle's ends of a class's ring.
#[derive(Clone)]
struct Class {
    placed: Placed,
    taker: RefCell<Taker>,
    returner: Returner,
    /// Bytes of one block of the class.
    capacity: u32,
    /// Identity of the domain, for buffers.
    domain: DomainId,
}

impl Arena {
    /// An arena on a region of its own, mapped in `domain`. [`Pages::Auto`] tries the next smaller page size if the
    /// domain has no addresses for huge pages, which begin at a multiple of their size, or may not lock that much
    /// memory.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) if the classes are inconsistent, and the errors of
    /// [`Region::new`] and [`Domain::map`].
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the arena keeps a share, which is taken once for each attempt"
    )]
    pub fn new(domain: Arc<dyn Domain>, options: &ArenaOptions) -> Result<Self> {
        let layout = Layout::new(&options.classes)?;
        let mapping = options.pages.first_that_serve(layout.size, |pages| {
            let options = RegionOptions {
                pages,
                node: options.node,
                locked: options.locked,
            };
            let region = Region::new(layout.size, &options)?;
            Mapping::new(Arc::clone(&domain), Arc::new(region))
        })?;
        let mapping = Shared::new(mapping);
        let classes = layout.placed.iter();
        Ok(Self {
            classes: classes
                .map(|placed| Class::new(*placed, &mapping))
                .collect(),
            mapping,
        })
    }

    /// A buffer of `len` bytes, in the smallest free block that it fits into. Its contents are undefined: those of the
    /// block's last use.
    ///
    /// # Errors
    /// [`Exhausted::InUse`] if no block is free now, [`Exhausted::TooLarge`] if no block is large enough.
    #[inline]
    pub fn try_buffer(&self, len: usize) -> std::result::Result<Buffer, Exhausted> {
        self.classes
            .iter()
            .filter(|class| len <= class.placed.class.size)
            .find_map(|class| class.try_buffer(len, &self.mapping))
            .ok_or_else(|| self.exhausted(len))
    }

    #[cold]
    fn exhausted(&self, len: usize) -> Exhausted {
        match self.len_max() {
            len_max if len > len_max => Exhausted::TooLarge { len_max },
            _ => Exhausted::InUse,
        }
    }

    /// How many bytes the longest buffer has.
    #[must_use]
    pub fn len_max(&self) -> usize {
        let largest = self.classes.last();
        largest.map_or(0, |class| class.placed.class.size)
    }

    /// DMA domain in which the memory is mapped.
    #[must_use]
    pub fn domain(&self) -> &Arc<dyn Domain> {
        self.mapping.domain()
    }

    /// Memory region in which all blocks lie.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        self.mapping.region()
    }

    /// Where the memory begins for the devices.
    #[must_use]
    pub fn iova(&self) -> Iova {
        self.mapping.iova()
    }
}

impl Clone for Arena {
    fn clone(&self) -> Self {
        Self {
            classes: self.classes.clone(),
            mapping: self.mapping.clone(),
        }
    }
}

impl fmt::Debug for Arena {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let classes = self.classes.iter().map(|class| class.placed.class);
        f.debug_struct("Arena")
            .field("classes", &classes.collect::<Vec<_>>())
            .field("mapping", &self.mapping)
            .finish()
    }
}

impl Class {
    /// A class all of whose blocks are free.
    fn new(placed: Placed, mapping: &Shared<Mapping>) -> Self {
        let count = placed.class.count;
        let capacity = usize::try_from(count).expect("the blocks lie in memory");
        let cells = ClassCells::new(capacity, mapping.clone());
        let (mut returner, taker) = ring::on_cells(cells);
        for block in 0..count {
            let pushed: std::result::Result<(), u32> = returner.try_push(block);
            assert!(pushed.is_ok(), "the ring has room for all blocks");
        }
        Self {
            placed,
            taker: RefCell::new(taker),
            returner,
            capacity: u32::try_from(placed.class.size).expect("blocks have 2 GiB at most"),
            domain: DomainId::of(mapping.domain()),
        }
    }

    #[inline]
    fn try_buffer(&self, len: usize, mapping: &Mapping) -> Option<Buffer> {
        let len = u32::try_from(len).ok()?;
        let block = self.taker.borrow_mut().try_pop()?;
        let size = self.placed.class.size;
        let offset = self.placed.offset + block as usize * size;
        debug_assert!(offset + size <= mapping.region().size());
        // SAFETY: the layout has put the block into the region (its invariant 1).
        let address = unsafe { mapping.region().address().add(offset) };
        let iova = Iova(mapping.iova().0 + offset as u64);
        // SAFETY: the block lies at this address as long as the ring exists, whose cells own a clone of the mapping;
        // its number was in the ring, so no other buffer has it (invariant 2 of the crate).
        Some(unsafe {
            Buffer::new(
                address,
                iova,
                self.capacity,
                len,
                block,
                self.domain,
                self.returner.clone(),
            )
        })
    }
}
