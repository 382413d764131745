//! The platforms of loom, on which one site at a time can be weakened.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::thread::panicking;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use millrace_sync::ring::{RingCells, RingWord};
use millrace_sync::{Parker, Platform, Site, Word};

/// The site that is weakened in this process, and what is left of it.
static WEAKENED: OnceLock<(Site, Ordering)> = OnceLock::new();

/// Gives `site` this ordering from now on.
pub(crate) fn weaken(site: Site, ordering: Ordering) {
    WEAKENED.set((site, ordering)).expect("one site a process");
}

/// The orderings that are weaker than the site's own, of those that there are for what it does.
pub(crate) fn weaker(site: Site) -> &'static [Ordering] {
    match site.ordering() {
        Ordering::SeqCst => &[Ordering::AcqRel, Ordering::Relaxed],
        _ => &[Ordering::Relaxed],
    }
}

fn ordering_of(site: Site) -> Ordering {
    match WEAKENED.get() {
        Some((weakened, ordering)) if *weakened == site => *ordering,
        _ => site.ordering(),
    }
}

fn fence_of(site: Site) {
    let ordering = ordering_of(site);
    // There is no relaxed fence.
    if ordering != Ordering::Relaxed {
        fence(ordering);
    }
}

#[derive(Debug)]
pub(crate) struct Loom;

// SAFETY: a checker: loom's threads take turns on one thread of the system, items lie in `LoomCells`, and what
// is shared looks at every access (`Watched`).
unsafe impl Platform for Loom {
    type Word = LoomWord;
    type Parker = LoomFutex;

    fn ordering(site: Site) -> Ordering {
        ordering_of(site)
    }

    fn fence(site: Site) {
        fence_of(site);
    }

    fn relax(_: u32) {
        loom::thread::yield_now();
    }
}

/// [`Loom`], but for sleeping on an eventfd.
#[derive(Debug)]
pub(crate) struct LoomOnEventFd;

// SAFETY: as `Loom`.
unsafe impl Platform for LoomOnEventFd {
    type Word = LoomWord;
    type Parker = LoomEventFd;

    fn ordering(site: Site) -> Ordering {
        ordering_of(site)
    }

    fn fence(site: Site) {
        fence_of(site);
    }

    fn relax(_: u32) {
        loom::thread::yield_now();
    }
}

#[derive(Debug)]
pub(crate) struct LoomWord(AtomicU64);

// SAFETY: loom's words do what the standard library's do.
unsafe impl Word for LoomWord {
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

/// A futex: a word, and the kernel's queue of sleepers under a lock, within which it looks at the word.
#[derive(Debug, Default)]
pub(crate) struct LoomFutex {
    wakings: AtomicU32,
    queue: Mutex<()>,
    woken: Condvar,
}

impl Parker for LoomFutex {
    fn try_new() -> io::Result<Self> {
        Ok(Self::default())
    }

    fn ticket(&self) -> u32 {
        self.wakings.load(Ordering::Relaxed)
    }

    fn sleep(&self, ticket: u32) {
        let queue = self.queue.lock().expect("no holder panics");
        if self.wakings.load(Ordering::Relaxed) == ticket {
            drop(self.woken.wait(queue).expect("no holder panics"));
        }
    }

    fn wake(&self) {
        self.wakings.fetch_add(1, Ordering::Relaxed);
        let _queue = self.queue.lock().expect("no holder panics");
        self.woken.notify_all();
    }
}

/// An eventfd: a count that a ticket takes, and a sleeper waits for. It can fail, and so is not `Default`.
#[derive(Debug)]
pub(crate) struct LoomEventFd {
    count: Mutex<u64>,
    written: Condvar,
}

impl Parker for LoomEventFd {
    const SLEEPERS_MAX: u64 = 1;

    fn try_new() -> io::Result<Self> {
        Ok(Self {
            count: Mutex::new(0),
            written: Condvar::new(),
        })
    }

    fn ticket(&self) -> u32 {
        *self.count.lock().expect("no holder panics") = 0;
        0
    }

    fn sleep(&self, _: u32) {
        let mut count = self.count.lock().expect("no holder panics");
        while *count == 0 {
            count = self.written.wait(count).expect("no holder panics");
        }
    }

    fn wake(&self) {
        *self.count.lock().expect("no holder panics") += 1;
        self.written.notify_all();
    }
}

/// Cells that notice two threads in one slot, an item that is overwritten, one that was never written, and one
/// that is left.
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

impl Drop for LoomCells {
    fn drop(&mut self) {
        // What a model leaves when it fails says nothing.
        if panicking() {
            return;
        }
        for slot in &self.slots {
            slot.with(|slot| {
                // SAFETY: loom has checked that nobody writes.
                assert_eq!(unsafe { *slot }, None, "an item was left");
            });
        }
    }
}

// SAFETY: there are four words, made of zero and reached by nobody else, and a slot for each position modulo
// the capacity. `put` and `take` panic only where a model fails, which ends it.
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
