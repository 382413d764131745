//! `millrace nvme`: its commands, its reports and its wording.

mod bed;
mod command;
mod device;
mod machine;
mod reports;
