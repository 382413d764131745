//! The binary's `blobfs` commands on files in a temporary folder, and on a controller that this process
//! serves.

mod bed;
mod command;
mod copies;
mod damage;
mod names;
mod volumes;
