//! `millrace serve`: puts the parts together, waits for the end, and takes them apart again.
//!
//! # Order
//! Start: data folder and engine, document layer, journal and maintenance threads, network, metrics.
//! Stop: network (nothing new comes in, what runs comes to its end), metrics, maintenance, journal
//! (which syncs a last time), document layer, engine.

use std::io::{self, IsTerminal, Write};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use bson::oid::ObjectId;
use millrace_command::Database;
use millrace_engine::{Engine, ErrorKind};
use millrace_rocksdb::{FileSystem, Options, RocksEngine, UnsyncedLossFs};
use millrace_value::Environment;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use tracing_subscriber::layer::SubscriberExt;

use crate::clock::{Clock, SystemClock};
use crate::commands::ServerInfo;
use crate::commands::registry::Registry;
use crate::database_hooks::DatabaseHooks;
use crate::dispatch::Dispatcher;
use crate::environment::{Entropy, ServerEnvironment, SystemEntropy};
use crate::fail_points::FailPoints;
use crate::journal::Journal;
use crate::log::{JsonLog, RecentLines};
use crate::logical_sessions::LogicalSessions;
use crate::machine;
use crate::maintenance::MaintenanceThread;
use crate::memory::{Charge, Limits, MemoryBudget, Share};
use crate::metrics::{Metrics, MetricsServer};
#[cfg(feature = "sockets")]
use crate::network::WindowListener;
use crate::network::{
    Counters, Listener, Network, NetworkConfig, NetworkContext, Notifier, TcpListener, UnixListener,
};
use crate::operations::Operations;
use crate::parameters::Parameters;
use crate::settings::{DataPlace, Settings};
use crate::state::{ServerState, Stop};
#[cfg(feature = "device")]
use crate::volume::{self, DATA_FOLDER, VolumeError};
use crate::waiters::Waiters;

/// Why a server could not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Something of the operating system failed.
    #[error("{what}")]
    System {
        /// What was to be done.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
    /// Another server has the folder open.
    #[error("the data folder {folder} is in use: another millrace server is running on it")]
    FolderInUse {
        /// The folder.
        folder: PathBuf,
    },
    /// The engine could not be opened.
    #[error("the data in {place} could not be opened")]
    Engine {
        /// The folder, or the device.
        place: DataPlace,
        /// Why.
        source: millrace_engine::Error,
    },
    /// The device, or the volume on it, could not be opened.
    #[cfg(feature = "device")]
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// The collections could not be read, or a parameter is wrong.
    #[error("{what}")]
    Document {
        /// What was to be done.
        what: &'static str,
        /// Why it failed.
        source: millrace_value::Error,
    },
}

fn system(what: impl Into<String>) -> impl FnOnce(io::Error) -> ServeError {
    let what = what.into();
    |source| ServeError::System { what, source }
}

/// Starts a server, serves until a signal or the command `shutdown`, and closes everything.
///
/// # Errors
/// Why it could not start.
pub fn serve(settings: Settings) -> Result<(), ServeError> {
    let recent_lines = Arc::new(RecentLines::default());
    let log = JsonLog::open(settings.logpath.as_deref(), Arc::clone(&recent_lines))
        .map_err(system("the log file could not be opened"))?;
    // Only a second server in one process finds a subscriber already: then it logs where the first does.
    let _ = tracing::subscriber::set_global_default(tracing_subscriber::registry().with(log));

    let (stop, stopped) = channel();
    watch_signals(stop.clone()).map_err(system("signals could not be watched"))?;
    let server = Server::start(settings, recent_lines, stop)?;
    let reason = stopped.recv().unwrap_or(Stop::Command);
    server.stop(reason);
    Ok(())
}

/// The first signal stops the server in order, the second one at once.
fn watch_signals(stop: Sender<Stop>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            let mut first = true;
            for signal in signals.forever() {
                if !first || stop.send(Stop::Signal(signal)).is_err() {
                    std::process::exit(128 + signal);
                }
                first = false;
            }
        })?;
    Ok(())
}

/// A running server: its network, its threads and its state.
#[derive(Debug)]
pub struct Server {
    state: Arc<ServerState>,
    network: Network<Dispatcher>,
    metrics: Option<MetricsServer>,
    journal_thread: JoinHandle<()>,
    maintenance: MaintenanceThread,
}

impl Server {
    /// Starts a server; a reason to stop that comes from a client is sent to `stop`.
    ///
    /// # Errors
    /// Why it could not start.
    pub fn start(
        settings: Settings,
        recent_lines: Arc<RecentLines>,
        stop: Sender<Stop>,
    ) -> Result<Self, ServeError> {
        raise_descriptor_limit();
        tracing::info!(
            target: "CONTROL",
            id = 4_615_611_u32,
            pid = std::process::id(),
            port = settings.port,
            dbPath = %settings.data,
            version = env!("CARGO_PKG_VERSION"),
            "Millrace starting"
        );
        let parameters = Parameters::default();
        for (name, value) in &settings.parameters {
            parameters
                .set_at_startup(name, value)
                .map_err(|source| ServeError::Document {
                    what: "a parameter could not be set",
                    source,
                })?;
        }
        let clock = SystemClock::new();
        let parts = Parts {
            engine: open_engine(&settings, clock)?,
            clock: Arc::new(clock),
            entropy: Arc::new(SystemEntropy),
            recent_lines,
            stop,
        };
        let state = assemble(settings, parameters, parts)?;
        let network = start_network(&state)?;
        let metrics = start_metrics(&state)?;
        let journal = Arc::clone(&state.journal);
        let journal_thread = std::thread::Builder::new()
            .name("journal".to_owned())
            .spawn(move || journal.run())
            .map_err(system("the journal thread could not be started"))?;
        let maintenance = MaintenanceThread::start(&state)
            .map_err(system("the maintenance thread could not be started"))?;
        let server = Self {
            state,
            network,
            metrics,
            journal_thread,
            maintenance,
        };
        server.announce()?;
        Ok(server)
    }

    /// Says that the server is ready: in the log, on a terminal, to systemd, in the pid file.
    fn announce(&self) -> Result<(), ServeError> {
        let settings = &self.state.settings;
        if let Some(path) = &settings.pid_file {
            std::fs::write(path, format!("{}\n", std::process::id())).map_err(system(format!(
                "the pid file {} could not be written",
                path.display()
            )))?;
        }
        if let Some(metrics) = &self.metrics {
            metrics.set_ready(true);
        }
        tracing::info!(
            target: "NETWORK",
            id = 23_016_u32,
            port = settings.port,
            ssl = "off",
            "Waiting for connections"
        );
        if io::stderr().is_terminal() {
            let addresses: Vec<_> = settings
                .addresses
                .iter()
                .map(|address| format!("mongodb://{address}/"))
                .collect();
            // The log has said the same; a terminal that is gone needs no answer.
            let _ = writeln!(
                io::stderr(),
                "millrace {} serves {} at {} (Ctrl-C stops it)",
                env!("CARGO_PKG_VERSION"),
                settings.data,
                addresses.join(", ")
            );
        }
        notify_systemd("READY=1");
        Ok(())
    }

    /// The state of the server, shared by its threads.
    #[must_use]
    pub const fn state(&self) -> &Arc<ServerState> {
        &self.state
    }

    /// Stops the network, the threads and the engine, in this order; waits for each.
    pub fn stop(mut self, reason: Stop) {
        tracing::info!(target: "CONTROL", id = 23_377_u32, reason = ?reason, "Shutting down");
        notify_systemd("STOPPING=1");
        if let Some(metrics) = &self.metrics {
            metrics.set_ready(false);
        }
        self.network.stop();
        if let Some(metrics) = &mut self.metrics {
            metrics.stop();
        }
        self.maintenance.stop();
        self.state.journal.stop();
        // A journal thread that panicked has said so.
        let _ = self.journal_thread.join();
        if let Some(path) = &self.state.settings.pid_file {
            let _ = std::fs::remove_file(path);
        }
        // The last owners of the document layer and the engine: dropping them closes the folder.
        drop(self.network);
        drop(self.state);
        tracing::info!(target: "CONTROL", id = 23_138_u32, exitCode = 0, "Shut down");
    }
}

/// Thousands of connections need as many descriptors.
fn raise_descriptor_limit() {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current < maximum || maximum.is_none() {
        // Fewer connections are no reason not to start.
        let _ = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        );
    }
}

#[cfg_attr(
    not(feature = "device"),
    expect(
        unused_variables,
        reason = "only the opening of a device reads the clock"
    )
)]
fn open_engine(settings: &Settings, clock: SystemClock) -> Result<Arc<dyn Engine>, ServeError> {
    let mut options = Options {
        cache_bytes: settings.cache_bytes,
        ..Options::default()
    };
    let folder = match &settings.data {
        DataPlace::Folder(folder) => {
            std::fs::create_dir_all(folder).map_err(system(format!(
                "the data folder {} could not be made",
                folder.display()
            )))?;
            if settings.loses_unsynced {
                options.file_system = FileSystem::UnsyncedLoss(UnsyncedLossFs::new());
            }
            folder.as_path()
        }
        #[cfg(feature = "device")]
        DataPlace::Device(device) => {
            // The device's buffers are a part of the engine's share.
            options.cache_bytes = options.cache_bytes.saturating_sub(volume::ARENA_BYTES);
            options.file_system = FileSystem::Blobfs(volume::open(device, clock)?);
            Path::new(DATA_FOLDER)
        }
    };
    match RocksEngine::open(folder, options) {
        Ok(engine) => Ok(Arc::new(engine)),
        Err(error) if error.kind() == ErrorKind::Locked => Err(ServeError::FolderInUse {
            folder: folder.to_path_buf(),
        }),
        Err(source) => Err(ServeError::Engine {
            place: settings.data.clone(),
            source,
        }),
    }
}

/// The world that a server is put into: a test has another one than the process.
#[derive(Debug)]
pub(crate) struct Parts {
    /// The storage.
    pub(crate) engine: Arc<dyn Engine>,
    /// The clock of everything in the path of a request.
    pub(crate) clock: Arc<dyn Clock>,
    /// The random source.
    pub(crate) entropy: Arc<dyn Entropy>,
    /// The last lines of the log.
    pub(crate) recent_lines: Arc<RecentLines>,
    /// Where the reason to stop goes.
    pub(crate) stop: Sender<Stop>,
}

/// Makes everything that needs no thread.
pub(crate) fn assemble(
    settings: Settings,
    parameters: Parameters,
    parts: Parts,
) -> Result<Arc<ServerState>, ServeError> {
    let Parts {
        engine,
        clock,
        entropy,
        recent_lines,
        stop,
    } = parts;
    let limits = Limits {
        engine_cache: settings.cache_bytes,
        ..Limits::default()
    };
    let budget = MemoryBudget::new(limits);
    let reserved = budget.try_reserve(Share::EngineCache, settings.cache_bytes);
    assert!(reserved, "the share of the engine is as large as its cache");
    let environment = Arc::new(ServerEnvironment::new(
        Arc::clone(&clock),
        entropy,
        Arc::clone(&budget),
    ));
    let operations = Arc::new(Operations::default());
    let sessions = Arc::new(LogicalSessions::default());
    let notifier = Notifier::new();
    let waiters = Arc::new(Waiters::new(notifier));
    let host = machine::host_name();
    let hooks = DatabaseHooks {
        operations: Arc::clone(&operations),
        sessions: Arc::clone(&sessions),
        environment: Arc::clone(&environment),
        address: format!("{host}:{}", settings.port),
        cursors: Mutex::new(Charge::new(Arc::clone(&budget), Share::Cursors)),
    };
    let database = Database::open_observed(
        Arc::clone(&engine),
        Arc::new(hooks),
        vec![Arc::clone(&waiters) as _],
    )
    .map_err(|source| ServeError::Document {
        what: "the collections could not be read",
        source,
    })?;
    let info = ServerInfo {
        process_id: process_id(&*environment),
        host,
        port: settings.port,
        connections_max: settings.connections_max,
        command_line: settings.command_line(),
    };
    Ok(Arc::new(ServerState {
        journal: Journal::new(Arc::clone(&engine), settings.journal_interval, clock),
        metrics: Metrics::default(),
        commands: Registry::new(),
        settings,
        environment,
        engine,
        documents: Arc::new(database),
        budget,
        counters: Arc::new(Counters::default()),
        operations,
        sessions,
        waiters,
        fail_points: FailPoints::default(),
        parameters,
        recent_lines,
        info,
        stop: Mutex::new(stop),
    }))
}

/// An ObjectId for this run of the server.
fn process_id(environment: &dyn Environment) -> ObjectId {
    let mut bytes = [0; 12];
    let seconds = u32::try_from(environment.wall_clock_ms() / 1000).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    bytes[4..].copy_from_slice(&environment.random().to_be_bytes());
    ObjectId::from_bytes(bytes)
}

fn start_network(state: &Arc<ServerState>) -> Result<Network<Dispatcher>, ServeError> {
    let settings = &state.settings;
    let sockets = settings
        .addresses
        .iter()
        .map(|address| {
            TcpListener::bind(*address).map_err(system(format!(
                "the address {address} could not be listened on"
            )))
        })
        .collect::<Result<Vec<_>, _>>()?;
    #[cfg(feature = "sockets")]
    let (sockets, windows) = window_listener(state, sockets)?;
    let boxed = |listener| Box::new(listener) as Box<dyn Listener>;
    let mut listeners: Vec<_> = sockets.into_iter().map(boxed).collect();
    if settings.unix_socket {
        let path = format!("/tmp/mongodb-{}.sock", settings.port);
        let listener = UnixListener::bind(Path::new(&path)).map_err(system(format!(
            "the socket {path} could not be listened on"
        )))?;
        listeners.push(Box::new(listener));
    }
    for listener in &listeners {
        let address = listener.address();
        tracing::info!(target: "NETWORK", id = 23_015_u32, address, "Listening on");
    }
    #[cfg(feature = "sockets")]
    if let Some(windows) = windows {
        listeners.push(Box::new(windows));
    }
    let config = NetworkConfig {
        workers: settings.worker_threads,
        connections_max: settings.connections_max,
        spin_time_max: settings.socket_spin,
        ..NetworkConfig::default()
    };
    Network::start(
        listeners,
        Arc::new(Dispatcher::new(Arc::clone(state))),
        config,
        NetworkContext {
            clock: Arc::clone(state.environment.clock()),
            journal: Arc::clone(&state.journal),
            budget: Arc::clone(&state.budget),
            notifier: Arc::clone(state.waiters.notifier()),
            counters: Arc::clone(&state.counters),
        },
    )
    .map_err(system("the network could not be started"))
}

/// The kernel's `sockets`, announced to the broker of user-level sockets, and the listener for these; `None` if they are
/// not enabled.
#[cfg(feature = "sockets")]
fn window_listener(
    state: &ServerState,
    mut sockets: Vec<TcpListener>,
) -> Result<(Vec<TcpListener>, Option<WindowListener>), ServeError> {
    /// The longest wait of the start for the broker.
    const ANNOUNCING_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(1);
    let Some(path) = &state.settings.sockets else {
        return Ok((sockets, None));
    };
    let clock = &**state.environment.clock();
    let listener = WindowListener::start(path, &mut sockets, ANNOUNCING_TIME_MAX, clock)
        .map_err(system("user-level sockets could not be prepared"))?;
    Ok((sockets, Some(listener)))
}

fn start_metrics(state: &Arc<ServerState>) -> Result<Option<MetricsServer>, ServeError> {
    let Some(port) = state.settings.metrics_port else {
        return Ok(None);
    };
    let clock = Arc::clone(state.environment.clock());
    let server = MetricsServer::start(port, state.clone(), clock).map_err(system(format!(
        "the metrics port {port} could not be listened on"
    )))?;
    Ok(Some(server))
}

/// Tells systemd, if it started the server and wants to know.
fn notify_systemd(message: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    // A failure has no effect on clients: systemd's own timeout handles the missing message.
    let _ = UnixDatagram::unbound()
        .and_then(|socket| socket.send_to(message.as_bytes(), Path::new(&path)));
}
