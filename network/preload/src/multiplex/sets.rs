//! All epoll sets of the process, and their updates when descriptors close, move and fork.
//!
//! # Broadcasts
//! The first thread that wakes reads the wake-ups; where a connection has several watchers, the others learn of it by a
//! *note*: its key, in a ring buffer of the last notes. A set applies the notes at each pass, and makes the member hot.
//! A thread may write a note at any time, also while it holds a set's lock: no lock is taken for it.
//!
//! # Invariants
//! 1. Sets are never freed; a closed one is used again. So the list may be walked at any time.
//! 2. A note is published before `asleep` is read; a set increments `asleep` before it applies the notes for the last
//!    time. Both with sequential consistency: one sees the other.

use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::lock::Mutex;
use super::poll_target::{PollTarget, Target};
use super::set::Set;
use super::sleepers;

/// Number of notes that are kept; a set that missed more makes all members hot.
const NOTES: usize = 1024;
/// Bits of a key in a note, without the lowest four, which are zero; above them is the note's number.
const KEY_BITS: u32 = 53;
const KEY_MASK: u64 = (1 << KEY_BITS) - 1;

/// All sets with sources of one type.
#[derive(Debug)]
pub(crate) struct Sets<S: 'static> {
    first: AtomicPtr<Set<S>>,
    /// Held while a set is made, and over a fork.
    making: Mutex<()>,
    /// Whether the forking thread has taken the lock for the fork.
    is_kept: AtomicBool,
    last_note: AtomicU64,
    notes: [AtomicU64; NOTES],
}

/// A note, as a set reads it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Note {
    /// The source of this key was drained, or found no room.
    Of(usize),
    /// The note is not there any more, or not yet.
    Missed,
}

impl<S: PollTarget> Sets<S> {
    pub(crate) const fn new() -> Self {
        Self {
            first: AtomicPtr::new(ptr::null_mut()),
            making: Mutex::new(()),
            is_kept: AtomicBool::new(false),
            last_note: AtomicU64::new(0),
            notes: [const { AtomicU64::new(0) }; NOTES],
        }
    }

    fn each(&self) -> impl Iterator<Item = &'static Set<S>> {
        let mut next = self.first.load(Ordering::Acquire);
        std::iter::from_fn(move || {
            // SAFETY: sets live for ever.
            let set = unsafe { next.as_ref() }?;
            next = set.next.load(Ordering::Acquire);
            Some(set)
        })
    }

    /// Makes a set for the program's number. `has_kernel` says that it may have members already. `None` in a signal
    /// handler above this.
    pub(crate) fn make(&self, outer: RawFd, has_kernel: bool) -> Option<&'static Set<S>> {
        let _guard = self.making.lock().ok()?;
        let used = self.each().find(|set| {
            set.is_open
                .compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        });
        let set = used.unwrap_or_else(|| self.append());
        set.open(outer, has_kernel);
        Some(set)
    }

    fn append(&self) -> &'static Set<S> {
        let set: &'static Set<S> = Box::leak(Box::new(Set::new()));
        let mut first = self.first.load(Ordering::Relaxed);
        loop {
            set.next.store(first, Ordering::Relaxed);
            let new = ptr::from_ref(set).cast_mut();
            // Release: a thread that sees the set sees its contents.
            match self
                .first
                .compare_exchange(first, new, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => return set,
                Err(now) => first = now,
            }
        }
    }

    /// The number of the last note.
    #[inline]
    pub(super) fn last_note(&self) -> u64 {
        self.last_note.load(Ordering::SeqCst)
    }

    pub(super) fn note(&self, number: u64) -> Note {
        let note = self.notes[place(number)].load(Ordering::SeqCst);
        if note >> KEY_BITS == number & (u64::MAX >> KEY_BITS) {
            Note::Of(usize::try_from((note & KEY_MASK) << 4).unwrap_or(0))
        } else {
            Note::Missed
        }
    }

    /// How many notes can be read at most.
    pub(super) const KEPT: u64 = NOTES as u64;

    /// Notifies all watchers of the source with this key: its wake-ups were read, or a send found no room.
    pub(crate) fn broadcast(&self, key: usize) {
        let number = self.last_note.fetch_add(1, Ordering::SeqCst) + 1;
        let note = (number << KEY_BITS) | (key as u64 >> 4 & KEY_MASK);
        self.notes[place(number)].store(note, Ordering::SeqCst);
        for set in self.each() {
            if set.asleep.load(Ordering::SeqCst) == 0 {
                continue;
            }
            // A set whose lock is taken, perhaps by this thread, is woken in any case.
            match set.try_lock() {
                Some(state) if !state.members.has_key(key) => {}
                Some(state) => state.wake(),
                None => set.wake_unlocked(),
            }
        }
        sleepers::wake(key);
    }

    /// Ends all interests in the entry, if it has watchers. Called before its last number closes in the kernel.
    pub(crate) fn forget(&self, entry: &'static S) {
        if entry.watchers() == 0 {
            return;
        }
        for set in self.each() {
            if set.is_ours() {
                set.forget(entry);
            }
        }
    }

    /// Runs `change`, which gives the number of a kernel socket another target in the kernel and in the table, and
    /// returns it pinned. Interests of sets move with it.
    pub(crate) fn moved(&self, fd: RawFd, change: impl FnOnce() -> Target<S>) {
        let withdrawn: Vec<_> = self
            .each()
            .filter_map(|set| set.withdraw(fd).map(|interest| (set, interest)))
            .collect();
        let target = change();
        for (set, interest) in withdrawn {
            set.restore(fd, target, interest);
        }
    }

    /// Updates all sets after a listener got another channel, or none; the last one is still open.
    pub(crate) fn change_channel(&self, entry: &'static S) {
        for set in self.each().filter(|set| set.is_ours()) {
            set.change_channel(entry);
        }
    }

    /// Whether this thread holds a set's lock, or the lock of making one.
    pub(crate) fn has_own(&self) -> bool {
        self.making.is_own() || self.each().any(Set::is_own)
    }

    /// Takes all locks before a fork, so that no set is amid a change.
    pub(crate) fn before_fork(&self) {
        let is_kept = self.making.acquire().is_ok();
        self.is_kept.store(is_kept, Ordering::Relaxed);
        self.each().for_each(Set::before_fork);
    }

    /// After a fork, in the parent.
    pub(crate) fn after_fork_in_parent(&self) {
        self.each().for_each(Set::after_fork_in_parent);
        if self.is_kept.swap(false, Ordering::Relaxed) {
            self.making.release();
        }
        sleepers::wake_all();
    }

    /// After a fork, in the child: no other thread exists, watchers are counted again, and the kernel's sets are shared
    /// with the parent.
    pub(crate) fn after_fork_in_child(&self) {
        sleepers::after_fork();
        self.each().for_each(Set::after_fork_in_child);
        if self.is_kept.swap(false, Ordering::Relaxed) {
            self.making.release();
        } else {
            self.making.keep();
        }
    }
}

fn place(number: u64) -> usize {
    usize::try_from(number % NOTES as u64).expect("a remainder below `NOTES` fits `usize`")
}
