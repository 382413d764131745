//! How the server is started: command line, configuration file, and the defaults below both.

// The tools imply the other features.
#[cfg(not(feature = "tools"))]
mod absent;
mod config_file;
#[cfg(feature = "device")]
mod device;
mod options;
#[cfg(feature = "sockets")]
mod sockets;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use bson::{Document, doc};

#[cfg(not(feature = "sockets"))]
use absent::broker_path;
#[cfg(not(feature = "device"))]
use absent::data_place;
#[cfg(feature = "device")]
pub use device::DeviceSettings;
#[cfg(feature = "device")]
use device::data_place;
pub use options::{Cli, CompatibilityOptions, EchoOptions, ServeOptions, Subcommand};

#[cfg(feature = "sockets")]
use sockets::broker_path;

use crate::machine;

/// What is wrong with the options.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// An option's value makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The configuration file cannot be read.
    #[error("the configuration file {path} cannot be read")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The configuration file is not what it should be.
    #[error("error parsing the configuration file {path}: {reason}")]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// Where the data of a server is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DataPlace {
    /// In a folder of the operating system.
    Folder(PathBuf),
    /// On a device of this process.
    #[cfg(feature = "device")]
    Device(DeviceSettings),
}

impl fmt::Display for DataPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => path.display().fmt(f),
            #[cfg(feature = "device")]
            Self::Device(device) => device.spec.fmt(f),
        }
    }
}

/// The settings of a server, complete and checked.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The folder or the device that holds the data.
    pub data: DataPlace,
    /// The TCP port that clients connect to; 0 lets the kernel choose.
    pub port: u16,
    /// The addresses to listen on; loopback only.
    pub addresses: Vec<SocketAddr>,
    /// Whether there is also a local socket in /tmp.
    pub unix_socket: bool,
    /// The path of the broker's socket; `None` without user-level sockets.
    pub sockets: Option<PathBuf>,
    /// The time for which a worker polls for their requests before it sleeps; 0 for never.
    pub socket_spin: Duration,
    /// The log file, or the standard output.
    pub logpath: Option<PathBuf>,
    /// Whether connections and slow commands are not logged.
    pub quiet: bool,
    /// Memory for the engine's cache, in bytes.
    pub cache_bytes: usize,
    /// How often the journal is synced; zero for every acknowledged write.
    pub journal_interval: Duration,
    /// The TCP port that metrics are served on; `None` for no metrics.
    pub metrics_port: Option<u16>,
    /// The number of client connections allowed at once.
    pub connections_max: usize,
    /// The number of worker threads; at least one.
    pub worker_threads: usize,
    /// Where the process's number is written to.
    pub pid_file: Option<PathBuf>,
    /// The parameters set at the start, as name and value, in their order.
    pub parameters: Vec<(String, String)>,
    /// Whether `configureFailPoint` may be run (`enableTestCommands`).
    pub enable_test_commands: bool,
    /// Whether the engine works on a file system that loses unsynced writes, for tests.
    pub loses_unsynced: bool,
    /// The arguments of the command line, the program's name first.
    pub arguments: Vec<String>,
}

impl Settings {
    /// The settings that options, and the configuration file they may name, make together.
    ///
    /// # Errors
    /// The option that is invalid and the reason, for the log and the terminal.
    pub fn resolve(options: ServeOptions, arguments: Vec<String>) -> Result<Self, SettingsError> {
        let options = match options.config.clone() {
            Some(path) => config_file::merge(options, &path)?,
            None => options,
        };
        let parameters = parse_parameters(&options.set_parameter)?;
        let enable_test_commands = parameters
            .iter()
            .any(|(name, value)| name == "enableTestCommands" && (value == "1" || value == "true"));
        let loses_unsynced = match options.test_file_system.as_deref() {
            None => false,
            Some("unsyncedLoss") if enable_test_commands => true,
            Some("unsyncedLoss") => {
                return Err(SettingsError::Invalid(
                    "--testFileSystem needs --setParameter enableTestCommands=1".to_owned(),
                ));
            }
            Some(other) => {
                return Err(SettingsError::Invalid(format!(
                    "--testFileSystem {other}: the only one is 'unsynced_loss'"
                )));
            }
        };
        let data = data_place(&options)?;
        if loses_unsynced && !matches!(data, DataPlace::Folder(_)) {
            return Err(SettingsError::Invalid(
                "--testFileSystem is for folders, not for --device".to_owned(),
            ));
        }
        let port = options.port.unwrap_or(27017);
        let bind_ip = options.bind_ip.as_deref().unwrap_or("127.0.0.1");
        Ok(Self {
            port,
            addresses: parse_addresses(bind_ip, port)?,
            unix_socket: options.unix_socket,
            sockets: broker_path(&options)?,
            socket_spin: Duration::from_micros(options.socket_spin_micros.unwrap_or(20).into()),
            logpath: options.logpath,
            quiet: options.quiet,
            cache_bytes: cache_bytes(options.cache_size_gb, &data)?,
            data,
            journal_interval: Duration::from_millis(options.journal_commit_interval.unwrap_or(0)),
            metrics_port: options.metrics_port,
            connections_max: options.max_conns.unwrap_or(20_000),
            worker_threads: options
                .worker_threads
                .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from)),
            pid_file: options.pid_file_path,
            parameters,
            enable_test_commands,
            loses_unsynced,
            arguments,
        })
    }

    /// The reply to `getCmdLineOpts`: the arguments and the parsed options.
    #[must_use]
    pub fn command_line(&self) -> Document {
        let addresses: Vec<String> = self
            .addresses
            .iter()
            .map(|address| address.ip().to_string())
            .collect();
        let mut parsed = doc! {
            "net": {
                "bindIp": addresses.join(","),
                "port": i32::from(self.port),
                "maxIncomingConnections": i64::try_from(self.connections_max).unwrap_or(i64::MAX),
            },
        };
        if let (Some(path), Ok(net)) = (&self.sockets, parsed.get_document_mut("net")) {
            let spin = i64::try_from(self.socket_spin.as_micros()).unwrap_or(i64::MAX);
            net.insert(
                "userLevelSockets",
                doc! {
                    "enabled": true,
                    "broker": path.display().to_string(),
                    "spinMicros": spin,
                },
            );
        }
        let (place, journal_interval) = (self.data.to_string(), self.journal_interval.as_millis());
        let journal = doc! {
            "commitIntervalMs": i64::try_from(journal_interval).unwrap_or(i64::MAX),
        };
        let storage = match &self.data {
            DataPlace::Folder(_) => doc! { "dbPath": place, "journal": journal },
            #[cfg(feature = "device")]
            DataPlace::Device(_) => doc! { "device": place, "journal": journal },
        };
        parsed.insert("storage", storage);
        if !self.parameters.is_empty() {
            let parameters = self.parameters.iter().map(|(n, v)| (n.clone(), v.into()));
            parsed.insert("setParameter", parameters.collect::<Document>());
        }
        if let Some(path) = &self.logpath {
            parsed.insert(
                "systemLog",
                doc! { "destination": "file", "path": path.display().to_string() },
            );
        }
        doc! { "argv": self.arguments.clone(), "parsed": parsed }
    }
}

fn parse_parameters(texts: &[String]) -> Result<Vec<(String, String)>, SettingsError> {
    let split = |text: &String| {
        let (name, value) = text.split_once('=').ok_or_else(|| {
            SettingsError::Invalid(format!("--setParameter {text}: it has to be NAME=VALUE"))
        })?;
        Ok((name.trim().to_owned(), value.trim().to_owned()))
    };
    texts.iter().map(split).collect()
}

/// The addresses of `--bind_ip`. There is no authentication yet: a client that can connect can do
/// everything, so only loopback addresses are accepted.
fn parse_addresses(text: &str, port: u16) -> Result<Vec<SocketAddr>, SettingsError> {
    let mut addresses = Vec::new();
    for part in text.split(',').map(str::trim) {
        let address = match part {
            "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
            part => part.parse().map_err(|_| {
                SettingsError::Invalid(format!("--bind_ip {part}: this is no IP address"))
            })?,
        };
        if !address.is_loopback() {
            return Err(SettingsError::Invalid(format!(
                "--bind_ip {part}: refused, since this version has no authentication and everybody \
                 who can reach the address could read and change all data; only loopback addresses \
                 (127.0.0.1, ::1, localhost) are allowed"
            )));
        }
        addresses.push(SocketAddr::new(address, port));
    }
    Ok(addresses)
}

/// The size of the cache: what was asked for, or a part of the memory. The operating system's cache holds what a
/// folder's engine cannot; of a device nothing is held elsewhere.
fn cache_bytes(size_gb: Option<f64>, data: &DataPlace) -> Result<usize, SettingsError> {
    const MIB: u64 = 1024 * 1024;
    const CACHE_MIB_MAX: f64 = 10_000.0 * 1024.0;
    let mib = match size_gb {
        None => {
            let parts = match data {
                DataPlace::Folder(_) => 4,
                #[cfg(feature = "device")]
                DataPlace::Device(_) => 2,
            };
            machine::memory_bytes() / parts / MIB
        }
        Some(size) if size > 0.0 && size * 1024.0 <= CACHE_MIB_MAX => {
            // A few digits: parsing its decimal form is exact.
            format!("{:.0}", (size * 1024.0).max(1.0))
                .parse()
                .unwrap_or(256)
        }
        Some(size) => {
            return Err(SettingsError::Invalid(format!(
                "--cacheSizeGB {size}: it has to be above 0 and at most 10000"
            )));
        }
    };
    Ok(usize::try_from(mib * MIB).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn resolve(arguments: &[&str]) -> Result<Settings, SettingsError> {
        let all = ["millrace", "serve"].iter().chain(arguments);
        let Subcommand::Serve(options) = Cli::try_parse_from(all).expect("legal options").command
        else {
            unreachable!("the subcommand is serve");
        };
        Settings::resolve(*options, Vec::new())
    }

    #[test]
    fn defaults_are_those_of_mongod_but_for_the_folder() {
        let settings = resolve(&[]).expect("the defaults are legal");
        assert_eq!(settings.port, 27017);
        assert_eq!(
            settings.addresses,
            [SocketAddr::from(([127, 0, 0, 1], 27017))]
        );
        assert_eq!(settings.data, DataPlace::Folder(PathBuf::from("data")));
        assert_eq!(settings.journal_interval, Duration::ZERO);
        assert!(!settings.enable_test_commands);
    }

    #[test]
    fn only_loopback_addresses_are_accepted() {
        let settings = resolve(&["--bind_ip", "localhost,::1", "--port", "1"]).expect("loopback");
        assert_eq!(settings.addresses.len(), 2);
        for address in ["0.0.0.0", "::", "192.168.1.1", "127.0.0.1,10.0.0.1", "host"] {
            let error = resolve(&["--bind_ip", address])
                .expect_err(address)
                .to_string();
            assert!(error.contains("--bind_ip"), "{error}");
        }
    }

    #[test]
    fn the_configuration_file_fills_what_the_command_line_leaves_open() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("millrace.yaml");
        let text = "storage:\n  dbPath: /tmp/x\n  journal: { commitIntervalMs: 30 }\nnet:\n  port: \
                    5\n  maxIncomingConnections: 9\nsystemLog: {quiet: true}\nsetParameter:\n  \
                    enableTestCommands: 1\nstorage.wiredTiger.engineConfig.cacheSizeGB: 0.5\n";
        std::fs::write(&path, text).expect("the folder is ours");
        let file = path.to_str().expect("the path is UTF-8");
        let settings = resolve(&["--config", file, "--port", "6"]).expect("a legal file");
        assert_eq!((settings.port, settings.connections_max), (6, 9));
        assert_eq!(settings.data, DataPlace::Folder(PathBuf::from("/tmp/x")));
        assert_eq!(settings.journal_interval, Duration::from_millis(30));
        assert_eq!(settings.cache_bytes, 512 << 20);
        assert!(settings.quiet && settings.enable_test_commands);
    }

    #[cfg(feature = "sockets")]
    #[test]
    fn user_level_sockets_are_asked_for() {
        assert_eq!(resolve(&[]).expect("the defaults are legal").sockets, None);
        let named = resolve(&["--sockets=/a/b", "--socketSpinMicros", "0"]).expect("a path");
        assert_eq!(named.sockets.as_deref(), Some("/a/b".as_ref()));
        assert!(named.socket_spin.is_zero());
        let reply = named.command_line();
        let parsed = reply.get_document("parsed").expect("it is there");
        let net = parsed.get_document("net").expect("it is there");
        let sockets = net.get_document("userLevelSockets").expect("it is there");
        assert_eq!(sockets.get_str("broker").ok(), Some("/a/b"));

        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("millrace.yaml");
        let file = path.to_str().expect("the path is UTF-8");
        for (enabled, expected) in [("true", Some("/c/d".as_ref())), ("false", None)] {
            let text = format!(
                "net: {{ userLevelSockets: {{ broker: /c/d, enabled: {enabled}, spinMicros: 7 }} }}"
            );
            std::fs::write(&path, text).expect("the folder is ours");
            let settings = resolve(&["--config", file]).expect("a legal file");
            assert_eq!(settings.sockets.as_deref(), expected);
            assert_eq!(settings.socket_spin, Duration::from_micros(7));
        }
        // The command line goes before the file.
        let settings = resolve(&["--config", file, "--sockets=/e"]).expect("a legal file");
        assert_eq!(settings.sockets.as_deref(), Some("/e".as_ref()));
    }

    #[test]
    fn mistakes_in_the_configuration_file_are_named() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("millrace.yaml");
        let file = path.to_str().expect("the path is UTF-8");
        for (text, expected) in [
            ("net: { prot: 5 }", "net.prot"),
            ("net: { port: many }", "net.port"),
            ("net: [1]", "net"),
            ("a: b: c", "parsing"),
            (
                "security: { authorization: enabled }",
                "security.authorization",
            ),
        ] {
            std::fs::write(&path, text).expect("the folder is ours");
            let error = resolve(&["--config", file]).expect_err(text).to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(resolve(&["--config", "/nonexistent"]).is_err());
    }

    #[cfg(feature = "device")]
    #[test]
    fn the_data_is_in_a_folder_or_on_a_device() {
        let settings = resolve(&["--device", "mem:64M", "--format"]).expect("a device");
        let spec = "mem:64M".parse().expect("it names a device");
        let device = DeviceSettings { spec, format: true };
        assert_eq!(settings.data, DataPlace::Device(device));
        let storage = settings.command_line();
        let storage = storage
            .get_document("parsed")
            .and_then(|parsed| parsed.get_document("storage"));
        let device = storage.and_then(|storage| storage.get_str("device"));
        assert_eq!(device.ok(), Some("mem:64M"));
        for (options, expected) in [
            (&["--device", "floppy:0"][..], "--device floppy:0"),
            (&["--device", ""], "--device"),
            (&["--format"], "--format"),
            (
                &[
                    "--device",
                    "mem:64M",
                    "--setParameter",
                    "enableTestCommands=1",
                    "--testFileSystem",
                    "unsyncedLoss",
                ],
                "--testFileSystem",
            ),
        ] {
            let error = resolve(options).expect_err(expected).to_string();
            assert!(error.contains(expected), "{options:?}: {error}");
        }
        let both = ["millrace", "serve", "--device", "mem:64M", "--dbpath", "x"];
        assert!(Cli::try_parse_from(both).is_err());
    }

    #[cfg(feature = "device")]
    #[test]
    fn a_device_of_the_configuration_file_and_a_folder_of_the_command_line_do_not_go_together() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("millrace.yaml");
        std::fs::write(&path, "storage: { device: 'mem:64M' }\n").expect("the folder is ours");
        let file = path.to_str().expect("the path is UTF-8");
        assert!(matches!(
            resolve(&["--config", file]).expect("a device").data,
            DataPlace::Device(_)
        ));
        let error = resolve(&["--config", file, "--dbpath", "x"]).expect_err("both are given");
        assert!(error.to_string().contains("which one"), "{error}");
    }

    #[test]
    fn dangerous_options_need_enable_test_commands() {
        assert!(resolve(&["--testFileSystem", "unsyncedLoss"]).is_err());
        let test = [
            "--setParameter",
            "enableTestCommands=1",
            "--testFileSystem",
            "unsyncedLoss",
        ];
        assert!(resolve(&test).expect("it is allowed").loses_unsynced);
        assert!(resolve(&["--setParameter", "novalue"]).is_err());
        assert!(resolve(&["--cacheSizeGB", "-1"]).is_err());
        assert!(resolve(&["--wiredTigerCacheSizeGB", "0.25"]).is_ok());
    }
}
