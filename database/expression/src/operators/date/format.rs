//! Formats with `%` for writing and reading dates.

use std::fmt::Write;

use millrace_value::{Error, Result};

use super::parse::{Fields, Reader, failure};
use crate::calendar::{Civil, MINUTE_MS};
use crate::time_zone::TimeZone;

/// How dates are written if no format is given, in UTC and elsewhere.
pub(super) const DEFAULT_UTC: &str = "%Y-%m-%dT%H:%M:%S.%LZ";
pub(super) const DEFAULT_LOCAL: &str = "%Y-%m-%dT%H:%M:%S.%L";

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A parsed format.
#[derive(Debug)]
pub(super) struct Format(Vec<Item>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Literal(char),
    /// The letter after `%`.
    Field(char),
}

impl Format {
    /// # Errors
    /// 18535 for a `%` at the end, 18536 for an unknown letter after one.
    pub(super) fn parse(format: &str) -> Result<Self> {
        let mut items = Vec::new();
        let mut chars = format.chars();
        while let Some(c) = chars.next() {
            if c != '%' {
                items.push(Item::Literal(c));
                continue;
            }
            match chars.next() {
                None => {
                    return Err(Error::location(
                        18535,
                        "Unmatched '%' at end of format string",
                    ));
                }
                Some('%') => items.push(Item::Literal('%')),
                Some(letter) if "bBdGHjLmMSuUVwYzZ".contains(letter) => {
                    items.push(Item::Field(letter));
                }
                Some(other) => {
                    return Err(Error::location(
                        18536,
                        format!("Invalid format character '%{other}' in format string"),
                    ));
                }
            }
        }
        Ok(Self(items))
    }

    /// Writes a local time, which is `offset_ms` ahead of UTC.
    ///
    /// # Errors
    /// 18537 if a year that is not within 0 to 9999 is to be written.
    pub(super) fn write(&self, local_ms: i64, offset_ms: i64) -> Result<String> {
        let civil = Civil::from_local_ms(local_ms);
        let mut text = String::new();
        for item in &self.0 {
            match item {
                Item::Literal(c) => text.push(*c),
                Item::Field(letter) => write_field(&mut text, *letter, civil, offset_ms)?,
            }
        }
        Ok(text)
    }

    /// Reads a date. A zone in the text and one given beside it exclude each other.
    ///
    /// # Errors
    /// `ConversionFailure` if the text is not in this format or is no date.
    pub(super) fn read(&self, text: &str, zone: Option<&TimeZone>) -> Result<i64> {
        let mut reader = Reader::new(text);
        let mut fields = Fields::default();
        for item in &self.0 {
            match item {
                Item::Literal(c) => reader.literal(*c)?,
                Item::Field(letter) => read_field(&mut reader, *letter, &mut fields)?,
            }
        }
        reader.end()?;
        fields.to_utc_ms(text, zone)
    }
}

fn write_field(text: &mut String, letter: char, civil: Civil, offset_ms: i64) -> Result<()> {
    let (number, width) = match letter {
        'Y' => (checked_year(civil.year)?, 4),
        'G' => (checked_year(civil.iso_week().year)?, 4),
        'm' => (civil.month, 2),
        'd' => (civil.day, 2),
        'H' => (civil.hour, 2),
        'M' => (civil.minute, 2),
        'S' => (civil.second, 2),
        'L' => (civil.millisecond, 3),
        'j' => (civil.day_of_year(), 3),
        'w' => (civil.day_of_week(), 1),
        'u' => (civil.iso_week().day, 1),
        'U' => (civil.week(), 2),
        'V' => (civil.iso_week().week, 2),
        'b' | 'B' => {
            let name = usize::try_from(civil.month - 1).map_or("", |month| MONTHS[month]);
            text.push_str(if letter == 'b' { &name[..3] } else { name });
            return Ok(());
        }
        _ => {
            let minutes = offset_ms / MINUTE_MS;
            let sign = if minutes < 0 { '-' } else { '+' };
            let minutes = minutes.abs();
            let _ = if letter == 'z' {
                write!(text, "{sign}{:02}{:02}", minutes / 60, minutes % 60)
            } else {
                write!(text, "{sign}{minutes:03}")
            };
            return Ok(());
        }
    };
    let _ = write!(text, "{number:0width$}");
    Ok(())
}

fn checked_year(year: i64) -> Result<i64> {
    if (0..=9999).contains(&year) {
        return Ok(year);
    }
    Err(Error::location(
        18537,
        format!("$dateToString is only defined on year 0-9999, tried to use year {year}"),
    ))
}

fn read_field(reader: &mut Reader<'_>, letter: char, fields: &mut Fields) -> Result<()> {
    match letter {
        'Y' => fields.year = Some(reader.number(4, 4)?),
        'G' => fields.iso_year = Some(reader.number(4, 4)?),
        'm' => fields.month = Some(reader.number(1, 2)?),
        'd' => fields.day = Some(reader.number(1, 2)?),
        'H' => fields.hour = Some(reader.number(1, 2)?),
        'M' => fields.minute = Some(reader.number(1, 2)?),
        'S' => fields.second = Some(reader.number(1, 2)?),
        'L' => fields.millisecond = Some(reader.fraction(3)?),
        'j' => fields.day_of_year = Some(reader.number(1, 3)?),
        'u' => fields.iso_day = Some(reader.number(1, 1)?),
        'V' => fields.iso_week = Some(reader.number(1, 2)?),
        'b' | 'B' => fields.month = Some(reader.month_name()?),
        'z' => fields.zone = Some(reader.zone()?),
        'Z' => fields.zone = Some(TimeZone::Offset(reader.signed_number()? * MINUTE_MS)),
        other => {
            return Err(failure(
                reader.text(),
                &format!("the format character '%{other}' cannot be read"),
            ));
        }
    }
    Ok(())
}

/// The number of a month by its name or the first three letters of it.
pub(super) fn month_of_name(name: &str) -> Option<i64> {
    MONTHS.iter().zip(1..).find_map(|(month, number)| {
        (month.eq_ignore_ascii_case(name) || month[..3].eq_ignore_ascii_case(name))
            .then_some(number)
    })
}
