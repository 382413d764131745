//! `millrace sockets run`.
//!
//! The program replaces this process (`exec`), so that no signal or status has to be passed on. Before that, a broker
//! is found or started, and one connection to it is left open for the program to inherit. That connection sends
//! nothing; it keeps a broker that `run` has started in use until the program and its children have sent HELLO.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use millrace_broker::client::Client;
use millrace_stream::control::{Message, SOCKET_VARIABLE};
use rustix::process::{Resource, getrlimit};

use super::socket_path::SocketPath;
use super::{RunOptions, library};
use crate::{ErrorKind, ToolError};

/// The most attempts if brokers exit right after they are found.
const TRIES: usize = 8;

pub(super) fn run(options: &RunOptions) -> Result<Infallible, ToolError> {
    let library = library::find(options.library.as_deref())?;
    let socket_path = SocketPath::find(options.socket.as_deref())?;
    let (program, arguments) = options
        .program
        .split_first()
        .ok_or_else(|| ToolError::new(ErrorKind::Usage, "no program to run"))?;
    let held = broker(&socket_path)?;
    let _held = inherit(&held)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(
            "LD_PRELOAD",
            preload(&library, std::env::var_os("LD_PRELOAD")),
        )
        .env(SOCKET_VARIABLE, &socket_path.path);
    if let Some(spin_us) = options.spin_us {
        command.env("MILLRACE_SPIN_US", spin_us.to_string());
    }
    let error = command.exec();
    let context = format!("running {}", Path::new(program).display());
    Err(ToolError::new(ErrorKind::Program, context).caused_by(error))
}

/// The library before earlier entries of LD_PRELOAD.
fn preload(library: &Path, already: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(already) = already.filter(|already| !already.is_empty()) {
        value.push(":");
        value.push(already);
    }
    value
}

/// A connection to the running broker, or to a new one.
fn broker(socket_path: &SocketPath) -> Result<Client, ToolError> {
    for _ in 0..TRIES {
        if let Ok(client) = greet(socket_path) {
            return Ok(client);
        }
        // The new broker runs while this is open, and then while it is in use.
        let (ours, theirs) = UnixStream::pair().map_err(|error| {
            ToolError::new(ErrorKind::System, "making a pair of sockets").caused_by(error)
        })?;
        let started = start(socket_path, theirs.into());
        let greeted = greet(socket_path);
        drop(ours);
        match (started, greeted) {
            // Another process may have started one at the same time.
            (_, Ok(client)) => return Ok(client),
            (Err(error), Err(_)) => return Err(error),
            // The other one has exited since.
            (Ok(()), Err(_)) => {}
        }
    }
    let context = format!(
        "brokers at {} exit right after they are found: {TRIES} attempts",
        socket_path.path.display()
    );
    Err(ToolError::new(ErrorKind::Broker, context))
}

/// A connection on which the broker has answered: from then on it is in use.
fn greet(socket_path: &SocketPath) -> Result<Client, ToolError> {
    let mut client = socket_path.connect()?;
    client
        .report(Message::Status)
        .map_err(|error| ToolError::of_broker(&error))?;
    Ok(client)
}

fn start(socket_path: &SocketPath, wanted: OwnedFd) -> Result<(), ToolError> {
    let failed =
        |error: io::Error| ToolError::new(ErrorKind::System, "starting a broker").caused_by(error);
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["sockets", "broker", "--detach"]);
    if !socket_path.own_folder {
        command.arg("--socket").arg(&socket_path.path);
    }
    let output = command
        .env_remove("LD_PRELOAD")
        .stdin(wanted)
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let context = format!("starting a broker at {}", socket_path.path.display());
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.trim().trim_start_matches("millrace: ").to_owned();
    Err(ToolError::new(ErrorKind::Broker, context).caused_by(why))
}

/// A duplicate that the program inherits, with a high descriptor number.
fn inherit(client: &Client) -> Result<OwnedFd, ToolError> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16);
    let least = i32::try_from((limit / 4 * 3).clamp(4, 60_000)).unwrap_or(60_000) - 1;
    let failed = |errno: rustix::io::Errno| {
        ToolError::new(ErrorKind::System, "duplicating the broker's descriptor").caused_by(errno)
    };
    let copy = rustix::io::fcntl_dupfd_cloexec(client.socket(), least).map_err(failed)?;
    rustix::io::fcntl_setfd(&copy, rustix::io::FdFlags::empty()).map_err(failed)?;
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_preloaded_already_stays() {
        let value =
            |already: Option<&str>| preload(Path::new("/l.so"), already.map(OsString::from));
        assert_eq!(value(None), "/l.so");
        assert_eq!(value(Some("")), "/l.so");
        assert_eq!(value(Some("/a.so /b.so")), "/l.so:/a.so /b.so");
    }
}
