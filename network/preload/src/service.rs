//! The class and rate at which a forwarder carries a connection's bytes: `SO_PRIORITY` and `SO_MAX_PACING_RATE`.
//!
//! | priority | 0 | 1 2 3 | 4 5 6 7 |
//! |---|---|---|---|
//! | class | 3, or the broker's default | 0 1 2 | 4 5 6 7 |
//!
//! So 0 lies in the middle, as in the kernel, which takes 1 and 2 for bulk and 6 and 7 for interactive traffic.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use millrace_stream::Service;
use millrace_stream::partition::Class;

use crate::entry::Entry;
use crate::notify::{notify_fd, notify_peer};
use crate::slab::{Record, mode};

/// Class of a priority; `None` for 0, which leaves it to the broker.
fn class(priority: u32) -> Option<Class> {
    let class = match u8::try_from(priority).unwrap_or(u8::MAX) {
        0 => return None,
        priority @ 1..=3 => priority - 1,
        priority => priority.min(7),
    };
    Class::new(class)
}

/// Passes the class and rate of a new connection to its forwarder, if the program set them.
pub(crate) fn begin(entry: &Entry, record: &Record, wakeup_fd: c_int) {
    if wanted(record) != Service::default() && say(entry, record) {
        notify_fd(wakeup_fd);
    }
}

/// Passes a changed class or rate to the forwarder.
pub(crate) fn tell(entry: &Entry, record: &Record) {
    if say(entry, record) {
        notify_peer(entry);
    }
}

/// Writes class and rate for the forwarder; false without one.
fn say(entry: &Entry, record: &Record) -> bool {
    if record.mode.load(Ordering::Relaxed) != mode::FORWARDED {
        return false;
    }
    let Ok(_guard) = record.send.take() else {
        return false;
    };
    // SAFETY: the lock is held, and the caller holds the entry.
    let sender = unsafe { entry.sender() };
    sender.map(|sender| sender.serve(wanted(record))).is_some()
}

fn wanted(record: &Record) -> Service {
    let options = &record.options;
    let rate = options.rate.get();
    Service {
        class: class(options.priority.load(Ordering::Relaxed)),
        bytes_per_second: (rate != u64::MAX).then_some(rate.max(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_priorities() {
        let numbers: Vec<_> = (0..9).map(|it| class(it).map(Class::number)).collect();
        let classes = [0, 1, 2, 4, 5, 6, 7, 7].map(Some);
        assert_eq!(numbers[0], None);
        assert_eq!(numbers[1..], classes);
        assert_eq!(class(u32::MAX), Class::new(7));
    }
}
