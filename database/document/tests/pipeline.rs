//! Pipelines through the crate's public interface, over a database that is a few lists of documents.

#[path = "pipeline/accumulators.rs"]
mod accumulators;
#[path = "pipeline/database.rs"]
mod database;
#[path = "pipeline/environment.rs"]
mod environment;
#[path = "pipeline/errors.rs"]
mod errors;
#[path = "pipeline/grouping.rs"]
mod grouping;
#[path = "pipeline/hostile.rs"]
mod hostile;
#[path = "pipeline/joins.rs"]
mod joins;
#[path = "pipeline/optimising.rs"]
mod optimising;
#[path = "pipeline/reshaping.rs"]
mod reshaping;
#[path = "pipeline/sorting.rs"]
mod sorting;
#[path = "pipeline/writing.rs"]
mod writing;
