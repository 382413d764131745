//! `millrace sockets`: user-level sockets for unmodified programs.
//!
//! ```text
//!   run ----> library (its path), broker (a running one, or a new one) ----> the program, in this process
//!   broker -> rules, the folder, forwarders on threads, peers -> millrace_broker::broker
//!   status, top -> millrace_broker::client -> report -> text or JSON
//! ```
//! A command exits with 0 on success, 1 on failure, and 2 for invalid arguments. `run` becomes the program, whose exit
//! status it then has.

mod broker;
mod error;
mod forwarder;
mod forwarder_threads;
mod library;
mod options;
mod peers;
mod report;
mod run;
mod socket_path;
mod status;
mod top;

use crate::ToolError;
use std::io::Write;

pub use options::{
    BrokerOptions, Command, ForwarderOptions, Mode, RunOptions, SocketsOptions, StatusOptions,
    TopOptions,
};

/// Runs a command; its output goes to `out`.
///
/// # Errors
/// The failure, with its advice.
pub fn run(options: &SocketsOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let result = match &options.command {
        Command::Broker(options) => broker::run(options, out),
        Command::Forwarder(options) => forwarder::run(options, out),
        Command::Run(options) => run::run(options).map(|never| match never {}),
        Command::Status(options) => status::run(options, out),
        Command::Top(options) => top::run(options, out),
    };
    match result {
        // The reader has closed the output.
        Err(error) if error.is_broken_pipe() => Ok(()),
        result => result,
    }
}
