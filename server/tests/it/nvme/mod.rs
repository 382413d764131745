//! `millrace nvme`: its commands, its reports and its wording.

mod command;
mod command_line;
mod device;
mod machine;
mod reports;
