//! Tests of planner and executor together.

mod cursors;
mod explain;
mod fixture;
mod model;
