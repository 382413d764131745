//! The binary's `blobfs` commands on files in a temporary folder, and on a controller that this process
//! serves.

mod command;
mod copies;
mod damage;
mod fixture;
mod names;
mod volumes;
