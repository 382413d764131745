//! `$jsonSchema`: MongoDB's dialect of JSON Schema draft 4.
//!
//! It knows `bsonType` beside `type`, and lacks `$ref`, `$schema`, `default`, `definitions`, `format`,
//! `id` and `integer`. A keyword that is about one type accepts values of every other type, as in the
//! draft.

mod accept;
mod canonical;
mod keywords;
mod parse;

use bson::{RawBson, RawBsonRef, RawDocument};
use millrace_expression::regex::Regex;
use millrace_value::{Number, Result, TypeSet};

/// A parsed schema. Each field is one or two keywords; absent keywords accept everything.
#[derive(Clone, Debug, Default)]
pub struct Schema {
    types: Option<TypeSet>,
    /// `enum`, sorted, with the fields of objects sorted too: their order does not count.
    values: Option<Vec<RawBson>>,
    all_of: Vec<Schema>,
    any_of: Vec<Schema>,
    one_of: Vec<Schema>,
    not: Option<Box<Schema>>,
    numbers: Numbers,
    strings: Strings,
    arrays: Arrays,
    objects: Objects,
}

/// What is asked of numbers.
#[derive(Clone, Debug, Default)]
struct Numbers {
    minimum: Option<Bound>,
    maximum: Option<Bound>,
    multiple_of: Option<Number>,
}

#[derive(Clone, Debug)]
struct Bound {
    value: RawBson,
    exclusive: bool,
}

/// What is asked of strings. Lengths count characters.
#[derive(Clone, Debug, Default)]
struct Strings {
    length_min: Option<u64>,
    length_max: Option<u64>,
    pattern: Option<Regex>,
}

/// What is asked of arrays.
#[derive(Clone, Debug, Default)]
struct Arrays {
    items_min: Option<u64>,
    items_max: Option<u64>,
    unique: bool,
    items: Items,
    /// For the items past those that `items` lists.
    additional: Additional,
}

#[derive(Clone, Debug, Default)]
enum Items {
    #[default]
    Any,
    /// One schema for every item.
    Each(Box<Schema>),
    /// A schema for each of the first items.
    Listed(Vec<Schema>),
}

/// What is asked of objects.
#[derive(Clone, Debug, Default)]
struct Objects {
    required: Vec<Box<str>>,
    properties: Vec<(Box<str>, Schema)>,
    pattern_properties: Vec<(Regex, Schema)>,
    /// For fields that neither `properties` nor `patternProperties` names.
    additional: Additional,
    count_min: Option<u64>,
    count_max: Option<u64>,
    dependencies: Vec<(Box<str>, Dependency)>,
}

/// What holds for the rest.
#[derive(Clone, Debug, Default)]
enum Additional {
    #[default]
    Allowed,
    Forbidden,
    Schema(Box<Schema>),
}

/// What the presence of a field demands.
#[derive(Clone, Debug)]
enum Dependency {
    /// These fields are present too.
    Properties(Vec<Box<str>>),
    /// The object conforms to this schema too.
    Schema(Box<Schema>),
}

impl Schema {
    /// Parses a schema.
    ///
    /// # Errors
    /// `FailedToParse` or `TypeMismatch` with MongoDB's message.
    pub fn parse(schema: &RawDocument) -> Result<Self> {
        parse::schema(schema, 0)
    }

    /// Whether `document` conforms.
    ///
    /// # Errors
    /// `InvalidBSON` for bytes that are no document, and those of regular expressions.
    pub fn accepts_document(&self, document: &RawDocument) -> Result<bool> {
        accept::accepts(self, RawBsonRef::Document(document))
    }
}
