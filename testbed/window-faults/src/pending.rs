//! What a side has asked for and what is not done yet.

use millrace_window::{Attributes, Cacheability};

use crate::memory_history::LINE_WORDS;

/// One thing asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    Store { word: usize, value: u64 },
    WriteBack { line: usize },
    Release,
    Drain,
}

impl Item {
    const fn is_fence(self) -> bool {
        matches!(self, Self::Release | Self::Drain)
    }

    const fn line(self) -> Option<usize> {
        match self {
            Self::Store { word, .. } => Some(word / LINE_WORDS),
            Self::WriteBack { line } => Some(line),
            Self::Release | Self::Drain => None,
        }
    }
}

/// In the order in which it was asked for.
#[derive(Debug)]
pub(crate) struct Pending(Vec<Item>);

impl Pending {
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn push(&mut self, item: Item) {
        // A fence with nothing before it orders nothing.
        if !(item.is_fence() && self.0.is_empty()) {
            self.0.push(item);
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// The newest store to a word that waits.
    pub(crate) fn newest(&self, word: usize) -> Option<u64> {
        self.0.iter().rev().find_map(|item| match *item {
            Item::Store { word: other, value } if other == word => Some(value),
            _ => None,
        })
    }

    /// Takes out an item that was found by one of the two below.
    pub(crate) fn remove(&mut self, index: usize) -> Item {
        let item = self.0.remove(index);
        let fences = self.0.iter().take_while(|item| item.is_fence()).count();
        self.0.drain(..fences);
        item
    }

    /// What may be done next.
    pub(crate) fn possible(&self, attributes: Attributes) -> Vec<usize> {
        self.free(self.0.len(), attributes)
    }

    /// What may be done next, of that which will be done in finite time.
    pub(crate) fn obliged(&self, attributes: Attributes) -> Vec<usize> {
        let drained = self.0.iter().rposition(|item| *item == Item::Drain);
        let drained = drained.unwrap_or(0);
        let mut free = self.free(self.0.len(), attributes);
        free.retain(|&index| {
            let is_cached_store = attributes.cacheability == Cacheability::WriteBack
                && matches!(self.0[index], Item::Store { .. });
            index < drained || is_cached_store || attributes.leaves_by_itself()
        });
        free
    }

    /// Those of the first `end` items that no earlier one holds back.
    fn free(&self, end: usize, attributes: Attributes) -> Vec<usize> {
        let is_free = |&index: &usize| {
            !self.0[index].is_fence()
                && !(0..index).any(|earlier| self.holds(earlier, index, attributes))
        };
        (0..end).filter(is_free).collect()
    }

    /// Whether the item at `earlier` must be done before that at `later`.
    fn holds(&self, earlier: usize, later: usize, attributes: Attributes) -> bool {
        let (first, second) = (self.0[earlier], self.0[later]);
        if first.is_fence() {
            return false;
        }
        let between = &self.0[earlier..later];
        let is_store = |item| matches!(item, Item::Store { .. });
        if between.contains(&Item::Drain) {
            return true;
        }
        match attributes.cacheability {
            Cacheability::Uncached => return true,
            Cacheability::WriteCombining => {}
            Cacheability::WriteBack => {
                let is_released = between.contains(&Item::Release);
                if is_released && is_store(first) && is_store(second) {
                    return true;
                }
            }
        }
        match (first, second) {
            (Item::Store { word, .. }, Item::Store { word: other, .. }) => word == other,
            (_, Item::WriteBack { .. }) => first.line() == second.line(),
            _ => false,
        }
    }
}
