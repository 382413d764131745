//! Dates.

use bson::{Bson, DateTime, bson};
use proptest::prelude::*;

use super::{fails, table};
use crate::calendar::{Civil, days_from_iso_week};

/// A date from its usual form.
fn at(text: &str) -> DateTime {
    DateTime::parse_rfc3339_str(text).unwrap()
}

#[test]
fn parts() {
    let date = at("2024-12-30T23:59:58.123Z");
    table! {
        {"$year": (date)} => 2024;
        {"$month": [(date)]} => 12;
        {"$dayOfMonth": {"date": (date)}} => 30;
        {"$dayOfMonth": {"date": (date), "timezone": "Asia/Tokyo"}} => 31;
        {"$dayOfWeek": (date)} => 2;
        {"$dayOfYear": (date)} => 365;
        {"$hour": (date)} => 23;
        {"$hour": {"date": (date), "timezone": "-05:30"}} => 18;
        {"$minute": {"date": (date), "timezone": "+0530"}} => 29;
        {"$second": (date)} => 58;
        {"$millisecond": (date)} => 123;
        {"$week": (date)} => 52;
        {"$isoWeek": (date)} => 1;
        {"$isoWeekYear": (date)} => 2025_i64;
        {"$isoDayOfWeek": (date)} => 1;
        {"$year": (DateTime::from_millis(i64::MIN))} => -292_275_055;
        {"$year": (bson::Timestamp { time: 86_400 * 366, increment: 1 })} => 1971;
        {"$year": null} => Bson::Null;
        {"$year": {"date": (date), "timezone": null}} => Bson::Null;
        {"$year": "2024"} => fails(16006, "can't convert from BSON type string to Date");
        {"$year": {"date": (date), "timezone": "Nowhere"}} => fails(40485, "unrecognized time zone identifier: \"Nowhere\"");
        {"$year": {"date": (date), "timezone": 1}} => fails(40517, "timezone must evaluate to a string, found int");
        {"$year": {"timezone": "UTC"}} => fails(40539, "missing 'date' argument to $year");
        {"$year": {"date": 1, "x": 1}} => fails(40535, "unrecognized option to $year: \"x\"");
        {"$year": [1, 2]} => fails(40536, "accepts exactly one argument if given an array, but was given 2");
    }
}

#[test]
fn to_and_from_parts() {
    let date = at("2024-03-10T10:11:12.013Z");
    table! {
        {"$dateToParts": {"date": (date)}} => bson!({"year": 2024, "month": 3, "day": 10, "hour": 10, "minute": 11, "second": 12, "millisecond": 13});
        {"$dateToParts": {"date": (date), "timezone": "America/New_York", "iso8601": true}} => bson!({"isoWeekYear": 2024, "isoWeek": 10, "isoDayOfWeek": 7, "hour": 6, "minute": 11, "second": 12, "millisecond": 13});
        {"$dateToParts": {"date": (date), "iso8601": 1}} => fails(40521, "iso8601 must evaluate to a bool, found int");
        {"$dateToParts": {"date": null}} => Bson::Null;
        {"$dateFromParts": {"year": 2024, "month": 2, "day": 29}} => at("2024-02-29T00:00:00Z");
        {"$dateFromParts": {"year": 2024, "month": 14, "day": 0, "hour": -1}} => at("2025-01-30T23:00:00Z");
        {"$dateFromParts": {"year": 2024, "month": 7, "hour": 12, "timezone": "Europe/Berlin"}} => at("2024-07-01T10:00:00Z");
        {"$dateFromParts": {"isoWeekYear": 2025, "isoWeek": 1, "isoDayOfWeek": 1}} => at("2024-12-30T00:00:00Z");
        {"$dateFromParts": {"year": null}} => Bson::Null;
        {"$dateFromParts": {"year": 0}} => fails(40523, "in the range 1 to 9999, found 0");
        {"$dateFromParts": {"year": 2024, "month": 40_000}} => fails(31034, "range [-32768, 32767]");
        {"$dateFromParts": {"year": 2024, "month": 1.5}} => fails(40515, "'month' must evaluate to an integer, found double with value 1.5");
        {"$dateFromParts": {"month": 1}} => fails(40516, "requires either 'year' or 'isoWeekYear'");
        {"$dateFromParts": {"year": 1, "isoWeek": 1}} => fails(40489, "does not allow mixing natural dates with ISO dates");
        {"$dateFromParts": {"isoWeekYear": 1, "month": 1}} => fails(40525, "does not allow mixing ISO dates with natural dates");
        {"$dateFromParts": {"x": 1}} => fails(40518, "Unrecognized argument to $dateFromParts: x");
    }
}

#[test]
fn to_text() {
    let date = at("2024-01-31T04:05:06.007Z");
    table! {
        {"$dateToString": {"date": (date)}} => "2024-01-31T04:05:06.007Z";
        {"$dateToString": {"date": (date), "timezone": "+02"}} => "2024-01-31T06:05:06.007";
        {"$dateToString": {"date": (date), "format": "%Y/%m/%d %H:%M:%S.%L %j %w %u %U %V %G %% %b %B"}} => "2024/01/31 04:05:06.007 031 4 3 04 05 2024 % Jan January";
        {"$dateToString": {"date": (date), "format": "%z %Z", "timezone": "-04:30"}} => "-0430 -270";
        {"$dateToString": {"date": null, "onNull": "none"}} => "none";
        {"$dateToString": {"date": "$none"}} => Bson::Null;
        {"$dateToString": {"date": (date), "format": "%"}} => fails(18535, "Unmatched '%' at end of format string");
        {"$dateToString": {"date": (date), "format": "%x"}} => fails(18536, "Invalid format character '%x' in format string");
        {"$dateToString": {"date": (date), "format": 5}} => fails(18533, "'format' be a string, found: int with value 5");
        {"$dateToString": {"date": (DateTime::from_millis(i64::MAX))}} => fails(18537, "is only defined on year 0-9999");
        {"$dateToString": {"date": "x"}} => fails(16006, "can't convert from BSON type string to Date");
        {"$dateToString": {"format": "x"}} => fails(18628, "Missing 'date' parameter to $dateToString");
        {"$dateToString": 1} => fails(18629, "only supports an object as its argument");
    }
}

#[test]
fn from_text() {
    table! {
        {"$dateFromString": {"dateString": "2024-01-31"}} => at("2024-01-31T00:00:00Z");
        {"$dateFromString": {"dateString": "2024-01-31T10:20:30.456Z"}} => at("2024-01-31T10:20:30.456Z");
        {"$dateFromString": {"dateString": "2024-01-31T10:20:30+02:00"}} => at("2024-01-31T08:20:30Z");
        {"$dateFromString": {"dateString": "2024-01-31 10:20"}} => at("2024-01-31T10:20:00Z");
        {"$dateFromString": {"dateString": "2024-07-31T10:20", "timezone": "Europe/Berlin"}} => at("2024-07-31T08:20:00Z");
        {"$dateFromString": {"dateString": "20240131T102030Z"}} => at("2024-01-31T10:20:30Z");
        {"$dateFromString": {"dateString": "2024-W05-3"}} => at("2024-01-31T00:00:00Z");
        {"$dateFromString": {"dateString": "2024-031"}} => at("2024-01-31T00:00:00Z");
        {"$dateFromString": {"dateString": "1/31/2024 1:02 pm"}} => at("2024-01-31T13:02:00Z");
        {"$dateFromString": {"dateString": "January 31, 2024"}} => at("2024-01-31T00:00:00Z");
        {"$dateFromString": {"dateString": "31 Jan 2024 10:00 Asia/Tokyo"}} => at("2024-01-31T01:00:00Z");
        {"$dateFromString": {"dateString": "15-6-2018", "format": "%d-%m-%Y"}} => at("2018-06-15T00:00:00Z");
        {"$dateFromString": {"dateString": "2018 W24 5 10h", "format": "%G W%V %u %Hh"}} => at("2018-06-15T10:00:00Z");
        {"$dateFromString": {"dateString": "2018-06-15 +0100", "format": "%Y-%m-%d %z"}} => at("2018-06-14T23:00:00Z");
        {"$dateFromString": {"dateString": null, "onNull": 1}} => 1;
        {"$dateFromString": {"dateString": "x", "onError": "bad"}} => "bad";
        {"$dateFromString": {"dateString": "2024-02-30"}} => fails(241, "Error parsing date string '2024-02-30'");
        {"$dateFromString": {"dateString": "2024-01-31T25:00"}} => fails(241, "Unexpected time of day");
        {"$dateFromString": {"dateString": "2024-01-31x"}} => fails(241, "Error parsing date string");
        {"$dateFromString": {"dateString": "2024-01-31T10:00Z", "timezone": "UTC"}} => fails(241, "together with a timezone argument");
        {"$dateFromString": {"dateString": 5}} => fails(241, "requires that 'dateString' be a string, found: int with value 5");
        {"$dateFromString": {"dateString": "2018", "format": "%Y-%m"}} => fails(241, "expected '-'");
        {"$dateFromString": {"format": "x"}} => fails(40542, "Missing 'dateString' parameter to $dateFromString");
    }
}

#[test]
fn calendar_arithmetic() {
    let date = at("2024-01-31T12:00:00Z");
    table! {
        {"$dateAdd": {"startDate": (date), "unit": "month", "amount": 1}} => at("2024-02-29T12:00:00Z");
        {"$dateAdd": {"startDate": (date), "unit": "quarter", "amount": 1}} => at("2024-04-30T12:00:00Z");
        {"$dateSubtract": {"startDate": (date), "unit": "year", "amount": 1}} => at("2023-01-31T12:00:00Z");
        {"$dateAdd": {"startDate": (date), "unit": "week", "amount": 1.0}} => at("2024-02-07T12:00:00Z");
        {"$dateAdd": {"startDate": (at("2024-03-09T12:00:00Z")), "unit": "day", "amount": 1, "timezone": "America/New_York"}} => at("2024-03-10T11:00:00Z");
        {"$dateAdd": {"startDate": (at("2024-03-09T12:00:00Z")), "unit": "hour", "amount": 24, "timezone": "America/New_York"}} => at("2024-03-10T12:00:00Z");
        {"$dateAdd": {"startDate": null, "unit": "day", "amount": 1}} => Bson::Null;
        {"$dateAdd": {"startDate": 1, "unit": "day", "amount": 1}} => fails(5_166_403, "requires startDate to be convertible to a date");
        {"$dateAdd": {"startDate": (date), "unit": 1, "amount": 1}} => fails(5_166_404, "$dateAdd");
        {"$dateAdd": {"startDate": (date), "unit": "days", "amount": 1}} => fails(9, "unknown time unit value: days");
        {"$dateAdd": {"startDate": (date), "unit": "day", "amount": 1.5}} => fails(5_166_405, "expects integer amount of time units");
        {"$dateAdd": {"startDate": (date), "unit": "day", "amount": (i64::MAX)}} => fails(5_166_406, "amount");
        {"$dateSubtract": {"startDate": (date), "unit": "day", "amount": (i64::MIN)}} => fails(5_166_406, "amount");
        {"$dateAdd": {"startDate": (date), "unit": "year", "amount": (i64::MAX / 13)}} => fails(5_166_406, "amount");
        {"$dateAdd": {"startDate": (date), "unit": "day"}} => fails(5_166_402, "requires startDate, unit, and amount to be present");
        {"$dateAdd": 1} => fails(5_166_400, "expects an object as its argument");
    }
}

#[test]
fn differences() {
    let (a, b) = (at("2023-12-31T23:59:59Z"), at("2024-01-01T00:00:00Z"));
    table! {
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "year"}} => 1_i64;
        {"$dateDiff": {"startDate": (b), "endDate": (a), "unit": "quarter"}} => -1_i64;
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "day"}} => 1_i64;
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "day", "timezone": "-01"}} => 0_i64;
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "second"}} => 1_i64;
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "week"}} => 0_i64;
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "week", "startOfWeek": "monday"}} => 1_i64;
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "hour", "timezone": "+00:30"}} => 0_i64;
        {"$dateDiff": {"startDate": null, "endDate": (b), "unit": "hour"}} => Bson::Null;
        {"$dateDiff": {"startDate": 1, "endDate": (b), "unit": "hour"}} => fails(5_166_307, "requires 'startDate' to be a date, but got int");
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "x"}} => fails(5_439_014, "unknown time unit value: x");
        {"$dateDiff": {"startDate": (a), "endDate": (b), "unit": "week", "startOfWeek": "x"}} => fails(5_439_016, "unknown day of week value: x");
        {"$dateDiff": {"startDate": (a), "endDate": (b)}} => fails(5_166_305, "Missing 'unit' parameter to $dateDiff");
    }
}

#[test]
fn truncation() {
    let date = at("2024-08-15T13:47:29.500Z");
    table! {
        {"$dateTrunc": {"date": (date), "unit": "year"}} => at("2024-01-01T00:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "quarter"}} => at("2024-07-01T00:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "month", "binSize": 4}} => at("2024-05-01T00:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "week"}} => at("2024-08-11T00:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "week", "startOfWeek": "Thursday"}} => at("2024-08-15T00:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "day", "timezone": "Asia/Tokyo"}} => at("2024-08-14T15:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "minute", "binSize": 15}} => at("2024-08-15T13:45:00Z");
        {"$dateTrunc": {"date": (at("1999-12-31T23:00:00Z")), "unit": "hour", "binSize": 2}} => at("1999-12-31T22:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "day", "binSize": 0}} => fails(5_439_018, "greater than 0, but got value 0");
        {"$dateTrunc": {"date": (date), "unit": "day", "binSize": "x"}} => fails(5_439_017, "64-bit integer, but got value '\"x\"' of type string");
        {"$dateTrunc": {"date": 1, "unit": "day"}} => fails(5_439_012, "to be a date, but got int");
        {"$dateTrunc": {"date": (date), "unit": "day", "binSize": (i64::MAX)}} => at("2000-01-01T00:00:00Z");
        {"$dateTrunc": {"date": (date), "unit": "week", "binSize": (i64::MAX)}} => fails(15, "overflow");
        {"$dateTrunc": {"date": null, "unit": "day"}} => Bson::Null;
    }
}

proptest! {
    /// Every moment survives the way through the calendar, by the month and by the week.
    #[test]
    fn the_calendar_is_a_bijection(local_ms in any::<i64>()) {
        let civil = Civil::from_local_ms(local_ms);
        prop_assert_eq!(civil.to_local_ms(), Some(local_ms));
        prop_assert!((1..=12).contains(&civil.month) && (1..=31).contains(&civil.day));
        let week = civil.iso_week();
        let days = days_from_iso_week(week.year, week.week, week.day);
        prop_assert_eq!(days, local_ms.div_euclid(86_400_000));
    }

    /// The calendar agrees with an independent one where that has dates.
    #[test]
    fn the_calendar_agrees_with_jiff(seconds in -377_700_000_000_i64..253_402_200_000) {
        let other = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_second(seconds).unwrap());
        let civil = Civil::from_local_ms(seconds * 1000);
        prop_assert_eq!(civil.year, i64::from(other.year()));
        prop_assert_eq!(civil.month, i64::from(other.month()));
        prop_assert_eq!(civil.day, i64::from(other.day()));
        prop_assert_eq!(civil.day_of_year(), i64::from(other.date().day_of_year()));
        let week = other.date().iso_week_date();
        prop_assert_eq!(civil.iso_week().year, i64::from(week.year()));
        prop_assert_eq!(civil.iso_week().week, i64::from(week.week()));
    }
}
