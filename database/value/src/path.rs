//! A dotted path.

use std::fmt;
use std::str::FromStr;

/// A path to a field: names and array positions joined by dots.
///
/// Components may be empty (`"a..b"` has three); whether that is allowed is up to the user of the
/// path. A path always has at least one component.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    components: Vec<Box<str>>,
}

impl Path {
    /// The path that `text` stands for, split at its dots; the empty text has one empty component.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        Self {
            components: text.split('.').map(Box::from).collect(),
        }
    }

    /// The path that consists of `components`, which may contain dots themselves; `None` if there are
    /// none.
    pub fn from_components<I>(components: I) -> Option<Self>
    where
        I: IntoIterator,
        I::Item: Into<Box<str>>,
    {
        let components: Vec<Box<str>> = components.into_iter().map(Into::into).collect();
        (!components.is_empty()).then_some(Self { components })
    }

    /// The components, from the outermost field inward.
    #[must_use]
    pub fn components(&self) -> &[Box<str>] {
        &self.components
    }

    /// The first component: the name of the outermost field.
    #[must_use]
    pub fn first(&self) -> &str {
        &self.components[0]
    }

    /// The last component: the name of the innermost field, or a position in an array.
    #[must_use]
    pub fn last(&self) -> &str {
        &self.components[self.components.len() - 1]
    }

    /// How many components there are; at least one.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a path is never empty")]
    pub fn len(&self) -> usize {
        self.components.len()
    }

    /// The path without its outermost component; `None` if there is only one.
    #[must_use]
    pub fn rest(&self) -> Option<Self> {
        let rest = &self.components[1..];
        (!rest.is_empty()).then(|| Self {
            components: rest.to_vec(),
        })
    }

    /// The path without its innermost component; `None` if there is only one.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        let rest = &self.components[..self.components.len() - 1];
        (!rest.is_empty()).then(|| Self {
            components: rest.to_vec(),
        })
    }

    /// This path with one more component.
    #[must_use]
    pub fn child(&self, component: &str) -> Self {
        let mut components = self.components.clone();
        components.push(component.into());
        Self { components }
    }

    /// Whether `self` is `other` or leads to it.
    #[must_use]
    pub fn is_prefix_of(&self, other: &Self) -> bool {
        other.components.starts_with(&self.components)
    }

    /// Whether one path leads to the other, so that changing one changes the other.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        self.is_prefix_of(other) || other.is_prefix_of(self)
    }
}

/// The position in an array that `component` names: decimal digits without a leading zero.
///
/// ```
/// use millrace_value::array_index;
/// assert_eq!(array_index("10"), Some(10));
/// assert_eq!(array_index("010"), None);
/// assert_eq!(array_index("-1"), None);
/// ```
#[must_use]
pub fn array_index(component: &str) -> Option<usize> {
    let digits = component.as_bytes();
    let canonical = match digits {
        [] => false,
        [b'0'] => true,
        [b'0', ..] => false,
        _ => digits.iter().all(u8::is_ascii_digit),
    };
    if canonical {
        component.parse().ok()
    } else {
        None
    }
}

impl fmt::Display for Path {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, component) in self.components.iter().enumerate() {
            if index > 0 {
                formatter.write_str(".")?;
            }
            formatter.write_str(component)?;
        }
        Ok(())
    }
}

impl From<&str> for Path {
    fn from(text: &str) -> Self {
        Self::parse(text)
    }
}

impl FromStr for Path {
    type Err = std::convert::Infallible;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Ok(Self::parse(text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn splits_and_joins() {
        let path = Path::parse("a.0.b");
        assert_eq!(path.len(), 3);
        assert_eq!(path.first(), "a");
        assert_eq!(path.last(), "b");
        assert_eq!(path.to_string(), "a.0.b");
        assert_eq!(path.rest(), Some(Path::parse("0.b")));
        assert_eq!(path.parent(), Some(Path::parse("a.0")));
        assert_eq!(path.child("c").to_string(), "a.0.b.c");
        assert_eq!(Path::parse("a").rest(), None);
        assert_eq!(Path::parse("a").parent(), None);
        assert_eq!(Path::parse("a..b").components().len(), 3);
    }

    #[test]
    fn prefixes_are_by_component() {
        let (a, ab, abc) = (Path::parse("a"), Path::parse("ab"), Path::parse("a.b"));
        assert!(a.is_prefix_of(&abc) && a.overlaps(&abc) && abc.overlaps(&a));
        assert!(!a.is_prefix_of(&ab) && !a.overlaps(&ab));
        assert!(a.is_prefix_of(&a));
        assert!(!abc.is_prefix_of(&a));
    }

    #[test]
    fn array_positions_have_no_leading_zero() {
        assert_eq!(array_index("0"), Some(0));
        assert_eq!(array_index("00"), None);
        assert_eq!(array_index(""), None);
        assert_eq!(array_index("1a"), None);
        assert_eq!(array_index("+1"), None);
        assert_eq!(array_index("99999999999999999999999"), None);
    }
}
