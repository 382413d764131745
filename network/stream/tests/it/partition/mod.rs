//! Partitions: over faulty windows, with hostile peers, with many connections, and as bytes.

mod fixture;
mod forger;
mod golden;
mod hostile;
mod service;
mod sleep;
mod streams;
