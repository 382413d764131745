//! Ranges of keys.

/// The keys from `start` (included) to `end` (excluded); no `end` means to the last key there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRange {
    /// The first key of the range.
    pub start: Vec<u8>,
    /// The first key after the range.
    pub end: Option<Vec<u8>>,
}

impl KeyRange {
    /// The range of every key, from the empty one on.
    #[must_use]
    pub const fn all() -> Self {
        Self {
            start: Vec::new(),
            end: None,
        }
    }

    /// The keys from `start` up to but not including `end`.
    #[must_use]
    pub fn new(start: impl Into<Vec<u8>>, end: impl Into<Vec<u8>>) -> Self {
        Self {
            start: start.into(),
            end: Some(end.into()),
        }
    }

    /// The keys that begin with `prefix`.
    #[must_use]
    pub fn prefix(prefix: &[u8]) -> Self {
        Self {
            start: prefix.to_vec(),
            end: successor(prefix),
        }
    }

    /// Whether `key` lies in the range.
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        key >= self.start.as_slice() && self.end.as_deref().is_none_or(|end| key < end)
    }

    /// Whether no key can lie in the range.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end
            .as_deref()
            .is_some_and(|end| end <= self.start.as_slice())
    }
}

/// The first key after all keys that begin with `prefix`; none when there is no such key (`prefix` is
/// empty or all 0xFF).
fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xFF)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_ranges_end_before_the_next_prefix() {
        assert_eq!(KeyRange::prefix(b"ab").end.as_deref(), Some(&b"ac"[..]));
        assert_eq!(KeyRange::prefix(b"a\xff").end.as_deref(), Some(&b"b"[..]));
        assert_eq!(KeyRange::prefix(b"\xff\xff").end, None);
        assert_eq!(KeyRange::prefix(b"").end, None);
        assert!(KeyRange::prefix(b"ab").contains(b"ab"));
        assert!(KeyRange::prefix(b"ab").contains(b"ab\xff\xff"));
        assert!(!KeyRange::prefix(b"ab").contains(b"ac"));
    }
}
