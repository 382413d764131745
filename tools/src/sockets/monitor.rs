//! `millrace sockets monitor`.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{self, Stdio};

use millrace_proxy::monitor::{Monitor, prepare_folder};
use millrace_proxy::registry::{Limits, Ports, Settings};
use millrace_proxy::rules::Rules;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::place::Place;
use super::planes::Planes;
use super::{ErrorKind, MonitorOptions, ToolError, peers};

/// Descriptors of a monitor whose every limit is reached, and some more, without those of what planes carry.
const DESCRIPTORS: u64 = 32_768;
/// Descriptors of a connection that planes carry: its ends, and while it is made its memory.
const DESCRIPTORS_CARRIED: u64 = 4;

pub(super) fn run(options: &MonitorOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let place = Place::find(options.socket.as_deref())?;
    if options.detach {
        return detach(&place);
    }
    raise_limit(options.carried_max);
    let rules = options.rules.as_deref().map(read_rules).transpose()?;
    let settings = Settings {
        rules: rules.unwrap_or_default(),
        ports: ports(),
        carriage: options.mode.into(),
        limits: Limits {
            carried_max: options.carried_max,
            carried_per_user_max: options.carried_per_user_max,
            backlogs_per_user_max: backlogs(),
            ..Limits::DEFAULT
        },
        ..Settings::default()
    };
    let peers = peers::settings(options)?;
    let mut monitor = bind(&place, settings)?;
    let stop = stop_on_signals()?;
    let planes = Planes::start(options, &mut monitor)?;
    if let Some(peers) = peers {
        monitor
            .meet(peers)
            .map_err(|error| ToolError::of_monitor(&error))?;
    }
    writeln!(out, "listening at {}", place.path.display())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)?;
    let served = if options.while_used {
        leave_terminal()?;
        monitor.run_while_used(&stop, std::io::stdin())
    } else {
        monitor.run(&stop)
    };
    monitor.dismiss();
    planes.join();
    served.map_err(|error| ToolError::of_monitor(&error))
}

fn bind(place: &Place, settings: Settings) -> Result<Monitor, ToolError> {
    let admit = settings
        .rules
        .admit_others(rustix::process::geteuid().as_raw());
    let folder = place.path.parent().filter(|_| place.own_folder);
    folder
        .map_or(Ok(()), |folder| prepare_folder(folder, admit))
        .and_then(|()| Monitor::bind(&place.path, settings))
        .map_err(|error| ToolError::of_monitor(&error))
}

/// Starts a monitor that ends when nobody is left and this process's standard input has ended. Returns once it
/// listens. It is nobody's child then: a program that waits for its own children must not find it among them.
fn detach(place: &Place) -> Result<(), ToolError> {
    let failed = |error: std::io::Error| {
        ToolError::new(ErrorKind::System, "starting a monitor").caused_by(error)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = process::Command::new(program);
    command.args(["sockets", "monitor", "--while-used"]);
    if !place.own_folder {
        command.arg("--socket").arg(&place.path);
    }
    let mut monitor = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = Vec::new();
    if let Some(output) = monitor.stdout.take() {
        output.take(1).read_to_end(&mut line).map_err(failed)?;
    }
    if line.is_empty() {
        // It has said why on the standard error.
        monitor.wait().map_err(failed)?;
        return Err(ToolError::new(ErrorKind::Monitor, "it ended at once"));
    }
    Ok(())
}

/// Leaves the session and the terminal of whoever has started it, whose signals are not for the monitor.
fn leave_terminal() -> Result<(), ToolError> {
    let failed = |errno: rustix::io::Errno| {
        ToolError::new(ErrorKind::System, "leaving the terminal").caused_by(errno)
    };
    rustix::process::setsid().map_err(failed)?;
    let nowhere = fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .map_err(|error| {
            ToolError::new(ErrorKind::System, "opening /dev/null").caused_by(error)
        })?;
    rustix::stdio::dup2_stdout(&nowhere).map_err(failed)?;
    rustix::stdio::dup2_stderr(&nowhere).map_err(failed)
}

fn read_rules(path: &Path) -> Result<Rules, ToolError> {
    let text = fs::read_to_string(path).map_err(|error| {
        let context = format!("{} could not be read", path.display());
        ToolError::new(ErrorKind::Usage, context).caused_by(error)
    })?;
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    Rules::parse(&text, &|name| user_number(&users, name)).map_err(|error| {
        let context = format!("{}: {error}", path.display());
        ToolError::new(ErrorKind::Usage, context)
            .advise("`millrace sockets monitor --help` shows rules")
    })
}

/// The number of a user in the text of `/etc/passwd`.
fn user_number(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name);
        fields.nth(1).filter(|_| found)?.parse().ok()
    })
}

/// The ports that the kernel gives to those who ask for any.
fn ports() -> Ports {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ports::new(first..=last),
        _ => Ports::new(Ports::DEFAULT_RANGE),
    }
}

/// As many descriptors as a full monitor has, if this user may; else some processes are turned away earlier.
fn raise_limit(carried_max: usize) {
    let limit = getrlimit(Resource::Nofile);
    let carried = u64::try_from(carried_max).unwrap_or(u64::MAX);
    let wanted = carried
        .saturating_mul(DESCRIPTORS_CARRIED)
        .saturating_add(DESCRIPTORS);
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|now| now < current) {
        let raised = Rlimit {
            current: Some(current),
            ..limit
        };
        // Not above the maximum: nothing speaks against it.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// How many connections may wait for one user to accept them. Each is two descriptors under way, of which a user who is
/// not root has as many as a process may open: this is an eighth of those.
fn backlogs() -> u32 {
    let most = Limits::DEFAULT.backlogs_per_user_max;
    if rustix::process::geteuid().is_root() {
        return most;
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(limit / 16).unwrap_or(u32::MAX).min(most)
}

/// What becomes readable at a signal that asks for the end.
fn stop_on_signals() -> Result<impl AsFd, ToolError> {
    let failed = |error: std::io::Error| {
        ToolError::new(ErrorKind::System, "signals could not be watched").caused_by(error)
    };
    let (stop, told) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let told = told.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, told).map_err(failed)?;
    }
    Ok(stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_names() {
        let text =
            "root:x:0:0:root:/root:/bin/bash\n\nbad\nwww-data:x:33:33::/var/www:/bin/false\n";
        assert_eq!(user_number(text, "root"), Some(0));
        assert_eq!(user_number(text, "www-data"), Some(33));
        assert_eq!(user_number(text, "www"), None);
        assert_eq!(user_number(text, "bad"), None);
    }
}
