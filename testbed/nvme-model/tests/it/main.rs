//! The controller against a host that is written for these tests alone.

mod admin;
mod any;
mod basic;
mod driver;
mod faults;
mod host;
mod options;
mod power;
mod reserved;
mod served;
mod sgl;
mod shadow;
mod stopping;
mod threads;
mod violations;
