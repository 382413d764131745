//! The bytes of a direction.

use millrace_random::Random;

/// Messages that follow from a seed, one after the other.
#[derive(Debug)]
pub(crate) struct Messages {
    random: Random,
    /// The one at hand.
    bytes: Vec<u8>,
    /// How many of its bytes are done.
    done: usize,
    /// How many messages are done.
    count: u64,
}

impl Messages {
    pub(crate) fn new(seed: u64) -> Self {
        let mut messages = Self {
            random: Random::new(seed),
            bytes: Vec::new(),
            done: 0,
            count: 0,
        };
        messages.draw();
        messages
    }

    /// What is left of the message at hand, at least a byte.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.bytes[self.done..]
    }

    /// So many of these bytes are done.
    pub(crate) fn take(&mut self, count: usize) {
        self.done += count;
        if self.done == self.bytes.len() {
            self.count += 1;
            self.draw();
        }
    }

    /// Whether these are the next bytes; if so they are done.
    pub(crate) fn check(&mut self, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let expected = self.rest();
            let (part, rest) = bytes.split_at(bytes.len().min(expected.len()));
            if part != &expected[..part.len()] {
                return false;
            }
            self.take(part.len());
            bytes = rest;
        }
        true
    }

    /// How many messages are done.
    pub(crate) const fn count(&self) -> u64 {
        self.count
    }

    /// How many bytes of the next one are done.
    pub(crate) const fn partly(&self) -> usize {
        self.done
    }

    /// Most are short; some need several slots.
    fn draw(&mut self) {
        let bound = match self.random.index(16) {
            0 => 20_000,
            1..4 => 2000,
            _ => 120,
        };
        let size = 1 + self.random.index(bound);
        self.bytes.resize(size, 0);
        self.random.fill(&mut self.bytes);
        self.done = 0;
    }
}
