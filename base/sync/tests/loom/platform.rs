//! The platform of loom, on which one site at a time can be weakened.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use millrace_sync::ring::{RingCells, RingWord};
use millrace_sync::{Parker, Platform, Site, Word};

/// The site that is weakened in this process.
static WEAKENED: OnceLock<Site> = OnceLock::new();

/// Relaxes `site` from now on.
pub(crate) fn weaken(site: Site) {
    WEAKENED.set(site).expect("one site a process");
}

fn is_weakened(site: Site) -> bool {
    WEAKENED.get() == Some(&site)
}

#[derive(Debug)]
pub(crate) struct Loom;

impl Platform for Loom {
    type Word = LoomWord;
    type Parker = LoomParker;

    fn ordering(site: Site) -> Ordering {
        if is_weakened(site) {
            Ordering::Relaxed
        } else {
            site.ordering()
        }
    }

    fn fence(site: Site) {
        if !is_weakened(site) {
            fence(site.ordering());
        }
    }

    fn relax(_: u32) {
        loom::thread::yield_now();
    }
}

#[derive(Debug)]
pub(crate) struct LoomWord(AtomicU64);

impl Word for LoomWord {
    fn new(value: u64) -> Self {
        Self(AtomicU64::new(value))
    }

    fn load(&self, ordering: Ordering) -> u64 {
        self.0.load(ordering)
    }

    fn store(&self, value: u64, ordering: Ordering) {
        self.0.store(value, ordering);
    }

    fn fetch_add(&self, value: u64, ordering: Ordering) -> u64 {
        self.0.fetch_add(value, ordering)
    }

    fn fetch_sub(&self, value: u64, ordering: Ordering) -> u64 {
        self.0.fetch_sub(value, ordering)
    }

    fn compare_exchange_weak(&self, current: u64, new: u64, success: Ordering) -> Result<u64, u64> {
        self.0
            .compare_exchange_weak(current, new, success, Ordering::Relaxed)
    }
}

/// A futex made of loom's mutex and condition variable.
#[derive(Debug)]
pub(crate) struct LoomParker {
    wakings: Mutex<u32>,
    changed: Condvar,
}

impl Parker for LoomParker {
    fn new() -> Self {
        Self {
            wakings: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    fn ticket(&self) -> u32 {
        *self.wakings.lock().expect("no holder panics")
    }

    fn sleep(&self, ticket: u32) {
        let mut wakings = self.wakings.lock().expect("no holder panics");
        while *wakings == ticket {
            wakings = self.changed.wait(wakings).expect("no holder panics");
        }
    }

    fn wake(&self) {
        *self.wakings.lock().expect("no holder panics") += 1;
        self.changed.notify_all();
    }
}

/// Cells that notice two threads in one slot, an item that is overwritten, and one that was never written.
#[derive(Debug)]
pub(crate) struct LoomCells {
    words: [LoomWord; 4],
    slots: Vec<UnsafeCell<Option<u64>>>,
}

// SAFETY: loom checks every access to a slot, and fails the test on two at once.
unsafe impl Sync for LoomCells {}

impl LoomCells {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            words: std::array::from_fn(|_| LoomWord::new(0)),
            slots: (0..capacity).map(|_| UnsafeCell::new(None)).collect(),
        }
    }

    fn slot(&self, position: u64) -> &UnsafeCell<Option<u64>> {
        let index = usize::try_from(position).expect("models are small") % self.slots.len();
        &self.slots[index]
    }
}

// SAFETY: there are four words and a slot for each position modulo the capacity.
unsafe impl RingCells for LoomCells {
    type Item = u64;
    type Platform = Loom;

    fn capacity(&self) -> u64 {
        self.slots.len() as u64
    }

    fn word(&self, word: RingWord) -> &LoomWord {
        &self.words[word as usize]
    }

    unsafe fn put(&self, position: u64, item: u64) {
        self.slot(position).with_mut(|slot| {
            // SAFETY: loom has checked that nobody else is here.
            let before = unsafe { (*slot).replace(item) };
            assert_eq!(before, None, "an item was overwritten");
        });
    }

    unsafe fn take(&self, position: u64) -> u64 {
        self.slot(position).with_mut(|slot| {
            // SAFETY: loom has checked that nobody else is here.
            let item = unsafe { (*slot).take() };
            item.expect("an item was taken that was never put")
        })
    }
}
