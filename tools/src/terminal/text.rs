//! Names, counts and identifiers as text.

use super::quantity::grouped;

/// A name or path with escapes for what a terminal would act on.
pub(crate) fn printable(name: &str) -> String {
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

/// A number of things: `1 file`, `2,000 files`.
pub(crate) fn count(number: u64, one: &str, many: &str) -> String {
    let noun = if number == 1 { one } else { many };
    format!("{} {noun}", grouped(number.into()))
}

/// An identifier as it is usually written.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
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
