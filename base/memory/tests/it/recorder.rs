//! A domain that writes down what is mapped.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use millrace_memory::{
    Domain, Error, ErrorKind, Iova, IovaRange, IovaSpace, Region, Result, base_page_size,
};

/// Hands out addresses, and keeps a share of what is mapped at each.
#[derive(Debug)]
pub(crate) struct Recorder {
    state: Mutex<State>,
    /// Whether nothing can be unmapped.
    pub(crate) unmap_fails: AtomicBool,
}

#[derive(Debug)]
struct State {
    space: IovaSpace,
    mapped: BTreeMap<Iova, Arc<Region>>,
}

impl Recorder {
    /// A domain in which nothing is mapped, with addresses from 0 to 2^40.
    pub(crate) fn new() -> Arc<Self> {
        Self::within(0, (1 << 40) - 1)
    }

    /// A domain in which nothing is mapped, with addresses from `first` to `last`.
    pub(crate) fn within(first: u64, last: u64) -> Arc<Self> {
        let range = IovaRange {
            first: Iova(first),
            last: Iova(last),
        };
        let space = IovaSpace::new(vec![range], base_page_size() as u64);
        Arc::new(Self {
            state: Mutex::new(State {
                space: space.expect("the range is sound"),
                mapped: BTreeMap::new(),
            }),
            unmap_fails: AtomicBool::new(false),
        })
    }

    /// How many regions are mapped.
    pub(crate) fn mapped_count(&self) -> usize {
        self.state().mapped.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics with the state")
    }
}

impl Domain for Recorder {
    fn map(&self, region: &Arc<Region>) -> Result<Iova> {
        let mut state = self.state();
        let (size, align) = (region.size() as u64, region.page_size() as u64);
        let iova = state.space.take(size, align)?;
        state.mapped.insert(iova, Arc::clone(region));
        Ok(iova)
    }

    unsafe fn unmap(&self, iova: Iova) -> Result<()> {
        if self.unmap_fails.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::Refused, "told to"));
        }
        let mut state = self.state();
        state.space.give(iova)?;
        state.mapped.remove(&iova);
        Ok(())
    }
}
