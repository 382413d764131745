//! Queries: from a filter, a sort and a projection to documents.
//!
//! # Purpose
//! [`planner`] chooses how a query is answered: which index is scanned between which bounds, which
//! conditions are left to check, whether a sort is needed. [`executor`] runs the plan and yields raw
//! documents. Commands, cursors and networks are not known here.
//!
//! ```text
//!   Matcher + sort + projection + Collection --planner--> PlannedQuery --executor--> raw documents
//! ```
//!
//! # Invariants
//! - A plan never loses a document that matches: bounds hold a key of each, and what they do not decide
//!   is checked again on the document.
//! - Every read goes through the operation's [`ReadView`](millrace_value::ReadView).
//! - Memory beyond the operation's limit goes to scratch space of the engine, or the query fails.
//!
//! # Cost
//! A look-up by `_id` reads one key of the engine and copies the document once, into the reply. The
//! planner allocates for its terms and intervals, not for documents.

#![forbid(unsafe_code)]

pub mod executor;
pub mod planner;
