//! The server and the binary from outside: sockets, devices, subcommands, crashes and power cuts.

mod blobfs;
mod crash;
mod device;
mod driver;
mod history;
mod network;
mod nvme;
mod power_cut;
mod server;
mod sockets;
mod sockets_commands;
mod stage;
mod support;
mod windows;
