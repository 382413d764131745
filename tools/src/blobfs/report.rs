//! What commands say: text for people, JSON for machines.

use std::io::Write;

use bson::DateTime;
use millrace_blobfs::{Kind, Timestamp};

use super::ToolError;
use crate::terminal::Report;

/// Writes a report.
pub(super) fn show(
    report: &dyn Report,
    as_json: bool,
    out: &mut dyn Write,
) -> Result<(), ToolError> {
    let text = if as_json {
        format!("{:#}\n", report.json())
    } else {
        report.text()
    };
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(ToolError::output)
}

/// A time in UTC as RFC 3339 has it; none if it is beyond the years that this has.
pub(super) fn rfc3339(time: Timestamp) -> Option<String> {
    let milliseconds = i64::try_from(time.0).ok()?;
    let time = DateTime::from_millis(milliseconds);
    time.try_to_rfc3339_string().ok()
}

/// A time for people, in UTC and whole seconds.
pub(super) fn seconds(time: Timestamp) -> String {
    let full = rfc3339(time);
    let parts = full
        .as_deref()
        .and_then(|full| Some((full.get(..10)?, full.get(11..19)?)));
    match parts {
        Some((date, time)) => format!("{date} {time}"),
        None => format!("{} ms since 1970", time.0),
    }
}

/// What a volume has checksums of.
pub(super) const fn checksums(data_checksums: bool) -> &'static str {
    if data_checksums {
        "of metadata and data"
    } else {
        "of metadata"
    }
}

/// A name or path with escapes for what a terminal would act on.
pub(super) fn printable(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for character in name.chars() {
        if character.is_control() || is_invisible(character) {
            text.extend(character.escape_default());
        } else {
            text.push(character);
        }
    }
    text
}

/// Marks that turn the direction of writing, or have no width.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// A kind as JSON has it.
pub(super) const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
    }
}

/// A number of things: `1 file`, `2,000 files`.
pub(super) fn count(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{} {noun}", crate::terminal::quantity::grouped(number.into()))
}

/// An identifier as it is usually written.
pub(super) fn uuid_text(uuid: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (index, byte) in uuid.iter().enumerate() {
        if matches!(index, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_utc() {
        let time = Timestamp(1_763_726_400_123);
        assert_eq!(rfc3339(time).as_deref(), Some("2025-11-21T12:00:00.123Z"));
        assert_eq!(seconds(time), "2025-11-21 12:00:00");
        assert_eq!(seconds(Timestamp(0)), "1970-01-01 00:00:00");
        assert_eq!(
            seconds(Timestamp(u64::MAX)),
            "18446744073709551615 ms since 1970"
        );
    }

    #[test]
    fn names_cannot_act_on_a_terminal() {
        let rows = [
            ("plain.sst", "plain.sst"),
            ("größe 1", "größe 1"),
            ("a\nb\x1b[2J", "a\\nb\\u{1b}[2J"),
            ("a\u{202e}b", "a\\u{202e}b"),
        ];
        for (name, expected) in rows {
            assert_eq!(printable(name), expected);
        }
    }

    #[test]
    fn identifiers_and_counts_are_written_as_usual() {
        let uuid: [u8; 16] = std::array::from_fn(|index| u8::try_from(index).expect("small"));
        assert_eq!(uuid_text(&uuid), "00010203-0405-0607-0809-0a0b0c0d0e0f");
        assert_eq!(count(1, "file", "files"), "1 file");
        assert_eq!(count(2000, "file", "files"), "2,000 files");
    }
}
