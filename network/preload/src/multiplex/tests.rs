//! Waiting, with sources that are counters and flags, but whose bells are real.

mod fake;
mod oracle;
mod polls;
mod rules;
mod several;
mod threads;
