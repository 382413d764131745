//! How many handles an end has.

use std::fmt;

/// How many handles an end of a ring has: [`Single`] or [`Multi`], and nothing else, as the memory of the
/// items is safe by it.
///
/// ```compile_fail
/// use millrace_sync::ring::Side;
///
/// #[derive(Debug)]
/// struct Liar;
///
/// impl Side for Liar {
///     const SHARED: bool = false;
///     type Progress = (u64, u64);
/// }
/// ```
pub trait Side: sealed::Handles + fmt::Debug + Send + Sync + 'static {}

/// End with a single handle, which is not cloneable.
#[derive(Clone, Copy, Debug)]
pub struct Single;

/// Any number of handles, made by cloning.
#[derive(Clone, Copy, Debug)]
pub struct Multi;

impl Side for Single {}

impl Side for Multi {}

impl sealed::Handles for Single {
    const SHARED: bool = false;
    type Progress = (u64, u64);
}

impl sealed::Handles for Multi {
    const SHARED: bool = true;
    type Progress = ();
}

/// Sealing: traits that other crates cannot name, and so not implement.
pub(super) mod sealed {
    use std::fmt;

    /// What an end does differently with one handle and with several.
    pub trait Handles {
        /// Whether there may be more than one.
        const SHARED: bool;
        /// What a handle remembers: with one handle how far both ends are, otherwise nothing.
        type Progress: Progress;
    }

    /// How far a handle that is alone has got, and how far the other end had when it was last looked at.
    pub trait Progress: Default + fmt::Debug + Send + 'static {
        /// Both.
        fn recall(&self) -> (u64, u64);
        /// Remembers both.
        fn remember(&mut self, own: u64, other: u64);
    }

    impl Progress for (u64, u64) {
        #[inline]
        fn recall(&self) -> (u64, u64) {
            *self
        }

        #[inline]
        fn remember(&mut self, own: u64, other: u64) {
            *self = (own, other);
        }
    }

    impl Progress for () {
        #[inline]
        fn recall(&self) -> (u64, u64) {
            (0, 0)
        }

        #[inline]
        fn remember(&mut self, _: u64, _: u64) {}
    }
}
