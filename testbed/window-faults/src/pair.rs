//! Both sides.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use millrace_random::Random;
use millrace_window::{Attributes, Fence, LINE, Medium, WORD};

use crate::memory_history::MemoryHistory;
use crate::processor::{Processor, Temper};

/// Name of one of the two sides of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The one.
    A,
    /// The other.
    B,
}

/// Memory that two sides share, and what lies between it and them.
#[derive(Clone, Debug)]
pub struct Pair {
    world: Arc<Mutex<World>>,
    attributes: Attributes,
    size: usize,
}

#[derive(Debug)]
struct World {
    memory: MemoryHistory,
    sides: [Processor; 2],
    random: Random,
}

/// A window as one side of a [`Pair`] reaches it.
#[derive(Clone, Debug)]
pub struct FaultyMedium {
    pair: Pair,
    side: Side,
}

impl Pair {
    /// `size` bytes of zeros, rounded up to whole lines, which both sides reach by mappings of these attributes.
    #[must_use]
    pub fn new(size: usize, attributes: Attributes, seed: u64) -> Self {
        let size = size.next_multiple_of(LINE);
        let mut random = Random::new(seed);
        let sides = std::array::from_fn(|_| Processor::new(attributes, Temper::new(&mut random)));
        let memory = MemoryHistory::new(size / WORD);
        Self {
            world: Arc::new(Mutex::new(World {
                memory,
                sides,
                random,
            })),
            attributes,
            size,
        }
    }

    /// The window as `side` reaches it.
    #[must_use]
    pub fn medium(&self, side: Side) -> FaultyMedium {
        FaultyMedium {
            pair: self.clone(),
            side,
        }
    }

    /// Lets so much time pass that all is done which hardware does in finite time, and nothing else. What waits
    /// for a fence that never came still waits.
    pub fn pass_time(&self) {
        let mut world = self.lock();
        let World {
            memory,
            sides,
            random,
        } = &mut *world;
        for side in &mut *sides {
            side.pass_time(memory, random);
        }
        for side in sides {
            side.catch_up(memory);
        }
    }

    /// Has a side die after so many more of its accesses: its stores go nowhere from then on, and its loads
    /// give zeros.
    pub fn kill(&self, side: Side, accesses: u64) {
        self.lock().sides[side as usize].kill_after(accesses);
    }

    /// Whether `side` has died of a [`Pair::kill`]: at the first access beyond the allowed number, not before.
    #[must_use]
    pub fn is_dead(&self, side: Side) -> bool {
        self.lock().sides[side as usize].is_dead()
    }

    fn lock(&self) -> MutexGuard<'_, World> {
        // A test that panics must not hide behind the lock that it held.
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FaultyMedium {
    /// Does `access` unless the side is dead, after whatever happens by itself.
    fn access<T: Default>(
        &self,
        access: impl FnOnce(&mut Processor, &mut MemoryHistory, &mut Random) -> T,
    ) -> T {
        let mut world = self.pair.lock();
        let World {
            memory,
            sides,
            random,
        } = &mut *world;
        for side in &mut *sides {
            side.drift(memory, random);
        }
        let side = &mut sides[self.side as usize];
        if side.count(memory, random) {
            access(side, memory, random)
        } else {
            T::default()
        }
    }

    fn rush_other(&self) {
        let mut world = self.pair.lock();
        let World {
            memory,
            sides,
            random,
        } = &mut *world;
        sides[1 - self.side as usize].rush(memory, random);
    }

    fn word(&self, offset: usize) -> usize {
        assert!(
            offset % WORD == 0 && offset < self.pair.size,
            "what is accessed was checked by a half to lie within"
        );
        offset / WORD
    }

    fn lines(&self, bytes: &Range<usize>) -> Range<usize> {
        assert!(
            bytes.end <= self.pair.size,
            "what is accessed was checked by a half to lie within"
        );
        bytes.start / LINE..bytes.end.div_ceil(LINE)
    }
}

impl Medium for FaultyMedium {
    fn size(&self) -> usize {
        self.pair.size
    }

    fn attributes(&self) -> Attributes {
        self.pair.attributes
    }

    fn load(&self, offset: usize) -> u64 {
        let word = self.word(offset);
        self.rush_other();
        self.access(|side, memory, random| side.load(word, memory, random))
    }

    fn store(&self, offset: usize, value: u64) {
        let word = self.word(offset);
        self.access(|side, _, _| side.store(word, value));
    }

    fn write_back(&self, bytes: Range<usize>) {
        for line in self.lines(&bytes) {
            self.access(|side, _, _| side.write_back(line));
        }
    }

    fn invalidate(&self, bytes: Range<usize>) {
        for line in self.lines(&bytes) {
            self.access(|side, _, _| side.invalidate(line));
        }
    }

    fn fence(&self, fence: Fence) {
        self.access(|side, memory, random| side.fence(fence, memory, random));
    }
}
