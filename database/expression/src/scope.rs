//! The names of variables that an expression may use, and the collation that it compares by.

use std::sync::Arc;

use millrace_value::{Collation, Error, ErrorCode, Result};

/// Variables that exist without being bound.
const BUILT_IN: [&str; 6] = [
    "ROOT",
    "CURRENT",
    "NOW",
    "REMOVE",
    "CLUSTER_TIME",
    "USER_ROLES",
];

/// Which variables are bound where an expression stands, and the collation that it compares strings by. A
/// new one knows the built-in variables: `ROOT`, `CURRENT`, `NOW`, `REMOVE`, `CLUSTER_TIME` and
/// `USER_ROLES`. A stage that brings more (`$redact`'s `KEEP`, `PRUNE` and `DESCEND`) adds them by
/// [`with`](Self::with) and binds them in [`Variables`](super::Variables). Cloning is cheap.
#[derive(Clone, Debug)]
pub struct Scope {
    collation: Collation,
    innermost: Option<Arc<Bound>>,
}

#[derive(Debug)]
struct Bound {
    name: Box<str>,
    outer: Option<Arc<Bound>>,
}

impl Scope {
    /// The scope of the built-in variables, where strings are compared by `collation`.
    #[must_use]
    pub const fn new(collation: Collation) -> Self {
        Self {
            collation,
            innermost: None,
        }
    }

    /// The collation that strings are compared by.
    #[must_use]
    pub const fn collation(&self) -> Collation {
        self.collation
    }

    /// The same variables, where strings are compared by `collation`.
    #[must_use]
    pub fn compared_by(&self, collation: Collation) -> Self {
        Self {
            collation,
            ..self.clone()
        }
    }

    /// This scope with one more variable.
    #[must_use]
    pub fn with(&self, name: &str) -> Self {
        let bound = Bound {
            name: name.into(),
            outer: self.innermost.clone(),
        };
        Self {
            collation: self.collation,
            innermost: Some(Arc::new(bound)),
        }
    }

    /// Whether an expression may use the variable.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.binds(name) || BUILT_IN.contains(&name)
    }

    /// Whether the variable was added by [`with`](Self::with).
    pub(super) fn binds(&self, name: &str) -> bool {
        let mut bound = self.innermost.as_deref();
        while let Some(binding) = bound {
            if &*binding.name == name {
                return true;
            }
            bound = binding.outer.as_deref();
        }
        false
    }

    /// Checks the name of a variable that a client wants to bind (`$let`, `$lookup`'s `let`, ...).
    ///
    /// # Errors
    /// `FailedToParse` unless it is `CURRENT` or begins with a lower case letter or a character beyond
    /// ASCII, and goes on with letters, digits, `_` and characters beyond ASCII.
    pub fn check_new_name(name: &str) -> Result<()> {
        if name == "CURRENT" {
            return Ok(());
        }
        check_name(name, "user variable", |first| first.is_ascii_lowercase())
    }

    /// Checks the name of a variable that is read; that may be a built-in one.
    pub(super) fn check_used_name(name: &str) -> Result<()> {
        check_name(name, "variable", |first| first.is_ascii_alphabetic())
    }
}

fn check_name(name: &str, what: &str, may_begin: fn(char) -> bool) -> Result<()> {
    let fail = |message: String| Err(Error::new(ErrorCode::FailedToParse, message));
    let Some(first) = name.chars().next() else {
        return fail("empty variable names are not allowed".to_owned());
    };
    if first.is_ascii() && !may_begin(first) {
        return fail(format!(
            "'{name}' starts with an invalid character for a {what} name"
        ));
    }
    let valid = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || c == '_';
    match name.chars().find(|&c| !valid(c)) {
        Some(c) => fail(format!(
            "'{name}' contains an invalid character for a variable name: '{c}'"
        )),
        None => Ok(()),
    }
}
