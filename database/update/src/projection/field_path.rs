//! Paths of fields that are written.

use millrace_value::{Error, ErrorCode, Result};

/// How many components a path may have.
const COMPONENTS_MAX: usize = 200;

/// Splits a path at its dots and checks the names.
pub(super) fn field_path(path: &str) -> Result<Vec<Box<str>>> {
    if path.is_empty() {
        return Err(Error::location(
            40352,
            "FieldPath cannot be constructed with empty string",
        ));
    }
    if path.ends_with('.') {
        return Err(Error::location(40353, "FieldPath must not end with a '.'."));
    }
    let names = path
        .split('.')
        .map(check_name)
        .collect::<Result<Vec<_>>>()?;
    if names.len() > COMPONENTS_MAX {
        return Err(Error::new(ErrorCode::Overflow, "FieldPath is too long"));
    }
    Ok(names)
}

fn check_name(name: &str) -> Result<Box<str>> {
    if name.is_empty() {
        return Err(Error::location(
            15998,
            "FieldPath field names may not be empty strings.",
        ));
    }
    if name.starts_with('$') && !matches!(name, "$id" | "$ref" | "$db") {
        return Err(Error::location(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
        ));
    }
    if name.contains('\0') {
        return Err(Error::location(
            16411,
            "FieldPath field names may not contain '\\0'.",
        ));
    }
    Ok(name.into())
}
