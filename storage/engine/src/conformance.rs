//! What every engine must do, as tests that run against any of them.
//!
//! An engine's own tests call these functions with a [`Factory`]. Each panics with what it saw when the
//! engine breaks the contract. [`model`] compares random histories with
//! [`MemoryEngine`](crate::MemoryEngine); [`concurrency`] lets threads race; [`contract`] holds the
//! single rules. Beside the suite, [`hooked`] is an engine for tests of the layers above.

pub mod concurrency;
pub mod contract;
pub mod hooked;
pub mod model;

use std::sync::Arc;

use crate::Engine;

/// Makes a new, empty engine each time it is called.
pub type Factory<'a> = &'a dyn Fn() -> Arc<dyn Engine>;
