//! What is due now and then: idle sessions and cursors end, documents past their time are deleted.
//!
//! [`Maintenance`] is driven by [`Maintenance::poll`], which does what is due and says when to poll again. In production
//! [`MaintenanceThread`] drives it; a test drives it on simulated time.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use millrace_value::{Environment, ErrorCode, Interrupt, Operation, operation};

use crate::state::ServerState;

/// The parameter that says how many seconds lie between two rounds.
const PERIOD_PARAMETER: &str = "ttlMonitorSleepSecs";

/// The rounds of maintenance of one server.
#[derive(Debug)]
pub struct Maintenance {
    state: Arc<ServerState>,
    interrupt: Arc<Interrupt>,
    /// Monotonic time of the next round.
    next: Duration,
}

impl Maintenance {
    /// The maintenance of a server that has just started: the first round comes after one period. Deletions end early
    /// when `interrupt` is killed.
    #[must_use]
    pub fn new(state: Arc<ServerState>, interrupt: Arc<Interrupt>) -> Self {
        let next = state.environment.monotonic() + period(&state);
        Self {
            state,
            interrupt,
            next,
        }
    }

    /// Runs a round if one is due at the monotonic time `now`, and returns the time of the next one. The period is read
    /// after the round, so that a change of the parameter counts from the next one on. May take long.
    pub fn poll(&mut self, now: Duration) -> Duration {
        if now >= self.next {
            self.run(now);
            self.next = self.state.environment.monotonic() + period(&self.state);
        }
        self.next
    }

    fn run(&self, now: Duration) {
        let state = &self.state;
        for id in state.sessions.idle(now) {
            state.end_session(id);
        }
        state.documents.close_idle_cursors(now);
        if !state.parameters.flag("ttlMonitorEnabled") {
            return;
        }
        let environment: Arc<dyn Environment> = state.environment.clone();
        let interrupt = Arc::clone(&self.interrupt);
        let operation = Operation::new(environment, interrupt, operation::Limits::default());
        // Nobody waits for the deletions: the next sync takes them along.
        if let Err(error) = state.documents.delete_expired(&operation) {
            tracing::warn!(target: "INDEX", id = 22_537_u32, %error, "TTL deletions failed");
        }
    }
}

fn period(state: &ServerState) -> Duration {
    let seconds = u64::try_from(state.parameters.number(PERIOD_PARAMETER)).unwrap_or(60);
    Duration::from_secs(seconds.max(1))
}

/// The thread that drives the maintenance of a server.
#[derive(Debug)]
pub struct MaintenanceThread {
    stop: Sender<()>,
    interrupt: Arc<Interrupt>,
    thread: Option<JoinHandle<()>>,
}

impl MaintenanceThread {
    /// Starts the thread.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start(state: &Arc<ServerState>) -> io::Result<Self> {
        let (stop, stopped) = channel();
        let interrupt = Arc::new(Interrupt::default());
        let state = Arc::clone(state);
        let interrupted = Arc::clone(&interrupt);
        let thread = std::thread::Builder::new()
            .name("maintenance".to_owned())
            .spawn(move || drive(&state, interrupted, &stopped))?;
        Ok(Self {
            stop,
            interrupt,
            thread: Some(thread),
        })
    }

    /// Ends the thread; deletions that are under way end early.
    pub fn stop(&mut self) {
        self.interrupt.kill(ErrorCode::InterruptedAtShutdown);
        // A thread that has ended already does not listen.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Polls until a stop comes, or its sender is dropped.
fn drive(state: &Arc<ServerState>, interrupt: Arc<Interrupt>, stopped: &Receiver<()>) {
    let clock = state.environment.clock();
    let mut maintenance = Maintenance::new(Arc::clone(state), interrupt);
    let mut next = maintenance.poll(clock.now());
    while let Err(RecvTimeoutError::Timeout) =
        stopped.recv_timeout(next.saturating_sub(clock.now()))
    {
        next = maintenance.poll(clock.now());
    }
}
