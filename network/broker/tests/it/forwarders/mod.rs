//! Forwarders with real wake-up fds and memory: received bytes are checked, and programs exit at any time. On threads;
//! where events are counted or replayed, turn by turn.

mod application;
mod fixture;
mod hostile;
mod limits;
mod process_exits;
mod service;
mod simulated;
