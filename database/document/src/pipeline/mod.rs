//! Aggregation pipelines: a list of stages through which documents flow.

mod display;
mod field_path;
mod host;
mod size;
pub mod sort;
mod spill;
mod stream;

pub use host::{Host, MergeAction};
pub use spill::ScratchFactory;
pub use stream::{DocumentStream, Documents};
