//! Histories of commands, beside a model in plain maps that says what they make.

pub(crate) mod fixture;
pub(crate) mod model;
pub(crate) mod recording;
pub(crate) mod restless;
pub(crate) mod workload;
