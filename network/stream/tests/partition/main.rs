//! Partitions: over faulty windows, with hostile peers, with many at a time, and as bytes.

mod bed;
mod forger;
mod golden;
mod hostile;
mod service;
mod sleep;
mod streams;
