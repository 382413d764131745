//! The keywords of a schema, each at most once.

use bson::{RawBsonRef, RawDocument};
use millrace_value::{Error, ErrorCode, Result};

const KNOWN: [&str; 29] = [
    "additionalItems",
    "additionalProperties",
    "allOf",
    "anyOf",
    "bsonType",
    "dependencies",
    "description",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "items",
    "maxItems",
    "maxLength",
    "maxProperties",
    "maximum",
    "minItems",
    "minLength",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "pattern",
    "patternProperties",
    "properties",
    "required",
    "title",
    "type",
    "uniqueItems",
];

/// Keywords of JSON Schema and of MongoDB's client-side encryption that are refused by name.
const UNSUPPORTED: [&str; 8] = [
    "$ref",
    "$schema",
    "default",
    "definitions",
    "format",
    "id",
    "encrypt",
    "encryptMetadata",
];

/// The keywords of one schema.
pub(super) struct Keywords<'a> {
    found: Vec<(&'a str, RawBsonRef<'a>)>,
}

impl<'a> Keywords<'a> {
    /// Collects the keywords; refuses unknown ones and those that occur twice.
    pub(super) fn collect(schema: &'a RawDocument) -> Result<Self> {
        let mut found = Vec::new();
        for element in schema.iter_elements() {
            let element = element?;
            let name = element.key().as_str();
            if UNSUPPORTED.contains(&name) {
                let message = format!("$jsonSchema keyword '{name}' is not currently supported");
                return Err(failed(message));
            }
            if !KNOWN.contains(&name) {
                return Err(failed(format!("Unknown $jsonSchema keyword: {name}")));
            }
            if found.iter().any(|(known, _)| *known == name) {
                return Err(failed(format!("Duplicate $jsonSchema keyword: {name}")));
            }
            found.push((name, element.value()?));
        }
        Ok(Self { found })
    }

    pub(super) fn get(&self, name: &str) -> Option<RawBsonRef<'a>> {
        self.found
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, value)| *value)
    }
}

pub(super) fn failed(message: impl Into<String>) -> Error {
    Error::new(ErrorCode::FailedToParse, message)
}

/// A complaint about a keyword's value having the wrong type.
pub(super) fn mismatch(keyword: &str, complaint: &str) -> Error {
    Error::new(
        ErrorCode::TypeMismatch,
        format!("$jsonSchema keyword '{keyword}' {complaint}"),
    )
}
