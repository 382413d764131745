//! Collections of BSON documents on an ordered key-value engine.
//!
//! # Purpose
//! This crate is the database without a network: it keeps collections and indexes in an
//! [`Engine`](millrace_engine::Engine), plans and runs queries, updates and pipelines over them, and
//! answers commands given as BSON documents in MongoDB's command language, with MongoDB's error codes.
//!
//! # How a command runs
//! ```text
//!   command document
//!        | command/     parse, find the namespace
//!        v
//!   catalog/  --------> collections, indexes, their keys in the engine
//!        | planner/     matcher tree -> bounds -> plan
//!        v
//!   executor --------> raw documents from engine cursors, filtered by matcher/
//!        | pipeline/ projection/ update/ (all evaluate expression/)
//!        v
//!   reply document, cursor kept for getMore
//! ```
//! Below them lie `value/` (comparison, paths, numbers) and `key/` (memory-comparable encoding).
//!
//! # Threads, clock, randomness
//! The crate spawns no thread and reads no clock and no random source: an [`Operation`] brings them.
//! Everything is `Send + Sync`; long work calls [`Operation::check`] so that it can be interrupted.

#![forbid(unsafe_code)]

pub mod catalog;
pub mod collection;
pub mod command;
pub mod committer;
pub mod error;
pub mod executor;
pub mod expression;
pub mod index;
pub mod key;
pub mod matcher;
pub mod operation;
pub mod pipeline;
pub mod planner;
pub mod projection;
mod read_view;
mod stage_memory;
pub mod update;
mod validation;
pub mod value;

pub use error::{Error, ErrorCode, Result};
pub use operation::{Environment, Interrupt, Operation};
pub use read_view::ReadView;
