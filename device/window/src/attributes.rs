//! What is known of a mapping.

/// How the processor treats the addresses of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cacheability {
    /// Cached like ordinary memory.
    WriteBack,
    /// Not cached; stores are combined in buffers, which are written out when they are full, on a fence, or at any
    /// other time, in any order. Arm: Normal non-cacheable.
    WriteCombining,
    /// Not cached; each load and store goes out by itself. Arm: Device. POWER: caching inhibited, guarded.
    Uncached,
}

/// Which accesses of a window are cheap enough to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Both: the memory is as near to this side as to the other.
    Both,
    /// The bytes lie at the peer: a store is posted, a load waits for a round trip over the bus. Only
    /// outgoing halves.
    Stores,
    /// The bytes lie here, and the peer stores to them: only incoming halves.
    Loads,
}

/// Attributes of a mapping. The caller that makes a window guarantees them: attributes stronger than the machine's lose
/// data, but never memory safety.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Attributes {
    /// Cache policy of the processor for these addresses.
    pub cacheability: Cacheability,
    /// Whether the hardware keeps the caches of both sides coherent. Meaningless for memory that is not cached.
    pub coherent: bool,
    /// Direction of the cheap accesses.
    pub direction: Direction,
}

impl Attributes {
    /// Memory of one host: cached, coherent, near to both.
    pub const SHARED_MEMORY: Self = Self {
        cacheability: Cacheability::WriteBack,
        coherent: true,
        direction: Direction::Both,
    };

    /// Whether lines must be written back and invalidated by hand.
    #[must_use]
    pub const fn is_flushed_by_hand(self) -> bool {
        matches!(self.cacheability, Cacheability::WriteBack) && !self.coherent
    }

    /// Whether a store reaches the peer eventually without a fence.
    #[must_use]
    pub const fn leaves_by_itself(self) -> bool {
        match self.cacheability {
            Cacheability::WriteBack => self.coherent,
            Cacheability::WriteCombining => false,
            Cacheability::Uncached => true,
        }
    }

    /// Whether both sides access the same memory through coherent caches, so that a fence here orders what the peer
    /// sees.
    #[must_use]
    pub const fn is_one_memory(self) -> bool {
        matches!(self.cacheability, Cacheability::WriteBack)
            && self.coherent
            && matches!(self.direction, Direction::Both)
    }
}
