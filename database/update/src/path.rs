//! The paths of update operators: dotted, perhaps with `$`, `$[]` and `$[name]` in them.

use millrace_value::{Error, ErrorCode, Result};

/// How many components a path may have. A longer one could not lead to anything that may be stored.
const COMPONENTS_MAX: usize = 200;

/// One component of an [`UpdatePath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Component<'p> {
    /// A field or an array position.
    Field(&'p str),
    /// `$`: the array element that the query matched.
    Matched,
    /// `$[name]`: the array elements that the array filter of this name selects; `$[]` has an empty
    /// name and selects all.
    Filtered(&'p str),
}

impl<'p> Component<'p> {
    fn parse(text: &'p str) -> Self {
        if text == "$" {
            return Self::Matched;
        }
        match text
            .strip_prefix("$[")
            .and_then(|rest| rest.strip_suffix(']'))
        {
            Some(name) => Self::Filtered(name),
            None => Self::Field(text),
        }
    }
}

/// A path of an update operator, checked for what can be known without a document.
#[derive(Clone, Debug)]
pub(super) struct UpdatePath<'p> {
    text: &'p str,
    components: Vec<Component<'p>>,
}

impl<'p> UpdatePath<'p> {
    /// Parses a dotted path.
    ///
    /// # Errors
    /// `EmptyFieldName` for an empty path or component, `BadValue` for `$` more than once or in the
    /// first place and for `$[...]` in the first place, `Overflow` for far too many components.
    pub(super) fn parse(text: &'p str) -> Result<Self> {
        if text.is_empty() {
            let message = "An empty update path is not valid.";
            return Err(Error::new(ErrorCode::EmptyFieldName, message));
        }
        let mut components = Vec::new();
        for component in text.split('.') {
            if component.is_empty() {
                return Err(Error::new(
                    ErrorCode::EmptyFieldName,
                    format!(
                        "The update path '{text}' contains an empty field name, which is not \
                         allowed."
                    ),
                ));
            }
            if components.len() == COMPONENTS_MAX {
                return Err(Error::new(
                    ErrorCode::Overflow,
                    format!("An update path may have at most {COMPONENTS_MAX} components"),
                ));
            }
            components.push(Component::parse(component));
        }
        let path = Self { text, components };
        path.check_matched()?;
        Ok(path)
    }

    fn check_matched(&self) -> Result<()> {
        let text = self.text;
        let count = self
            .components
            .iter()
            .filter(|c| **c == Component::Matched)
            .count();
        let bad = |message: String| Err(Error::new(ErrorCode::BadValue, message));
        if count > 1 {
            return bad(format!(
                "Too many positional (i.e. '$') elements found in path '{text}'"
            ));
        }
        match self.components[0] {
            Component::Matched => bad(format!(
                "Cannot have positional (i.e. '$') element in the first position in path '{text}'"
            )),
            Component::Filtered(_) => bad(format!(
                "Cannot have array filter identifier (i.e. '$[<id>]') element in the first \
                 position in path '{text}'"
            )),
            Component::Field(_) => Ok(()),
        }
    }

    /// The path as it was written.
    pub(super) const fn text(&self) -> &'p str {
        self.text
    }

    /// The components, from the outermost inward; at least one, and the first is a field.
    pub(super) fn components(&self) -> &[Component<'p>] {
        &self.components
    }

    /// Whether some component depends on the query or on array filters.
    pub(super) fn is_dynamic(&self) -> bool {
        self.components
            .iter()
            .any(|component| !matches!(component, Component::Field(_)))
    }

    /// The text of the first `count` components.
    pub(super) fn prefix(&self, count: usize) -> &'p str {
        let end = self
            .text
            .match_indices('.')
            .nth(count - 1)
            .map(|(at, _)| at);
        &self.text[..end.unwrap_or(self.text.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_and_prefixes() {
        let path = UpdatePath::parse("a.$[].b.$[x].$.0").unwrap();
        assert_eq!(
            path.components(),
            [
                Component::Field("a"),
                Component::Filtered(""),
                Component::Field("b"),
                Component::Filtered("x"),
                Component::Matched,
                Component::Field("0"),
            ]
        );
        assert!(path.is_dynamic());
        assert_eq!(path.prefix(1), "a");
        assert_eq!(path.prefix(3), "a.$[].b");
        assert_eq!(path.prefix(6), path.text());
        assert!(!UpdatePath::parse("a.b").unwrap().is_dynamic());
    }

    #[test]
    fn bad_paths() {
        let deep = "a.".repeat(300) + "a";
        for (text, code) in [
            ("", ErrorCode::EmptyFieldName),
            (".a", ErrorCode::EmptyFieldName),
            ("a.", ErrorCode::EmptyFieldName),
            ("a..b", ErrorCode::EmptyFieldName),
            ("$", ErrorCode::BadValue),
            ("$.a", ErrorCode::BadValue),
            ("$[]", ErrorCode::BadValue),
            ("$[x].a", ErrorCode::BadValue),
            ("a.$.b.$", ErrorCode::BadValue),
            (deep.as_str(), ErrorCode::Overflow),
        ] {
            assert_eq!(UpdatePath::parse(text).unwrap_err().code(), code, "{text}");
        }
    }
}
