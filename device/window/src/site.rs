//! Steps that make stores visible in order.
//!
//! Each has a name, so that a test can leave one out and show that some peer then sees what it must not, or
//! never sees what it must. Only builds with the feature `mutation` and debug assertions can: benchmarks, whose crates
//! have the feature for their tests, measure what programs run.

/// One fence, or one flush of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Site {
    /// The lines of a payload are written back. Only where caches are not coherent.
    PayloadWrittenBack,
    /// Payload before the word that publishes it; also whatever was loaded before, so that a word which
    /// gives room back comes after the last load of what lay there. Pairs with [`Site::AfterPoll`]. Release
    /// where caches are coherent, otherwise drain.
    BeforeWord,
    /// The line of the word is written back. Only where caches are not coherent.
    WordWrittenBack,
    /// The word leaves now. Drain; only where stores do not leave by themselves.
    AfterWord,
    /// The line of a word is dropped from the cache before it is looked at. Only where caches are not coherent.
    WordInvalidated,
    /// The word is not loaded before its line was dropped. Full; only where caches are not coherent.
    WordAwaited,
    /// The word before what it publishes, and before stores to the room that it gives. Pairs with
    /// [`Site::BeforeWord`]. Acquire where memory is cached, otherwise full.
    AfterPoll,
    /// The word was loaded before the lines of its payload are dropped: dropped earlier, they could be fetched
    /// again before the peer had written them. Full; only where caches are not coherent.
    BeforeInvalidation,
    /// The lines of a payload are dropped from the cache. Only where caches are not coherent.
    PayloadInvalidated,
    /// The payload is not loaded before its lines were dropped. Full; only where caches are not coherent.
    PayloadAwaited,
    /// What was published is visible before what is polled next is loaded. Pairs with itself at the peer: of
    /// two that each publish, settle and poll, at least one sees what the other has published.
    Settled,
}

impl Site {
    /// All sites, in the order of their declaration.
    pub const ALL: [Self; 11] = [
        Self::PayloadWrittenBack,
        Self::BeforeWord,
        Self::WordWrittenBack,
        Self::AfterWord,
        Self::WordInvalidated,
        Self::WordAwaited,
        Self::AfterPoll,
        Self::BeforeInvalidation,
        Self::PayloadInvalidated,
        Self::PayloadAwaited,
        Self::Settled,
    ];

    #[cfg(all(feature = "mutation", debug_assertions))]
    pub(crate) fn is_kept(self) -> bool {
        mutation::left_out() != Some(self)
    }

    #[cfg(not(all(feature = "mutation", debug_assertions)))]
    #[inline]
    #[expect(clippy::unused_self, reason = "the other build looks at it")]
    pub(crate) const fn is_kept(self) -> bool {
        true
    }
}

/// For tests: one step left out.
#[cfg(feature = "mutation")]
pub mod mutation {
    use std::cell::Cell;

    use super::Site;

    thread_local! {
        static LEFT_OUT: Cell<Option<Site>> = const { Cell::new(None) };
    }

    /// Leaves a step out, or none, in all windows that this thread uses from now on.
    ///
    /// # Panics
    /// If the build has no debug assertions: there no step can be left out.
    pub fn leave_out(site: Option<Site>) {
        assert!(
            cfg!(debug_assertions) || site.is_none(),
            "a step can be left out only with debug assertions"
        );
        LEFT_OUT.set(site);
    }

    #[cfg(debug_assertions)]
    pub(super) fn left_out() -> Option<Site> {
        LEFT_OUT.get()
    }
}
