//! Tests of waiting, with sources that are counters and flags, but whose wake-up fds are real.

mod fake;
mod oracle;
mod polls;
mod rules;
mod several;
mod threads;
