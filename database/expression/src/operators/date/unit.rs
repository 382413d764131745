//! Units of time and days of the week, as operands name them.

use millrace_value::{Error, ErrorCode, Result};

use crate::calendar::{HOUR_MS, MINUTE_MS, SECOND_MS};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// A number of months: 1, 3 or 12.
    Months(i64),
    /// A number of days: 1 or 7.
    Days(i64),
    /// A number of milliseconds, an hour at most.
    Milliseconds(i64),
}

impl Unit {
    pub(super) const WEEK: Self = Self::Days(7);

    /// # Errors
    /// `FailedToParse` for anything else than `year`, `quarter`, `month`, `week`, `day`, `hour`,
    /// `minute`, `second` and `millisecond`.
    pub(super) fn parse(name: &str) -> Result<Self> {
        Ok(match name {
            "year" => Self::Months(12),
            "quarter" => Self::Months(3),
            "month" => Self::Months(1),
            "week" => Self::WEEK,
            "day" => Self::Days(1),
            "hour" => Self::Milliseconds(HOUR_MS),
            "minute" => Self::Milliseconds(MINUTE_MS),
            "second" => Self::Milliseconds(SECOND_MS),
            "millisecond" => Self::Milliseconds(1),
            other => {
                return Err(Error::new(
                    ErrorCode::FailedToParse,
                    format!("unknown time unit value: {other}"),
                ));
            }
        })
    }
}

/// The number of a day of the week, 0 for Sunday; its name may be cut to three letters.
pub(super) fn parse_weekday(name: &str) -> Result<i64> {
    const NAMES: [&str; 7] = [
        "sunday",
        "monday",
        "tuesday",
        "wednesday",
        "thursday",
        "friday",
        "saturday",
    ];
    let lower = name.to_ascii_lowercase();
    NAMES
        .iter()
        .zip(0..)
        .find(|(day, _)| **day == lower || (lower.len() == 3 && day.starts_with(&lower)))
        .map(|(_, number)| number)
        .ok_or_else(|| {
            Error::new(
                ErrorCode::FailedToParse,
                format!("unknown day of week value: {name}"),
            )
        })
}
