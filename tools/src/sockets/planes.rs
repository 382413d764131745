//! The planes of a monitor, each on a thread.

use std::thread::{self, JoinHandle};
use std::time::Instant;

use millrace_proxy::monitor::Monitor;
use millrace_proxy::plane::{DataPlane, Plane, PlaneSettings};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::{ErrorKind, Mode, MonitorOptions, ToolError};

/// Threads that run until the monitor dismisses them.
#[derive(Debug)]
pub(super) struct Planes(Vec<JoinHandle<()>>);

impl Planes {
    /// Starts as many as are asked for, and gives them to the monitor.
    pub(super) fn start(
        options: &MonitorOptions,
        monitor: &mut Monitor,
    ) -> Result<Self, ToolError> {
        let count = count(options);
        if count == 0 {
            return Ok(Self(Vec::new()));
        }
        let (data_plane, threads) = Self::spawn(count, &options.cpus)?;
        monitor
            .carry(data_plane)
            .map_err(|error| ToolError::of_monitor(&error))?;
        Ok(threads)
    }

    /// Starts so many.
    pub(super) fn spawn(count: u16, cpus: &[usize]) -> Result<(DataPlane, Self), ToolError> {
        let (data_plane, planes) = DataPlane::new(count, PlaneSettings::default())
            .map_err(|error| ToolError::of_monitor(&error))?;
        let mut threads = Vec::new();
        for (index, plane) in planes.into_iter().enumerate() {
            let cpu = cpus.iter().cycle().nth(index).copied();
            let thread = thread::Builder::new()
                .name(format!("plane-{index}"))
                .spawn(move || serve(plane, cpu));
            threads.push(thread.map_err(|error| {
                ToolError::new(ErrorKind::System, "starting a plane").caused_by(error)
            })?);
        }
        Ok((data_plane, Self(threads)))
    }

    /// Waits until they have ended.
    pub(super) fn join(self) {
        for thread in self.0 {
            // What it died of is on the standard error.
            let _ = thread.join();
        }
    }
}

/// How many planes there are to be.
pub(super) fn count(options: &MonitorOptions) -> u16 {
    let is_needed = || !options.window.is_empty() || options.mode == Mode::Proxy;
    options.planes.unwrap_or_else(|| u16::from(is_needed()))
}

fn serve(mut plane: Plane, cpu: Option<usize>) {
    if let Some(cpu) = cpu.filter(|cpu| *cpu < CpuSet::MAX_CPU) {
        let mut set = CpuSet::new();
        set.set(cpu);
        if let Err(errno) = sched_setaffinity(None, &set) {
            eprintln!("millrace: a plane could not be bound to processor {cpu}: {errno}");
        }
    }
    let start = Instant::now();
    let clock = || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    if let Err(error) = plane.run(clock) {
        eprintln!("millrace: a plane has ended: {error}");
    }
}
