//! Tests of planner and executor together.

mod bed;
mod cursors;
mod explain;
mod model;
