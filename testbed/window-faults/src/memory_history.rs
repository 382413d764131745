//! Memory with the history of every word.

use millrace_window::{LINE, WORD};

/// Words in a line.
pub(crate) const LINE_WORDS: usize = LINE / WORD;

/// What a line holds.
pub(crate) type Line = [u64; LINE_WORDS];

/// Memory that records the value of each word at each time. Words and lines are counted from its start.
#[derive(Debug)]
pub(crate) struct MemoryHistory {
    /// For each word when it was changed and to what, the oldest first.
    words: Vec<Vec<(u64, u64)>>,
    /// How many changes there were.
    now: u64,
}

impl MemoryHistory {
    pub(crate) fn new(words: usize) -> Self {
        Self {
            words: vec![vec![(0, 0)]; words],
            now: 0,
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.words.len() * WORD
    }

    pub(crate) const fn now(&self) -> u64 {
        self.now
    }

    pub(crate) fn store(&mut self, word: usize, value: u64) {
        self.now += 1;
        self.words[word].push((self.now, value));
    }

    /// All words of a line at once.
    pub(crate) fn store_line(&mut self, line: usize, values: &Line) {
        self.now += 1;
        let first = line * LINE_WORDS;
        for (word, value) in self.words[first..].iter_mut().zip(values) {
            word.push((self.now, *value));
        }
    }

    /// What a word held at `time`.
    pub(crate) fn load(&self, word: usize, time: u64) -> u64 {
        let versions = &self.words[word];
        let after = versions.partition_point(|(since, _)| *since <= time);
        versions[after - 1].1
    }

    pub(crate) fn load_line(&self, line: usize, time: u64) -> Line {
        std::array::from_fn(|index| self.load(line * LINE_WORDS + index, time))
    }
}
