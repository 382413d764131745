//! Permits to hold a buffer between calls.
//!
//! A buffer of a single request is free again soon. Started reads that were not polled and writes behind hold theirs
//! until the next call; if they held all buffers, a thread that waits for one would wait for ever. Therefore they may
//! hold at most three quarters of each size class.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use millrace_memory::{Buffer, SizeClass};

/// Purpose for which a buffer is held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// A started read.
    Read,
    /// A write behind.
    Write,
}

#[derive(Debug)]
struct Class {
    size: usize,
    /// Most buffers held for each purpose.
    most: usize,
    /// Buffers held, by purpose.
    kept: [AtomicUsize; 2],
}

/// Numbers of buffers held between calls, by size class.
#[derive(Debug)]
pub(crate) struct Permits {
    classes: Box<[Class]>,
}

/// Permit to hold a buffer, returned on drop. The buffer must drop first.
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    class: usize,
    purpose: Purpose,
}

impl Permits {
    /// Permits for an arena of these size classes.
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

    /// A permit to hold this buffer; none if the limit is reached.
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
