//! The forwarders of a broker, each on a thread.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use millrace_broker::broker::Broker;
use millrace_broker::forwarder::{Forwarder, ForwarderPool, ForwarderSettings};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{BrokerOptions, Mode};
use crate::{ErrorKind, ToolError};

/// The threads of forwarders; they run until the broker stops them.
#[derive(Debug)]
pub(super) struct ForwarderThreads(Vec<JoinHandle<()>>);

impl ForwarderThreads {
    /// Starts the requested forwarders, and attaches them to the broker.
    pub(super) fn start(options: &BrokerOptions, broker: &mut Broker) -> Result<Self, ToolError> {
        let count = count(options);
        if count == 0 {
            return Ok(Self(Vec::new()));
        }
        let (pool, threads) = Self::spawn(count, &options.cpus)?;
        broker
            .attach_forwarders(pool)
            .map_err(|error| ToolError::of_broker(&error))?;
        Ok(threads)
    }

    /// Starts `count` forwarders.
    pub(super) fn spawn(count: u16, cpus: &[usize]) -> Result<(ForwarderPool, Self), ToolError> {
        let (pool, forwarders) = ForwarderPool::new(count, ForwarderSettings::default())
            .map_err(|error| ToolError::of_broker(&error))?;
        let mut threads = Vec::new();
        for (index, forwarder) in forwarders.into_iter().enumerate() {
            let cpu = cpus.iter().cycle().nth(index).copied();
            let thread = thread::Builder::new()
                .name(format!("forwarder-{index}"))
                .spawn(move || serve(forwarder, cpu));
            threads.push(thread.map_err(|error| {
                ToolError::new(ErrorKind::System, "starting a forwarder").caused_by(error)
            })?);
        }
        Ok((pool, Self(threads)))
    }

    /// Waits until the threads have ended.
    pub(super) fn join(self) {
        for thread in self.0 {
            // A panic has printed its reason on the standard error.
            let _ = thread.join();
        }
    }
}

/// The count of forwarders that the options request.
pub(super) fn count(options: &BrokerOptions) -> u16 {
    let is_needed = || !options.window.is_empty() || options.mode == Mode::Forwarded;
    options.forwarders.unwrap_or_else(|| u16::from(is_needed()))
}

fn serve(mut forwarder: Forwarder, cpu: Option<usize>) {
    if let Some(cpu) = cpu.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(errno) = sched_setaffinity(None, &set) {
            eprintln!("millrace: binding a forwarder to processor {cpu}: {errno}");
        }
    }
    let start = Instant::now();
    let clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    if let Err(error) = forwarder.run(clock) {
        eprintln!("millrace: a forwarder has stopped: {error}");
    }
}
