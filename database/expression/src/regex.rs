//! Regular expressions with MongoDB's options, on PCRE2.

use std::fmt::{self, Debug, Formatter};

use millrace_value::{Error, ErrorCode, Result};
use pcre2::bytes::RegexBuilder;

/// Bounds the work of one attempt to match, so that a hostile pattern ends in an error instead of
/// hanging: ten million backtracking steps (PCRE2's own default, a fraction of a second) and 64 MiB
/// of backtracking memory (PCRE2's default is 20 GB). A pattern can lower these limits, not raise
/// them.
const LIMITS: &str = "(*LIMIT_MATCH=10000000)(*LIMIT_HEAP=65536)";

/// The largest machine stack that compiled code may use, in bytes.
const JIT_STACK_BYTES_MAX: usize = 1024 * 1024;

/// The longest accepted pattern, in bytes (PCRE2's limit as MongoDB builds it).
const PATTERN_BYTES_MAX: usize = 32_764;

/// A compiled regular expression.
///
/// Options are MongoDB's: `i` ignores case, `m` lets `^` and `$` match at line breaks, `s` lets `.`
/// match line breaks, `x` ignores white space and comments in the pattern, `u` is accepted and
/// changes nothing because patterns and strings always are UTF-8.
#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    options: Box<str>,
    code: pcre2::bytes::Regex,
}

/// Where a pattern matched, in byte offsets of the subject that lie between characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegexMatch {
    /// The byte offset in the subject at which the match begins.
    pub start: usize,
    /// The byte offset in the subject after the last byte of the match.
    pub end: usize,
    /// Start and end of each capture group, in order; `None` for a group that took no part.
    pub captures: Vec<Option<(usize, usize)>>,
}

impl Regex {
    /// Compiles `pattern`.
    ///
    /// # Errors
    /// Code 51091 for an invalid pattern, 51108 for an unknown option, `BadValue` for a null byte.
    pub fn compile(pattern: &str, options: &str) -> Result<Self> {
        if pattern.contains('\0') {
            return Err(Error::new(
                ErrorCode::BadValue,
                "Regular expression cannot contain an embedded null byte",
            ));
        }
        if pattern.len() > PATTERN_BYTES_MAX {
            return Err(invalid(
                "pattern string is longer than the limit set by the application",
            ));
        }
        let mut builder = RegexBuilder::new();
        builder
            .utf(true)
            .jit_if_available(true)
            .max_jit_stack_size(Some(JIT_STACK_BYTES_MAX));
        for option in options.chars() {
            match option {
                'i' => builder.caseless(true),
                'm' => builder.multi_line(true),
                's' => builder.dotall(true),
                'x' => builder.extended(true),
                'u' => &mut builder,
                other => {
                    return Err(Error::location(
                        51108,
                        format!("invalid flag in regex options: {other}"),
                    ));
                }
            };
        }
        let code = builder
            .build(&format!("{LIMITS}{pattern}"))
            .map_err(|error| {
                let text = error.to_string();
                invalid(
                    text.rsplit_once(": ")
                        .map_or(text.as_str(), |(_, reason)| reason),
                )
            })?;
        Ok(Self {
            pattern: pattern.into(),
            options: options.into(),
            code,
        })
    }

    /// The pattern as it was given.
    #[must_use]
    pub fn pattern(&self) -> &str {
        &self.pattern
    }

    /// The options as they were given.
    #[must_use]
    pub fn options(&self) -> &str {
        &self.options
    }

    /// Whether the pattern matches somewhere in `subject`.
    ///
    /// # Errors
    /// Code 51156 when the attempt exceeds its limits.
    pub fn is_match(&self, subject: &str) -> Result<bool> {
        self.code
            .is_match(subject.as_bytes())
            .map_err(|error| exceeded(&error))
    }

    /// The first match at or after byte `start`, which lies between two characters.
    ///
    /// # Errors
    /// Code 51156 when the attempt exceeds its limits, or when the pattern (with `\C`) splits a
    /// character.
    pub fn find_at(&self, subject: &str, start: usize) -> Result<Option<RegexMatch>> {
        let mut locations = self.code.capture_locations();
        let found = self
            .code
            .captures_read_at(&mut locations, subject.as_bytes(), start)
            .map_err(|error| exceeded(&error))?;
        if found.is_none() {
            return Ok(None);
        }
        let groups = (0..locations.len())
            .map(|group| locations.get(group))
            .collect::<Vec<_>>();
        let sound = |range: &Option<(usize, usize)>| {
            range.is_none_or(|(start, end)| subject.get(start..end).is_some())
        };
        match groups.split_first() {
            Some((Some((start, end)), captures)) if groups.iter().all(sound) => {
                Ok(Some(RegexMatch {
                    start: *start,
                    end: *end,
                    captures: captures.to_vec(),
                }))
            }
            _ => Err(failed("the match splits a character")),
        }
    }

    /// All matches that do not overlap, from left to right.
    ///
    /// # Errors
    /// As for [`Regex::find_at`].
    pub fn find_all(&self, subject: &str) -> Result<Vec<RegexMatch>> {
        let mut matches = Vec::new();
        let mut start = 0;
        while start <= subject.len() {
            let Some(found) = self.find_at(subject, start)? else {
                break;
            };
            // An empty match moves on by one character, or it would be found for ever.
            let step = if found.end > found.start {
                0
            } else {
                subject[found.end..]
                    .chars()
                    .next()
                    .map_or(1, char::len_utf8)
            };
            start = start.max(found.end + step);
            matches.push(found);
        }
        Ok(matches)
    }

    /// The number of capture groups; 0 if the pattern has none.
    #[must_use]
    pub fn capture_count(&self) -> usize {
        self.code.captures_len().saturating_sub(1)
    }

    /// The text every match begins with, if the pattern is anchored at the start of the string and
    /// begins with characters that stand for themselves. An index on the field is then searched
    /// only below that prefix.
    #[must_use]
    pub fn literal_prefix(&self) -> Option<&str> {
        // Other options change what `^` or the characters stand for, and an alternative may lack
        // the prefix altogether.
        if self.options.contains(['i', 'm', 'x']) || self.pattern.contains('|') {
            return None;
        }
        let rest = self
            .pattern
            .strip_prefix('^')
            .or_else(|| self.pattern.strip_prefix("\\A"))?;
        let is_special = |c: char| "\\.[]{}()*+?^$".contains(c);
        let end = rest.find(is_special).unwrap_or(rest.len());
        let mut prefix = &rest[..end];
        // A quantifier that allows zero occurrences takes the last character out of the prefix.
        if rest[end..].starts_with(['*', '?', '{']) {
            let last = prefix.chars().next_back()?;
            prefix = &prefix[..prefix.len() - last.len_utf8()];
        }
        (!prefix.is_empty()).then_some(prefix)
    }
}

impl Debug for Regex {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/{}", self.pattern, self.options)
    }
}

impl PartialEq for Regex {
    fn eq(&self, other: &Self) -> bool {
        self.pattern == other.pattern && self.options == other.options
    }
}

impl Eq for Regex {}

fn invalid(reason: &str) -> Error {
    Error::new(
        ErrorCode::InvalidRegex,
        format!("Regular expression is invalid: {reason}"),
    )
}

fn exceeded(error: &pcre2::Error) -> Error {
    failed(&format!("Result code: {}", error.code()))
}

fn failed(reason: &str) -> Error {
    Error::location(
        51156,
        format!("Error occurred while executing the regular expression. {reason}"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_change_what_matches() {
        for (pattern, options, subject, expected) in [
            ("^ab", "", "abc", true),
            ("^ab", "", "ABC", false),
            ("^ab", "i", "ABC", true),
            ("É", "i", "é", true),
            ("^b", "", "a\nb", false),
            ("^b", "m", "a\nb", true),
            ("a.b", "", "a\nb", false),
            ("a.b", "s", "a\nb", true),
            ("a b # comment", "x", "ab", true),
            ("a(?=b)", "", "ab", true),
            ("(a)\\1", "u", "aa", true),
        ] {
            let regex = Regex::compile(pattern, options).expect("the pattern is valid");
            assert_eq!(
                regex.is_match(subject).expect("the match is cheap"),
                expected,
                "/{pattern}/{options} on {subject:?}"
            );
        }
    }

    #[test]
    fn invalid_patterns_are_refused_with_mongodbs_codes() {
        let error = Regex::compile("(a", "").expect_err("the group is open");
        assert_eq!(error.code().number(), 51091);
        assert_eq!(
            error.message(),
            "Regular expression is invalid: missing closing parenthesis"
        );
        assert_eq!(
            Regex::compile("a", "z")
                .expect_err("no such option")
                .code()
                .number(),
            51108
        );
        assert_eq!(
            Regex::compile("a\0", "").expect_err("null byte").code(),
            ErrorCode::BadValue
        );
        assert!(Regex::compile(&"a".repeat(40_000), "").is_err());
    }

    #[test]
    fn a_hostile_pattern_ends_in_an_error() {
        let subject = "a".repeat(5000);
        for pattern in [
            "(a+)+$b",
            "(x+x+)+y|(a|aa)+$b",
            "(*LIMIT_MATCH=4000000000)(a|a|a)*$b",
        ] {
            let regex = Regex::compile(pattern, "").expect("the pattern is valid");
            // PCRE2 may see at once that `b` never occurs, but it must not run on.
            if let Err(error) = regex.is_match(&subject) {
                assert_eq!(error.code().number(), 51156);
            }
        }
        let regex = Regex::compile("^(a|aa)+c?$", "").expect("the pattern is valid");
        assert!(regex.is_match(&format!("{subject}!")).is_err());
    }

    #[test]
    fn all_matches_are_found_also_empty_ones_between_wide_characters() {
        let regex = Regex::compile("x*", "").expect("the pattern is valid");
        let spans = |subject| {
            let found = regex.find_all(subject).expect("the match is cheap");
            found.iter().map(|m| (m.start, m.end)).collect::<Vec<_>>()
        };
        assert_eq!(spans("éxx"), [(0, 0), (2, 4), (4, 4)]);
        assert_eq!(spans(""), [(0, 0)]);
        let regex = Regex::compile("(a)|(b)", "").expect("the pattern is valid");
        let found = regex.find_all("ab").expect("the match is cheap");
        assert_eq!(found[1].captures, [None, Some((1, 2))]);
        assert_eq!(regex.capture_count(), 2);
    }

    #[test]
    fn a_match_that_splits_a_character_is_an_error() {
        let regex = Regex::compile("\\C", "").expect("the pattern is valid");
        assert!(regex.find_at("é", 0).is_err());
    }

    #[test]
    fn prefixes_are_literal_and_anchored() {
        for (pattern, options, expected) in [
            ("^abc", "", Some("abc")),
            ("\\Aabc.*", "", Some("abc")),
            ("^abc*", "", Some("ab")),
            ("^ab+", "", Some("ab")),
            ("^a?", "", None),
            ("^a|b", "", None),
            ("abc", "", None),
            ("^abc", "i", None),
            ("^abc", "m", None),
            ("^abc", "s", Some("abc")),
            ("^a\\.b", "", Some("a")),
            ("^é{2}", "", None),
        ] {
            let regex = Regex::compile(pattern, options).expect("the pattern is valid");
            assert_eq!(regex.literal_prefix(), expected, "/{pattern}/{options}");
        }
    }
}
