//! `millrace sockets run`.
//!
//! The program takes this process over (`exec`), so that there is nothing to pass on. Before that a monitor is found or
//! started, and one connection to it is left open for the program to inherit: it says nothing, and tells a monitor that
//! was started by `run` that somebody is left, also before the program and its children have said HELLO by themselves.

use std::convert::Infallible;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use millrace_proxy::client::Client;
use millrace_stream::control::{Message, SOCKET_VARIABLE};
use rustix::process::{Resource, getrlimit};

use super::place::Place;
use super::{ErrorKind, RunOptions, ToolError, library};

/// How often a monitor may end just when it is found.
const TRIES: usize = 8;

pub(super) fn run(options: &RunOptions) -> Result<Infallible, ToolError> {
    let library = library::find(options.library.as_deref())?;
    let place = Place::find(options.socket.as_deref())?;
    let (program, arguments) = options
        .program
        .split_first()
        .ok_or_else(|| ToolError::new(ErrorKind::Usage, "there is no program to run"))?;
    let held = monitor(&place)?;
    let _held = inherit(&held)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env(
            "LD_PRELOAD",
            preload(&library, std::env::var_os("LD_PRELOAD")),
        )
        .env(SOCKET_VARIABLE, &place.path);
    if let Some(spin_us) = options.spin_us {
        command.env("MILLRACE_SPIN_US", spin_us.to_string());
    }
    let error = command.exec();
    let context = format!("{} could not be run", Path::new(program).display());
    Err(ToolError::new(ErrorKind::Program, context).caused_by(error))
}

/// The library before what is preloaded already.
fn preload(library: &Path, already: Option<OsString>) -> OsString {
    let mut value = library.as_os_str().to_owned();
    if let Some(already) = already.filter(|already| !already.is_empty()) {
        value.push(":");
        value.push(already);
    }
    value
}

/// A connection to the monitor that listens; to a new one if none does.
fn monitor(place: &Place) -> Result<Client, ToolError> {
    for _ in 0..TRIES {
        if let Ok(client) = greet(place) {
            return Ok(client);
        }
        // It lives while this is open, and then for whoever has connected by then.
        let (ours, theirs) = UnixStream::pair().map_err(|error| {
            ToolError::new(ErrorKind::System, "making a pair of sockets").caused_by(error)
        })?;
        let started = start(place, theirs.into());
        let greeted = greet(place);
        drop(ours);
        match (started, greeted) {
            // Another may have been started at the same time: one is enough.
            (_, Ok(client)) => return Ok(client),
            (Err(error), Err(_)) => return Err(error),
            // That other one has ended since.
            (Ok(()), Err(_)) => {}
        }
    }
    let context = format!(
        "monitors at {} end as soon as they are found",
        place.path.display()
    );
    Err(ToolError::new(ErrorKind::Monitor, context))
}

/// A connection that the monitor has answered on: from then on it counts.
fn greet(place: &Place) -> Result<Client, ToolError> {
    let mut client = place.connect()?;
    client
        .report(Message::Status)
        .map_err(|error| ToolError::of_monitor(&error))?;
    Ok(client)
}

fn start(place: &Place, wanted: OwnedFd) -> Result<(), ToolError> {
    let failed = |error: io::Error| {
        ToolError::new(ErrorKind::System, "starting a monitor").caused_by(error)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = Command::new(program);
    command.args(["sockets", "monitor", "--detach"]);
    if !place.own_folder {
        command.arg("--socket").arg(&place.path);
    }
    let output = command
        .env_remove("LD_PRELOAD")
        .stdin(wanted)
        .output()
        .map_err(failed)?;
    if output.status.success() {
        return Ok(());
    }
    let context = format!("no monitor could be started at {}", place.path.display());
    let said = String::from_utf8_lossy(&output.stderr);
    let why = said.trim().trim_start_matches("millrace: ").to_owned();
    Err(ToolError::new(ErrorKind::Monitor, context).caused_by(why))
}

/// Makes a copy that the program inherits, beside where programs look for theirs.
fn inherit(client: &Client) -> Result<OwnedFd, ToolError> {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(1 << 16);
    let least = i32::try_from((limit / 4 * 3).clamp(4, 60_000)).unwrap_or(60_000) - 1;
    let failed = |errno: rustix::io::Errno| {
        ToolError::new(ErrorKind::System, "keeping the monitor").caused_by(errno)
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
