//! Planes with real bells and memory: what arrives is checked, whoever dies and when. In threads; where it is counted
//! or repeated, turn by turn.

mod application;
mod bed;
mod carried;
mod deaths;
mod service;
mod simulated;
mod strangers;
