//! A window that loom sees into: every interleaving on cached coherent memory, but for load buffering.

use std::ops::Range;
use std::panic;

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use millrace_window::{Attributes, Fence, Medium, Site, mutation};

/// Memory made of loom's words, which all sides share.
#[derive(Clone, Debug)]
pub struct Words {
    size: usize,
    words: Arc<Vec<(usize, AtomicU64)>>,
}

impl Words {
    /// So many bytes, of which the words at these offsets are there, zero, and no others: loom has a limit.
    #[must_use]
    pub fn new(size: usize, offsets: impl IntoIterator<Item = usize>) -> Self {
        let mut words: Vec<_> = offsets
            .into_iter()
            .map(|offset| (offset, AtomicU64::new(0)))
            .collect();
        words.sort_by_key(|(offset, _)| *offset);
        Self {
            size,
            words: Arc::new(words),
        }
    }

    fn word(&self, offset: usize) -> &AtomicU64 {
        let index = self
            .words
            .binary_search_by_key(&offset, |(place, _)| *place);
        &self.words[index.expect("a word that the model has")].1
    }
}

impl Medium for Words {
    fn size(&self) -> usize {
        self.size
    }

    fn attributes(&self) -> Attributes {
        Attributes::SHARED_MEMORY
    }

    fn load(&self, offset: usize) -> u64 {
        self.word(offset).load(Ordering::Relaxed)
    }

    fn store(&self, offset: usize, value: u64) {
        self.word(offset).store(value, Ordering::Relaxed);
    }

    fn write_back(&self, _: Range<usize>) {}

    fn invalidate(&self, _: Range<usize>) {}

    fn fence(&self, kind: Fence) {
        fence(match kind {
            Fence::Release => Ordering::Release,
            Fence::Acquire => Ordering::Acquire,
            Fence::Drain | Fence::Full => Ordering::SeqCst,
        });
    }
}

/// Runs a model in every interleaving of up to three preemptions, with a step left out or with all.
///
/// # Panics
/// If the model fails with all steps, or holds without one.
pub fn explore(model: fn(), without: Option<Site>) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(3);
    // All threads of a model run on this one.
    mutation::leave_out(without);
    let result = panic::catch_unwind(|| builder.check(model));
    mutation::leave_out(None);
    match (result, without) {
        (Err(failure), None) => panic::resume_unwind(failure),
        (Ok(()), Some(site)) => panic!("the model holds without {site:?}"),
        (Ok(()), None) | (Err(_), Some(_)) => {}
    }
}
