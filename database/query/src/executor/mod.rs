//! Running plans.
//!
//! # Shape
//! A plan is a source of documents (a look-up, a scan, several scans, perhaps a sort above them) which
//! [`Executor`] asks for one unit of work at a time; skip, limit and projection are its own. Documents
//! are handed on as borrowed bytes from the engine to the reply: a look-up by `_id` and a scan copy a
//! document once, by projecting it into the reply.
//!
//! # Consistency
//! A scan that follows index keys to documents reads both from one snapshot, so that a document always
//! has the key that led to it. Between batches ([`Executor::save`]) the snapshot is given up; the scan
//! goes on behind its last key in the state of the engine of that time. A document that is changed
//! meanwhile may be seen before or after the change, or, if it moves in the index, twice or not at all.
//! At a fixed [`ReadView`](millrace_value::ReadView) all of it, between batches too, is one state.
//!
//! # Memory
//! Besides one document a scan, memory goes into sorts and into the record ids of scans that may find a
//! document twice. Both are bounded by the operation's limit and go on in scratch space.

mod collection_scan_stage;
mod deduplicator;
mod display;
#[expect(
    clippy::module_inception,
    reason = "the module's main type is the executor"
)]
mod executor;
mod explain;
mod id_lookup_stage;
mod index_scan_stage;
mod rebuild;
mod sort_stage;
mod source;
mod statistics;
#[cfg(test)]
mod tests;
mod trial;
mod union_stage;
mod view;
mod walk;

#[cfg(test)]
pub(crate) use display::directed as display_interval;
pub use executor::{Executor, Record};
pub use explain::{Verbosity, explain};
pub use statistics::ExecutionStats;
pub use trial::choose_plan;
