//! The command line of `millrace sockets`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use millrace_broker::registry::{DataPath, Limits};

/// The options of `millrace sockets`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets run -- nginx -g 'daemon off;'
  millrace sockets run -- ab -n 100000 -c 16 -k http://127.0.0.1/
  millrace sockets status
  millrace sockets top --every 1

The broker connects programs to each other. `run` starts one if none listens. Its socket is at
  --socket PATH, else $MILLRACE_SOCKETS, else
  /run/millrace/sockets for root, else $XDG_RUNTIME_DIR/millrace/sockets, else /tmp/millrace-UID/sockets")]
pub struct SocketsOptions {
    /// The subcommand of `millrace sockets` to run
    #[command(subcommand)]
    pub command: Command,
}

/// The subcommands of `millrace sockets`, with their options.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Run a program whose TCP connections within this host bypass the kernel.
    Run(RunOptions),
    /// Run the broker that connects programs, until a signal.
    Broker(BrokerOptions),
    /// Run forwarders in a process of their own, until the broker exits.
    Forwarder(ForwarderOptions),
    /// Print the listeners and the totals of a broker.
    Status(StatusOptions),
    /// List the processes, those with the most bytes first.
    Top(TopOptions),
}

/// The options of `millrace sockets run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets run -- redis-server --port 6379
  millrace sockets run --spin-us 0 -- redis-benchmark -t get
  millrace sockets run --library ./libmillrace_preload.so -- curl http://127.0.0.1/

The program replaces this process: signals reach it, and its exit status is the command's. It gets LD_PRELOAD (the
library before earlier entries) and MILLRACE_SOCKETS. The dynamic linker drops both for programs that gain rights
(setuid), and static programs ignore LD_PRELOAD: those use the kernel's TCP.

The broker that `run` starts is a process of its own. It exits after the last process that was started under it.")]
pub struct RunOptions {
    /// The library to preload [default: libmillrace_preload.so beside this program, or in ../lib/millrace]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The path of the broker's control socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The longest spin of a thread before it sleeps, in microseconds [default: 50]
    #[arg(long = "spin-us", value_name = "N")]
    pub spin_us: Option<u32>,
    /// The program to run, and its arguments
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

/// The options of `millrace sockets broker`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets broker
  millrace sockets broker --rules /etc/millrace/sockets.toml
  millrace sockets broker --mode forwarded
  millrace sockets broker --host left --listen 10.0.0.1:7700 --secret FILE --window /sys/bus/pci/.../resource2
  millrace sockets broker --host right --peer 10.0.0.1:7700 --secret FILE --window /sys/bus/pci/.../resource2

Forwarders are threads that move the bytes between processes that may not share memory, and between hosts. Two hosts
need a common window, a common secret (32 bytes or more, in a file with mode 0600 or less), and one host that connects
to the other. A window is a BAR's file in sysfs, a DAX device, or sealed memory.

A peer gets the addresses that it announces, except this host's and those that mean several hosts or none.
--peer-addresses 10.0.0.0/8 admits only that network, --peer-addresses left=10.0.0.1 only that address for `left`.

Rules are tried in order; the first that matches decides. An omitted key matches everything.
  [[rule]]
  action = \"direct\"            # allow, deny, kernel, direct
  direction = \"connect\"        # listen, connect
  user = [\"www-data\", 1000]    # a name, a number, or a list of them
  address = \"10.0.0.0/8\"       # an address or a network, or a list of them
  ports = [80, \"8000-8099\"]    # a port, \"FIRST-LAST\", or a list of them
Without rules, processes of one user are connected directly, others by the kernel; `direct` lets others share memory.")]
pub struct BrokerOptions {
    /// The path of the broker's socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// A file with rules for listening and connecting
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// The data path between processes of this host
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// The number of forwarders [default: 1 with a window or --mode forwarded, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=64))]
    pub forwarders: Option<u16>,
    /// The processors of the forwarders, one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// The name of this host [default: the kernel's host name]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// The address at which other hosts' brokers connect
    #[arg(long, value_name = "ADDRESS:PORT", requires = "window")]
    pub listen: Option<SocketAddr>,
    /// The address of another host's broker to connect to; may be given several times
    #[arg(long = "peer", value_name = "ADDRESS:PORT", requires = "window")]
    pub peers: Vec<SocketAddr>,
    /// The networks of other hosts' addresses, or of one host's; may be given several times [default: all but this
    /// host's]
    #[arg(long, value_name = "[HOST=]NETWORK", requires = "window")]
    pub peer_addresses: Vec<String>,
    /// The file with the secret that all hosts share
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// A window to another host, with an optional host name; may be given several times
    #[arg(long, value_name = "[HOST=]PATH", requires = "secret")]
    pub window: Vec<String>,
    /// The number of partitions of a window [default: the number of forwarders]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub partitions: Option<u16>,
    /// The most forwarded connections; further ones are left to the kernel
    #[arg(long, value_name = "N", default_value_t = Limits::DEFAULT.forwarded_max)]
    pub forwarded_max: usize,
    /// The most forwarded connections of one user
    #[arg(long, value_name = "N", default_value_t = Limits::DEFAULT.forwarded_per_user_max)]
    pub forwarded_per_user_max: usize,
    /// For `run`: start a broker that exits when unused, and return once it listens
    #[arg(long, hide = true)]
    pub detach: bool,
    /// For `run`: exit when unused and the standard input has hung up
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub while_used: bool,
}

/// The data path between processes of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// Shared memory; between different users, the kernel
    Direct,
    /// Forwarders; if none runs, the kernel
    Forwarded,
    /// Shared memory; between different users, forwarders if some run, else the kernel
    Auto,
}

impl From<Mode> for DataPath {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Direct => Self::Direct,
            Mode::Forwarded => Self::Forwarded,
            Mode::Auto => Self::Auto,
        }
    }
}

/// The options of `millrace sockets forwarder`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets forwarder --forwarders 2 --cpus 2,3

The broker must be of the same user, or this process root's, and must have no forwarders (--forwarders 0). When this
process exits, its connections end in resets; the broker goes on, and another process may take over.")]
pub struct ForwarderOptions {
    /// The path of the broker's control socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The number of forwarders, each on a thread
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub forwarders: u16,
    /// The processors of the forwarders, one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<usize>,
}

/// The options of `millrace sockets status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets status
  millrace sockets status --json | jq .totals.bytes_sent")]
pub struct StatusOptions {
    /// The path of the broker's control socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print the report as indented JSON
    #[arg(long)]
    pub json: bool,
}

/// The options of `millrace sockets top`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets top
  millrace sockets top --every 1
  millrace sockets top --json | jq '.processes[] | select(.connections > 100)'")]
pub struct TopOptions {
    /// The path of the broker's control socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Repeat the list every SECONDS, until a signal
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: Option<u64>,
    /// Print the report as indented JSON
    #[arg(long)]
    pub json: bool,
}
