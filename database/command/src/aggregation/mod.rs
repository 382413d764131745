//! An aggregation: its request, its documents, and the database as its stages see it.
//!
//! The three belong together because pipelines nest: a stage such as `$lookup` reads through the host of
//! its pipeline, and if it reads a view, the host opens the view's pipeline as another request.

mod host;
mod open_queries;
mod request;
mod stream;

pub(crate) use open_queries::OpenQueries;
pub(crate) use request::AggregateRequest;
pub(crate) use stream::open_stream;
