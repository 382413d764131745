//! The proleptic Gregorian calendar over the whole range of BSON dates, and time zones.
//!
//! Dates are milliseconds since 1970-01-01 UTC in 64 bits, some 292 million years in both directions,
//! which no calendar library covers. Only the offsets of named time zones come from one; they are taken
//! at the nearest moment it knows.

use std::fmt::Write;

pub(super) const SECOND_MS: i64 = 1000;
pub(super) const MINUTE_MS: i64 = 60 * SECOND_MS;
pub(super) const HOUR_MS: i64 = 60 * MINUTE_MS;
pub(super) const DAY_MS: i64 = 24 * HOUR_MS;

/// Days from 0000-03-01 to 1970-01-01.
const EPOCH_DAY: i64 = 719_468;
/// Days in 400 years.
const ERA_DAYS: i64 = 146_097;

/// A date and time without a time zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Civil {
    pub(super) year: i64,
    /// 1 to 12.
    pub(super) month: i64,
    /// 1 to 31.
    pub(super) day: i64,
    pub(super) hour: i64,
    pub(super) minute: i64,
    pub(super) second: i64,
    pub(super) millisecond: i64,
}

/// A year and week as ISO 8601 counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IsoWeek {
    pub(super) year: i64,
    /// 1 to 53.
    pub(super) week: i64,
    /// 1, Monday, to 7.
    pub(super) day: i64,
}

/// Days from 1970-01-01 to a date whose month is 1 to 12; the day may be any number. The algorithm is
/// Howard Hinnant's `days_from_civil`: years begin in March, so that a leap day is the last one.
pub(super) fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * ERA_DAYS + day_of_era - EPOCH_DAY
}

/// The inverse of [`days_from_civil`]: year, month and day.
pub(super) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH_DAY;
    let era = days.div_euclid(ERA_DAYS);
    let day_of_era = days.rem_euclid(ERA_DAYS);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

pub(super) fn is_leap_year(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

pub(super) fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap_year(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// The day of the week of a day since 1970-01-01: 0, Sunday, to 6.
pub(super) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

impl Civil {
    /// 1970-01-01T00:00:00.000, to be changed in parts.
    pub(super) const EPOCH: Self = Self {
        year: 1970,
        month: 1,
        day: 1,
        hour: 0,
        minute: 0,
        second: 0,
        millisecond: 0,
    };

    /// The date and time at local milliseconds since 1970-01-01.
    pub(super) fn from_local_ms(local_ms: i64) -> Self {
        let (year, month, day) = civil_from_days(local_ms.div_euclid(DAY_MS));
        let in_day = local_ms.rem_euclid(DAY_MS);
        Self {
            year,
            month,
            day,
            hour: in_day / HOUR_MS,
            minute: in_day / MINUTE_MS % 60,
            second: in_day / SECOND_MS % 60,
            millisecond: in_day % SECOND_MS,
        }
    }

    /// Local milliseconds since 1970-01-01; `None` if they do not fit. Fields may lie outside of their
    /// usual range and carry over, as long as they are below 2^40 or so.
    pub(super) fn to_local_ms(self) -> Option<i64> {
        let months = self.month - 1;
        let year = self.year.checked_add(months.div_euclid(12))?;
        if year.abs() > 300_000_000 {
            return None;
        }
        let days = days_from_civil(year, months.rem_euclid(12) + 1, 1).checked_add(self.day - 1)?;
        let mut local_ms = days.checked_mul(DAY_MS)?;
        for (count, unit) in [
            (self.hour, HOUR_MS),
            (self.minute, MINUTE_MS),
            (self.second, SECOND_MS),
            (self.millisecond, 1),
        ] {
            local_ms = local_ms.checked_add(count.checked_mul(unit)?)?;
        }
        Some(local_ms)
    }

    fn days(self) -> i64 {
        days_from_civil(self.year, self.month, self.day)
    }

    /// 1 to 366.
    pub(super) fn day_of_year(self) -> i64 {
        self.days() - days_from_civil(self.year, 1, 1) + 1
    }

    /// 1, Sunday, to 7.
    pub(super) fn day_of_week(self) -> i64 {
        weekday(self.days()) + 1
    }

    /// 0 to 53: weeks begin on Sundays, days before the first one are in week 0.
    pub(super) fn week(self) -> i64 {
        (self.day_of_year() + 6 - weekday(self.days())) / 7
    }

    pub(super) fn iso_week(self) -> IsoWeek {
        let day = match weekday(self.days()) {
            0 => 7,
            day => day,
        };
        // The week belongs to the year of its Thursday.
        let thursday = self.days() + 4 - day;
        let (year, _, _) = civil_from_days(thursday);
        let week = (thursday - days_from_civil(year, 1, 1)) / 7 + 1;
        IsoWeek { year, week, day }
    }
}

/// Days from 1970-01-01 to a day of an ISO week; week and day may be any number.
pub(super) fn days_from_iso_week(year: i64, week: i64, day: i64) -> i64 {
    // The fourth of January is always in week 1.
    let fourth = days_from_civil(year, 1, 4);
    let monday = fourth - (weekday(fourth) + 6) % 7;
    monday + (week - 1) * 7 + (day - 1)
}

/// A date as text: `2024-01-31T12:00:00.000Z`.
pub(super) fn iso_text(utc_ms: i64) -> String {
    let civil = Civil::from_local_ms(utc_ms);
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = write!(
        text,
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z",
        civil.year,
        civil.month,
        civil.day,
        civil.hour,
        civil.minute,
        civil.second,
        civil.millisecond
    );
    text
}
