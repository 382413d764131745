//! Numbers with their units, for people.

/// A kelvin scale begins so many degrees below Celsius', in whole degrees as devices count.
const ZERO_CELSIUS: i32 = 273;

/// `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes in the decimal units that disks are sold by, and exactly.
pub(crate) fn bytes(number: u128) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    let exact = format!("{} bytes", grouped(number));
    let mut unit = None;
    let mut size: u128 = 1;
    for name in UNITS {
        if number / size < 1000 {
            break;
        }
        size *= 1000;
        unit = Some(name);
    }
    match unit {
        None => exact,
        Some(unit) => {
            let hundredths = number.saturating_mul(100) / size;
            let (whole, part) = (hundredths / 100, hundredths % 100);
            format!("{}.{part:02} {unit} ({exact})", grouped(whole))
        }
    }
}

/// Bytes as a multiple of a power of 1024, if they are a whole one.
pub(crate) fn power_of_two_size(number: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        if number >> shift > 0 && number % (1 << shift) == 0 {
            return format!("{} {unit}", number >> shift);
        }
    }
    format!("{number} bytes")
}

/// Degrees Celsius of whole kelvins; nothing if a device reports none by a zero.
pub(super) fn celsius(kelvin: u16) -> Option<i32> {
    (kelvin != 0).then(|| i32::from(kelvin) - ZERO_CELSIUS)
}

/// A time in three digits and the unit that fits.
pub(crate) fn duration(nanoseconds: f64) -> String {
    const UNITS: [(&str, f64); 3] = [("ns", 1e3), ("µs", 1e6), ("ms", 1e9)];
    for (unit, end) in UNITS {
        // What would be rounded up to 1000 has the next unit.
        if nanoseconds < end * 0.9995 {
            return format!("{} {unit}", three_digits(nanoseconds * 1e3 / end));
        }
    }
    format!("{} s", three_digits(nanoseconds / 1e9))
}

fn three_digits(number: f64) -> String {
    if number < 9.995 {
        format!("{number:.2}")
    } else if number < 99.95 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        let rows = [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (12_345_678, "12,345,678"),
        ];
        for (number, text) in rows {
            assert_eq!(grouped(number), text);
        }
    }

    #[test]
    fn bytes_have_decimal_units() {
        assert_eq!(bytes(999), "999 bytes");
        assert_eq!(bytes(1000), "1.00 kB (1,000 bytes)");
        assert_eq!(
            bytes(1_920_383_410_176),
            "1.92 TB (1,920,383,410,176 bytes)"
        );
        assert!(bytes(u128::MAX).contains(" EB ("));
    }

    #[test]
    fn powers_of_1024_are_seen() {
        let rows = [
            (0, "0 bytes"),
            (512, "512 bytes"),
            (4096, "4 KiB"),
            (1 << 20, "1 MiB"),
            (3 << 19, "1536 KiB"),
            (1 << 41, "2 TiB"),
        ];
        for (number, text) in rows {
            assert_eq!(power_of_two_size(number), text);
        }
    }

    #[test]
    fn times_have_three_digits() {
        let rows = [
            (7.0, "7.00 ns"),
            (999.4, "999 ns"),
            (999.9, "1.00 µs"),
            (12_345.0, "12.3 µs"),
            (5_600_000.0, "5.60 ms"),
            (2e9, "2.00 s"),
        ];
        for (nanoseconds, text) in rows {
            assert_eq!(duration(nanoseconds), text);
        }
        assert_eq!(
            (celsius(0), celsius(300), celsius(270)),
            (None, Some(27), Some(-3))
        );
    }
}
