//! A thread that steps a controller.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use crate::Controller;

/// Steps a controller on a thread of its own, until it is dropped: to be kept longer than the driver.
///
/// # Panics
/// The drop does, unless it is itself part of a panic, if the controller's thread has panicked.
#[derive(Debug)]
pub struct Stepper {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Stepper {
    /// A new thread that steps `controller`, and yields the processor after a step without work.
    #[must_use]
    pub fn new(controller: Controller) -> Self {
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
        let ended = self.thread.take().map(JoinHandle::join);
        if !thread::panicking() {
            assert!(
                !matches!(ended, Some(Err(_))),
                "the controller's thread panicked"
            );
        }
    }
}
