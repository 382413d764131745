//! Intrusive queues of connections.

/// A FIFO list of table indexes. Each index has one link, so it is in at most one list of the same links; nothing is
/// allocated.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    head: u32,
    tail: u32,
    len: u32,
}

/// The successor of each index in its list.
#[derive(Debug)]
pub(super) struct Links(Vec<u32>);

impl Links {
    pub(super) fn new(places: u32) -> Self {
        Self((0..places).map(|_| 0).collect())
    }
}

impl Queue {
    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn push(&mut self, links: &mut Links, index: u32) {
        if self.len == 0 {
            self.head = index;
        } else {
            links.0[self.tail as usize] = index;
        }
        self.tail = index;
        self.len += 1;
    }

    pub(super) fn pop(&mut self, links: &Links) -> Option<u32> {
        let index = self.head;
        self.len = self.len.checked_sub(1)?;
        self.head = links.0[index as usize];
        Some(index)
    }
}
