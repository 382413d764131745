//! Time zones by Olson name or by offset.

use std::sync::LazyLock;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone as NamedZone, TimeZoneDatabase};
use millrace_value::{Error, Result};

use super::calendar::{Civil, HOUR_MS, MINUTE_MS, SECOND_MS};

/// The zones compiled in. Those of the machine are not used: results shall not depend on it.
static ZONES: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// Where local time is.
#[derive(Clone, Debug)]
pub(super) enum TimeZone {
    Utc,
    /// Milliseconds to be added to UTC.
    Offset(i64),
    Named(NamedZone),
}

impl TimeZone {
    /// The zone with this Olson name, or `UTC`, `GMT`, `Z`, `+hh`, `+hhmm` or `+hh:mm`.
    pub(super) fn parse(name: &str) -> Result<Self> {
        if matches!(name, "UTC" | "GMT" | "Z") {
            return Ok(Self::Utc);
        }
        if let Some(offset_ms) = parse_offset(name) {
            return Ok(Self::Offset(offset_ms));
        }
        ZONES.get(name).map(Self::Named).map_err(|error| {
            Error::location(
                40485,
                format!("unrecognized time zone identifier: \"{name}\""),
            )
            .with_source(error)
        })
    }

    pub(super) fn is_utc(&self) -> bool {
        matches!(self, Self::Utc)
    }

    /// Milliseconds that local time is ahead of UTC at this moment.
    pub(super) fn offset_ms(&self, utc_ms: i64) -> i64 {
        match self {
            Self::Utc => 0,
            Self::Offset(offset_ms) => *offset_ms,
            Self::Named(zone) => {
                let range = Timestamp::MIN.as_millisecond()..=Timestamp::MAX.as_millisecond();
                let nearest = utc_ms.clamp(*range.start() + 1, *range.end() - 1);
                let offset = Timestamp::from_millisecond(nearest)
                    .map_or(Offset::UTC, |at| zone.to_offset(at));
                i64::from(offset.seconds()) * SECOND_MS
            }
        }
    }

    /// Local time at a moment of UTC, in milliseconds since 1970-01-01; `None` if it does not fit.
    pub(super) fn to_local_ms(&self, utc_ms: i64) -> Option<i64> {
        utc_ms.checked_add(self.offset_ms(utc_ms))
    }

    /// The moment of a local time. One that a change of clocks skips is taken with the offset before
    /// it, one that occurs twice is the first.
    pub(super) fn to_utc_ms(&self, local_ms: i64) -> Option<i64> {
        let offset_ms = match self {
            Self::Utc => 0,
            Self::Offset(offset_ms) => *offset_ms,
            Self::Named(zone) => match jiff_date_time(local_ms) {
                Some(local) => {
                    let offset = match zone.to_ambiguous_timestamp(local).offset() {
                        AmbiguousOffset::Unambiguous { offset } => offset,
                        AmbiguousOffset::Gap { before, .. }
                        | AmbiguousOffset::Fold { before, .. } => before,
                    };
                    i64::from(offset.seconds()) * SECOND_MS
                }
                None => self.offset_ms(local_ms),
            },
        };
        local_ms.checked_sub(offset_ms)
    }
}

/// The local time as the library of time zones has it; `None` beyond its range.
fn jiff_date_time(local_ms: i64) -> Option<DateTime> {
    let civil = Civil::from_local_ms(local_ms);
    let small = |number: i64| i8::try_from(number).ok();
    DateTime::new(
        i16::try_from(civil.year).ok()?,
        small(civil.month)?,
        small(civil.day)?,
        small(civil.hour)?,
        small(civil.minute)?,
        small(civil.second)?,
        i32::try_from(civil.millisecond * 1_000_000).ok()?,
    )
    .ok()
}

/// `+hh`, `+hhmm` or `+hh:mm` in milliseconds.
pub(super) fn parse_offset(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => return None,
    };
    let (hours, minutes) = match (digits.len(), digits.split_once(':')) {
        (5, Some((hours, minutes))) if hours.len() == 2 => (hours, minutes),
        (2, None) => (digits, "00"),
        (4, None) if digits.is_ascii() => digits.split_at(2),
        _ => return None,
    };
    let number = |text: &str| -> Option<i64> {
        text.bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| text.parse().ok())
            .flatten()
    };
    Some(sign * (number(hours)? * HOUR_MS + number(minutes)? * MINUTE_MS))
}
