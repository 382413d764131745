//! One side: its waiting stores, its cache, and how early its loads may be.

use std::collections::BTreeMap;

use millrace_random::Random;
use millrace_window::{Attributes, Cacheability, Fence};

use crate::memory_history::{LINE_WORDS, Line, MemoryHistory};
use crate::pending::{Item, Pending};

/// A line in the cache.
#[derive(Clone, Copy, Debug)]
struct Cached {
    words: Line,
    is_changed: bool,
}

/// How often things happen that nobody asked for, in parts of [`Temper::WHOLE`]. A seed keeps one all along, so that
/// each of them never happens in some runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Temper {
    does_waiting: u64,
    does_all: u64,
    evicts: u64,
    fetches: u64,
    is_early: u64,
}

impl Temper {
    const WHOLE: u64 = 16;

    pub(crate) fn new(random: &mut Random) -> Self {
        let mut draw = || [0, 1, 4, 12][random.index(4)];
        Self {
            does_waiting: draw(),
            does_all: draw(),
            evicts: draw(),
            fetches: draw(),
            is_early: draw(),
        }
    }
}

/// One side of the window.
#[derive(Debug)]
pub(crate) struct Processor {
    attributes: Attributes,
    temper: Temper,
    pending: Pending,
    /// Lines that are to be dropped.
    invalidations: Vec<usize>,
    cache: BTreeMap<usize, Cached>,
    /// Loads are done no earlier than this.
    load_floor: u64,
    /// Invalidations are done no earlier than this.
    invalidation_floor: u64,
    /// The latest time at which a load was done.
    loaded: u64,
    /// When each word, or line if memory is flushed by hand, was last loaded or fetched.
    seen: BTreeMap<usize, u64>,
    is_dead: bool,
    /// After how many accesses it dies.
    accesses_left: Option<u64>,
}

impl Processor {
    pub(crate) const fn new(attributes: Attributes, temper: Temper) -> Self {
        Self {
            attributes,
            temper,
            pending: Pending::new(),
            invalidations: Vec::new(),
            cache: BTreeMap::new(),
            load_floor: 0,
            invalidation_floor: 0,
            loaded: 0,
            seen: BTreeMap::new(),
            is_dead: false,
            accesses_left: None,
        }
    }

    pub(crate) const fn is_dead(&self) -> bool {
        self.is_dead
    }

    pub(crate) const fn kill_after(&mut self, accesses: u64) {
        self.accesses_left = Some(accesses);
    }

    /// Counts an access; returns whether the side still lives.
    pub(crate) fn count(&mut self, memory: &mut MemoryHistory, random: &mut Random) -> bool {
        if self.accesses_left == Some(0) && !self.is_dead {
            self.die(memory, random);
        }
        self.accesses_left = self.accesses_left.map(|left| left.saturating_sub(1));
        !self.is_dead
    }

    fn die(&mut self, memory: &mut MemoryHistory, random: &mut Random) {
        // Some of what waited is done; if a process died and not the host, all that a processor owes.
        for _ in 0..random.below(20) {
            self.do_one(memory, random, false);
        }
        if random.chance(1, 2) {
            self.do_obliged(memory, random);
        }
        self.pending.clear();
        self.invalidations.clear();
        self.cache.clear();
        self.is_dead = true;
    }

    /// What happens by itself between two accesses.
    pub(crate) fn drift(&mut self, memory: &mut MemoryHistory, random: &mut Random) {
        if self.is_dead {
            return;
        }
        let temper = self.temper;
        while random.chance(temper.does_waiting, Temper::WHOLE) {
            self.do_one(memory, random, false);
        }
        if random.chance(temper.does_waiting, Temper::WHOLE) {
            self.invalidate_one(memory, random);
        }
        if random.chance(temper.evicts, Temper::WHOLE) && !self.cache.is_empty() {
            let index = random.index(self.cache.len());
            let line = self.cache.keys().nth(index).copied();
            if let Some(line) = line {
                self.drop_line(line, memory);
            }
        }
    }

    /// What happens by itself before the other side loads: now and then all that waits, the worst moment for it.
    pub(crate) fn rush(&mut self, memory: &mut MemoryHistory, random: &mut Random) {
        if !self.is_dead && random.chance(self.temper.does_all, Temper::WHOLE) {
            while self.do_one(memory, random, false) {}
        }
    }

    /// All that is done in finite time; whatever is loaded from now on is as new as now.
    pub(crate) fn pass_time(&mut self, memory: &mut MemoryHistory, random: &mut Random) {
        if !self.is_dead {
            self.do_obliged(memory, random);
        }
    }

    /// To be called when all sides have passed time.
    pub(crate) const fn catch_up(&mut self, memory: &MemoryHistory) {
        self.load_floor = memory.now();
    }

    pub(crate) fn store(&mut self, word: usize, value: u64) {
        self.pending.push(Item::Store { word, value });
    }

    pub(crate) fn write_back(&mut self, line: usize) {
        if self.attributes.is_flushed_by_hand() {
            self.pending.push(Item::WriteBack { line });
        }
    }

    pub(crate) fn invalidate(&mut self, line: usize) {
        if self.attributes.is_flushed_by_hand() {
            self.invalidations.push(line);
        }
    }

    pub(crate) fn fence(&mut self, fence: Fence, memory: &mut MemoryHistory, random: &mut Random) {
        match fence {
            Fence::Release => self.pending.push(Item::Release),
            Fence::Acquire if self.attributes.cacheability == Cacheability::WriteBack => {
                self.load_floor = self.load_floor.max(self.loaded);
            }
            Fence::Acquire => {}
            Fence::Drain => self.pending.push(Item::Drain),
            Fence::Full => {
                while self.do_one(memory, random, false) {}
                while self.invalidate_one(memory, random) {}
                self.load_floor = memory.now();
                self.invalidation_floor = memory.now();
            }
        }
    }

    pub(crate) fn load(&mut self, word: usize, memory: &MemoryHistory, random: &mut Random) -> u64 {
        if let Some(own) = self.pending.newest(word) {
            return own;
        }
        if self.attributes.is_flushed_by_hand() {
            return self.load_cached(word, memory, random);
        }
        let time = self.load_time(word, self.load_floor, memory, random);
        self.loaded = self.loaded.max(time);
        if self.attributes.cacheability == Cacheability::Uncached {
            self.load_floor = self.load_floor.max(time);
        }
        memory.load(word, time)
    }

    fn load_cached(&mut self, word: usize, memory: &MemoryHistory, random: &mut Random) -> u64 {
        let line = word / LINE_WORDS;
        if !self.cache.contains_key(&line) {
            self.fetch(line, self.load_floor, memory, random);
        }
        // The next one comes along, as it may.
        let next = line + 1;
        let is_asked = random.chance(self.temper.fetches, Temper::WHOLE);
        if is_asked && next * LINE_WORDS < memory.size() / 8 && !self.cache.contains_key(&next) {
            self.fetch(next, self.load_floor, memory, random);
        }
        self.loaded = memory.now();
        self.cache[&line].words[word % LINE_WORDS]
    }

    /// Some time from `floor` to now, not before what was seen at `place` already.
    fn load_time(
        &mut self,
        place: usize,
        floor: u64,
        memory: &MemoryHistory,
        random: &mut Random,
    ) -> u64 {
        let seen = self.seen.entry(place).or_default();
        let (first, now) = (floor.max(*seen), memory.now());
        let mut time = now;
        if random.chance(self.temper.is_early, Temper::WHOLE) {
            // As early as can be, or a little less.
            time = first + random.below(2) * random.below(now - first + 1);
        }
        *seen = time;
        time
    }

    fn fetch(&mut self, line: usize, floor: u64, memory: &MemoryHistory, random: &mut Random) {
        let time = self.load_time(line, floor, memory, random);
        let cached = Cached {
            words: memory.load_line(line, time),
            is_changed: false,
        };
        self.cache.insert(line, cached);
    }

    fn do_obliged(&mut self, memory: &mut MemoryHistory, random: &mut Random) {
        while self.do_one(memory, random, true) {}
    }

    /// Does one thing that waits, if there is one that may be done.
    fn do_one(
        &mut self,
        memory: &mut MemoryHistory,
        random: &mut Random,
        is_obliged: bool,
    ) -> bool {
        let choices = if is_obliged {
            self.pending.obliged(self.attributes)
        } else {
            self.pending.possible(self.attributes)
        };
        if choices.is_empty() {
            return false;
        }
        match self.pending.remove(choices[random.index(choices.len())]) {
            Item::Store { word, value } if self.attributes.is_flushed_by_hand() => {
                let line = word / LINE_WORDS;
                if !self.cache.contains_key(&line) {
                    self.fetch(line, memory.now(), memory, random);
                }
                let cached = self
                    .cache
                    .get_mut(&line)
                    .expect("it was fetched if need be");
                cached.words[word % LINE_WORDS] = value;
                cached.is_changed = true;
            }
            Item::Store { word, value } => memory.store(word, value),
            Item::WriteBack { line } => self.clean(line, memory),
            Item::Release | Item::Drain => {}
        }
        true
    }

    fn invalidate_one(&mut self, memory: &mut MemoryHistory, random: &mut Random) -> bool {
        if self.invalidations.is_empty() {
            return false;
        }
        let index = random.index(self.invalidations.len());
        let line = self.invalidations.swap_remove(index);
        self.drop_line(line, memory);
        // It may have been done a while ago, and the line been fetched again since.
        if random.chance(1, 2) {
            self.fetch(line, self.invalidation_floor, memory, random);
        }
        true
    }

    fn clean(&mut self, line: usize, memory: &mut MemoryHistory) {
        if let Some(cached) = self.cache.get_mut(&line).filter(|line| line.is_changed) {
            memory.store_line(line, &cached.words);
            cached.is_changed = false;
        }
    }

    fn drop_line(&mut self, line: usize, memory: &mut MemoryHistory) {
        self.clean(line, memory);
        self.cache.remove(&line);
    }
}
