//! `millrace sockets`: user-level sockets for programs that know nothing of them.
//!
//! ```text
//!   run ----> library (where it lies), monitor (one that listens, or a new one) ----> the program, in this process
//!   monitor -> rules, the folder, planes on threads, peers -> millrace_proxy::monitor
//!   status, top -> millrace_proxy::client -> report -> text or JSON
//! ```
//! A command that did what it was asked ends with 0; one that failed with 1; arguments that make no sense with 2.
//! `run` becomes the program, which then ends as it will.

mod error;
mod library;
mod monitor;
mod options;
mod peers;
mod place;
mod planes;
mod proxy;
mod report;
mod run;
mod status;
mod top;

use std::io::Write;

pub use error::{ErrorKind, ToolError};
pub use options::{
    Command, Mode, MonitorOptions, ProxyOptions, RunOptions, SocketsOptions, StatusOptions,
    TopOptions,
};

/// Runs a command; what it has to say goes to `out`.
///
/// # Errors
/// Why it failed, and what can be done about it.
pub fn run(options: &SocketsOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let result = match &options.command {
        Command::Monitor(options) => monitor::run(options, out),
        Command::Proxy(options) => proxy::run(options, out),
        Command::Run(options) => run::run(options).map(|never| match never {}),
        Command::Status(options) => status::run(options, out),
        Command::Top(options) => top::run(options, out),
    };
    match result {
        // Whoever read has read enough.
        Err(error) if error.is_broken_pipe() => Ok(()),
        result => result,
    }
}
