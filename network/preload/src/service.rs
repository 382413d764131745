//! How a program wants its bytes to be carried by a plane: `SO_PRIORITY` and `SO_MAX_PACING_RATE`.
//!
//! | priority | 0 | 1 2 3 | 4 5 6 7 |
//! |---|---|---|---|
//! | class | 3, or what the monitor says | 0 1 2 | 4 5 6 7 |
//!
//! So 0 lies in the middle, as in the kernel, which takes 1 and 2 for what may wait and 6 and 7 for what may not.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{SOL_SOCKET, socklen_t};
use millrace_stream::Service;
use millrace_stream::partition::Class;

use crate::connection::PROXY;
use crate::entry::Entry;
use crate::real;
use crate::send::{ring, ring_at};
use crate::slab::{Options, Record};

/// The most bytes a second that `SO_MAX_PACING_RATE` lets a connection send. All ones is no limit, and so kept: as
/// its complement.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct PacingRate(AtomicU64);

/// That of a number.
fn class(priority: u32) -> Option<Class> {
    let class = match u8::try_from(priority).unwrap_or(u8::MAX) {
        0 => return None,
        priority @ 1..=3 => priority - 1,
        priority => priority.min(7),
    };
    Class::new(class)
}

impl PacingRate {
    /// No limit.
    pub(crate) const fn none() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn clear(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        !self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, rate: u64) {
        self.0.store(!rate, Ordering::Relaxed);
    }

    /// The bytes that `getsockopt(2)` gives where there is room for so many, and how many.
    pub(crate) fn told(&self, room: usize) -> ([u8; 8], usize) {
        let rate = self.get();
        if room >= 8 {
            return (rate.to_ne_bytes(), 8);
        }
        let mut bytes = [0; 8];
        let short = u32::try_from(rate).unwrap_or(u32::MAX);
        bytes[..4].copy_from_slice(&short.to_ne_bytes());
        (bytes, 4)
    }

    /// The rate that so many bytes mean, as `setsockopt(2)` gives them: a long number, or a short one.
    pub(crate) fn read(bytes: [u8; 8], is_long: bool) -> u64 {
        let [a, b, c, d, ..] = bytes;
        match (is_long, u32::from_ne_bytes([a, b, c, d])) {
            (true, _) => u64::from_ne_bytes(bytes),
            (false, u32::MAX) => u64::MAX,
            (false, short) => short.into(),
        }
    }
}

/// Asks for the rate of a kernel's socket.
pub(crate) fn read(socket: c_int, options: &Options) {
    let mut value = [0_u8; 8];
    let mut size = 8 as socklen_t;
    // SAFETY: there is room for as many bytes as it says.
    let told = unsafe {
        real::getsockopt(
            socket,
            SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            value.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    if told == 0 {
        options.rate.set(u64::from_ne_bytes(value));
    }
}

/// Tells the plane of a new connection how its bytes shall be carried, if the program has said so.
pub(crate) fn begin(entry: &Entry, record: &Record, bell: c_int) {
    if wanted(record) != Service::default() && say(entry, record) {
        ring_at(bell);
    }
}

/// Tells the plane how the bytes shall be carried from now on.
pub(crate) fn tell(entry: &Entry, record: &Record) {
    if say(entry, record) {
        ring(entry);
    }
}

/// Whether there is a plane, which is to be rung.
fn say(entry: &Entry, record: &Record) -> bool {
    if record.mode.load(Ordering::Relaxed) != PROXY {
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

    #[test]
    fn rates() {
        let rate = PacingRate::none();
        assert_eq!(rate.get(), u64::MAX, "no limit");
        assert_eq!(rate.told(8), ([0xff; 8], 8));
        rate.set(1 << 40);
        assert_eq!(rate.told(8), ((1_u64 << 40).to_ne_bytes(), 8));
        assert_eq!(rate.told(4).1, 4);
        assert_eq!(rate.told(4).0[..4], [0xff; 4]);
        assert_eq!(PacingRate::read([0xff; 8], false), u64::MAX);
        let short = u64::from(5_u32.to_le()).to_le_bytes();
        assert_eq!(PacingRate::read(short, false), 5);
        assert_eq!(PacingRate::read(7_u64.to_ne_bytes(), true), 7);
    }
}
