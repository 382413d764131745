//! Ring pairs: over faulty windows, asleep, with hostile peers, and as bytes.

mod fixture;
mod golden;
mod hostile;
mod in_place;
mod room;
mod sleep;
mod streams;
mod urgent;
