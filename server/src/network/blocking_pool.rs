//! The pool of threads for requests that may block.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// The time after which a thread without work ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
    started: u64,
    stopping: bool,
    handles: Vec<JoinHandle<()>>,
}

/// A pool of threads that grows on demand up to a limit. Jobs beyond it wait in order; the queue is
/// as long as there are connections, since each has one request at a time.
pub struct BlockingPool {
    threads_max: usize,
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let queue = self.lock();
        f.debug_struct("BlockingPool")
            .field("threads", &queue.threads)
            .field("jobs", &queue.jobs.len())
            .finish_non_exhaustive()
    }
}

impl BlockingPool {
    /// A pool of at most `threads_max` threads; at least one.
    #[must_use]
    pub fn new(threads_max: usize) -> Arc<Self> {
        Arc::new(Self {
            threads_max: threads_max.max(1),
            queue: Mutex::new(Queue::default()),
            changed: Condvar::new(),
        })
    }

    /// Runs `job` on a thread of the pool.
    pub fn submit(self: &Arc<Self>, job: impl FnOnce() + Send + 'static) {
        let mut queue = self.lock();
        queue.jobs.push_back(Box::new(job));
        if queue.idle >= queue.jobs.len() {
            drop(queue);
            self.changed.notify_one();
            return;
        }
        if queue.threads < self.threads_max {
            queue.threads += 1;
            queue.started += 1;
            let pool = Arc::clone(self);
            let name = format!("blocking-{}", queue.started);
            match std::thread::Builder::new()
                .name(name)
                .spawn(move || pool.work())
            {
                Ok(handle) => {
                    queue.handles.retain(|handle| !handle.is_finished());
                    queue.handles.push(handle);
                }
                // Without a new thread the job waits for one that runs already. If there is none,
                // no thread would ever run it: that is the one case that cannot be served.
                Err(error) => {
                    queue.threads -= 1;
                    assert!(
                        queue.threads > 0,
                        "no thread of the blocking pool could be started: {error}"
                    );
                }
            }
        }
    }

    /// How many threads there are and how many jobs wait.
    #[must_use]
    pub fn load(&self) -> (usize, usize) {
        let queue = self.lock();
        (queue.threads, queue.jobs.len())
    }

    /// Lets the queued jobs finish and ends all threads.
    pub fn stop(&self) {
        let handles = {
            let mut queue = self.lock();
            queue.stopping = true;
            std::mem::take(&mut queue.handles)
        };
        self.changed.notify_all();
        for handle in handles {
            // A job that panicked has ended its thread; the panic is reported already.
            let _ = handle.join();
        }
    }

    fn work(&self) {
        loop {
            let Some(job) = self.next_job() else {
                return;
            };
            job();
        }
    }

    /// The next job, or `None` when the thread is not needed any more.
    fn next_job(&self) -> Option<Job> {
        let mut queue = self.lock();
        loop {
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            if queue.stopping {
                queue.threads -= 1;
                return None;
            }
            queue.idle += 1;
            let (guard, waited) = self
                .changed
                .wait_timeout(queue, IDLE_MAX)
                .unwrap_or_else(PoisonError::into_inner);
            queue = guard;
            queue.idle -= 1;
            if waited.timed_out() && queue.jobs.is_empty() {
                queue.threads -= 1;
                return None;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn jobs_that_need_each_other_run_at_once() {
        let pool = BlockingPool::new(3);
        let barrier = Arc::new(Barrier::new(4));
        for _ in 0..3 {
            let barrier = Arc::clone(&barrier);
            pool.submit(move || {
                barrier.wait();
            });
        }
        barrier.wait();
        pool.stop();
        assert_eq!(pool.load(), (0, 0));
    }

    #[test]
    fn jobs_beyond_the_limit_wait_and_all_run() {
        let pool = BlockingPool::new(2);
        let (sender, receiver) = channel();
        for number in 0..100 {
            let sender = sender.clone();
            pool.submit(move || sender.send(number).expect("the test receives"));
        }
        drop(sender);
        let mut numbers: Vec<i32> = receiver.iter().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..100).collect::<Vec<_>>());
        assert!(pool.load().0 <= 2);
        pool.stop();
    }
}
