//! Times and kinds as the reports of volumes write them.

use bson::DateTime;
use millrace_blobfs::{Kind, Timestamp};

/// A time in UTC as RFC 3339 has it; none if it is beyond the years that this has.
pub(super) fn rfc3339(time: Timestamp) -> Option<String> {
    let milliseconds = i64::try_from(time.0).ok()?;
    let time = DateTime::from_millis(milliseconds);
    time.try_to_rfc3339_string().ok()
}

/// Text form of a time, in UTC and whole seconds.
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

/// A kind as JSON has it.
pub(super) const fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::File => "file",
        Kind::Directory => "directory",
    }
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
}
