//! The name of a collection.

use std::fmt;

use millrace_value::{Error, ErrorCode, Result};

/// The longest name of a database, in bytes.
const DATABASE_LEN_MAX: usize = 63;
/// The longest namespace, in bytes.
const NAMESPACE_LEN_MAX: usize = 255;

/// A database and a collection in it: `database.collection`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    full: Box<str>,
    database_len: usize,
}

impl Namespace {
    /// The namespace of `collection` in `database`.
    ///
    /// # Errors
    /// `InvalidNamespace` when either name is empty, too long, or has a character that is not allowed.
    pub fn new(database: &str, collection: &str) -> Result<Self> {
        Self::check_database(database)?;
        let invalid = |why: &str| {
            Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{database}.{collection}'{why}"),
            ))
        };
        if collection.is_empty() || collection.contains('\0') {
            return invalid("");
        }
        if collection.starts_with('.') || collection.ends_with('.') {
            return invalid(": collection names cannot start or end with '.'");
        }
        if collection.contains('$') {
            return invalid(": collection names cannot contain '$'");
        }
        if database.len() + 1 + collection.len() > NAMESPACE_LEN_MAX {
            return Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Fully qualified namespace is too long. Max: {NAMESPACE_LEN_MAX}"),
            ));
        }
        Ok(Self {
            full: format!("{database}.{collection}").into(),
            database_len: database.len(),
        })
    }

    /// The namespace under which the cursor of a command that concerns no collection is known:
    /// `database.$cmd.listCollections`.
    ///
    /// # Errors
    /// As [`Namespace::check_database`].
    pub fn of_command(database: &str, command: &str) -> Result<Self> {
        Self::check_database(database)?;
        Ok(Self {
            full: format!("{database}.$cmd.{command}").into(),
            database_len: database.len(),
        })
    }

    /// Splits `database.collection` at its first dot.
    ///
    /// # Errors
    /// As [`Namespace::new`], and when there is no dot.
    pub fn parse(full: &str) -> Result<Self> {
        match full.split_once('.') {
            Some((database, collection)) => Self::new(database, collection),
            None => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{full}'"),
            )),
        }
    }

    /// Checks the name of a database.
    ///
    /// # Errors
    /// `InvalidNamespace`.
    pub fn check_database(database: &str) -> Result<()> {
        let forbidden = |c: char| matches!(c, '/' | '\\' | '.' | ' ' | '"' | '$' | '\0');
        if database.is_empty() || database.len() > DATABASE_LEN_MAX || database.contains(forbidden)
        {
            // `$external` exists for authentication alone; nothing is stored in it.
            return Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid database name: '{database}'"),
            ));
        }
        Ok(())
    }

    /// The name of the database: the part before the first dot.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.full[..self.database_len]
    }

    /// The name of the collection, which may contain dots; `$cmd` for commands.
    #[must_use]
    pub fn collection(&self) -> &str {
        &self.full[self.database_len + 1..]
    }

    /// The namespace as MongoDB writes it: `database.collection`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.full
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_split_at_the_first_dot() {
        let namespace = Namespace::parse("shop.orders.2026").expect("a valid namespace");
        assert_eq!(namespace.database(), "shop");
        assert_eq!(namespace.collection(), "orders.2026");
    }

    #[test]
    fn bad_names_are_refused() {
        for full in ["nodot", ".a", "a.", "a.b$c", "a b.c", "a..b", "a.b."] {
            let code = Namespace::parse(full).map_err(|error| error.code());
            assert_eq!(code, Err(ErrorCode::InvalidNamespace), "{full}");
        }
    }
}
