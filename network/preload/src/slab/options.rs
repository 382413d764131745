//! Socket options of a connection, in its record of the slab.

use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

use crate::pacing_rate::PacingRate;

/// Number of lines below which a receiver returns credit only when it expects more.
const LINES_OUT_MIN: u32 = 72;

/// Options of a connection. All are as the program has set them.
#[repr(C, align(128))]
#[derive(Debug)]
pub(crate) struct Options {
    /// Boolean options: bits of the module [`option`].
    pub(crate) bits: AtomicU32,
    /// `SO_LINGER` in seconds; -1 is off.
    pub(crate) linger: AtomicI32,
    /// `SO_SNDTIMEO` in nanoseconds; 0 is no limit.
    pub(crate) send_timeout: AtomicU64,
    /// `SO_RCVTIMEO` in nanoseconds; 0 is no limit.
    pub(crate) receive_timeout: AtomicU64,
    /// `SO_SNDBUF` in bytes, as the kernel doubles it.
    pub(crate) send_buffer: AtomicU32,
    /// `SO_RCVBUF` in bytes, as the kernel doubles it.
    pub(crate) receive_buffer: AtomicU32,
    /// `SO_RCVLOWAT` in bytes, at least 1.
    pub(crate) low_water: AtomicU32,
    pub(crate) keep_idle: AtomicU32,
    pub(crate) keep_interval: AtomicU32,
    pub(crate) keep_count: AtomicU32,
    pub(crate) user_timeout: AtomicU32,
    pub(crate) priority: AtomicU32,
    pub(crate) type_of_service: AtomicU32,
    pub(crate) mark: AtomicU32,
    pub(crate) ring_lines: AtomicU32,
    pub(crate) keep_unsent: AtomicU32,
    /// Largest number of lines in flight, if the program wants fewer than the ring has; else 0.
    pub(crate) lines_out_max: AtomicU32,
    pub(crate) time_to_live: AtomicU32,
    pub(crate) hop_limit: AtomicU32,
    pub(crate) orphan_seconds: AtomicU32,
    pub(crate) connect_tries: AtomicU32,
    pub(crate) defer_accept: AtomicU32,
    pub(crate) busy_poll: AtomicU32,
    pub(crate) rate: PacingRate,
}

/// Bits of [`Options::bits`], one for each boolean option.
pub(crate) mod option {
    pub(crate) const NONBLOCK: u32 = 1;
    pub(crate) const NODELAY: u32 = 1 << 1;
    pub(crate) const KEEPALIVE: u32 = 1 << 2;
    pub(crate) const CORK: u32 = 1 << 3;
    pub(crate) const REUSEADDR: u32 = 1 << 4;
    pub(crate) const REUSEPORT: u32 = 1 << 5;
    pub(crate) const V6ONLY: u32 = 1 << 6;
    pub(crate) const QUICKACK: u32 = 1 << 7;
    pub(crate) const OOBINLINE: u32 = 1 << 8;
    /// A non-blocking connect whose success was not reported yet.
    pub(crate) const CONNECT_TOLD_LATER: u32 = 1 << 9;
    pub(crate) const DONTROUTE: u32 = 1 << 10;
    pub(crate) const BROADCAST: u32 = 1 << 11;
}

impl Options {
    /// Default options of a socket: low-water mark 1, linger off, all others zero.
    pub(crate) const fn new() -> Self {
        Self {
            bits: AtomicU32::new(0),
            linger: AtomicI32::new(-1),
            send_timeout: AtomicU64::new(0),
            receive_timeout: AtomicU64::new(0),
            send_buffer: AtomicU32::new(0),
            receive_buffer: AtomicU32::new(0),
            low_water: AtomicU32::new(1),
            keep_idle: AtomicU32::new(0),
            keep_interval: AtomicU32::new(0),
            keep_count: AtomicU32::new(0),
            user_timeout: AtomicU32::new(0),
            priority: AtomicU32::new(0),
            type_of_service: AtomicU32::new(0),
            mark: AtomicU32::new(0),
            ring_lines: AtomicU32::new(0),
            keep_unsent: AtomicU32::new(0),
            lines_out_max: AtomicU32::new(0),
            time_to_live: AtomicU32::new(0),
            hop_limit: AtomicU32::new(0),
            orphan_seconds: AtomicU32::new(0),
            connect_tries: AtomicU32::new(0),
            defer_accept: AtomicU32::new(0),
            busy_poll: AtomicU32::new(0),
            rate: PacingRate::none(),
        }
    }

    /// Copies the options that the kernel returned for a socket.
    pub(crate) fn copy(&self, model: &Self) {
        for (place, from) in [
            (&self.send_timeout, &model.send_timeout),
            (&self.receive_timeout, &model.receive_timeout),
        ] {
            place.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        let linger = model.linger.load(Ordering::Relaxed);
        self.linger.store(linger, Ordering::Relaxed);
        self.rate.set(model.rate.get());
        for (place, from) in [
            (&self.bits, &model.bits),
            (&self.send_buffer, &model.send_buffer),
            (&self.receive_buffer, &model.receive_buffer),
            (&self.keep_idle, &model.keep_idle),
            (&self.keep_interval, &model.keep_interval),
            (&self.keep_count, &model.keep_count),
            (&self.user_timeout, &model.user_timeout),
            (&self.priority, &model.priority),
            (&self.type_of_service, &model.type_of_service),
            (&self.mark, &model.mark),
            (&self.keep_unsent, &model.keep_unsent),
            (&self.time_to_live, &model.time_to_live),
            (&self.hop_limit, &model.hop_limit),
            (&self.orphan_seconds, &model.orphan_seconds),
            (&self.connect_tries, &model.connect_tries),
            (&self.defer_accept, &model.defer_accept),
            (&self.busy_poll, &model.busy_poll),
        ] {
            place.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    pub(super) fn clear(&self) {
        self.linger.store(-1, Ordering::Relaxed);
        self.send_timeout.store(0, Ordering::Relaxed);
        self.receive_timeout.store(0, Ordering::Relaxed);
        for word in [
            &self.bits,
            &self.send_buffer,
            &self.receive_buffer,
            &self.keep_idle,
            &self.keep_interval,
            &self.keep_count,
            &self.user_timeout,
            &self.priority,
            &self.type_of_service,
            &self.mark,
            &self.ring_lines,
            &self.keep_unsent,
            &self.lines_out_max,
        ] {
            word.store(0, Ordering::Relaxed);
        }
        self.low_water.store(1, Ordering::Relaxed);
        self.rate.clear();
    }

    /// Limits the bytes in flight, for a buffer that is smaller than the ring.
    pub(crate) fn limit_out(&self, bytes: u32) {
        let lines = (bytes / 64).max(LINES_OUT_MIN);
        let is_smaller = lines < self.ring_lines.load(Ordering::Relaxed) / 8;
        self.lines_out_max
            .store(if is_smaller { lines } else { 0 }, Ordering::Relaxed);
    }

    /// Number of lines that is added to a sender's position before a check for room, so that the limit holds.
    #[inline]
    pub(crate) fn slack(&self) -> u64 {
        match self.lines_out_max.load(Ordering::Relaxed) {
            0 => 0,
            limit => {
                let reach = self.ring_lines.load(Ordering::Relaxed) / 4;
                u64::from((reach - reach / 4).saturating_sub(limit))
            }
        }
    }

    /// Whether a bit of [`option`] is set.
    #[inline]
    pub(crate) fn has(&self, bits: u32) -> bool {
        self.bits.load(Ordering::Relaxed) & bits != 0
    }

    pub(crate) fn set(&self, bits: u32, on: bool) {
        if on {
            self.bits.fetch_or(bits, Ordering::Relaxed);
        } else {
            self.bits.fetch_and(!bits, Ordering::Relaxed);
        }
    }
}
