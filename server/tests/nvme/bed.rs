//! A controller model with a thread that steps it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use clap::Parser as _;
use millrace::nvme::Command;
use millrace::settings::{Cli, Subcommand};
use millrace_nvme_model::Controller;

/// Steps a controller until it is dropped.
pub(crate) struct Stepper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stepper {
    pub(crate) fn new(controller: Controller) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if controller.step() == 0 {
                    thread::yield_now();
                }
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Stepper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // If it panicked the test misses its answers.
            let _ = thread.join();
        }
    }
}

/// What a command line says.
pub(crate) fn parse(line: &str) -> Command {
    let all = ["millrace", "nvme"]
        .into_iter()
        .chain(line.split_whitespace());
    match Cli::try_parse_from(all).expect(line).command {
        Subcommand::Nvme(options) => options.command,
        other => panic!("{line}: {other:?}"),
    }
}
