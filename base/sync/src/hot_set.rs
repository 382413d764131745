//! The connections that a thread polls.

/// A key with a small number: an index into the caller's table of connections.
pub trait HotKey: Copy + PartialEq {
    /// The index, unique among the keys of a set and less than 2^32 - 1. A set uses 24 bytes or less for each index up
    /// to the highest one.
    fn index(self) -> usize;
}

impl HotKey for usize {
    fn index(self) -> usize {
        self
    }
}

impl HotKey for u32 {
    fn index(self) -> usize {
        self as usize
    }
}

/// The keys of the *hot* connections, those that each pass polls; the others are *armed*: their peers notify. The
/// caller inserts a connection that is used, and removes one that it has armed, so the cost of a pass follows the
/// connections in use.
///
/// The keys form a circle. A pass visits the front and rotates as often as there are keys; it may remove the visited key
/// at once, and it may end early: the next pass begins where it ended. So between two visits of a key each other key is
/// visited once, unless it is removed.
///
/// # Cost
/// All calls take constant time. Only [`HotSet::insert`] allocates, and only for an index above all earlier ones.
///
/// # Invariants
/// 1. A node is in the circle exactly if it has a key; `len` is the number of these nodes.
/// 2. `nodes[key.index()]` has the key, for all keys in the set.
/// 3. `front` is a node of the circle, or [`NONE`] if there is none.
///
/// ```
/// use millrace_sync::HotSet;
///
/// let mut hot = HotSet::new();
/// assert!(hot.insert(7_u32) && hot.insert(3) && !hot.insert(7));
/// for _ in 0..hot.len() {
///     let Some(key) = hot.front() else { break };
///     hot.rotate();
///     if key == 7 {
///         hot.remove(key);
///     }
/// }
/// assert_eq!(hot.iter().collect::<Vec<_>>(), [3]);
/// ```
#[derive(Clone, Debug)]
pub struct HotSet<K> {
    nodes: Vec<Node<K>>,
    front: u32,
    len: usize,
}

#[derive(Clone, Copy, Debug)]
struct Node<K> {
    key: Option<K>,
    next: u32,
    previous: u32,
}

/// The index of no node.
const NONE: u32 = u32::MAX;

impl<K> Default for HotSet<K> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K> HotSet<K> {
    /// An empty set, which allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            nodes: Vec::new(),
            front: NONE,
            len: 0,
        }
    }

    /// The number of keys in the set; at most 2^32 - 1.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the set holds no key at all.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<K: HotKey> HotSet<K> {
    /// Whether the key is in the set.
    #[must_use]
    pub fn contains(&self, key: K) -> bool {
        let node = self.nodes.get(key.index());
        node.is_some_and(|node| node.key == Some(key))
    }

    /// Puts a key at the back; false if it is in the set already. A key with the same index (of an earlier connection)
    /// leaves its place to the new one.
    ///
    /// # Panics
    /// If the index is 2^32 - 1 or more.
    pub fn insert(&mut self, key: K) -> bool {
        let index = key.index();
        if index >= self.nodes.len() {
            let empty = Node {
                key: None,
                next: NONE,
                previous: NONE,
            };
            self.nodes.resize(index + 1, empty);
        }
        if let Some(present) = &mut self.nodes[index].key {
            return std::mem::replace(present, key) != key;
        }
        let new = u32::try_from(index).ok().filter(|index| *index != NONE);
        let new = new.expect("an index is less than 2^32 - 1");
        if self.front == NONE {
            self.front = new;
        }
        // The back is before the front; alone, the node is both.
        let front = self.front;
        let back = if front == new {
            new
        } else {
            self.nodes[front as usize].previous
        };
        self.nodes[index] = Node {
            key: Some(key),
            next: front,
            previous: back,
        };
        self.nodes[back as usize].next = new;
        self.nodes[front as usize].previous = new;
        self.len += 1;
        true
    }

    /// Removes a key; false if it is not in the set.
    pub fn remove(&mut self, key: K) -> bool {
        if !self.contains(key) {
            return false;
        }
        let node = &mut self.nodes[key.index()];
        node.key = None;
        let (next, previous) = (node.next, node.previous);
        self.nodes[previous as usize].next = next;
        self.nodes[next as usize].previous = previous;
        self.len -= 1;
        if self.len == 0 {
            self.front = NONE;
        } else if self.front as usize == key.index() {
            self.front = next;
        }
        true
    }

    /// The key to be visited next; `None` if the set is empty.
    #[must_use]
    #[inline]
    pub fn front(&self) -> Option<K> {
        self.nodes.get(self.front as usize)?.key
    }

    /// Puts the front to the back.
    #[inline]
    pub fn rotate(&mut self) {
        if let Some(node) = self.nodes.get(self.front as usize) {
            self.front = node.next;
        }
    }

    /// All keys, from the front to the back.
    pub fn iter(&self) -> impl Iterator<Item = K> + '_ {
        let mut next = self.front;
        (0..self.len).filter_map(move |_| {
            let node = self.nodes.get(next as usize)?;
            next = node.next;
            node.key
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    /// A key with the generation of its slot.
    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Key(usize, u8);

    impl HotKey for Key {
        fn index(self) -> usize {
            self.0
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum Call {
        Insert(Key),
        Remove(Key),
        Rotate,
    }

    fn call() -> impl Strategy<Value = Call> {
        let key = || (0..12_usize, 0..3_u8).prop_map(|(index, generation)| Key(index, generation));
        prop_oneof![
            4 => key().prop_map(Call::Insert),
            3 => key().prop_map(Call::Remove),
            3 => Just(Call::Rotate),
        ]
    }

    /// The same by a queue; false if nothing changed.
    fn apply(model: &mut VecDeque<Key>, call: Call) -> bool {
        match call {
            Call::Insert(key) => match model.iter_mut().find(|other| other.0 == key.0) {
                Some(other) => std::mem::replace(other, key) != key,
                None => {
                    model.push_back(key);
                    true
                }
            },
            Call::Remove(key) => {
                let place = model.iter().position(|other| *other == key);
                place.is_some_and(|place| model.remove(place).is_some())
            }
            Call::Rotate => {
                let front = model.pop_front();
                model.extend(front);
                true
            }
        }
    }

    proptest! {
        #[test]
        fn a_set_behaves_as_a_queue_without_duplicates(
            calls in prop::collection::vec(call(), 0..200),
        ) {
            let (mut set, mut model) = (HotSet::new(), VecDeque::new());
            for call in calls {
                let changed = match call {
                    Call::Insert(key) => set.insert(key),
                    Call::Remove(key) => set.remove(key),
                    Call::Rotate => {
                        set.rotate();
                        true
                    }
                };
                prop_assert_eq!(changed, apply(&mut model, call));
                prop_assert_eq!(set.len(), model.len());
                prop_assert_eq!(set.is_empty(), model.is_empty());
                prop_assert_eq!(set.front(), model.front().copied());
                prop_assert_eq!(set.iter().collect::<Vec<_>>(), Vec::from(model.clone()));
                for index in 0..12 {
                    for generation in 0..3 {
                        let key = Key(index, generation);
                        prop_assert_eq!(set.contains(key), model.contains(&key));
                    }
                }
            }
        }
    }
}
