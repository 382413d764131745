//! Pipelines through the crate's public interface, over a database that is a few lists of documents.

mod accumulators;
mod database;
mod environment;
mod errors;
mod exercise;
mod grouping;
mod hostile;
mod joins;
mod optimising;
mod reshaping;
mod sorting;
mod writing;
