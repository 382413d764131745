//! Commands against the in-memory engine.

mod commands;
mod concurrency;
mod ddl;
mod interleaving;
mod interposed;
mod leftovers;
mod observed;
mod read_views;
mod support;
mod views;
mod zero_timestamps;
