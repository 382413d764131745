//! Pipelines through the crate's public interface, over a database that is a few lists of documents.

#[path = "pipeline/environment.rs"]
mod environment;
#[path = "pipeline/sorting.rs"]
mod sorting;
