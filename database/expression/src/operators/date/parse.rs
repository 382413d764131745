//! Reading dates from text.

use millrace_value::{Error, ErrorCode, Result};

use super::format::month_of_name;
use crate::calendar::{
    Civil, DAY_MS, days_from_civil, days_from_iso_week, days_in_month, is_leap_year,
};
use crate::time_zone::{TimeZone, parse_offset};

pub(super) fn failure(text: &str, reason: &str) -> Error {
    let shown: String = text.chars().take(200).collect();
    Error::new(
        ErrorCode::ConversionFailure,
        format!("Error parsing date string '{shown}'; {reason}"),
    )
}

/// Reads text from the left.
#[derive(Debug)]
pub(super) struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
}

impl<'t> Reader<'t> {
    pub(super) const fn new(text: &'t str) -> Self {
        Self { text, rest: text }
    }

    pub(super) const fn text(&self) -> &'t str {
        self.text
    }

    /// A failure at this place.
    fn fail<T>(&self, reason: &str) -> Result<T> {
        let place = self.text.len() - self.rest.len();
        let found = match self.rest.chars().next() {
            Some(c) => format!(" '{c}'"),
            None => String::new(),
        };
        Err(failure(self.text, &format!("{place}: {reason}{found}")))
    }

    fn peek(&self) -> Option<char> {
        self.rest.chars().next()
    }

    /// Takes a character if it is one of these.
    fn take(&mut self, accept: impl Fn(char) -> bool) -> Option<char> {
        let c = self.peek().filter(|&c| accept(c))?;
        self.rest = &self.rest[c.len_utf8()..];
        Some(c)
    }

    /// Takes characters while they are of these; `most` at most.
    fn take_while(&mut self, most: usize, accept: impl Fn(char) -> bool) -> &'t str {
        let end = self
            .rest
            .char_indices()
            .take(most)
            .take_while(|&(_, c)| accept(c))
            .last()
            .map_or(0, |(at, c)| at + c.len_utf8());
        let (taken, rest) = self.rest.split_at(end);
        self.rest = rest;
        taken
    }

    pub(super) fn literal(&mut self, c: char) -> Result<()> {
        match self.take(|found| found == c) {
            Some(_) => Ok(()),
            None => self.fail(&format!("expected '{c}', found")),
        }
    }

    pub(super) fn end(&self) -> Result<()> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            self.fail("Trailing data")
        }
    }

    /// A number with that many digits, seven at most.
    pub(super) fn number(&mut self, least: usize, most: usize) -> Result<i64> {
        let start = self.rest;
        let digits = self.take_while(most, |c| c.is_ascii_digit());
        match digits.parse() {
            Ok(number) if digits.len() >= least => Ok(number),
            _ => {
                self.rest = start;
                self.fail("expected a number, found")
            }
        }
    }

    pub(super) fn signed_number(&mut self) -> Result<i64> {
        let sign = match self.take(|c| matches!(c, '+' | '-')) {
            Some('-') => -1,
            Some(_) => 1,
            None => return self.fail("expected a sign, found"),
        };
        Ok(sign * self.number(1, 4)?)
    }

    /// Digits after a decimal point, as a number of units of `digits` digits.
    pub(super) fn fraction(&mut self, digits: usize) -> Result<i64> {
        let text = self.take_while(9, |c| c.is_ascii_digit());
        let kept = &text[..text.len().min(digits)];
        match format!("{kept:0<digits$}").parse() {
            Ok(number) if !text.is_empty() => Ok(number),
            _ => self.fail("expected digits, found"),
        }
    }

    pub(super) fn month_name(&mut self) -> Result<i64> {
        let start = self.rest;
        let name = self.take_while(9, |c| c.is_ascii_alphabetic());
        month_of_name(name).map_or_else(
            || {
                self.rest = start;
                self.fail("expected the name of a month, found")
            },
            Ok,
        )
    }

    /// `Z`, an offset or the name of a zone.
    pub(super) fn zone(&mut self) -> Result<TimeZone> {
        let start = self.rest;
        let is_name = |c: char| c.is_ascii_alphanumeric() || "/_+-:".contains(c);
        let name = self.take_while(64, is_name);
        let zone = match name {
            "" => None,
            "z" => Some(TimeZone::Utc),
            name => match parse_offset(name) {
                Some(offset_ms) => Some(TimeZone::Offset(offset_ms)),
                None => TimeZone::parse(name).ok(),
            },
        };
        zone.map_or_else(
            || {
                self.rest = start;
                self.fail("The timezone could not be found in the database")
            },
            Ok,
        )
    }

    fn spaces(&mut self) {
        self.take_while(usize::MAX, char::is_whitespace);
    }
}

/// What was read of a date.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) year: Option<i64>,
    pub(super) month: Option<i64>,
    pub(super) day: Option<i64>,
    pub(super) day_of_year: Option<i64>,
    pub(super) iso_year: Option<i64>,
    pub(super) iso_week: Option<i64>,
    pub(super) iso_day: Option<i64>,
    pub(super) hour: Option<i64>,
    pub(super) minute: Option<i64>,
    pub(super) second: Option<i64>,
    pub(super) millisecond: Option<i64>,
    pub(super) zone: Option<TimeZone>,
}

impl Fields {
    /// The moment; local time is in the zone of the text, else in `zone`, else in UTC.
    pub(super) fn to_utc_ms(&self, text: &str, zone: Option<&TimeZone>) -> Result<i64> {
        if self.zone.is_some() && zone.is_some() {
            return Err(failure(
                text,
                "you cannot pass in a date/time string with time zone information together with a \
                 timezone argument",
            ));
        }
        let zone = self.zone.as_ref().or(zone).unwrap_or(&TimeZone::Utc);
        let days = self.days().ok_or_else(|| {
            failure(
                text,
                "an incomplete date/time string has been found, or one of no date",
            )
        })?;
        let (hour, minute) = (self.hour.unwrap_or(0), self.minute.unwrap_or(0));
        let (second, millisecond) = (self.second.unwrap_or(0), self.millisecond.unwrap_or(0));
        if hour > 24 || minute > 59 || second > 60 || (hour == 24 && minute + second > 0) {
            return Err(failure(text, "Unexpected time of day"));
        }
        let in_day = Civil {
            hour,
            minute,
            second,
            millisecond,
            ..Civil::EPOCH
        };
        in_day
            .to_local_ms()
            .and_then(|in_day| zone.to_utc_ms(days * DAY_MS + in_day))
            .ok_or_else(|| failure(text, "the date is out of range"))
    }

    /// Days since 1970-01-01, if the fields are a date.
    fn days(&self) -> Option<i64> {
        if let Some(year) = self.iso_year {
            let week = self.iso_week.filter(|week| (1..=53).contains(week))?;
            let day = self.iso_day.unwrap_or(1);
            return (1..=7)
                .contains(&day)
                .then(|| days_from_iso_week(year, week, day));
        }
        let year = self.year?;
        if let Some(day) = self.day_of_year {
            let last = 365 + i64::from(is_leap_year(year));
            return (1..=last)
                .contains(&day)
                .then(|| days_from_civil(year, 1, 1) + day - 1);
        }
        let month = self.month.filter(|month| (1..=12).contains(month))?;
        let day = self.day?;
        (1..=days_in_month(year, month))
            .contains(&day)
            .then(|| days_from_civil(year, month, day))
    }
}

/// Reads a date in one of the usual forms: ISO 8601 (calendar dates, week dates, ordinal dates, basic or
/// extended), `1/31/2024`, `Jan 31, 2024` or `31 January 2024`, with or without a time of day and a time
/// zone.
///
/// # Errors
/// `ConversionFailure` if it is none of them.
pub(in crate::operators) fn parse_date(text: &str, zone: Option<&TimeZone>) -> Result<i64> {
    let mut reader = Reader::new(text.trim());
    let mut fields = Fields::default();
    read_date(&mut reader, &mut fields)?;
    let separated = reader.take(|c| matches!(c, 'T' | 't' | ',')).is_some();
    reader.spaces();
    if separated || reader.peek().is_some_and(|c| c.is_ascii_digit()) {
        read_time(&mut reader, &mut fields)?;
    }
    reader.spaces();
    if reader.peek().is_some() {
        fields.zone = Some(reader.zone()?);
    }
    reader.end()?;
    fields.to_utc_ms(text, zone)
}

fn read_date(reader: &mut Reader<'_>, fields: &mut Fields) -> Result<()> {
    if reader.peek().is_some_and(|c| c.is_ascii_alphabetic()) {
        fields.month = Some(reader.month_name()?);
        reader.spaces();
        fields.day = Some(reader.number(1, 2)?);
        reader.take(|c| c == ',');
        reader.spaces();
        fields.year = Some(reader.number(4, 4)?);
        return Ok(());
    }
    let start = reader.rest;
    let digits = reader.take_while(9, |c| c.is_ascii_digit()).len();
    reader.rest = start;
    match digits {
        4 => read_year_first(reader, fields),
        8 => {
            fields.year = Some(reader.number(4, 4)?);
            fields.month = Some(reader.number(2, 2)?);
            fields.day = Some(reader.number(2, 2)?);
            Ok(())
        }
        1 | 2 => read_day_or_month_first(reader, fields),
        _ => reader.fail("Unexpected character"),
    }
}

fn read_year_first(reader: &mut Reader<'_>, fields: &mut Fields) -> Result<()> {
    let year = reader.number(4, 4)?;
    let separator = reader.take(|c| matches!(c, '-' | '/'));
    if reader.take(|c| c == 'W').is_some() {
        fields.iso_year = Some(year);
        fields.iso_week = Some(reader.number(2, 2)?);
        if reader.take(|c| c == '-').is_some() || separator.is_none() {
            fields.iso_day = Some(reader.number(1, 1)?);
        }
        return Ok(());
    }
    fields.year = Some(year);
    let Some(separator) = separator else {
        return reader.fail("expected a month, found");
    };
    let start = reader.rest;
    if reader.take_while(4, |c| c.is_ascii_digit()).len() == 3 {
        reader.rest = start;
        fields.day_of_year = Some(reader.number(3, 3)?);
        return Ok(());
    }
    reader.rest = start;
    fields.month = Some(reader.number(1, 2)?);
    reader.literal(separator)?;
    fields.day = Some(reader.number(1, 2)?);
    Ok(())
}

/// `1/31/2024` or `31 January 2024`.
fn read_day_or_month_first(reader: &mut Reader<'_>, fields: &mut Fields) -> Result<()> {
    let first = reader.number(1, 2)?;
    if reader.take(|c| c == '/').is_some() {
        fields.month = Some(first);
        fields.day = Some(reader.number(1, 2)?);
        reader.literal('/')?;
    } else {
        reader.take_while(1, |c| matches!(c, ' ' | '-' | '.'));
        fields.day = Some(first);
        fields.month = Some(reader.month_name()?);
        reader.take_while(1, |c| matches!(c, ' ' | '-' | '.' | ','));
    }
    reader.spaces();
    fields.year = Some(reader.number(4, 4)?);
    Ok(())
}

fn read_time(reader: &mut Reader<'_>, fields: &mut Fields) -> Result<()> {
    let mut hour = reader.number(1, 2)?;
    // Without colons all parts have two digits.
    let colon = reader.take(|c| c == ':').is_some();
    let more = |reader: &Reader<'_>| reader.peek().is_some_and(|c| c.is_ascii_digit());
    if more(reader) {
        fields.minute = Some(reader.number(if colon { 1 } else { 2 }, 2)?);
        let seconds = if colon {
            reader.take(|c| c == ':').is_some()
        } else {
            more(reader)
        };
        if seconds {
            fields.second = Some(reader.number(if colon { 1 } else { 2 }, 2)?);
            if reader.take(|c| matches!(c, '.' | ',')).is_some() {
                fields.millisecond = Some(reader.fraction(3)?);
            }
        }
    } else if colon {
        return reader.fail("expected minutes, found");
    }
    let before = reader.rest;
    reader.spaces();
    match reader
        .take_while(2, |c| c.is_ascii_alphabetic())
        .to_ascii_lowercase()
        .as_str()
    {
        "am" if (1..=12).contains(&hour) => hour %= 12,
        "pm" if (1..=12).contains(&hour) => hour = hour % 12 + 12,
        _ => reader.rest = before,
    }
    fields.hour = Some(hour);
    Ok(())
}
