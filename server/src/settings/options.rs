//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser};

/// A document database that speaks MongoDB's protocol.
#[derive(Debug, Parser)]
#[command(name = "millrace", version, about)]
pub struct Cli {
    /// The subcommand to run
    #[command(subcommand)]
    pub command: Subcommand,
}

/// What the binary can do.
#[derive(Debug, clap::Subcommand)]
pub enum Subcommand {
    /// Serve a folder of data to MongoDB clients.
    Serve(Box<ServeOptions>),
    /// The subcommands for devices, volumes and user-level sockets.
    #[cfg(feature = "tools")]
    #[command(flatten)]
    Tool(millrace_tools::Subcommand),
    /// The same ones in a build that lacks them.
    #[cfg(not(feature = "tools"))]
    #[command(name = "nvme", aliases = ["blobfs", "sockets"], hide = true, disable_help_flag = true)]
    Tool(AbsentTool),
    /// Answer every request with a canned reply: the limit of what the network layer can do.
    #[command(hide = true)]
    Echo(EchoOptions),
    /// Write the list of commands into the page that documents them.
    #[command(hide = true)]
    Compatibility(CompatibilityOptions),
}

/// The arguments of a subcommand that this build lacks. None is looked at.
#[cfg(not(feature = "tools"))]
#[derive(Args, Clone, Debug)]
pub struct AbsentTool {
    /// All arguments
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<std::ffi::OsString>,
}

#[cfg(not(feature = "tools"))]
impl AbsentTool {
    /// Why the subcommand cannot be run, with the remedy.
    #[must_use]
    pub fn refusal(&self) -> super::SettingsError {
        super::absent::missing("the subcommands nvme, blobfs and sockets", "tools")
    }
}

/// The options of `millrace compatibility`: the page that it rewrites.
#[derive(Args, Clone, Debug)]
pub struct CompatibilityOptions {
    /// The page, `docs/compatibility.md` of a checkout.
    pub page: PathBuf,
}

/// The options of `millrace serve`, those of mongod where it has them.
#[derive(Args, Clone, Debug, Default)]
#[command(after_help = "Examples:
  millrace serve                                      ./data on 127.0.0.1:27017
  millrace serve --dbpath /srv/data --port 27018 --cacheSizeGB 4
  millrace serve --device file:/srv/disk.img --format
  millrace serve --device nvme:0000:01:00.0           the device is driven by this process
  millrace serve --journalCommitInterval 100          acknowledge before the log is synced
  millrace serve --config /etc/millrace.yaml          mongod's layout of keys
  millrace serve --sockets                            also by user-level sockets, without the kernel
  millrace serve --metricsPort 9216                   Prometheus text at /metrics")]
pub struct ServeOptions {
    /// The folder of the data; made if it is not there [default: ./data]
    #[arg(long, value_name = "FOLDER")]
    pub dbpath: Option<PathBuf>,
    /// Keep the data on a device instead of in a folder: file:/disk.img, /dev/sdb, nvme:0000:01:00.0, mem:1G
    #[arg(long, value_name = "SPEC", conflicts_with = "dbpath")]
    pub device: Option<String>,
    /// Make a volume on the device first if that is blank; a volume that is there is kept
    #[arg(long)]
    pub format: bool,
    /// The port [default: 27017]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// The addresses to listen on, with commas between; loopback only [default: 127.0.0.1]
    #[arg(long = "bind_ip", value_name = "ADDRESSES")]
    pub bind_ip: Option<String>,
    /// Also listen on /tmp/mongodb-PORT.sock, for programs of the same user
    #[arg(long = "unixSocket")]
    pub unix_socket: bool,
    /// Also listen by user-level sockets, of the broker at PATH [default: $MILLRACE_SOCKETS; else
    /// /run/millrace/sockets for root, $XDG_RUNTIME_DIR/millrace/sockets for others]
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true)]
    pub sockets: Option<Option<PathBuf>>,
    /// The broker's path in the configuration file, which must also enable user-level sockets.
    #[arg(skip)]
    pub sockets_broker: Option<PathBuf>,
    /// For how long a thread looks for requests by user-level sockets before it sleeps [default: 20]
    #[arg(long = "socketSpinMicros", value_name = "US")]
    pub socket_spin_micros: Option<u16>,
    /// A YAML file with options in mongod's layout; the command line goes before it
    #[arg(long, short = 'f', value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Append the log to a file instead of writing it to the standard output
    #[arg(long, value_name = "FILE")]
    pub logpath: Option<PathBuf>,
    /// Do not log connections and slow commands
    #[arg(long)]
    pub quiet: bool,
    /// Memory for the engine's cache, in GiB [default: a quarter of the machine's; half of it with --device]
    #[arg(
        long = "cacheSizeGB",
        alias = "wiredTigerCacheSizeGB",
        value_name = "GB"
    )]
    #[arg(allow_negative_numbers = true)]
    pub cache_size_gb: Option<f64>,
    /// Sync the journal every MS milliseconds instead of before each acknowledgement [default: 0]
    #[arg(long = "journalCommitInterval", value_name = "MS")]
    pub journal_commit_interval: Option<u64>,
    /// Serve /metrics, /livez and /readyz on this loopback port
    #[arg(long = "metricsPort", value_name = "PORT")]
    pub metrics_port: Option<u16>,
    /// Set a parameter of the server
    #[arg(long = "setParameter", value_name = "NAME=VALUE")]
    pub set_parameter: Vec<String>,
    /// How many connections there may be [default: 20000]
    #[arg(long = "maxConns", value_name = "COUNT")]
    pub max_conns: Option<usize>,
    /// How many threads serve connections [default: one a core]
    #[arg(long = "workerThreads", value_name = "COUNT")]
    pub worker_threads: Option<usize>,
    /// Write the process's number to a file
    #[arg(long = "pidfilepath", value_name = "FILE")]
    pub pid_file_path: Option<PathBuf>,
    /// For tests: `unsyncedLoss` loses what was not synced when the process is killed
    #[arg(long = "testFileSystem", value_name = "KIND", hide = true)]
    pub test_file_system: Option<String>,
}

/// The options of `millrace echo`, a service with canned replies.
#[derive(Args, Clone, Copy, Debug)]
pub struct EchoOptions {
    /// The port; on 127.0.0.1
    #[arg(long, default_value_t = 27017)]
    pub port: u16,
    /// The length of the document in the reply to `find`, in bytes
    #[arg(long = "replySize", default_value_t = 1000)]
    pub reply_size: usize,
    /// How many threads serve connections
    #[arg(long = "workerThreads")]
    pub worker_threads: Option<usize>,
}

#[cfg(all(test, not(feature = "tools")))]
mod tests {
    use super::*;

    #[test]
    fn subcommands_for_devices_and_sockets_are_refused_by_the_feature_that_is_missing() {
        for arguments in [
            &["nvme", "list", "--json"][..],
            &["nvme", "--help"],
            &["blobfs", "mkfs", "--force", "file:/disk.img"],
            &["sockets", "run", "--", "true", "-x"],
            &["sockets"],
        ] {
            let all = ["millrace"].iter().chain(arguments);
            let Subcommand::Tool(tool) = Cli::try_parse_from(all).expect("it is known").command
            else {
                unreachable!("the subcommand is one of the tools");
            };
            let refusal = tool.refusal().to_string();
            assert!(refusal.contains("needs the feature 'tools'"), "{refusal}");
        }
    }
}
