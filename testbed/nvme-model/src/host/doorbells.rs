//! Doorbells (base specification 1.4, sections 3.1.24 and 3.1.25).

use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use super::MappedFile;

/// What a doorbell holds when it was not written since it was last looked at. No host may write it: bits
/// 31:16 are reserved.
const SILENT: u32 = u32::MAX;

/// In this process each doorbell has a cache line of its own.
const CELL_WORDS: usize = 16;

/// The doorbells. A host rings by one store; the controller takes values out.
#[derive(Debug)]
pub(crate) struct Doorbells {
    first: NonNull<AtomicU32>,
    /// From one doorbell to the next, in words.
    stride: usize,
    /// Whether a queue is behind each of them.
    live: Box<[AtomicBool]>,
    /// The memory, if the host rings by storing there.
    file: Option<Arc<MappedFile>>,
    /// What keeps the words.
    _memory: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the words are atomics, in memory that the value keeps.
unsafe impl Send for Doorbells {}

// SAFETY: doorbells are accessed by atomic accesses only, from any thread.
unsafe impl Sync for Doorbells {}

impl Doorbells {
    /// `count` doorbells in this process.
    pub(crate) fn new(count: usize) -> Self {
        let cells: Arc<[AtomicU32]> = (0..count * CELL_WORDS)
            .map(|_| AtomicU32::new(SILENT))
            .collect();
        Self {
            first: NonNull::new(cells.as_ptr().cast_mut()).expect("a slice is somewhere"),
            stride: CELL_WORDS,
            live: (0..count).map(|_| AtomicBool::new(false)).collect(),
            file: None,
            _memory: Arc::new(cells),
        }
    }

    /// `count` doorbells in a file that the host maps, `stride` words apart. The file must be that long.
    pub(crate) fn shared(count: usize, stride: usize, file: &Arc<MappedFile>) -> Self {
        assert!(file.size() >= count * stride * 4, "the doorbells lie in it");
        let doorbells = Self {
            first: file.first().cast(),
            stride,
            live: (0..count).map(|_| AtomicBool::new(false)).collect(),
            file: Some(Arc::clone(file)),
            _memory: Arc::<MappedFile>::clone(file),
        };
        doorbells.clear();
        doorbells
    }

    #[inline]
    fn cell(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.live.len(), "a doorbell's index was checked");
        // SAFETY: both constructors made at least `live.len()` cells of `stride` words.
        let place = unsafe { self.first.add(index * self.stride) };
        // SAFETY: the word is aligned, lives as long as `self`, and is only ever used as an atomic.
        unsafe { place.as_ref() }
    }

    /// Rings one from the host; false if no queue is behind it.
    #[inline]
    pub(crate) fn ring(&self, index: u64, value: u32) -> bool {
        let Ok(index) = usize::try_from(index) else {
            return false;
        };
        let live = self
            .live
            .get(index)
            .is_some_and(|live| live.load(Ordering::Relaxed));
        if live {
            // Pairs with the acquire in `take`: the entries that are announced.
            self.cell(index).store(value, Ordering::Release);
        }
        live
    }

    /// What was written since the last call.
    #[inline]
    pub(crate) fn take(&self, index: usize) -> Option<u32> {
        let cell = self.cell(index);
        if cell.load(Ordering::Relaxed) == SILENT {
            return None;
        }
        Some(cell.swap(SILENT, Ordering::Acquire))
    }

    /// The same, and leaves it there.
    pub(crate) fn peek(&self, index: usize) -> Option<u32> {
        let value = self.cell(index).load(Ordering::Acquire);
        (value != SILENT).then_some(value)
    }

    /// A queue is there from now on, or is gone. Returns whether the doorbell was written before.
    pub(crate) fn set_live(&self, index: usize, live: bool) -> bool {
        let rung = self.take(index).is_some();
        self.live[index].store(live, Ordering::Relaxed);
        rung
    }

    /// The memory, if the host rings by storing there.
    pub(crate) const fn file(&self) -> Option<&Arc<MappedFile>> {
        self.file.as_ref()
    }

    /// A doorbell that was rung though no queue is behind it, where ringing does not tell.
    pub(crate) fn stray(&self) -> Option<usize> {
        self.file.as_ref()?;
        let dead = self.live.iter().enumerate();
        let mut dead = dead.filter(|(_, live)| !live.load(Ordering::Relaxed));
        dead.find_map(|(index, _)| self.take(index).map(|_| index))
    }

    /// All are silent, with no queue behind them.
    pub(crate) fn clear(&self) {
        for index in 0..self.live.len() {
            self.live[index].store(false, Ordering::Relaxed);
            self.cell(index).store(SILENT, Ordering::Relaxed);
        }
    }
}
