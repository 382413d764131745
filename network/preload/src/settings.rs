//! Options of a connection, as `getsockopt(2)` and `setsockopt(2)` see them.
//!
//! | option | |
//! |---|---|
//! | `SO_ERROR`, `SO_TYPE`, `SO_DOMAIN`, `SO_PROTOCOL`, `SO_ACCEPTCONN` | honoured; they cannot be set |
//! | `SO_LINGER` | honoured: `{1, 0}` makes the last close a reset; a time has no effect, as all that was sent is in the peer's reach at once |
//! | `SO_RCVTIMEO`, `SO_SNDTIMEO`, `SO_RCVLOWAT` | honoured |
//! | `TCP_NODELAY`, `TCP_CORK`, `TCP_QUICKACK` | stored and returned; every send is visible to the peer at once in any case |
//! | `SO_KEEPALIVE`, `TCP_KEEPIDLE`, `TCP_KEEPINTVL`, `TCP_KEEPCNT`, `TCP_USER_TIMEOUT` | stored and returned; the kernel reports an exit of the peer at once |
//! | `SO_SNDBUF` | stored and returned; a size below half of the ring bounds the bytes in flight |
//! | `SO_RCVBUF`, `TCP_NOTSENT_LOWAT` | stored and returned; the broker sets the size of the rings |
//! | `SO_OOBINLINE` | honoured |
//! | `SO_REUSEADDR`, `SO_REUSEPORT`, `SO_DONTROUTE`, `SO_BROADCAST` | stored and returned |
//! | `SO_PRIORITY`, `SO_MAX_PACING_RATE` | stored and returned; a forwarder honours them as class and rate ([`service`]) |
//! | `SO_MARK`, `IP_TOS`, `IPV6_TCLASS`, `IP_TTL`, `IPV6_UNICAST_HOPS` | stored and returned; there are no packets that could carry them |
//! | `SO_BUSY_POLL` | stored and returned; the library decides how long a call spins before it sleeps |
//! | `TCP_LINGER2`, `TCP_SYNCNT` | stored and returned; there is neither a wait for the peer's end nor a retransmission |
//! | `TCP_DEFER_ACCEPT` | stored and returned, rounded as TCP does; a listener with it gets connections at once nevertheless |
//! | `SO_PEEK_OFF` | returned as -1: off |
//! | `IPV6_V6ONLY` | returned; setting it is refused as for every connected socket |
//! | `TCP_MAXSEG` | returned: the largest slot |
//! | `TCP_INFO` | returned: the state, all other fields 0 |
//! | `TCP_FASTOPEN` | returned as 0 |
//! | `TCP_CONGESTION` | returned as `none` |
//! | all others, among them `SO_TIMESTAMP` and its variants | refused with `ENOPROTOOPT` |

use std::ffi::{c_int, c_void};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use libc::{
    EDOM, EINVAL, ENOPROTOOPT, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_TCP, SOL_SOCKET, socklen_t,
    timeval,
};

use crate::entry::{Entry, FDS};
use crate::errno::{Errno, Outcome};
use crate::kernel_options::{Model, read};
use crate::pacing_rate::PacingRate;
use crate::pieces::check;
use crate::pristine_sockets;
use crate::readiness::{HUP, RDHUP, Source};
use crate::send::{note_reset, take_error};
use crate::service;
use crate::slab::{Record, flag, option};

const SO_RCVTIMEO_NEW: c_int = 66;
const SO_SNDTIMEO_NEW: c_int = 67;
/// The kernel's limits of buffer sizes, by default.
const BUFFER_MAX: u32 = 212_992;
const SEND_BUFFER_MIN: u32 = 4608;
/// Initial size of the kernel's send buffer, in bytes; the program set any smaller one.
const SEND_BUFFER_DEFAULT: u32 = 16_384;
const RECEIVE_BUFFER_MIN: u32 = 2304;
/// Largest value of `TCP_LINGER2`, in seconds.
const ORPHAN_SECONDS_MAX: c_int = 120;
/// Size of the `tcp_info` that is reported, in bytes: all fields up to `tcpi_total_retrans`.
const TCP_INFO_SIZE: usize = size_of::<libc::tcp_info>();
/// Largest number of bytes in one slot.
const SEGMENT: c_int = 8192;

/// Storage of an option.
enum Place<'a> {
    /// A bit of the module [`option`].
    Bit(u32),
    /// A 32-bit number that can be set.
    Number(&'a AtomicU32),
    /// A constant that cannot be set.
    Fixed(c_int),
    /// A buffer's size, at least this.
    Buffer(&'a AtomicU32, u32),
    /// A time in nanoseconds, set as a `timeval`.
    Time(&'a AtomicU64),
    Rate(&'a PacingRate),
    Linger(&'a AtomicI32),
    Error,
    Info,
    Name(&'static [u8; 16]),
}

fn place<'a>(record: &'a Record, level: c_int, name: c_int) -> Outcome<Place<'a>> {
    let options = &record.options;
    Ok(match level {
        SOL_SOCKET => match name {
            libc::SO_ERROR => Place::Error,
            libc::SO_TYPE => Place::Fixed(libc::SOCK_STREAM),
            libc::SO_DOMAIN => Place::Fixed(family(record)),
            libc::SO_PROTOCOL => Place::Fixed(IPPROTO_TCP),
            libc::SO_ACCEPTCONN => Place::Fixed(0),
            libc::SO_PEEK_OFF => Place::Fixed(-1),
            libc::SO_DONTROUTE => Place::Bit(option::DONTROUTE),
            libc::SO_BROADCAST => Place::Bit(option::BROADCAST),
            libc::SO_SNDLOWAT => Place::Fixed(1),
            libc::SO_KEEPALIVE => Place::Bit(option::KEEPALIVE),
            libc::SO_REUSEADDR => Place::Bit(option::REUSEADDR),
            libc::SO_REUSEPORT => Place::Bit(option::REUSEPORT),
            libc::SO_OOBINLINE => Place::Bit(option::OOBINLINE),
            libc::SO_LINGER => Place::Linger(&options.linger),
            libc::SO_RCVTIMEO | SO_RCVTIMEO_NEW => Place::Time(&options.receive_timeout),
            libc::SO_SNDTIMEO | SO_SNDTIMEO_NEW => Place::Time(&options.send_timeout),
            libc::SO_RCVBUF => Place::Buffer(&options.receive_buffer, RECEIVE_BUFFER_MIN),
            libc::SO_SNDBUF => Place::Buffer(&options.send_buffer, SEND_BUFFER_MIN),
            libc::SO_RCVLOWAT => Place::Number(&options.low_water),
            libc::SO_PRIORITY => Place::Number(&options.priority),
            libc::SO_MAX_PACING_RATE => Place::Rate(&options.rate),
            libc::SO_MARK => Place::Number(&options.mark),
            libc::SO_BUSY_POLL => Place::Number(&options.busy_poll),
            _ => return Err(Errno(ENOPROTOOPT)),
        },
        IPPROTO_TCP => match name {
            libc::TCP_NODELAY => Place::Bit(option::NODELAY),
            libc::TCP_CORK => Place::Bit(option::CORK),
            libc::TCP_QUICKACK => Place::Bit(option::QUICKACK),
            libc::TCP_KEEPIDLE => Place::Number(&options.keep_idle),
            libc::TCP_KEEPINTVL => Place::Number(&options.keep_interval),
            libc::TCP_KEEPCNT => Place::Number(&options.keep_count),
            libc::TCP_USER_TIMEOUT => Place::Number(&options.user_timeout),
            libc::TCP_NOTSENT_LOWAT => Place::Number(&options.keep_unsent),
            libc::TCP_LINGER2 => Place::Number(&options.orphan_seconds),
            libc::TCP_SYNCNT => Place::Number(&options.connect_tries),
            libc::TCP_DEFER_ACCEPT => Place::Number(&options.defer_accept),
            libc::TCP_FASTOPEN => Place::Fixed(0),
            libc::TCP_MAXSEG => Place::Fixed(SEGMENT),
            libc::TCP_INFO => Place::Info,
            libc::TCP_CONGESTION => Place::Name(b"none\0\0\0\0\0\0\0\0\0\0\0\0"),
            _ => return Err(Errno(ENOPROTOOPT)),
        },
        IPPROTO_IP => match name {
            libc::IP_TOS => Place::Number(&options.type_of_service),
            libc::IP_TTL => Place::Number(&options.time_to_live),
            _ => return Err(Errno(ENOPROTOOPT)),
        },
        IPPROTO_IPV6 if family(record) == libc::AF_INET6 => match name {
            libc::IPV6_TCLASS => Place::Number(&options.type_of_service),
            libc::IPV6_UNICAST_HOPS => Place::Number(&options.hop_limit),
            libc::IPV6_V6ONLY => Place::Fixed(c_int::from(options.has(option::V6ONLY))),
            _ => return Err(Errno(ENOPROTOOPT)),
        },
        _ => return Err(Errno(ENOPROTOOPT)),
    })
}

fn family(record: &Record) -> c_int {
    match record.local() {
        SocketAddr::V4(_) => libc::AF_INET,
        SocketAddr::V6(_) => libc::AF_INET6,
    }
}

/// Option of a connection, as `getsockopt(2)`.
///
/// # Safety
/// The pointers are null or valid, as the call asks for.
pub(crate) unsafe fn get(
    entry: &'static Entry,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    size: *mut socklen_t,
) -> Outcome<c_int> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    check(size, size_of::<socklen_t>())?;
    check(value, 1)?;
    // SAFETY: `size` is readable, as this function asks for; `check` excluded null.
    let room = unsafe { size.read() };
    let room = c_int::try_from(room)
        .ok()
        .and_then(|room| usize::try_from(room).ok())
        .ok_or(Errno(EINVAL))?;
    let mut bytes = [0; 128];
    let place = match level {
        SOL_SOCKET | IPPROTO_TCP | IPPROTO_IP | IPPROTO_IPV6 => place(record, level, name)?,
        _ => return Err(Errno(libc::EOPNOTSUPP)),
    };
    let length = match place {
        Place::Bit(bit) => put(
            &mut bytes,
            &c_int::from(record.options.has(bit)).to_ne_bytes(),
        ),
        Place::Number(number) | Place::Buffer(number, _) => {
            put(&mut bytes, &number.load(Ordering::Relaxed).to_ne_bytes())
        }
        Place::Fixed(number) => put(&mut bytes, &number.to_ne_bytes()),
        Place::Error => {
            note_reset(entry, record);
            let error = match take_error(record) {
                Ok(()) => 0,
                Err(Errno(errno)) => errno,
            };
            put(&mut bytes, &error.to_ne_bytes())
        }
        Place::Time(time) => {
            let time = Duration::from_nanos(time.load(Ordering::Relaxed));
            put(
                &mut bytes[8..],
                &u64::from(time.subsec_micros()).to_ne_bytes(),
            );
            put(&mut bytes, &time.as_secs().to_ne_bytes()) + 8
        }
        Place::Rate(rate) => {
            let (encoded, length) = rate.to_bytes(room);
            put(&mut bytes, &encoded[..length])
        }
        Place::Linger(seconds) => {
            let seconds = seconds.load(Ordering::Relaxed);
            put(&mut bytes[4..], &seconds.max(0).to_ne_bytes());
            put(&mut bytes, &c_int::from(seconds >= 0).to_ne_bytes()) + 4
        }
        Place::Info => {
            bytes[0] = state(entry);
            TCP_INFO_SIZE
        }
        Place::Name(name) => put(&mut bytes, name),
    };
    let length = length.min(room);
    // SAFETY: `length` is at most the room that the program states.
    unsafe {
        value
            .cast::<u8>()
            .copy_from_nonoverlapping(bytes.as_ptr(), length)
    };
    // SAFETY: the place of the size was read before, and is writable, as this function asks for.
    unsafe { size.write(socklen_t::try_from(length).unwrap_or(0)) };
    Ok(0)
}

fn put(bytes: &mut [u8], value: &[u8]) -> usize {
    bytes[..value.len()].copy_from_slice(value);
    value.len()
}

/// State as in `tcp_info`, a `TCP_*` number.
fn state(entry: &Entry) -> u8 {
    const ESTABLISHED: u8 = 1;
    const FIN_WAIT2: u8 = 5;
    const CLOSE: u8 = 7;
    const CLOSE_WAIT: u8 = 8;
    let ready = entry.ready();
    let is_shut = entry
        .record()
        .is_none_or(|record| record.has(flag::SEND_SHUT));
    match (ready & HUP != 0, ready & RDHUP != 0, is_shut) {
        (true, _, _) => CLOSE,
        (_, true, _) => CLOSE_WAIT,
        (_, _, true) => FIN_WAIT2,
        _ => ESTABLISHED,
    }
}

/// Sets an option of a connection, as `setsockopt(2)`.
///
/// # Safety
/// The pointer is null, or `value` has `size` readable bytes.
pub(crate) unsafe fn set(
    entry: &'static Entry,
    level: c_int,
    name: c_int,
    value: *const c_void,
    size: socklen_t,
) -> Outcome<c_int> {
    let record = entry.record().ok_or(Errno(libc::EBADF))?;
    let place = place(record, level, name)?;
    let read = |count: usize| {
        if (size as usize) < count {
            return Err(Errno(EINVAL));
        }
        check(value, count)?;
        let mut bytes = [0u8; 16];
        // SAFETY: `size` readable bytes are there, as this function asks for, and `count` is at most `size`.
        unsafe {
            bytes
                .as_mut_ptr()
                .copy_from_nonoverlapping(value.cast(), count)
        };
        Ok(bytes)
    };
    let number = |bytes: [u8; 16], at: usize| {
        let mut number = [0; 4];
        number.copy_from_slice(&bytes[at..at + 4]);
        c_int::from_ne_bytes(number)
    };
    match place {
        Place::Bit(bit) => {
            let on = number(read(4)?, 0) != 0;
            record.options.set(bit, on);
            if bit == option::OOBINLINE {
                keep_urgent_inline(record, on);
            }
        }
        Place::Number(place) if level == IPPROTO_IP && (1..4).contains(&size) => {
            set_number(place, level, name, c_int::from(read(1)?[0]))?;
        }
        Place::Number(place) => set_number(place, level, name, number(read(4)?, 0))?,
        Place::Buffer(place, least) => {
            let wanted = u32::try_from(number(read(4)?, 0))
                .unwrap_or(BUFFER_MAX)
                .min(BUFFER_MAX);
            let size = (wanted * 2).max(least);
            place.store(size, Ordering::Relaxed);
            if name == libc::SO_SNDBUF {
                record.options.limit_out(size);
            }
        }
        Place::Time(place) => place.store(time(read(16)?)?, Ordering::Relaxed),
        Place::Rate(rate) => {
            let is_long = size >= 8;
            let [bytes @ .., _, _, _, _, _, _, _, _] = read(if is_long { 8 } else { 4 })?;
            rate.set(PacingRate::read(bytes, is_long));
        }
        Place::Linger(place) => {
            let bytes = read(8)?;
            let seconds = if number(bytes, 0) == 0 {
                -1
            } else {
                number(bytes, 4).max(0)
            };
            place.store(seconds, Ordering::Relaxed);
        }
        Place::Fixed(_) if level == IPPROTO_IPV6 => return Err(Errno(EINVAL)),
        Place::Fixed(_) | Place::Error | Place::Info | Place::Name(_) => {
            return Err(Errno(ENOPROTOOPT));
        }
    }
    if level == SOL_SOCKET && matches!(name, libc::SO_PRIORITY | libc::SO_MAX_PACING_RATE) {
        service::tell(entry, record);
    }
    Ok(0)
}

/// Has urgent bytes stay where they are in the stream, or not.
fn keep_urgent_inline(record: &Record, on: bool) {
    if let Ok(_guard) = record.receive.take() {
        let mut cursor = record.receive.receive_cursor();
        cursor.set_urgent_inline(on);
        record.receive.set_receive_cursor(&cursor);
    }
}

/// Keeps a number as the kernel does: within limits, rounded, or the default again.
fn set_number(place: &AtomicU32, level: c_int, name: c_int, number: c_int) -> Outcome<()> {
    let limits = match (level, name) {
        (IPPROTO_TCP, libc::TCP_KEEPIDLE | libc::TCP_KEEPINTVL) => 1..=32_767,
        (IPPROTO_TCP, libc::TCP_KEEPCNT | libc::TCP_SYNCNT) => 1..=127,
        (IPPROTO_IP, libc::IP_TTL) if number != -1 => 1..=255,
        (IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) if number != -1 => 0..=255,
        (SOL_SOCKET, libc::SO_MARK) => c_int::MIN..=c_int::MAX,
        (IPPROTO_TCP, libc::TCP_LINGER2 | libc::TCP_DEFER_ACCEPT)
        | (IPPROTO_IP | IPPROTO_IPV6, _) => c_int::MIN..=c_int::MAX,
        _ => 0..=c_int::MAX,
    };
    if !limits.contains(&number) {
        return Err(Errno(EINVAL));
    }
    let kept = match (level, name) {
        (IPPROTO_IP, libc::IP_TTL) | (IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS) if number == -1 => 64,
        // The lowest two bits are TCP's own.
        (IPPROTO_IP, libc::IP_TOS) => number & 0xfc,
        (IPPROTO_IPV6, libc::IPV6_TCLASS) => number.max(0) & 0xfc,
        (IPPROTO_TCP, libc::TCP_LINGER2) => number.clamp(-1, ORPHAN_SECONDS_MAX),
        (IPPROTO_TCP, libc::TCP_DEFER_ACCEPT) => whole_tries(number),
        _ => number,
    };
    place.store(u32::from_ne_bytes(kept.to_ne_bytes()), Ordering::Relaxed);
    Ok(())
}

/// Time in seconds of the first segment and its retransmissions, each after twice the time, that covers `seconds`.
fn whole_tries(seconds: c_int) -> c_int {
    const APART_MAX: c_int = 120;
    let (mut sum, mut apart) = (c_int::from(seconds > 0), 1);
    for _ in 1..u8::MAX {
        if seconds <= sum {
            break;
        }
        apart = (apart * 2).min(APART_MAX);
        sum += apart;
    }
    sum
}

/// A `timeval` in nanoseconds; `EDOM` for microseconds of a second or more.
fn time(bytes: [u8; 16]) -> Outcome<u64> {
    const _: () = assert!(size_of::<timeval>() == 16);
    let word = |at: usize| i64::from_ne_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let micros = u32::try_from(word(8))
        .ok()
        .filter(|micros| *micros < 1_000_000)
        .ok_or(Errno(EDOM))?;
    // The kernel takes a negative time for the shortest one.
    let Ok(seconds) = u64::try_from(word(0)) else {
        return Ok(1);
    };
    Ok(seconds
        .saturating_mul(1_000_000_000)
        .saturating_add(u64::from(micros) * 1000))
}

/// Copies the options of a kernel's socket: the connecting one, or the listener.
pub(crate) fn carry(socket: c_int, family: c_int, record: &Record) {
    let options = &record.options;
    if let Some(listener) = FDS.lookup(socket) {
        listener.listener.model.copy_to(socket, family, options);
    } else if pristine_sockets::family(socket).is_some() {
        let model = if family == libc::AF_INET6 {
            &FRESH_V6
        } else {
            &FRESH_V4
        };
        model.copy_to(socket, family, options);
    } else {
        read(socket, family, options);
    }
    if record.side.load(Ordering::Relaxed) != 0 {
        // An accepted socket does not inherit the priority.
        options.priority.store(0, Ordering::Relaxed);
    }
    if options.has(option::OOBINLINE) {
        keep_urgent_inline(record, true);
    }
    let size = options.send_buffer.load(Ordering::Relaxed);
    if size < SEND_BUFFER_DEFAULT {
        options.limit_out(size);
    }
}

/// Options of a pristine socket, by family.
static FRESH_V4: Model = Model::new();
static FRESH_V6: Model = Model::new();
