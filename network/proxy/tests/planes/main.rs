//! Planes with real bells and memory, in threads: what arrives is checked, whoever dies and when.

mod application;
mod bed;
mod carried;
mod deaths;
mod strangers;
