//! Atomic batches of changes.

use crate::{BATCH_LEN_MAX, Error, ErrorKind, KEY_LEN_MAX, KeyRange, Result, VALUE_LEN_MAX};

/// One change of a [`Batch`], borrowed from its arena.
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
        /// The first key kept; without one, everything from `start` on is removed.
        end: Option<&'a [u8]>,
    },
}

/// The value of a counter kept by an engine: how many things there are and how many bytes they take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counter {
    /// The number of counted items; a delta may be negative.
    pub count: i64,
    /// The total size of the counted items, in bytes; a delta may be negative.
    pub bytes: i64,
}

impl Counter {
    /// The sum of two counters, field by field; an overflow wraps around.
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
        Ok(Self {
            count: i64::from_le_bytes(*count),
            bytes: i64::from_le_bytes(bytes),
        })
    }
}

/// The kind and lengths of an operation; its bytes lie in the batch's arena.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Put {
        key_len: usize,
        value_len: usize,
    },
    Delete {
        key_len: usize,
    },
    DeleteRange {
        start_len: usize,
        end_len: Option<usize>,
    },
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
    /// A batch with no changes; it allocates nothing until the first one.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends a change that stores `value` under `key`, replacing an older value. Lengths are
    /// checked by [`Batch::validate`].
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        self.arena.extend_from_slice(key);
        self.arena.extend_from_slice(value);
        self.shapes.push(Shape::Put {
            key_len: key.len(),
            value_len: value.len(),
        });
    }

    /// Appends a change that removes `key`; a key that is absent is no error.
    pub fn delete(&mut self, key: &[u8]) {
        self.arena.extend_from_slice(key);
        self.shapes.push(Shape::Delete { key_len: key.len() });
    }

    /// Appends a change that removes the keys of `range`; an empty range appends nothing.
    pub fn delete_range(&mut self, range: &KeyRange) {
        if range.is_empty() {
            return;
        }
        let end = range.end.as_deref();
        self.arena.extend_from_slice(&range.start);
        self.arena.extend_from_slice(end.unwrap_or_default());
        let shape = Shape::DeleteRange {
            start_len: range.start.len(),
            end_len: end.map(<[u8]>::len),
        };
        self.shapes.push(shape);
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

    /// Whether the batch changes neither keys nor counters.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.shapes.is_empty() && self.counters.is_empty()
    }

    /// How many changes of keys and ranges the batch holds, additions to counters not among them.
    #[must_use]
    pub fn operation_count(&self) -> usize {
        self.shapes.len()
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
        self.counters
            .iter()
            .map(|(key, delta)| (key.as_slice(), *delta))
    }

    /// The changes of keys and ranges, in the order in which they were appended.
    pub fn operations(&self) -> impl Iterator<Item = Operation<'_>> {
        let mut rest = self.arena.as_slice();
        let mut take = move |len: usize| {
            let (head, tail) = rest.split_at(len);
            rest = tail;
            head
        };
        self.shapes.iter().map(move |shape| match *shape {
            Shape::Put { key_len, value_len } => Operation::Put {
                key: take(key_len),
                value: take(value_len),
            },
            Shape::Delete { key_len } => Operation::Delete { key: take(key_len) },
            Shape::DeleteRange { start_len, end_len } => Operation::DeleteRange {
                start: take(start_len),
                end: end_len.map(&mut take),
            },
        })
    }

    /// Checks the lengths of one key and its value.
    ///
    /// # Errors
    /// As [`Batch::validate`].
    pub fn validate_put(key: &[u8], value: &[u8]) -> Result<()> {
        check_len("key", key.len(), KEY_LEN_MAX)?;
        check_len("value", value.len(), VALUE_LEN_MAX)
    }

    /// Checks the lengths of all keys and values and of the whole.
    ///
    /// # Errors
    /// [`ErrorKind::TooLarge`] says what is over [`KEY_LEN_MAX`], [`VALUE_LEN_MAX`] or
    /// [`BATCH_LEN_MAX`].
    pub fn validate(&self) -> Result<()> {
        for shape in &self.shapes {
            let (key_len, value_len) = match *shape {
                Shape::Put { key_len, value_len } => (key_len, value_len),
                Shape::Delete { key_len } => (key_len, 0),
                Shape::DeleteRange { start_len, end_len } => {
                    (start_len.max(end_len.unwrap_or(0)), 0)
                }
            };
            check_len("key", key_len, KEY_LEN_MAX)?;
            check_len("value", value_len, VALUE_LEN_MAX)?;
        }
        for (key, _) in &self.counters {
            check_len("counter's key", key.len(), KEY_LEN_MAX)?;
        }
        check_len("batch", self.arena.len(), BATCH_LEN_MAX)
    }
}

fn check_len(what: &str, len: usize, len_max: usize) -> Result<()> {
    if len <= len_max {
        return Ok(());
    }
    let context = format!("a {what} of {len} bytes is over the limit of {len_max}");
    Err(Error::new(ErrorKind::TooLarge, context))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_come_back_as_they_were_put() {
        let mut batch = Batch::new();
        batch.put(b"a", b"1");
        batch.delete(b"bb");
        batch.delete_range(&KeyRange::new(*b"c", *b"dd"));
        batch.delete_range(&KeyRange {
            start: b"e".to_vec(),
            end: None,
        });
        batch.delete_range(&KeyRange::new(*b"z", *b"y"));
        batch.put(b"", b"");
        let expected = [
            Operation::Put {
                key: b"a",
                value: b"1",
            },
            Operation::Delete { key: b"bb" },
            Operation::DeleteRange {
                start: b"c",
                end: Some(b"dd"),
            },
            Operation::DeleteRange {
                start: b"e",
                end: None,
            },
            Operation::Put {
                key: b"",
                value: b"",
            },
        ];
        assert!(batch.operations().eq(expected));
        assert_eq!(batch.operation_count(), expected.len());
    }

    #[test]
    fn deltas_of_one_counter_are_summed() {
        let mut batch = Batch::new();
        batch.add(
            b"c",
            Counter {
                count: 1,
                bytes: 10,
            },
        );
        batch.add(b"d", Counter { count: 5, bytes: 0 });
        batch.add(
            b"c",
            Counter {
                count: -2,
                bytes: 7,
            },
        );
        let expected = [
            (
                &b"c"[..],
                Counter {
                    count: -1,
                    bytes: 17,
                },
            ),
            (&b"d"[..], Counter { count: 5, bytes: 0 }),
        ];
        assert!(batch.counters().eq(expected));
        batch.clear();
        assert!(batch.is_empty());
    }

    #[test]
    fn lengths_are_limited() {
        let refused = |batch: &Batch| batch.validate().map_err(|error| error.kind());
        let mut batch = Batch::new();
        batch.put(&vec![0; KEY_LEN_MAX], &vec![0; VALUE_LEN_MAX]);
        assert_eq!(refused(&batch), Ok(()));
        batch.put(&vec![0; KEY_LEN_MAX + 1], b"");
        assert_eq!(refused(&batch), Err(ErrorKind::TooLarge));
        batch.clear();
        batch.put(b"k", &vec![0; VALUE_LEN_MAX + 1]);
        assert_eq!(refused(&batch), Err(ErrorKind::TooLarge));
        batch.clear();
        batch.delete_range(&KeyRange::new(*b"a", vec![0xFF; KEY_LEN_MAX + 1]));
        assert_eq!(refused(&batch), Err(ErrorKind::TooLarge));
        batch.clear();
        batch.add(&vec![0; KEY_LEN_MAX + 1], Counter::default());
        assert_eq!(refused(&batch), Err(ErrorKind::TooLarge));
    }

    #[test]
    fn counters_survive_their_stored_form() {
        let counter = Counter {
            count: -3,
            bytes: i64::MAX,
        };
        let stored = counter.to_bytes();
        assert_eq!(
            Counter::from_bytes(&stored).expect("16 bytes are a counter"),
            counter
        );
        let error = Counter::from_bytes(&stored[1..]).expect_err("15 bytes are none");
        assert_eq!(error.kind(), ErrorKind::Corruption);
    }
}
