//! Atomic batches of changes.

use crate::{Error, ErrorKind, KEY_LEN_MAX, KeyRange, Result, VALUE_LEN_MAX};

/// One change of a [`Batch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation<'a> {
    /// Store a value under a key.
    Put {
        /// The key.
        key: &'a [u8],
        /// Its new value.
        value: &'a [u8],
    },
    /// Remove a key, if it is there.
    Delete {
        /// The key.
        key: &'a [u8],
    },
    /// Remove every key from `start` up to but not including `end`.
    DeleteRange {
        /// The first key removed.
        start: &'a [u8],
        /// The first key kept.
        end: &'a [u8],
    },
}

/// The value of a counter kept by an engine: how many things there are and how many bytes they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// How many.
    pub count: i64,
    /// How many bytes.
    pub bytes: i64,
}

impl Counter {
    /// The sum of two counters.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            count: self.count.wrapping_add(other.count),
            bytes: self.bytes.wrapping_add(other.bytes),
        }
    }

    /// The stored form: count and bytes, little-endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.count.to_le_bytes());
        bytes[8..].copy_from_slice(&self.bytes.to_le_bytes());
        bytes
    }

    /// Reads the stored form.
    ///
    /// # Errors
    /// [`ErrorKind::Corruption`] when `bytes` is not 16 long.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        let corrupt = || Error::new(ErrorKind::Corruption, "a counter is not 16 bytes long");
        let (count, bytes) = bytes.split_first_chunk::<8>().ok_or_else(corrupt)?;
        let bytes: [u8; 8] = bytes.try_into().map_err(|_| corrupt())?;
        Ok(Self { count: i64::from_le_bytes(*count), bytes: i64::from_le_bytes(bytes) })
    }
}

/// The kind and lengths of an operation; its bytes lie in the batch's arena.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Put { key_len: usize, value_len: usize },
    Delete { key_len: usize },
    DeleteRange { start_len: usize, end_len: usize },
}

/// A list of changes that are applied in their order, as a whole or not at all. Keys and values are
/// copied into one arena: a batch costs two allocations however many changes it holds.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    arena: Vec<u8>,
    shapes: Vec<Shape>,
    counters: Vec<(Vec<u8>, Counter)>,
}

impl Batch {
    /// An empty batch.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Stores `value` under `key`.
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.shapes.push(Shape::Put { key_len: key.len(), value_len: value.len() });
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: &[u8]) {
        self.arena.extend_from_slice(key);
        self.shapes.push(Shape::Delete { key_len: key.len() });
    }

    /// Removes the keys of `range`. A range without an end is removed up to the longest key of 0xFF.
    pub fn delete_range(&mut self, range: &KeyRange) {
        if range.is_empty() {
            return;
        }
        let last = [0xFF; 64];
        let end = range.end.as_deref().unwrap_or(&last);
        self.arena.extend_from_slice(&range.start);
        self.arena.extend_from_slice(end);
        self.shapes.push(Shape::DeleteRange { start_len: range.start.len(), end_len: end.len() });
    }

    /// Adds `delta` to the counter under `key`. The counter's sum changes with the batch, atomically;
    /// [`Engine::counter`](crate::Engine::counter) reads it. Counters need no guard: additions commute.
    pub fn add(&mut self, key: &[u8], delta: Counter) {
        if let Some((_, sum)) = self.counters.iter_mut().find(|(k, _)| k == key) {
            *sum = sum.plus(delta);
        } else {
            self.counters.push((key.to_vec(), delta));
        }
    }

    /// Whether the batch changes nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty() && self.counters.is_empty()
    }

    /// How many bytes of keys and values the batch holds.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.arena.len()
    }

    /// Empties the batch, keeping its memory.
    pub fn clear(&mut self) {
        self.arena.clear();
        self.shapes.clear();
        self.counters.clear();
    }

    /// The additions to counters, one for each key.
    pub fn counters(&self) -> impl Iterator<Item = (&[u8], Counter)> {
        self.counters.iter().map(|(key, delta)| (key.as_slice(), *delta))
    }

    /// The changes in their order.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut rest = self.arena.as_slice();
        let mut take = move |len: usize| {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            head
        };
        self.shapes.iter().map(move |shape| match *shape {
            Shape::Put { key_len, value_len } => {
                Operation::Put { key: take(key_len), value: take(value_len) }
            }
            Shape::Delete { key_len } => Operation::Delete { key: take(key_len) },
            Shape::DeleteRange { start_len, end_len } => {
                Operation::DeleteRange { start: take(start_len), end: take(end_len) }
            }
        })
    }

    /// Checks the lengths of all keys and values.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] names the first that is over [`KEY_LEN_MAX`] or [`VALUE_LEN_MAX`].
    pub fn validate(&self) -> Result<()> {
        for shape in &self.shapes {
            let (key_len, value_len) = match *shape {
                Shape::Put { key_len, value_len } => (key_len, value_len),
                Shape::Delete { key_len } => (key_len, 0),
                Shape::DeleteRange { start_len, end_len } => (start_len.max(end_len), 0),
            };
            if key_len > KEY_LEN_MAX {
                let context = format!("a key of {key_len} bytes is over the limit of {KEY_LEN_MAX}");
                return Err(Error::new(ErrorKind::TooLarge, context));
            }
            if value_len > VALUE_LEN_MAX {
                let context =
                    format!("a value of {value_len} bytes is over the limit of {VALUE_LEN_MAX}");
                return Err(Error::new(ErrorKind::TooLarge, context));
            }
        }
        Ok(())
    }
}
