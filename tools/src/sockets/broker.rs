//! The command `millrace sockets broker`.

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{self, Stdio};

use millrace_broker::broker::{Broker, prepare_folder};
use millrace_broker::registry::{Limits, Ports, Settings};
use millrace_broker::rules::Rules;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::forwarder_threads::ForwarderThreads;
use super::socket_path::SocketPath;
use super::{BrokerOptions, peers};
use crate::{ErrorKind, ToolError};

/// Descriptors of a broker at all of its limits, with a reserve, without those of forwarded connections.
const DESCRIPTORS: u64 = 32_768;
/// Descriptors of a forwarded connection: its ends, and its memory while it is made.
const DESCRIPTORS_CARRIED: u64 = 4;

pub(super) fn run(options: &BrokerOptions, out: &mut dyn Write) -> Result<(), ToolError> {
    let socket_path = SocketPath::find(options.socket.as_deref())?;
    if options.detach {
        return detach(&socket_path);
    }
    raise_limit(options.forwarded_max);
    let rules = options.rules.as_deref().map(read_rules).transpose()?;
    let settings = Settings {
        rules: rules.unwrap_or_default(),
        ports: ports(),
        data_path: options.mode.into(),
        limits: Limits {
            forwarded_max: options.forwarded_max,
            forwarded_per_user_max: options.forwarded_per_user_max,
            backlogs_per_user_max: backlogs(),
            ..Limits::DEFAULT
        },
        ..Settings::default()
    };
    let peers = peers::settings(options)?;
    let mut broker = bind(&socket_path, settings)?;
    let stop = stop_on_signals()?;
    let forwarders = ForwarderThreads::start(options, &mut broker)?;
    if let Some(peers) = peers {
        broker
            .enable_peers(peers)
            .map_err(|error| ToolError::of_broker(&error))?;
    }
    writeln!(out, "listening at {}", socket_path.path.display())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)?;
    let served = if options.while_used {
        leave_terminal()?;
        broker.run_while_used(&stop, std::io::stdin())
    } else {
        broker.run(&stop)
    };
    broker.stop_forwarders();
    forwarders.join();
    served.map_err(|error| ToolError::of_broker(&error))
}

fn bind(socket_path: &SocketPath, settings: Settings) -> Result<Broker, ToolError> {
    let admit = settings
        .rules
        .admit_others(rustix::process::geteuid().as_raw());
    let folder = socket_path.path.parent().filter(|_| socket_path.own_folder);
    folder
        .map_or(Ok(()), |folder| prepare_folder(folder, admit))
        .and_then(|()| Broker::bind(&socket_path.path, settings))
        .map_err(|error| ToolError::of_broker(&error))
}

/// Starts a broker that exits when it is unused and this process's standard input has hung up. Returns once it listens.
/// The broker is reparented then: a program that waits for its own children must not find it among them.
fn detach(socket_path: &SocketPath) -> Result<(), ToolError> {
    let failed = |error: std::io::Error| {
        ToolError::new(ErrorKind::System, "starting a broker").caused_by(error)
    };
    let program = std::env::current_exe().map_err(failed)?;
    let mut command = process::Command::new(program);
    command.args(["sockets", "broker", "--while-used"]);
    if !socket_path.own_folder {
        command.arg("--socket").arg(&socket_path.path);
    }
    let mut broker = command.stdout(Stdio::piped()).spawn().map_err(failed)?;
    let mut line = Vec::new();
    if let Some(output) = broker.stdout.take() {
        output.take(1).read_to_end(&mut line).map_err(failed)?;
    }
    if line.is_empty() {
        // The broker has printed the reason on the standard error.
        broker.wait().map_err(failed)?;
        return Err(ToolError::new(
            ErrorKind::Broker,
            "the broker exited at once: its message is on the standard error",
        ));
    }
    Ok(())
}

/// Leaves the parent's session and terminal, whose signals are not meant for the broker.
fn leave_terminal() -> Result<(), ToolError> {
    let failed = |errno: rustix::io::Errno| {
        ToolError::new(ErrorKind::System, "leaving the terminal").caused_by(errno)
    };
    rustix::process::setsid().map_err(failed)?;
    let nowhere = fs::OpenOptions::new()
        .write(true)
        .open("/dev/null")
        .map_err(|error| ToolError::new(ErrorKind::System, "opening /dev/null").caused_by(error))?;
    rustix::stdio::dup2_stdout(&nowhere).map_err(failed)?;
    rustix::stdio::dup2_stderr(&nowhere).map_err(failed)
}

fn read_rules(path: &Path) -> Result<Rules, ToolError> {
    let text = fs::read_to_string(path).map_err(|error| {
        let context = format!("reading {}", path.display());
        ToolError::new(ErrorKind::Usage, context).caused_by(error)
    })?;
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    Rules::parse(&text, &|name| user_number(&users, name)).map_err(|error| {
        let context = format!("{}: {error}", path.display());
        ToolError::new(ErrorKind::Usage, context)
            .advise("`millrace sockets broker --help` shows rules")
    })
}

/// The user id of a name in the text of `/etc/passwd`.
fn user_number(text: &str, name: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let found = fields.next() == Some(name);
        fields.nth(1).filter(|_| found)?.parse().ok()
    })
}

/// The kernel's range of ephemeral ports.
fn ports() -> Ports {
    let text = fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().map(str::parse);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(first)), Some(Ok(last))) => Ports::new(first..=last),
        _ => Ports::new(Ports::DEFAULT_RANGE),
    }
}

/// Raises the descriptor limit to the need of a full broker, as far as this user may; below it some processes are
/// refused earlier.
fn raise_limit(forwarded_max: usize) {
    let limit = getrlimit(Resource::Nofile);
    let forwarded = u64::try_from(forwarded_max).unwrap_or(u64::MAX);
    let wanted = forwarded
        .saturating_mul(DESCRIPTORS_CARRIED)
        .saturating_add(DESCRIPTORS);
    let current = limit.maximum.map_or(wanted, |maximum| maximum.min(wanted));
    if limit.current.is_some_and(|now| now < current) {
        let raised = Rlimit {
            current: Some(current),
            ..limit
        };
        // Not above the hard limit, so the call cannot fail for lack of rights.
        let _ = setrlimit(Resource::Nofile, raised);
    }
}

/// The limit of one user's backlogs. A waiting connection has two descriptors in flight, which for users other than
/// root count against RLIMIT_NOFILE: this is an eighth of that limit.
fn backlogs() -> u32 {
    let most = Limits::DEFAULT.backlogs_per_user_max;
    if rustix::process::geteuid().is_root() {
        return most;
    }
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    u32::try_from(limit / 16).unwrap_or(u32::MAX).min(most)
}

/// A socket that becomes readable at SIGTERM, SIGINT or SIGHUP.
fn stop_on_signals() -> Result<impl AsFd, ToolError> {
    let failed = |error: std::io::Error| {
        ToolError::new(ErrorKind::System, "watching signals").caused_by(error)
    };
    let (stop, notify) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        let notify = notify.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, notify).map_err(failed)?;
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
