//! `millrace sockets` as a program.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, kill_process};

fn millrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_millrace"));
    command
        .arg("sockets")
        .args(arguments)
        .env_remove("MILLRACE_SOCKETS")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null());
    command
}

/// Any library that a program has anyhow.
fn library() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("it is there");
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let found = paths.into_iter().find(|path| path.contains("/libc.so"));
    PathBuf::from(found.expect("tests are linked to the C library"))
}

/// A folder for a broker's socket.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sockets")
    }

    fn run(&self, program: &[&str]) -> Command {
        let mut command = millrace(&["run", "--socket"]);
        command
            .arg(self.path())
            .arg("--library")
            .arg(library())
            .arg("--")
            .args(program);
        command
    }

    /// Waits until no broker has the lock.
    fn wait_for_end(&self) {
        let path = self.0.path().join("sockets.lock");
        let lock = std::fs::File::open(path).expect("a broker was there");
        flock(&lock, FlockOperation::LockExclusive).expect("it can be locked");
    }
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8(all).expect("it is text")
}

struct Broker(Child);

impl Broker {
    fn start(path: &Path) -> Self {
        Self::start_with(path, &[])
    }

    fn start_with(path: &Path, options: &[&str]) -> Self {
        let mut broker = millrace(&["broker", "--socket"])
            .arg(path)
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it can be run");
        let mut line = String::new();
        let output = broker.stdout.take().expect("it is a pipe");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert!(line.starts_with("listening at "), "{line}");
        Self(broker)
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        let process = Pid::from_child(&self.0);
        kill_process(process, Signal::TERM).expect("it runs");
        let status = self.0.wait().expect("it is ours");
        assert!(std::thread::panicking() || status.success(), "{status}");
    }
}

#[test]
fn the_program_ends_as_it_will_and_finds_the_library_and_the_broker() {
    let place = Place::new();
    let script =
        "echo \"$LD_PRELOAD\"; echo \"$MILLRACE_SOCKETS\"; echo \"$MILLRACE_SPIN_US\"; exit 7";
    let output = place
        .run(&["sh", "-c", script])
        .env("LD_PRELOAD", "")
        .output()
        .expect("it can be run");
    let library = library().canonicalize().expect("it is there");
    let expected = format!("{}\n{}\n\n", library.display(), place.path().display());
    assert_eq!(text(&output), expected);
    assert_eq!(output.status.code(), Some(7));
    place.wait_for_end();

    let status = place
        .run(&["sh", "-c", "kill -TERM $$"])
        .status()
        .expect("it can be run");
    assert_eq!(status.signal(), Some(15));
    place.wait_for_end();
}

#[test]
fn a_broker_that_run_has_started_stays_for_children_that_outlive_the_program() {
    let place = Place::new();
    // The child has no descriptor of the standard output, so that `output` does not wait for it.
    let script = "{ read line <&3; exec 3>&-; } >/dev/null 2>&1 & exit 0";
    let (ours, theirs) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let status = place
        .run(&["sh", "-c", &format!("exec 3<&0; {script}")])
        .stdin(Stdio::from(std::os::fd::OwnedFd::from(theirs)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("it can be run");
    assert!(status.success());
    let output = millrace(&["status", "--socket"])
        .arg(place.path())
        .output()
        .expect("it can be run");
    assert!(output.status.success(), "{}", text(&output));
    drop(ours);
    place.wait_for_end();
}

#[test]
fn a_broker_that_listens_is_used_and_says_what_it_does() {
    let place = Place::new();
    let broker = Broker::start(&place.path());
    let output = place.run(&["true"]).output().expect("it can be run");
    assert!(output.status.success(), "{}", text(&output));
    for (command, field) in [("status", "listeners"), ("top", "processes")] {
        let output = millrace(&[command, "--json", "--socket"])
            .arg(place.path())
            .output()
            .expect("it can be run");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert!(value[field].is_array(), "{value}");
        let output = millrace(&[command, "--socket"])
            .arg(place.path())
            .output()
            .expect("it can be run");
        assert!(output.status.success() && !output.stdout.is_empty());
    }
    let second = millrace(&["broker", "--socket"])
        .arg(place.path())
        .output()
        .expect("it can be run");
    assert_eq!(second.status.code(), Some(1));
    assert!(text(&second).contains("already"), "{}", text(&second));
    drop(broker);
    let output = millrace(&["status", "--socket"])
        .arg(place.path())
        .output()
        .expect("it can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("no broker listens"),
        "{}",
        text(&output)
    );
}

/// A forwarder runs by default with mode `forwarded`, unless the options set another number.
#[test]
fn mode_forwarded_has_a_forwarder() {
    for (options, forwarders) in [
        (&[][..], 0),
        (&["--mode", "forwarded"], 1),
        (&["--mode", "forwarded", "--forwarders", "2"], 2),
        (&["--mode", "forwarded", "--forwarders", "0"], 0),
    ] {
        let place = Place::new();
        let _broker = Broker::start_with(&place.path(), options);
        let output = millrace(&["status", "--json", "--socket"])
            .arg(place.path())
            .output()
            .expect("it can be run");
        let value: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let connections = value["forwarders"]["connections"].as_array();
        assert_eq!(
            connections.map_or(0, Vec::len),
            forwarders,
            "{options:?}: {value}"
        );
    }
}

#[test]
fn what_is_wrong_is_said() {
    let place = Place::new();
    let output = millrace(&["run", "--library", "/nonexistent/x.so", "--", "true"])
        .output()
        .expect("it can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("/nonexistent/x.so"),
        "{}",
        text(&output)
    );

    let output = place
        .run(&["/nonexistent/program"])
        .output()
        .expect("it can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("/nonexistent/program"),
        "{}",
        text(&output)
    );
    place.wait_for_end();

    let rules = place.0.path().join("rules.toml");
    std::fs::write(&rules, "[[rule]]\naction = \"no\"\n").expect("it can be written");
    let output = millrace(&["broker", "--socket"])
        .arg(place.path())
        .arg("--rules")
        .arg(&rules)
        .output()
        .expect("it can be run");
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output).contains("line 2: an action is"),
        "{}",
        text(&output)
    );
}
