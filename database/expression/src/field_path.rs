//! `$a.b` and `$$variable.a.b`.

use std::borrow::Cow;
use std::fmt;

use bson::{Bson, Document};
use millrace_value::{Error, ErrorCode, Result};

use super::frame::Frame;
use super::{Dependencies, Scope, Value};

/// How many components a path may have.
const PATH_LENGTH_MAX: usize = 200;

/// The components of a path, at least one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldPath(Box<[Box<str>]>);

/// A variable, and the path to follow from its value, which may be empty.
#[derive(Clone, Debug)]
pub(super) struct VariablePath {
    variable: Variable,
    path: Box<[Box<str>]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Variable {
    Root,
    Now,
    /// Always missing: a field with this value goes away.
    Remove,
    UserRoles,
    Named(Box<str>),
}

impl FieldPath {
    /// Parses a path without its `$`.
    pub(super) fn parse(path: &str) -> Result<Self> {
        if path.ends_with('.') {
            return Err(Error::location(40353, "FieldPath must not end with a '.'."));
        }
        let components: Box<[Box<str>]> = path.split('.').map(Box::from).collect();
        if components.len() > PATH_LENGTH_MAX {
            return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
        }
        for component in &components {
            check_field_name(component)?;
        }
        Ok(Self(components))
    }

    pub(super) fn evaluate<'a>(&self, root: &'a Document) -> Value<'a> {
        follow(root, &self.0)
    }
}

/// Checks one component of a path.
fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(Error::location(
            15998,
            "FieldPath field names may not be empty strings.",
        ));
    }
    if name.starts_with('$') {
        return Err(Error::location(
            16410,
            format!(
                "FieldPath field names may not start with '$'. Consider using $getField or $setField. \
                 Field name: '{name}'"
            ),
        ));
    }
    if name.contains('\0') {
        return Err(Error::location(
            16411,
            "FieldPath field names may not contain '\\0'.",
        ));
    }
    Ok(())
}

/// Checks the name of a field in an object that an expression constructs.
pub(super) fn check_constructed_name(name: &str) -> Result<()> {
    if name.contains('.') {
        return Err(Error::location(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField.",
        ));
    }
    check_field_name(name)
}

impl fmt::Display for FieldPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("."))
    }
}

impl VariablePath {
    /// Parses a variable without its `$$`.
    pub(super) fn parse(path: &str, scope: &Scope) -> Result<Self> {
        let (name, rest) = match path.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (path, None),
        };
        Scope::check_used_name(name)?;
        let path = rest
            .map(FieldPath::parse)
            .transpose()?
            .map_or_else(Box::default, |path| path.0);
        let variable = match name {
            name if scope.binds(name) => Variable::Named(name.into()),
            "ROOT" | "CURRENT" => Variable::Root,
            "NOW" => Variable::Now,
            "REMOVE" => Variable::Remove,
            "USER_ROLES" => Variable::UserRoles,
            "CLUSTER_TIME" => {
                return Err(Error::location(
                    51144,
                    "Builtin variable '$$CLUSTER_TIME' is not available",
                ));
            }
            name => {
                return Err(Error::location(
                    17276,
                    format!("Use of undefined variable: {name}"),
                ));
            }
        };
        Ok(Self { variable, path })
    }

    /// The path from the root document, if the variable is the root and there is one.
    pub(super) fn as_root_path(&self) -> Option<FieldPath> {
        (self.variable == Variable::Root && !self.path.is_empty())
            .then(|| FieldPath(self.path.clone()))
    }

    pub(super) fn evaluate<'a>(&self, frame: Frame<'a>) -> Result<Value<'a>> {
        let value = match &self.variable {
            // A path from the root is parsed to a plain path; this is the whole document.
            Variable::Root => {
                return Ok(Some(Cow::Owned(Bson::Document(frame.root().clone()))));
            }
            Variable::Now => Some(frame.variables().now()),
            Variable::Remove => None,
            Variable::UserRoles => Some(frame.variables().user_roles()),
            Variable::Named(name) => frame.lookup(name).ok_or_else(|| {
                Error::new(
                    ErrorCode::InternalError,
                    format!("the variable {name} is in scope but has no value"),
                )
            })?,
        };
        let Some(value) = value else {
            return Ok(None);
        };
        if self.path.is_empty() {
            return Ok(Some(Cow::Borrowed(value)));
        }
        Ok(follow_value(value, &self.path))
    }

    pub(super) fn collect(&self, into: &mut Dependencies) {
        let name = match &self.variable {
            Variable::Root => {
                into.whole_document = true;
                return;
            }
            Variable::Now => "NOW",
            Variable::Remove => "REMOVE",
            Variable::UserRoles => "USER_ROLES",
            Variable::Named(name) => name,
        };
        into.variables.insert(name.to_owned());
    }
}

/// Follows `path` from a document. Arrays on the way are walked: the result is then an array of what
/// their objects have at the rest of the path. Numbers are names of fields, never positions.
fn follow<'a>(document: &'a Document, path: &[Box<str>]) -> Value<'a> {
    let (first, rest) = path.split_first()?;
    let value = document.get(first)?;
    if rest.is_empty() {
        return Some(Cow::Borrowed(value));
    }
    follow_value(value, rest)
}

fn follow_value<'a>(value: &'a Bson, path: &[Box<str>]) -> Value<'a> {
    match value {
        Bson::Document(document) => follow(document, path),
        Bson::Array(items) => {
            let found = items.iter().filter_map(|item| match item {
                Bson::Document(document) => follow(document, path).map(Cow::into_owned),
                _ => None,
            });
            Some(Cow::Owned(Bson::Array(found.collect())))
        }
        _ => None,
    }
}
