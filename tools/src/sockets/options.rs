//! The command line of `millrace sockets`.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use millrace_proxy::registry::{Carriage, Limits};

/// The options of `millrace sockets`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets run -- nginx -g 'daemon off;'
  millrace sockets run -- ab -n 100000 -c 16 -k http://127.0.0.1/
  millrace sockets status
  millrace sockets top --every 1

Programs find each other by a monitor. `run` starts one if none listens. Its socket is at
  --socket PATH, else $MILLRACE_SOCKETS, else
  /run/millrace/sockets for root, else $XDG_RUNTIME_DIR/millrace/sockets, else /tmp/millrace-UID/sockets")]
pub struct SocketsOptions {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What can be done.
#[derive(Clone, Debug, clap::Subcommand)]
pub enum Command {
    /// Run a program whose TCP connections within this host go without the kernel.
    Run(RunOptions),
    /// Let programs find each other, until a signal comes.
    Monitor(MonitorOptions),
    /// Run planes in a process of their own, until the monitor ends.
    Proxy(ProxyOptions),
    /// Say who listens, and what has been sent and received.
    Status(StatusOptions),
    /// List the processes, those that have moved most first.
    Top(TopOptions),
}

/// The options of `millrace sockets run`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets run -- redis-server --port 6379
  millrace sockets run --spin-us 0 -- redis-benchmark -t get
  millrace sockets run --library ./libmillrace_preload.so -- curl http://127.0.0.1/

The program takes this process over: signals reach it, and its exit status is the command's. It is run with LD_PRELOAD
(before what is there already) and MILLRACE_SOCKETS. The dynamic linker leaves both out of programs that gain rights
(setuid), and static programs know no LD_PRELOAD: those use the kernel's TCP.

The monitor that `run` starts is a process of its own. It ends after the last process that was started under it.")]
pub struct RunOptions {
    /// The library to preload [default: libmillrace_preload.so beside this program, or in ../lib/millrace]
    #[arg(long, value_name = "FILE")]
    pub library: Option<PathBuf>,
    /// The monitor's socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// For how long a thread may spin before it sleeps, in microseconds [default: 50]
    #[arg(long = "spin-us", value_name = "N")]
    pub spin_us: Option<u32>,
    /// The program, and what it is given
    #[arg(
        value_name = "PROGRAM",
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

/// The options of `millrace sockets monitor`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets monitor
  millrace sockets monitor --rules /etc/millrace/sockets.toml
  millrace sockets monitor --mode proxy
  millrace sockets monitor --host left --listen 10.0.0.1:7700 --secret FILE --window /sys/bus/pci/.../resource2
  millrace sockets monitor --host right --peer 10.0.0.1:7700 --secret FILE --window /sys/bus/pci/.../resource2

Planes are threads that carry connections between processes that may not share memory, and those with other hosts.
Two hosts need a window that both have, a secret that both know (32 bytes or more, in a file that only its owner can
read), and one that dials the other. A window is a BAR's file in sysfs, a DAX device, or sealed memory.

A peer has the addresses that it says it has, but for this host's and those that mean no host or many;
--peer-addresses 10.0.0.0/8 admits no others, --peer-addresses left=10.0.0.1 no others to the host `left`.

Rules are tried in order; the first that fits decides. What is left out fits everything.
  [[rule]]
  action = \"direct\"            # allow, deny, kernel, direct
  direction = \"connect\"        # listen, connect
  user = [\"www-data\", 1000]    # a name, a number, or a list of them
  address = \"10.0.0.0/8\"       # an address or a network, or a list of them
  ports = [80, \"8000-8099\"]    # a port, \"FIRST-LAST\", or a list of them
Without rules, processes of one user are connected directly, others by the kernel; `direct` lets others share memory.")]
pub struct MonitorOptions {
    /// Where to listen
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// A file that says who may listen and connect
    #[arg(long, value_name = "FILE")]
    pub rules: Option<PathBuf>,
    /// Who moves the bytes between processes of this host
    #[arg(long, value_enum, default_value_t = Mode::Auto)]
    pub mode: Mode,
    /// How many planes to run [default: 1 with a window or --mode proxy, else 0]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(..=64))]
    pub planes: Option<u16>,
    /// The processors of the planes, one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// What this host is called [default: the kernel's name of it]
    #[arg(long, value_name = "NAME")]
    pub host: Option<String>,
    /// Where other hosts' monitors may dial
    #[arg(long, value_name = "ADDRESS:PORT", requires = "window")]
    pub listen: Option<SocketAddr>,
    /// Another host's monitor, to be dialled; may be given several times
    #[arg(long = "peer", value_name = "ADDRESS:PORT", requires = "window")]
    pub peers: Vec<SocketAddr>,
    /// Which addresses other hosts may have, or one host; may be given several times [default: all but this host's]
    #[arg(long, value_name = "[HOST=]NETWORK", requires = "window")]
    pub peer_addresses: Vec<String>,
    /// The file with the hosts' secret
    #[arg(long, value_name = "FILE")]
    pub secret: Option<PathBuf>,
    /// A window to another host, whose name may be said; may be given several times
    #[arg(long, value_name = "[HOST=]PATH", requires = "secret")]
    pub window: Vec<String>,
    /// Into how many partitions to cut a window [default: as many as there are planes]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub partitions: Option<u16>,
    /// How many connections planes carry at most; the kernel serves the rest
    #[arg(long, value_name = "N", default_value_t = Limits::DEFAULT.carried_max)]
    pub carried_max: usize,
    /// How many of them one user may have
    #[arg(long, value_name = "N", default_value_t = Limits::DEFAULT.carried_per_user_max)]
    pub carried_per_user_max: usize,
    /// For `run`: start one that ends when nobody is left, and return once it listens
    #[arg(long, hide = true)]
    pub detach: bool,
    /// For `run`: end when nobody is left and the standard input has ended
    #[arg(long, hide = true, conflicts_with = "detach")]
    pub while_used: bool,
}

/// Who moves the bytes between processes of one host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// The processes themselves; of different users, the kernel
    Direct,
    /// Planes
    Proxy,
    /// The processes themselves; of different users, planes if there are some, else the kernel
    Auto,
}

impl From<Mode> for Carriage {
    fn from(mode: Mode) -> Self {
        match mode {
            Mode::Direct => Self::Direct,
            Mode::Proxy => Self::Proxy,
            Mode::Auto => Self::Auto,
        }
    }
}

/// The options of `millrace sockets proxy`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets proxy --planes 2 --cpus 2,3

The monitor is of the same user, or this is root's, and has no planes (--planes 0). When this process dies, what its
planes carried ends in resets; the monitor goes on, and another process may take over.")]
pub struct ProxyOptions {
    /// The monitor's socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// How many planes to run
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub planes: u16,
    /// The processors of the planes, one after the other
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<usize>,
}

/// The options of `millrace sockets status`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:
  millrace sockets status
  millrace sockets status --json | jq .totals.bytes_sent")]
pub struct StatusOptions {
    /// The monitor's socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON
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
    /// The monitor's socket
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Again and again, after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub every: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
