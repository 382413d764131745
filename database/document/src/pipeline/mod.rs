//! Aggregation pipelines: a list of stages through which documents flow.

mod host;
mod size;
mod stream;

pub use host::{Host, MergeAction};
pub use stream::{DocumentStream, Documents};
