//! A sort that spills to scratch space when memory runs short.

use std::fmt;

use bson::{Document, RawDocumentBuf};
use millrace_value::stage_memory::StageMemory;
use millrace_value::{Error, ErrorCode, Operation, Result, size};

use crate::sort::pattern::{SortPattern, SortSource};
use crate::spill::{Merge, ScratchFactory, Spill};

/// What can be sorted: something that can be written to scratch space and read back.
pub trait SortItem: Sized {
    /// About how much memory the item takes.
    fn memory_bytes(&self) -> usize;

    /// The item as bytes.
    ///
    /// # Errors
    /// `InvalidBSON` when the item cannot be encoded.
    fn to_bytes(&self) -> Result<Vec<u8>>;

    /// The item that [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// `InvalidBSON` when `bytes` were not written by it.
    fn from_bytes(bytes: Vec<u8>) -> Result<Self>;
}

impl SortItem for Document {
    fn memory_bytes(&self) -> usize {
        size::document_bytes(self)
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.to_vec()?)
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Ok(Self::try_from(RawDocumentBuf::from_bytes(bytes)?)?)
    }
}

impl SortItem for RawDocumentBuf {
    fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.as_bytes().len()
    }

    fn to_bytes(&self) -> Result<Vec<u8>> {
        Ok(self.as_bytes().to_vec())
    }

    fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Ok(Self::from_bytes(bytes)?)
    }
}

/// An item and what it is sorted by.
#[derive(Debug)]
struct Keyed<T> {
    key: Vec<u8>,
    /// The number of the push: makes the sort stable where the algorithm is not.
    sequence: u64,
    item: T,
}

impl<T> Keyed<T> {
    fn order(&self) -> (&[u8], u64) {
        (&self.key, self.sequence)
    }
}

impl<T: SortItem> Keyed<T> {
    fn memory_bytes(&self) -> usize {
        size_of::<u64>() + size_of::<Vec<u8>>() + self.key.len() + self.item.memory_bytes()
    }
}

/// A stable sort of items by keys given with them.
///
/// With a limit *n* it keeps about *2n* items at most: once there are that many, all but the first *n*
/// are dropped, and a later item that cannot be among the first *n* is refused at once. What does not
/// fit in memory is written to scratch space as sorted runs, which are merged at the end.
pub struct ExternalSort<T> {
    limit: Option<usize>,
    scratch: ScratchFactory,
    allow_disk_use: bool,
    items: Vec<Keyed<T>>,
    bytes: usize,
    memory: StageMemory,
    sequence: u64,
    /// The key of an item that has `limit` items before it or is the last of them; an item whose key
    /// is not less cannot be in the result.
    bound: Option<Vec<u8>>,
    spill: Option<Spill>,
}

impl<T> fmt::Debug for ExternalSort<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ExternalSort")
            .field("limit", &self.limit)
            .field("items", &self.items.len())
            .field("bytes", &self.bytes)
            .field("spill", &self.spill)
            .finish_non_exhaustive()
    }
}

impl<T: SortItem> ExternalSort<T> {
    /// A sort of which only the first `limit` items are wanted, if given.
    #[must_use]
    pub fn new(limit: Option<usize>, scratch: ScratchFactory, allow_disk_use: bool) -> Self {
        Self {
            limit,
            scratch,
            allow_disk_use,
            items: Vec::new(),
            bytes: 0,
            memory: StageMemory::default(),
            sequence: 0,
            bound: None,
            spill: None,
        }
    }

    /// Whether an item with this key can still be in the result. Asking before the item is made saves
    /// making it.
    #[must_use]
    pub fn accepts(&self, key: &[u8]) -> bool {
        self.limit != Some(0) && self.bound.as_deref().is_none_or(|bound| key < bound)
    }

    /// Adds an item.
    ///
    /// # Errors
    /// `QueryExceededMemoryLimitNoDiskUseAllowed`; a failure of the engine.
    pub fn push(&mut self, operation: &Operation, key: Vec<u8>, item: T) -> Result<()> {
        operation.check()?;
        if !self.accepts(&key) {
            return Ok(());
        }
        let keyed = Keyed {
            key,
            sequence: self.sequence,
            item,
        };
        self.sequence += 1;
        self.bytes += keyed.memory_bytes();
        self.items.push(keyed);
        if let Some(limit) = self.limit {
            if self.items.len() >= limit.saturating_mul(2) {
                self.keep_first(limit);
            }
        }
        if !self.memory.allows(operation, self.bytes) {
            if let Some(limit) = self.limit {
                self.keep_first(limit);
            }
            if !self.memory.allows(operation, self.bytes) {
                self.spill_run(operation)?;
            }
        }
        Ok(())
    }

    /// The bytes of memory that the sort holds now.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.bytes
    }

    /// Sorts what was added.
    ///
    /// # Errors
    /// A failure of the engine.
    pub fn finish(mut self, operation: &Operation) -> Result<Sorted<T>> {
        operation.check()?;
        if self.spill.is_some() && !self.items.is_empty() {
            self.spill_run(operation)?;
        }
        let source = match self.spill {
            Some(spill) => Source::Merged(spill.merge()?),
            None => {
                self.sort_items();
                Source::Memory {
                    items: self.items.into_iter(),
                    bytes: self.bytes,
                    _memory: self.memory,
                }
            }
        };
        Ok(Sorted {
            source,
            remaining: self.limit,
        })
    }

    fn sort_items(&mut self) {
        self.items
            .sort_unstable_by(|a, b| a.order().cmp(&b.order()));
    }

    fn keep_first(&mut self, limit: usize) {
        if limit == 0 || self.items.len() <= limit {
            return;
        }
        self.items
            .select_nth_unstable_by(limit - 1, |a, b| a.order().cmp(&b.order()));
        self.items.truncate(limit);
        self.bytes = self.items.iter().map(Keyed::memory_bytes).sum();
        self.bound = Some(self.items[limit - 1].key.clone());
    }

    fn spill_run(&mut self, operation: &Operation) -> Result<()> {
        if !self.allow_disk_use {
            return Err(Error::new(
                ErrorCode::QueryExceededMemoryLimitNoDiskUseAllowed,
                format!(
                    "Sort exceeded memory limit of {} bytes, but did not opt in to external sorting.",
                    operation.limits().stage_memory_bytes
                ),
            ));
        }
        self.sort_items();
        let spill = match &mut self.spill {
            Some(spill) => spill,
            none => none.insert(Spill::new((self.scratch)()?)),
        };
        let mut run = spill.start_run();
        for keyed in self.items.drain(..) {
            run.append(operation, &keyed.key, &keyed.item.to_bytes()?)?;
        }
        self.bytes = 0;
        self.memory.release();
        Ok(())
    }
}

/// The sorted items, in memory or merged from disk as they are read.
#[derive(Debug)]
pub struct Sorted<T> {
    source: Source<T>,
    /// How many more may come out; no limit if none.
    remaining: Option<usize>,
}

#[derive(Debug)]
enum Source<T> {
    Memory {
        items: std::vec::IntoIter<Keyed<T>>,
        bytes: usize,
        /// Held until the last item is gone.
        _memory: StageMemory,
    },
    Merged(Merge),
}

impl<T: SortItem> Sorted<T> {
    /// The next item; none at the end.
    ///
    /// # Errors
    /// A failure of the engine; the operation's interruption.
    pub fn next(&mut self, operation: &Operation) -> Result<Option<T>> {
        Ok(self.next_keyed(operation)?.map(|(_, item)| item))
    }

    /// The next item and its key.
    ///
    /// # Errors
    /// As [`next`](Self::next).
    pub fn next_keyed(&mut self, operation: &Operation) -> Result<Option<(Vec<u8>, T)>> {
        operation.check()?;
        match &mut self.remaining {
            Some(0) => return Ok(None),
            Some(remaining) => *remaining -= 1,
            None => {}
        }
        match &mut self.source {
            Source::Memory { items, bytes, .. } => Ok(items.next().map(|keyed| {
                *bytes = bytes.saturating_sub(keyed.memory_bytes());
                (keyed.key, keyed.item)
            })),
            Source::Merged(merge) => match merge.next(operation)? {
                Some(entry) => Ok(Some((entry.key, T::from_bytes(entry.payload)?))),
                None => Ok(None),
            },
        }
    }

    /// The bytes of memory that the items not yet read hold.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        match &self.source {
            Source::Memory { bytes, .. } => *bytes,
            Source::Merged(merge) => merge.memory_bytes(),
        }
    }
}

/// A stable sort of documents by a [`SortPattern`].
#[derive(Debug)]
pub struct Sorter<T> {
    pattern: SortPattern,
    sort: ExternalSort<T>,
}

impl<T: SortItem + SortSource> Sorter<T> {
    /// A sort by `pattern` of which only the first `limit` documents are wanted, if given. It holds what
    /// the limits of the operations allow it and writes the rest to what `scratch` gives.
    #[must_use]
    pub fn new(
        pattern: SortPattern,
        limit: Option<usize>,
        scratch: ScratchFactory,
        allow_disk_use: bool,
    ) -> Self {
        Self {
            pattern,
            sort: ExternalSort::new(limit, scratch, allow_disk_use),
        }
    }

    /// Adds a document.
    ///
    /// # Errors
    /// As [`SortSource::append_key`] and [`ExternalSort::push`].
    pub fn push(&mut self, operation: &Operation, document: T) -> Result<()> {
        let key = self.pattern.key(&document)?;
        self.sort.push(operation, key, document)
    }

    /// The bytes of memory that the sort holds now.
    #[must_use]
    pub const fn memory_bytes(&self) -> usize {
        self.sort.memory_bytes()
    }

    /// Sorts what was added.
    ///
    /// # Errors
    /// A failure of the engine.
    pub fn finish(self, operation: &Operation) -> Result<Sorted<T>> {
        self.sort.finish(operation)
    }
}
