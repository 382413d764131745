//! The fields of a command document, read with MongoDB's checks.

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawArray, RawDocument};
use millrace_value::{Collation, Error, ErrorCode, Number, Result, type_alias};

/// Fields that every command may carry; the server looks at them before a command runs.
const GENERIC: &[&str] = &[
    "$db",
    "lsid",
    "txnNumber",
    "$clusterTime",
    "$readPreference",
    "$configServerState",
    "$audit",
    "$client",
    "readConcern",
    "writeConcern",
    "maxTimeMS",
    "maxTimeMSOpOnly",
    "comment",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "autocommit",
    "startTransaction",
    "stmtId",
    "stmtIds",
    "coordinator",
    "databaseVersion",
    "shardVersion",
    "mayBypassWriteBlocking",
    "expectPrefix",
    "$traceCtx",
    "clientOperationKey",
    "requestGossipRoutingCache",
    "rawData",
    "serialization_context",
    "help",
    "queryOptions",
    "isImplicitDefaultMajorityReadConcern",
];

/// Whether every command may carry a field of this name.
#[must_use]
pub fn is_generic(name: &str) -> bool {
    GENERIC.contains(&name)
}

/// The fields of one command or of one statement of a batch.
#[derive(Clone, Debug)]
pub(crate) struct Arguments<'a> {
    command: &'a str,
    fields: Vec<(&'a str, RawBsonRef<'a>)>,
}

impl<'a> Arguments<'a> {
    /// Reads a command's fields. `known` are the ones this command has beside its own name and those
    /// that every command has.
    pub(crate) fn of_command(
        command: &'a str,
        body: &'a RawDocument,
        known: &[&str],
    ) -> Result<Self> {
        Self::read(command, body, &|name| {
            known.contains(&name) || name == command || is_generic(name)
        })
    }

    /// Reads the fields of one statement (`update.updates`), of which `known` are allowed.
    pub(crate) fn of_statement(
        path: &'a str,
        body: &'a RawDocument,
        known: &[&str],
    ) -> Result<Self> {
        Self::read(path, body, &|name| known.contains(&name))
    }

    /// Reads the fields up to the first that is not known or there twice, so that there are never more
    /// than are known, however many a client sends.
    fn read(
        command: &'a str,
        body: &'a RawDocument,
        is_known: &dyn Fn(&str) -> bool,
    ) -> Result<Self> {
        let mut fields: Vec<(&str, RawBsonRef<'_>)> = Vec::with_capacity(12);
        for element in body {
            let (name, value) = element?;
            let name = name.as_str();
            if !is_known(name) {
                return Err(Error::new(
                    ErrorCode::IDLUnknownField,
                    format!("BSON field '{command}.{name}' is an unknown field."),
                ));
            }
            if fields.iter().any(|(other, _)| *other == name) {
                return Err(Error::location(
                    40413,
                    format!("BSON field '{command}.{name}' is a duplicate field"),
                ));
            }
            fields.push((name, value));
        }
        Ok(Self { command, fields })
    }

    /// The field's value, if it is there and not null.
    pub(crate) fn get(&self, name: &str) -> Option<RawBsonRef<'a>> {
        self.fields
            .iter()
            .find(|(other, _)| *other == name)
            .map(|(_, value)| *value)
            .filter(|value| !matches!(value, RawBsonRef::Null | RawBsonRef::Undefined))
    }

    /// Whether the field is there, null or not.
    pub(crate) fn contains(&self, name: &str) -> bool {
        self.fields.iter().any(|(other, _)| *other == name)
    }

    fn wrong_type(&self, name: &str, value: RawBsonRef<'_>, expected: &str) -> Error {
        let actual = Bson::try_from(value).map_or("invalid", |value| type_alias(&value));
        let expected = if expected.contains(',') {
            format!("expected types '[{expected}]'")
        } else {
            format!("expected type '{expected}'")
        };
        Error::new(
            ErrorCode::TypeMismatch,
            format!(
                "BSON field '{}.{name}' is the wrong type '{actual}', {expected}",
                self.command
            ),
        )
    }

    /// The error for a required field that is not there.
    pub(crate) fn missing(&self, name: &str) -> Error {
        Error::new(
            ErrorCode::IDLFailedToParse,
            format!(
                "BSON field '{}.{name}' is missing but a required field",
                self.command
            ),
        )
    }

    pub(crate) fn document(&self, name: &str) -> Result<Option<&'a RawDocument>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawBsonRef::Document(document)) => Ok(Some(document)),
            Some(other) => Err(self.wrong_type(name, other, "object")),
        }
    }

    /// A document as a tree; empty counts as absent.
    pub(crate) fn tree(&self, name: &str) -> Result<Option<Document>> {
        match self.document(name)? {
            Some(document) if document.as_bytes().len() > 5 => Ok(Some(document.try_into()?)),
            _ => Ok(None),
        }
    }

    pub(crate) fn array(&self, name: &str) -> Result<Option<&'a RawArray>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawBsonRef::Array(array)) => Ok(Some(array)),
            Some(other) => Err(self.wrong_type(name, other, "array")),
        }
    }

    /// An array of documents as trees.
    pub(crate) fn trees(&self, name: &str) -> Result<Option<Vec<Document>>> {
        let Some(array) = self.array(name)? else {
            return Ok(None);
        };
        let mut trees = Vec::new();
        for (position, value) in array.into_iter().enumerate() {
            match value? {
                RawBsonRef::Document(document) => trees.push(document.try_into()?),
                other => {
                    return Err(self.wrong_type(&format!("{name}.{position}"), other, "object"));
                }
            }
        }
        Ok(Some(trees))
    }

    pub(crate) fn string(&self, name: &str) -> Result<Option<&'a str>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawBsonRef::String(value)) => Ok(Some(value)),
            Some(other) => Err(self.wrong_type(name, other, "string")),
        }
    }

    /// A bool; numbers count as well, as MongoDB's `safeBool` fields do.
    pub(crate) fn boolean(&self, name: &str) -> Result<Option<bool>> {
        match self.get(name) {
            None => Ok(None),
            Some(RawBsonRef::Boolean(value)) => Ok(Some(value)),
            Some(other) => match Number::from_raw(other) {
                Some(number) => Ok(Some(number.as_f64() != 0.0)),
                None => Err(self.wrong_type(name, other, "bool, long, int, decimal, double")),
            },
        }
    }

    /// Whether the flag is set.
    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        Ok(self.boolean(name)?.unwrap_or(false))
    }

    /// A whole number of any numeric type; fractions are cut off.
    pub(crate) fn integer(&self, name: &str) -> Result<Option<i64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        match value {
            RawBsonRef::Int32(value) => Ok(Some(i64::from(value))),
            RawBsonRef::Int64(value) => Ok(Some(value)),
            other => {
                let number = Number::from_raw(other)
                    .ok_or_else(|| self.wrong_type(name, other, "long, int, decimal, double"))?;
                number.as_i64_exact().map_or_else(
                    || {
                        #[expect(
                            clippy::cast_possible_truncation,
                            reason = "saturates at the ends"
                        )]
                        let truncated = number.as_f64().trunc() as i64;
                        Ok(Some(truncated))
                    },
                    |value| Ok(Some(value)),
                )
            }
        }
    }

    /// A number that must not be negative.
    pub(crate) fn count(&self, name: &str) -> Result<Option<u64>> {
        let Some(value) = self.integer(name)? else {
            return Ok(None);
        };
        u64::try_from(value).map(Some).map_err(|_| {
            Error::location(
                51024,
                format!(
                    "BSON field '{}.{name}' value must be >= 0, actual value '{value}'",
                    // MongoDB names the field alone.
                    self.command
                )
                .replace(&format!("'{}.", self.command), "'"),
            )
        })
    }

    /// The collection named by the command's first field.
    pub(crate) fn collection(&self) -> Result<&'a str> {
        match self.fields.first() {
            Some((_, RawBsonRef::String(name))) if !name.is_empty() => Ok(name),
            Some((_, RawBsonRef::String(_))) => Err(Error::new(
                ErrorCode::InvalidNamespace,
                "Invalid namespace specified: the collection name is empty",
            )),
            Some((name, value)) => Err(Error::new(
                ErrorCode::InvalidNamespace,
                format!(
                    "collection name has invalid type {}",
                    Bson::try_from(*value).map_or(*name, |value| type_alias(&value))
                ),
            )),
            None => Err(Error::new(ErrorCode::FailedToParse, "the command is empty")),
        }
    }

    /// The collation that the command compares strings by; without one that of the collection, whose default
    /// is always the simple one.
    ///
    /// # Errors
    /// `BadValue` for any but the simple one.
    pub(crate) fn collation(&self) -> Result<Collation> {
        let Some(collation) = self.document("collation")? else {
            return Ok(Collation::SIMPLE);
        };
        let supported = match collation.get("locale")? {
            Some(RawBsonRef::String(locale)) => Collation::of_locale(locale),
            None if collation.as_bytes().len() <= 5 => Some(Collation::SIMPLE),
            None => return Err(self.missing("collation.locale")),
            Some(_) => None,
        };
        supported.ok_or_else(|| {
            Error::new(
                ErrorCode::BadValue,
                "only the simple collation is supported: strings are compared as bytes",
            )
        })
    }

    /// The `batchSize` of a command's `cursor` argument.
    ///
    /// # Errors
    /// When the argument is no document, has another field, or the size is no number or negative.
    pub(crate) fn cursor_batch_size(&self) -> Result<Option<u64>> {
        let Some(cursor) = self.document("cursor")? else {
            return Ok(None);
        };
        Self::of_statement("cursor", cursor, &["batchSize"])?.count("batchSize")
    }
}
