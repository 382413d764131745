//! Who may keep a buffer between calls.
//!
//! Whoever has a buffer for the time of one request gives it back soon. Reads that were begun and not asked about,
//! and writes behind, have theirs for as long as nobody looks; were all buffers with them, whoever waits for one
//! would wait for ever. So no more than three quarters of each class are.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_memory::{Buffer, SizeClass};

/// What a buffer is kept for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A read that was begun.
    Read,
    /// A write behind.
    Write,
}

#[derive(Debug)]
struct Class {
    size: usize,
    /// So many may be kept for each purpose.
    most: usize,
    /// How many are, by purpose.
    kept: [AtomicUsize; 2],
}

/// How many buffers are kept between calls.
#[derive(Debug)]
pub(crate) struct Permits {
    classes: Box<[Class]>,
}

/// Permission to keep a buffer, given up when dropped. The buffer goes first.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    class: usize,
    purpose: Purpose,
}

impl Permits {
    /// For an arena of these classes.
    pub(crate) fn new(classes: &[SizeClass]) -> Arc<Self> {
        let class = |class: &SizeClass| Class {
            size: class.size,
            most: usize::try_from(u64::from(class.count) * 3 / 8).unwrap_or(usize::MAX),
            kept: Default::default(),
        };
        Arc::new(Self {
            classes: classes.iter().map(class).collect(),
        })
    }

    /// Permission to keep this buffer, unless as many are kept as may be.
    pub(crate) fn take(self: &Arc<Self>, purpose: Purpose, buffer: &Buffer) -> Option<Permit> {
        let size = buffer.capacity();
        let class = self.classes.iter().position(|class| class.size == size)?;
        let kept = &self.classes[class].kept[purpose as usize];
        if kept.fetch_add(1, Ordering::Relaxed) >= self.classes[class].most {
            kept.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(Permit {
            permits: Arc::clone(self),
            class,
            purpose,
        })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.classes[self.class].kept[self.purpose as usize]
            .fetch_sub(1, Ordering::Relaxed);
    }
}
