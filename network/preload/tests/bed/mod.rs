//! A monitor on a thread, and programs in C that are run with and without the library.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use millrace_proxy::client::Client;
use millrace_proxy::monitor::Monitor;
use millrace_proxy::plane::{DataPlane, Plane, PlaneSettings};
use millrace_proxy::registry::{Carriage, Settings};
use millrace_stream::control::Message;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;

/// A program that takes longer has hung.
const LIMIT: Duration = Duration::from_secs(180);

/// A monitor and a folder. Both go when this is dropped.
pub(crate) struct Bed {
    pub(crate) folder: tempfile::TempDir,
    /// When this is closed, the monitor ends.
    pub(crate) stop: Option<UnixStream>,
    pub(crate) thread: Option<JoinHandle<()>>,
    /// Ends by itself when the monitor has ended.
    plane: Option<JoinHandle<()>>,
}

/// What a run came to.
pub(crate) struct Run {
    /// What the program has printed, and how it ended.
    pub(crate) text: String,
    pub(crate) totals: Totals,
}

/// What the slabs of all processes have counted, and the monitor's own counters.
#[derive(Debug)]
pub(crate) struct Totals {
    totals: Value,
    requests: Value,
}

impl Totals {
    /// A counter of all processes together.
    pub(crate) fn counter(&self, name: &str) -> u64 {
        self.totals[name].as_u64().expect("a counter")
    }

    /// How many requests of this name the monitor has served.
    pub(crate) fn requests(&self, name: &str) -> u64 {
        self.requests[name].as_u64().expect("a counter")
    }
}

impl Bed {
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), Vec::new())
    }

    /// All connections are carried by a plane.
    pub(crate) fn proxied() -> Self {
        let settings = Settings {
            carriage: Carriage::Proxy,
            ..Settings::default()
        };
        let (data_plane, planes) =
            DataPlane::new(1, PlaneSettings::default()).expect("its descriptors");
        Self::with(settings, vec![(data_plane, planes)])
    }

    fn with(settings: Settings, planes: Vec<(DataPlane, Vec<Plane>)>) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut monitor =
            Monitor::bind(&folder.path().join("sockets"), settings).expect("nobody listens there");
        let mut plane = None;
        for (data_plane, planes) in planes {
            monitor.carry(data_plane).expect("it is watched");
            plane = Some(thread::spawn(move || {
                let start = Instant::now();
                for mut plane in planes {
                    let clock = || u64::try_from(start.elapsed().as_nanos()).expect("centuries");
                    plane.run(clock).expect("the plane works");
                }
            }));
        }
        let (stop, thread) = run(monitor);
        Self {
            plane,
            folder,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Compiles `programs/<name>.c`.
    pub(crate) fn compile(&self, name: &str) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/programs/{name}.c"));
        let program = self.folder.path().join(name);
        let compiled = Command::new("gcc")
            .args(["-I", concat!(env!("CARGO_MANIFEST_DIR"), "/include")])
            .args(["-O2", "-Wall", "-Wextra", "-pthread", "-o"])
            .args([&program, &source])
            .output()
            .expect("gcc is there");
        assert!(
            compiled.status.success(),
            "{}",
            String::from_utf8_lossy(&compiled.stderr)
        );
        program
    }

    /// Runs a program, by the kernel or at user level.
    pub(crate) fn run(&self, program: &Path, at_user_level: bool) -> Run {
        let text = self.text_of(program, at_user_level.then(|| self.socket()));
        let totals = self.totals();
        Run { text, totals }
    }

    /// What a program prints, by the kernel or with a monitor that listens at a path, and how it ends.
    pub(crate) fn text_of(&self, program: &Path, socket: Option<PathBuf>) -> String {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        if let Some(socket) = socket {
            command
                .env("MILLRACE_SOCKETS", socket)
                .env("LD_PRELOAD", library());
        }
        let output = output_of(command);
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.push_str(&String::from_utf8_lossy(&output.stderr));
        text.push_str(&output.status.to_string());
        text
    }

    /// Where the monitor listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("sockets")
    }

    /// Somebody who asks the monitor.
    pub(crate) fn client(&self) -> Client {
        let mut client = Client::connect(&self.socket()).expect("it listens");
        let slab =
            memfd_create(c"slab", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("memory");
        fcntl_add_seals(&slab, SealFlags::SHRINK).expect("it may be sealed");
        client.hello(&slab).expect("it lets us in");
        client
    }

    /// Asks the monitor, once all other processes are gone.
    fn totals(&self) -> Totals {
        let mut client = self.client();
        loop {
            let report = client.report(Message::Status).expect("an answer");
            let report: Value = serde_json::from_str(&report).expect("it is JSON");
            if report["processes"] != 1 {
                continue;
            }
            return Totals {
                totals: report["totals"].clone(),
                requests: report["requests"].clone(),
            };
        }
    }
}

/// Runs a program and its children to their end, or kills them.
///
/// # Panics
/// If they were killed.
fn output_of(mut command: Command) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    // So that its children go with it.
    let child = command.process_group(0).spawn().expect("it was compiled");
    let group = Pid::from_child(&child);
    let (ends, ended) = mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        let hangs = ended.recv_timeout(LIMIT) == Err(RecvTimeoutError::Timeout);
        if hangs {
            // It may have ended just now.
            let _ = kill_process_group(group, Signal::KILL);
        }
        hangs
    });
    let output = child.wait_with_output().expect("it can be waited for");
    drop(ends);
    let was_killed = watch.join().expect("the watch does not panic");
    assert!(!was_killed, "{command:?} hangs: {output:?}");
    output
}

/// Runs a monitor until the socket is closed.
pub(crate) fn run(mut monitor: Monitor) -> (UnixStream, JoinHandle<()>) {
    let (stop, told) = UnixStream::pair().expect("a pair of sockets");
    let thread = thread::spawn(move || {
        monitor.run(told).expect("the epoll waits");
        monitor.dismiss();
    });
    (stop, thread)
}

impl Drop for Bed {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            assert!(
                ended.is_ok() || thread::panicking(),
                "the monitor ends well"
            );
        }
        if let Some(plane) = self.plane.take() {
            let ended = plane.join();
            assert!(ended.is_ok() || thread::panicking(), "the plane ends well");
        }
    }
}

/// The library, built if need be: no test of a library that only other languages load has it built.
pub(crate) fn library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let built = Command::new(env!("CARGO"))
            .args([
                "build",
                "--offline",
                "--package",
                "millrace-preload",
                "--message-format",
                "json",
            ])
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .stderr(Stdio::inherit())
            .output()
            .expect("cargo is there");
        assert!(built.status.success(), "the library builds");
        let messages = String::from_utf8_lossy(&built.stdout);
        let file = messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
            .filter(|message| message["target"]["name"] == "millrace_preload")
            .find_map(|message| Some(PathBuf::from(message["filenames"][0].as_str()?)));
        file.expect("cargo says where it is")
    })
}

/// Runs a program both ways and compares. The slabs say that its bytes went past the kernel.
pub(crate) fn same(name: &str) {
    let totals = compare(&Bed::new(), name);
    assert_eq!(totals.requests("proxied"), 0, "{name}: {totals:?}");
}

/// The same where a plane stands between the two.
pub(crate) fn same_by_plane(name: &str) {
    let totals = compare(&Bed::proxied(), name);
    assert!(totals.requests("proxied") > 0, "{name}: {totals:?}");
}

fn compare(bed: &Bed, name: &str) -> Totals {
    let program = bed.compile(name);
    let by_kernel = bed.run(&program, false);
    let by_user = bed.run(&program, true);
    assert_eq!(
        by_user.text, by_kernel.text,
        "{name}: at user level and by the kernel"
    );
    let totals = by_user.totals;
    assert!(
        totals.counter("connects") > 0 && totals.counter("bytes_received") > 0,
        "{name}: {totals:?}"
    );
    assert_eq!(totals.counter("kernel_connects"), 0, "{name}: {totals:?}");
    assert_eq!(totals.counter("kernel_accepts"), 0, "{name}: {totals:?}");
    totals
}

/// A test for each program, and one of the same by a plane for each that does not rely on bytes being there as soon
/// as they were sent.
macro_rules! programs {
    (direct: $($direct:ident)*; by_plane: $($by_plane:ident)*) => {
        $(
            #[test]
            fn $direct() {
                $crate::bed::same(stringify!($direct));
            }
        )*

        mod by_plane {
            $(
                #[test]
                fn $by_plane() {
                    $crate::bed::same_by_plane(stringify!($by_plane));
                }
            )*
        }
    };
}

pub(crate) use programs;
